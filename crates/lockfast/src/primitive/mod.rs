//! The locks that callers use: thin, because the lease engine does the work. Each of them is an
//! [`AnyLock`] that says what it is.
//!
//! | primitive | asks for | promises |
//! |---|---|---|
//! | [`Mutex`] | exclusive | one holder at a time |
//! | [`RwLock`] | shared or exclusive | many readers or one writer, who can become a reader; writers are not starved |
//! | [`Semaphore`] | one of N permits | at most N holders |
//! | [`MultiLock`] | several locks | all of them or none, without deadlock |
//! | [`Leader`] | exclusive, again after each loss | one leader at a time, who is told of its election and of its end |
//! | [`Once`] | exclusive, without waiting or renewal | one run for all, held between `at_least` and `at_most` |
//! | [`SharedValue`] | a value with a version | no update is lost |
//! | [`Latch`] | a value | those who wait go on when enough have counted down |
//! | [`Barrier`] | a value and a shared lock for each round | all go on when enough have come |
//! | [`Refresh`] | a value and a lock | one computes, the others read |

mod any_lock;
mod attempt;
mod barrier;
pub(crate) mod events;
mod latch;
mod leader;
mod multi_lock;
mod mutex;
mod observer;
mod once;
mod record;
mod refresh;
mod rwlock;
mod semaphore;
mod shared_value;

pub use any_lock::{AnyLock, DetachedLease};
pub use attempt::Attempt;
pub use barrier::Barrier;
pub use latch::Latch;
pub use leader::{Campaign, Leader, LeaderEvent};
pub use multi_lock::{MultiGuard, MultiLock};
pub use mutex::Mutex;
pub use observer::{LeaderView, Leadership, Observer};
pub use once::{Once, OnceGuard, Ran};
pub use refresh::{Ensured, Refresh, RefreshAttempt, RefreshGuard};
pub use rwlock::RwLock;
pub use semaphore::Semaphore;
pub use shared_value::{SharedValue, Update};
