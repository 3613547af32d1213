//! Requests that arrive when nobody waits for them any more.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::time::Duration;

use lockfast::Options;
use lockfast_conformance::shorthand::{bounded, connect, hold};
use lockfast_faults::etcd::Etcd;
use lockfast_faults::proxy::{Link, Proxy};

/// P5: a request to make a claim that is kept back on a connection which was given up has no effect
/// when it arrives after the release, and the other locks of the process outlive that.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_arrives_after_its_release_is_refused() {
    let server = Etcd::start();
    let proxy = Proxy::start(server.address()).await.unwrap();
    let url = format!("etcd://{}?request_timeout=500ms", proxy.address());
    let locker = connect(&url, lockfast_backend_etcd::connect).await;
    let options = || Options::default().ttl(Duration::from_secs(20)).wait(Duration::from_secs(15));
    let other = hold(&locker, "other", options()).await;
    // Both locks are made under the lease of their ttl.
    let key = server.keys("other/").remove(0);
    let lease = key.trim_start_matches("other/").split('-').next().unwrap().to_owned();
    proxy.set_open(Link::HoldRequests);
    let guard = hold(&locker, "late", options()).await;
    bounded(guard.release()).await.unwrap();
    assert_eq!(server.keys("late/"), Vec::<String>::new());
    // The server drops most of what it reads together with the end of its connection, so the same
    // is also written by hand.
    let (was_made, said) = server.try_ctl(&["put", "late/x", "", &format!("--lease={lease}")]);
    assert!(!was_made && said.contains("lease not found"), "{said}");
    proxy.set(Link::Pass);
    // Long enough for what was kept back to arrive.
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(server.keys("late/"), Vec::<String>::new(), "it was made after its release");
    assert!(other.check().is_ok());
    assert_eq!(server.keys("other/").len(), 1);
    let fence = other.fence();
    let view = locker.inspect(other.name()).await.unwrap();
    assert_eq!(view.holders[0].fence, Some(fence), "it keeps its fence");
}
