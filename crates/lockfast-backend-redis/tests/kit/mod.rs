//! What the tests of this store share: programs that take locks without Lockfast, the rights that
//! the README names, and a connection beside the store's own. The servers, and the short ways to
//! hold, lose and be refused a lock, are those of the conformance crate.
#![allow(dead_code, unused_imports, reason = "each test binary uses a part of it")]
#![allow(unreachable_pub, reason = "what is shared is public, whoever uses it")]

pub mod direct;
pub mod foreign;
pub mod rights;

use lockfast::{Locker, Result};
use lockfast_conformance::shorthand;

pub use lockfast_conformance::shorthand::{
    TIME_MAX, bounded, check_error, failure, hold, hold_detached, lose_the_right_on_one, loss,
    queue_for, refusal, ttl, wait_for_jeopardy, wait_for_renewal,
};
pub use lockfast_faults::redis::{Redis, Setup, topology};
pub use lockfast_faults::signpost::Signpost;
pub use lockfast_faults::url::encode;
pub use lockfast_faults::wait::{eventually, wait_until};
pub use lockfast_faults::{certificate, port};

/// Connects to a store on Redis.
pub async fn connect(url: &str) -> Locker {
    shorthand::connect(url, lockfast_backend_redis::connect).await
}

/// Connects to a store on Redis, which may fail.
pub async fn try_connect(url: &str) -> Result<Locker> {
    shorthand::try_connect(url, lockfast_backend_redis::connect).await
}
