//! One program for every store: which one it is, its URL says. A store on a server needs the feature of
//! its name; without it, the error says which.
//!
//! ```text
//! cargo run --example any_store                                             # this process
//! cargo run --example any_store -- embedded:                                # this machine
//! cargo run --example any_store --features redis -- redis://localhost
//! cargo run --example any_store --features redlock -- redlock://a:6379,b:6379,c:6379
//! cargo run --example any_store --features postgres -- postgres://user@localhost/app
//! cargo run --example any_store --features mysql -- mysql://user@localhost/app
//! cargo run --example any_store --features etcd -- etcd://localhost:2379
//! cargo run --example any_store --features zookeeper -- zookeeper://localhost:2181
//! ```
//!
//! `postgres:` and `mysql:` need a schema, which `lockfast::migrate` makes once.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use lockfast::{Locker, Result};

/// Takes a lock in the store at `url`, and says what that is good for there.
pub(crate) async fn take_one(url: &str) -> Result<String> {
    let locker = Locker::connect(url).await?;
    let guard = locker.lock("nightly-report").await?;
    let profile = locker.profile();
    let said = format!(
        "{}: fence {}, good for {}: {}",
        profile.backend,
        guard.fence(),
        profile.guarantee,
        profile.because
    );
    guard.release().await?;
    locker.shutdown().await;
    Ok(said)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    println!("{}", take_one(&url).await?);
    Ok(())
}
