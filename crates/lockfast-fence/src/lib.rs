//! The side that checks fences.
//!
//! A holder can be paused between its last check and its write, for longer than its lease. No lock
//! can stop that write; what is written to can. A **gate** stands before it: it remembers the
//! highest fence that it has seen for a lock, lets an equal or higher one pass, and refuses a lower
//! one. It does so in one step with the write, or in the transaction of the write.
//!
//! | what is written to | gate |
//! |---|---|
//! | something in this process | [`Gate`] |
//! | something on this machine | [`FileGate`] |
//! | PostgreSQL, MySQL, MariaDB, SQLite | [`sql::TableGate`], or [`sql::ColumnGate`] beside the data |
//! | keys of Redis | [`redis::RedisGate`] |
//! | keys of etcd | [`etcd::EtcdGate`] |
//! | an HTTP service | `http::FenceLayer`, with the feature `tower` |
//!
//! Gates own no connection. They hand out the statement, script or transaction with its parameters,
//! for whichever client you have, and read its answer.
//!
//! ```
//! use lockfast_core::{Fence, FencingToken, LockName};
//! use lockfast_fence::Gate;
//!
//! # fn main() -> lockfast_core::Result<()> {
//! let gate = Gate::new("account/7", 100)?;
//! let token = |fence| -> lockfast_core::Result<FencingToken> {
//!     Ok(FencingToken { lock: LockName::new("account/7")?, fence: Fence::new(fence)? })
//! };
//! *gate.check(&token(42)?)? += 10;
//! let refused = gate.check(&token(41)?).unwrap_err(); // a holder from before
//! assert_eq!(refused.fence_seen(), Some(Fence::new(42)?)); // the next acquisition's floor
//! assert_eq!(*gate.check(&token(42)?)?, 110);
//! # Ok(())
//! # }
//! ```
//!
//! # Open, read, write
//! Whoever reads before it writes raises the fence first, by `open`; otherwise a late write of an
//! earlier holder can land between its read and its write. `open` and `check` follow the same rule;
//! two names tell the steps apart. In one transaction that begins with the check, reads and writes,
//! the check is the open step.
//!
//! # Which locks
//! A gate belongs to one lock and refuses the fence of another. The name is the whole one, with the
//! prefix of the locker. Fences order the holders of an exclusive lock; shared holders and permits
//! that are held at the same time have different fences, so that a gate would refuse all but the
//! last of them.

mod base64;
pub mod etcd;
mod file;
mod gate;
#[cfg(feature = "tower")]
pub mod http;
pub mod redis;
mod rule;
pub mod sql;

pub use file::{FileGate, Passage};
pub use gate::{Admitted, Gate};

/// The examples in the guide are held to the API.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/fencing.md")]
struct Guide;
