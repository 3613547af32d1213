//! Somebody else ends what a lock is made of: its lease is revoked, its key deleted or written over.

use std::sync::Arc;
use std::time::Duration;

use lockfast::{LossCause, Moment, Released};
use lockfast_faults::lateness::Lateness;
use tokio::task::JoinSet;

use crate::kit::{
    Etcd, Home, TIME_MAX, bounded, connect, eventually, hold, loss, queue_for, refusal,
    start_cluster, ttl,
};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(60);
/// Long before the next renewal would have found out.
const TOLD_MAX: Duration = Duration::from_secs(5);

/// P3, P10: whoever revokes all leases of a holder ends its lock; it is told at once, not at its next
/// renewal, and the next is let in.
/// The user sees: the loss `SessionEnded` or `Forgotten`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lease_is_revoked() {
    the_lease_is_revoked_at(Home::alone()).await;
}

async fn the_lease_is_revoked_at(server: Home) {
    let (first, second) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = hold(&first, NAME, ttl(TTL)).await;
    let waiter = queue_for(&second, NAME, ttl(TTL).wait(TIME_MAX)).await;
    let lease = lease_of(&server, guard.fence().get());
    let machine = Lateness::watch();
    let revoked = Moment::now();
    server.ctl(&["lease", "revoke", &lease]);
    let cause = loss(&guard, TIME_MAX).await;
    machine.check("to tell the loss", TOLD_MAX, revoked, Moment::now());
    let is_told = matches!(cause, LossCause::SessionEnded | LossCause::Forgotten);
    assert!(is_told || matches!(cause, LossCause::Taken { .. }), "{cause:?}");
    let next = bounded(waiter).await.unwrap();
    assert!(next.fence().get() > guard.fence().get());
    // A session that was ended is replaced.
    hold(&first, "another", ttl(TTL)).await.release().await.unwrap();
}

/// B287, P1: a lease that nobody keeps alive is prolonged by whoever took it and by somebody else in turn:
/// it lasts as long as the last of them is told.
/// The user sees: nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_prolong_one_lease() {
    const SHORT: Duration = Duration::from_secs(10);
    let server = Home::alone();
    let (first, second) = (connect(&server.url()).await, connect(&server.url()).await);
    let mutex = first.mutex(NAME).unwrap().with_options(ttl(SHORT));
    let lease = mutex.acquire_detached().await.unwrap();
    let of_first = server.leases();
    second.renew_detached(NAME, lease.holder, SHORT).await.unwrap();
    let is_new = |lease: &String| !of_first.contains(lease);
    let of_second = server.leases().into_iter().find(is_new).unwrap();
    tokio::time::sleep(SHORT * 2 / 5).await;
    let deadline = first.renew_detached(NAME, lease.holder, SHORT).await.unwrap();
    eventually("that of the second has ended", TIME_MAX, async || {
        !server.leases().contains(&of_second)
    })
    .await;
    assert!(!deadline.has_passed(Moment::now()), "the machine is too slow");
    refusal(&second, NAME).await;
    // That of the first has ended by now, and it is asked once more.
    second.renew_detached(NAME, lease.holder, SHORT * 2).await.unwrap();
    eventually("it hangs on that of the second", TIME_MAX, async || {
        deadline.has_passed(Moment::now())
    })
    .await;
    first.renew_detached(NAME, lease.holder, SHORT).await.unwrap();
    first.release_detached(NAME, lease.holder).await.unwrap();
}

/// P1, P4, P10 (B89): somebody revokes the lease of a process's waiting claims when one is about to
/// be put under it: it stands in line once, with its own fence, and keeps what it is granted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lease_of_those_who_wait_is_revoked() {
    the_lease_of_those_who_wait_is_revoked_at(Home::alone()).await;
}

async fn the_lease_of_those_who_wait_is_revoked_at(server: Home) {
    let first = connect(&server.url()).await;
    let guard = hold(&first, NAME, ttl(TTL)).await;
    for _ in 0..5 {
        let others = server.leases();
        let second = connect(&server.url()).await;
        let waiting = server.leases().into_iter().find(|lease| !others.contains(lease)).unwrap();
        server.ctl(&["lease", "revoke", &waiting]);
        let waiter = queue_for(&second, NAME, ttl(TTL).wait(TIME_MAX)).await;
        assert_eq!(server.keys(&format!("{NAME}/")).len(), 2);
        waiter.abort();
        assert!(waiter.await.is_err());
        eventually("it is out of the line", TIME_MAX, async || {
            server.keys(&format!("{NAME}/")).len() == 1
        })
        .await;
    }
    let others = server.leases();
    let second = connect(&server.url()).await;
    let waiting = server.leases().into_iter().find(|lease| !others.contains(lease)).unwrap();
    server.ctl(&["lease", "revoke", &waiting]);
    let waiter = queue_for(&second, NAME, ttl(TTL).wait(TIME_MAX)).await;
    guard.release().await.unwrap();
    let next = bounded(waiter).await.unwrap();
    bounded(next.full()).await.unwrap();
    // Panics if its fence is not the revision of its key.
    lease_of(&server, next.fence().get());
    assert!(next.check().is_ok());
    assert!(matches!(next.release().await.unwrap(), Released::Released));
    assert_eq!(server.keys(&format!("{NAME}/")), [""; 0]);
}

/// The lease of the claim that was made at that revision.
fn lease_of(server: &Etcd, revision: u64) -> String {
    for key in server.keys(&format!("{NAME}/")) {
        let said = server.ctl(&["get", "--write-out=fields", "--", &key]);
        if said.lines().any(|line| line == format!("\"CreateRevision\" : {revision}")) {
            let line = said.lines().find_map(|line| line.strip_prefix("\"Lease\" : "));
            let number: i64 = line.unwrap().trim().parse().unwrap();
            return format!("{number:x}");
        }
    }
    panic!("no claim was made at revision {revision}")
}

/// P3: whoever deletes the key of a holder ends its lock; it is told at once.
/// The user sees: the loss `Forgotten` or `Taken`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_is_deleted() {
    the_key_is_deleted_at(Home::alone()).await;
}

async fn the_key_is_deleted_at(server: Home) {
    let (first, second) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = hold(&first, NAME, ttl(TTL)).await;
    let kept = hold(&first, "another", ttl(TTL)).await;
    let machine = Lateness::watch();
    let deleted = Moment::now();
    server.ctl(&["del", "--prefix", "--", &format!("{NAME}/")]);
    let cause = loss(&guard, TIME_MAX).await;
    machine.check("to tell the loss", TOLD_MAX, deleted, Moment::now());
    assert!(!matches!(cause, LossCause::Expired { .. }), "{cause:?}");
    let next = hold(&second, NAME, ttl(TTL)).await;
    assert!(next.fence().get() > guard.fence().get());
    assert!(matches!(guard.release().await.unwrap(), Released::AlreadyLost(_)));
    // P8: nobody else is touched.
    assert!(next.check().is_ok() && kept.check().is_ok());
    refusal(&second, "another").await;
}

/// P3, P10: whoever deletes the key of a waiter does not keep it from its turn.
/// The user sees: nothing but its place in line.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_of_a_waiter_is_deleted() {
    the_key_of_a_waiter_is_deleted_at(Home::alone()).await;
}

async fn the_key_of_a_waiter_is_deleted_at(server: Home) {
    let (first, second) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = hold(&first, NAME, ttl(TTL)).await;
    let own = server.keys(&format!("{NAME}/"));
    let waiter = queue_for(&second, NAME, ttl(TTL).wait(TIME_MAX)).await;
    let keys = server.keys(&format!("{NAME}/"));
    let waiting = keys.iter().find(|key| !own.contains(key)).unwrap();
    server.ctl(&["del", "--", waiting]);
    guard.release().await.unwrap();
    let next = bounded(waiter).await.unwrap();
    assert!(next.check().is_ok());
}

/// P3: thousands of locks that one process holds are lost in one step: all are told, long before any
/// deadline, and nobody of another process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_locks_are_lost_at_once() {
    ten_thousand_locks_are_lost_at_once_at(Home::alone()).await;
}

async fn ten_thousand_locks_are_lost_at_once_at(server: Home) {
    const LOCKS: usize = 10_000;
    let (first, second) = (connect(&server.url()).await, connect(&server.url()).await);
    let kept = hold(&second, "kept", ttl(TTL)).await;
    let others = server.leases();
    let mut taking = JoinSet::new();
    for number in 0..LOCKS {
        let first = first.clone();
        let name = format!("lock-{number}");
        taking.spawn(async move { hold(&first, &name, ttl(TTL).retries(10)).await });
    }
    let guards = Arc::new(taking.join_all().await);
    let began = Moment::now();
    revoke_all_but(&server, &others);
    for guard in guards.iter() {
        let cause = loss(guard, TIME_MAX).await;
        assert!(!matches!(cause, LossCause::Expired { .. }), "{cause:?}");
    }
    println!("measured: {LOCKS} locks lost and told in {:.1?}", Moment::now().since(began));
    assert!(kept.check().is_ok());
    eventually("nothing is left", TIME_MAX, async || server.keys("lock-").is_empty()).await;
    hold(&first, "lock-1", ttl(TTL)).await.release().await.unwrap();
}

/// The same on three members: somebody else asks another one than the holder does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_three_members() {
    let cluster = Arc::new(start_cluster());
    the_lease_is_revoked_at(Home::member(&cluster).await).await;
    the_lease_of_those_who_wait_is_revoked_at(Home::member(&cluster).await).await;
    the_key_is_deleted_at(Home::member(&cluster).await).await;
    the_key_of_a_waiter_is_deleted_at(Home::member(&cluster).await).await;
    ten_thousand_locks_are_lost_at_once_at(Home::member(&cluster).await).await;
}

/// Revokes leases by as few programs as possible.
fn revoke_all_but(server: &Etcd, others: &[String]) {
    let leases = server.leases();
    let ours: Vec<&String> = leases.iter().filter(|lease| !others.contains(lease)).collect();
    for lease in ours {
        let id = i64::from_str_radix(lease, 16).unwrap();
        let (status, said) =
            server.post("/v3/lease/revoke", &format!(r#"{{"ID":"{id}"}}"#)).unwrap();
        assert_eq!(status, 200, "{said}");
    }
}
