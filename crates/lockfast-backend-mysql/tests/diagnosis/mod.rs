//! Everything that is found out, about MariaDB and about MySQL alike.

mod follower;
mod look;
mod rights;
mod server;
