//! Everything that fails, on MariaDB and on MySQL alike.
//!
//! | file | what fails |
//! |---|---|
//! | `link.rs` | cut, half-open and stalled links, lost replies, late requests |
//! | `server.rs` | KILL, crashes, no more connections, lost data |
//! | `contention.rs` | KILL QUERY, rows that others have, deadlocks |
//! | `replica.rs` | a replica that lags behind is promoted |
//! | `refusal.rs` | the server answers, but says no; the schema is not there, or not ours |
//! | `clock.rs` | the server's wall clock steps |
//! | `encryption.rs` | certificates |
//! | `foreign.rs` | other programs call the procedures, in sessions of any kind |
//! | `hang.rs` | clients that hang, and holders and waiters that die |
//! | `crowd.rs` | thousands wait for one lock |
//! | `rights.rs` | somebody with few rights tries to do more |
//! | `schema.rs` | a schema of another version, rows that cannot be |
//! | `values.rs` | lost replies and late requests to write, other programs that do, rows that cannot be |
//! | `waking.rs` | waiters that cannot be woken |

mod clock;
mod contention;
mod crowd;
mod encryption;
mod foreign;
mod hang;
mod link;
mod refusal;
mod replica;
mod rights;
mod schema;
mod server;
mod values;
mod waking;
