//! The server's wall clock steps.

use std::time::Duration;

use lockfast::{Options, Released};
use lockfast_faults::server::Server as _;

use crate::kit::{Setup, connect, hold, loss, prepare, refusal, ttl, url, wait_for_renewal};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(30);

/// P4: after a step back fences still rise, also for a lock whose row was removed meanwhile.
/// The user sees: nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_back() {
    let postgres = prepare(Setup::new().clock());
    let locker = connect(&url(&postgres)).await;
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    let first = guard.fence().get();
    postgres.clock().step_back(Duration::from_secs(600));
    refusal(&locker, NAME).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    let second = guard.fence().get();
    assert!(second > first);
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    postgres.clock().step_forward(Duration::from_secs(60));
    let sweep = "SELECT lockfast.sweep('\\x000000000000', 1000000)";
    assert_eq!(postgres.sql(sweep), "1");
    assert_eq!(postgres.sql("SELECT count(*) FROM lockfast.locks"), "0");
    postgres.clock().step_back(Duration::from_secs(3600));
    let third = hold(&locker, NAME, ttl(TTL)).await.fence().get();
    assert!(third > second, "{third} after {second}");
}

/// P1, P12: a step forward by more than the ttl ends leases early; who holds one learns it when it
/// renews, and the fence of the next is higher.
/// The user sees: the loss of the lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_forward() {
    let postgres = prepare(Setup::new().clock());
    let (one, two) = (connect(&url(&postgres)).await, connect(&url(&postgres)).await);
    let short = Duration::from_secs(6);
    let guard = hold(&one, NAME, ttl(short)).await;
    postgres.clock().step_forward(Duration::from_secs(31));
    let next = hold(&two, NAME, Options::default().ttl(TTL)).await;
    assert!(next.fence().get() > guard.fence().get());
    loss(&guard, short).await;
    let kept = hold(&one, "other", ttl(short)).await;
    postgres.clock().step_forward(Duration::from_secs(2));
    wait_for_renewal(&kept, short).await;
}
