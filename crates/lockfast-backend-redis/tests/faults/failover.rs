//! Sentinels make a replica the master, and Lockfast follows.

use std::time::Duration;

use lockfast::{ErrorKind, Released};
use lockfast_faults::server::Server as _;

use crate::kit::topology::{wait_for_sync, watch_over};
use crate::kit::{
    Redis, Setup, check_error, connect, eventually, hold, refusal, try_connect, ttl,
    wait_for_renewal,
};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(12);

/// How long a failover may take: noticing, electing, promoting, and our own way there.
const FAILOVER_MAX: Duration = Duration::from_secs(11);

fn url(sentinel: &Redis) -> String {
    format!("redis+sentinel://{}/main", sentinel.address())
}

/// P1, P4: what was replicated before the master died is there on the new one: the lease goes on
/// with its fence, and everybody else stays out.
/// The user sees: `Jeopardy` for a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_outlives_a_failover() {
    let mut master = Redis::start();
    let replica = Setup::new().replica_of(&master).start();
    wait_for_sync(&master, &replica);
    let sentinel = watch_over(&master, &replica);
    let (first, second) = (connect(&url(&sentinel)).await, connect(&url(&sentinel)).await);
    let guard = hold(&first, NAME, ttl(TTL)).await;
    assert_eq!(master.cli(&["EXISTS", NAME]), "1");
    wait_for_sync(&master, &replica);
    master.kill();
    wait_for_renewal(&guard, FAILOVER_MAX).await;
    assert_eq!(replica.info("role"), "master");
    let fence = guard.fence();
    eventually("the other is there too", FAILOVER_MAX, async || {
        second.inspect(guard.name()).await.is_ok()
    })
    .await;
    refusal(&second, NAME).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    let next = hold(&second, NAME, ttl(TTL)).await;
    assert!(next.fence().get() > fence.get());
}

/// Sentinels that do not know the name.
/// The user sees: an error with the name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_is_not_there() {
    let master = Redis::start();
    let replica = Setup::new().replica_of(&master).start();
    wait_for_sync(&master, &replica);
    let sentinel = watch_over(&master, &replica);
    let error = try_connect(&format!("redis+sentinel://{}/other", sentinel.address())).await;
    check_error(&error.unwrap_err(), ErrorKind::InvalidConfig, &["other"]);
}
