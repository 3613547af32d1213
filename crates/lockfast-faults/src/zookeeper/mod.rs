//! Real ZooKeeper servers, alone and as an ensemble of three.
//!
//! ```no_run
//! use lockfast_faults::zookeeper::ZooKeeper;
//!
//! let server = ZooKeeper::start();
//! server.session().create("/locks", b"");
//! let url = server.url();
//! ```

mod ensemble;
pub mod java;
mod log;
mod server;
mod session;

pub use ensemble::{Ensemble, MEMBERS};
pub use server::{Setup, ZooKeeper};
pub use session::{Access, Kind, Session, Stat, codes};
