//! A replica that had not received everything takes the place of its server.

use std::time::Duration;

use lockfast::LossCause;
use lockfast_faults::server::Server as _;

use crate::kit::replica::{WORDS, follow, start};
use crate::kit::{connect, eventually, hold, hold_detached, loss, prepare, refusal, ttl, url_at};

const TTL: Duration = Duration::from_secs(6);
const LONG: Duration = Duration::from_secs(600);

/// P1 holds for what the replica had received: it is refused to others and can be released. What
/// it had not received is forgotten, so that the lock is granted to another while its holder still
/// believes to have it, as the README says; P4 holds all the same: the new fence is higher, and P3:
/// the first is told by its deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_promoted() {
    let mut main = start(1);
    let url = prepare(&main).await;
    let replica = follow(&main).await;
    let first = connect(&url).await;
    let received = hold_detached(&first, "received", LONG).await;
    let row = "SELECT fence FROM lockfast_locks WHERE name = 'received' AND holder IS NOT NULL";
    eventually("it is received", LONG, async || {
        replica.sql(row).trim() == received.fence.get().to_string()
    })
    .await;
    replica.sql(WORDS.stop);
    let lost = hold(&first, "lost", ttl(TTL)).await;
    main.kill();
    replica.sql(WORDS.forget);
    replica.sql("SET GLOBAL read_only = 0");
    let second = connect(&url_at(replica.address())).await;
    let seen = refusal(&second, "received").await;
    assert_eq!(seen.lock.holders[0].fence, Some(received.fence));
    let next = hold(&second, "lost", ttl(TTL)).await;
    assert!(next.fence().get() > lost.fence().get());
    assert!(matches!(loss(&lost, TTL * 2).await, LossCause::Expired { .. }));
    second.release_detached(&received.name, received.holder).await.unwrap();
    let after = hold(&second, "received", ttl(TTL)).await;
    assert!(after.fence().get() > received.fence.get());
}
