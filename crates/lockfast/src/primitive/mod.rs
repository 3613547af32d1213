//! The locks that callers use: thin, because the lease engine does the work.
//!
//! | primitive | asks for | promises |
//! |---|---|---|
//! | [`Mutex`] | exclusive | one holder at a time |
//! | [`RwLock`] | shared or exclusive | many readers or one writer; writers are not starved |
//! | [`Semaphore`] | one of N permits | at most N holders |
//! | [`MultiLock`] | several locks | all of them or none, without deadlock |

mod lock;
mod multi_lock;
mod mutex;
mod rwlock;
mod semaphore;

pub use lock::{Attempt, DetachedLease, Lock};
pub use multi_lock::{MultiGuard, MultiLock};
pub use mutex::Mutex;
pub use rwlock::RwLock;
pub use semaphore::Semaphore;
