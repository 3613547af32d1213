//! Claims are put under other leases, and single messages about that come late or never, while the
//! connection goes on.

use std::time::Duration;

use lockfast::{Attempt, Locker};
use tokio::task::JoinHandle;

use crate::kit::sieve::Sieve;
use crate::kit::{Etcd, TIME_MAX, bounded, connect, eventually, hold, queue_for, ttl, url_at};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(60);
/// What a claim says of itself.
const HELD: &str = "state=held";
const WAITING: &str = "state=waiting";
const TRYING: &str = "state=trying";
/// Longer than the leases of those who wait last, and much shorter than the others.
const WAITING_SECONDS_MAX: i64 = 10;

/// A field of a key, as etcdctl shows it.
fn field(server: &Etcd, key: &str, name: &str) -> i64 {
    let said = server.ctl(&["get", "--write-out=fields", "--", key]);
    let line = said.lines().find_map(|line| line.strip_prefix(&format!("\"{name}\" : ")));
    line.unwrap_or_else(|| panic!("no {name}: {said}")).trim().parse().unwrap()
}

/// For how many seconds a lease was granted.
fn seconds_of(server: &Etcd, lease: i64) -> i64 {
    let said = server.ctl(&["lease", "timetolive", &format!("{lease:x}")]);
    let seconds = said.split_once("TTL(").and_then(|(_, rest)| rest.split_once("s)"));
    seconds.unwrap_or_else(|| panic!("{said}")).0.parse().unwrap()
}

/// A holder, and behind it somebody whose messages are sifted. It confirms its turn before it has the lock, because
/// there is a lock-delay.
struct Scene {
    server: Etcd,
    sieve: Sieve,
    near: Locker,
    far: Locker,
    guard: lockfast::Guard,
    waiter: JoinHandle<lockfast::Guard>,
    /// The key of the one that waits.
    key: String,
}

impl Scene {
    async fn start(patience: &str) -> Self {
        let server = Etcd::start();
        let sieve = Sieve::start(server.address()).await;
        let url = format!("{}?request_timeout={patience}", url_at(sieve.address));
        let (near, far) = (connect(&server.url()).await, connect(&url).await);
        let guard = hold(&near, NAME, ttl(TTL)).await;
        let own = server.keys(&format!("{NAME}/"));
        let options = ttl(TTL).lock_delay(Duration::from_secs(1)).wait(TIME_MAX).retries(10);
        let waiter = queue_for(&far, NAME, options).await;
        let keys = server.keys(&format!("{NAME}/"));
        let key = keys.into_iter().find(|key| !own.contains(key)).unwrap();
        eventually("it stands in line", TIME_MAX, async || {
            server.ctl(&["get", "--", &key]).contains(WAITING)
        })
        .await;
        Self { server, sieve, near, far, guard, waiter, key }
    }
}

/// B201, B202, P10: the put that confirms a turn is not answered, and arrives after the claim was put back under the
/// lease of those who wait, just before the lease is ended that it names: it has no effect, and the claim
/// keeps its place. Until then it hangs on a lease that ends soon if its process dies.
/// The user sees: nothing but the delay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_earlier_put_arrives_after_a_later_one() {
    let scene = Scene::start("2s").await;
    let made = field(&scene.server, &scene.key, "CreateRevision");
    let confirmation = scene.sieve.keep_request(HELD);
    let back = scene.sieve.keep_answer(WAITING);
    scene.guard.release().await.unwrap();
    eventually("its confirmation is under way", TIME_MAX, async || confirmation.is_kept()).await;
    eventually("it was put back", TIME_MAX, async || back.is_kept()).await;
    let lease = field(&scene.server, &scene.key, "Lease");
    let seconds = seconds_of(&scene.server, lease);
    assert!(seconds <= WAITING_SECONDS_MAX, "it waits under a lease of {seconds} s");
    confirmation.let_go().await;
    eventually("its confirmation arrived", TIME_MAX, async || confirmation.is_answered()).await;
    back.let_go().await;
    let next = bounded(scene.waiter).await.unwrap();
    assert_eq!(next.fence().get().cast_signed(), made, "it lost its place");
    bounded(next.release()).await.unwrap();
}

/// B204, P2: a key is not put under another lease before that is prolonged: whoever hears nothing more of
/// this process would end the lock when that lease ends, sooner than the holder believes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_prolonged_before_a_key_hangs_on_it() {
    const SHORT: Duration = Duration::from_secs(30);
    let server = Etcd::start();
    let sieve = Sieve::start(server.address()).await;
    let far = connect(&url_at(sieve.address)).await;
    let _other = hold(&far, "another", ttl(SHORT)).await;
    let guard = hold(&far, NAME, ttl(TTL)).await;
    let key = server.keys(&format!("{NAME}/")).remove(0);
    let (long, short) = {
        let other = server.keys("another/").remove(0);
        (field(&server, &key, "Lease"), field(&server, &other, "Lease"))
    };
    let kept = sieve.keep_request(keep_alive(short));
    let extending = tokio::spawn(async move {
        guard.extend(SHORT).await.unwrap();
        guard
    });
    eventually("the lease is asked for", TIME_MAX, async || kept.is_kept()).await;
    assert_eq!(field(&server, &key, "Lease"), long, "it was moved before");
    kept.let_go().await;
    let guard = bounded(extending).await.unwrap();
    assert_eq!(field(&server, &key, "Lease"), short);
    assert!(guard.check().is_ok());
}

/// What asks to keep a lease alive: the field 1 of a message, as a variable number of bytes.
fn keep_alive(lease: i64) -> Vec<u8> {
    let mut bytes = vec![0x08];
    let mut left = lease.cast_unsigned();
    while left >= 0x80 {
        bytes.push((left & 0x7f) as u8 | 0x80);
        left >>= 7;
    }
    bytes.push(left as u8);
    bytes
}

/// B206, P10: the lease of a waiter is ended by somebody else when it has just been put under that of its holder, and
/// the answer to that comes later: nobody knows the claim any more, so its key does not stay in everybody's
/// way.
/// The user sees: nothing but its place in line.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_was_given_up_when_it_is_moved() {
    let scene = Scene::start("15s").await;
    let made = field(&scene.server, &scene.key, "CreateRevision");
    let waiting = field(&scene.server, &scene.key, "Lease");
    let moved = scene.sieve.keep_answer(HELD);
    scene.guard.release().await.unwrap();
    eventually("it was moved", TIME_MAX, async || moved.is_kept()).await;
    assert_ne!(field(&scene.server, &scene.key, "Lease"), waiting);
    scene.server.ctl(&["lease", "revoke", &format!("{waiting:x}")]);
    // Whoever else begins to wait finds that its lease has ended.
    let _other = hold(&scene.near, "another", ttl(TTL)).await;
    let other = queue_for(&scene.far, "another", ttl(TTL).wait(TIME_MAX)).await;
    eventually("it waits under a new one", TIME_MAX, async || {
        let keys = scene.server.keys("another/");
        keys.iter().any(|key| scene.server.ctl(&["get", "--", key]).contains(WAITING))
    })
    .await;
    moved.let_go().await;
    let next = bounded(scene.waiter).await.unwrap();
    assert!(next.fence().get().cast_signed() > made, "the key of the first claim is there");
    assert_eq!(scene.server.keys(&format!("{NAME}/")).len(), 1);
    other.abort();
}

/// B285, P1: a claim is put back under the lease of its ttl, because the put that lets it wait is not answered,
/// and has its turn before it is put anywhere else. It confirms that: nobody gives it up while it has the
/// lock.
/// The user sees: nothing but the delay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_under_the_lease_of_the_ttl_is_confirmed() {
    // Longer than it takes others to give up who hangs.
    const GIVEN_UP: Duration = Duration::from_millis(2500);
    let server = Etcd::start();
    let sieve = Sieve::start(server.address()).await;
    let url = format!("{}?request_timeout=2s", url_at(sieve.address));
    let (near, far) = (connect(&server.url()).await, connect(&url).await);
    let guard = hold(&near, NAME, ttl(TTL)).await;
    let options = || ttl(TTL).wait(TIME_MAX).retries(10);
    let waits = sieve.keep_request(WAITING);
    let waiter = tokio::spawn(async move { hold(&far, NAME, options()).await });
    eventually("it is about to wait", TIME_MAX, async || waits.is_kept()).await;
    let back = sieve.keep_answer(HELD);
    let behind = queue_for(&near, NAME, options()).await;
    eventually("it was put back", TIME_MAX, async || back.is_kept()).await;
    bounded(guard.release()).await.unwrap();
    back.let_go().await;
    let next = bounded(waiter).await.unwrap();
    tokio::time::sleep(GIVEN_UP).await;
    assert!(!behind.is_finished() && next.check().is_ok(), "two have the lock");
    bounded(next.release()).await.unwrap();
    bounded(bounded(behind).await.unwrap().release()).await.unwrap();
}

/// B284, P1: somebody tries to take a lock with more keys than are told with the answer, and the lock becomes
/// free before it has read the others: it does not have it, because its key does not confirm that, and
/// whoever waits behind it would give it up.
/// The user sees: a refusal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_tries_has_a_lock_only_as_it_was_when_it_came() {
    const OTHERS: usize = 20;
    let server = Etcd::start();
    let sieve = Sieve::start(server.address()).await;
    let (near, far) = (connect(&server.url()).await, connect(&url_at(sieve.address)).await);
    let guard = hold(&near, NAME, ttl(TTL)).await;
    let mut others = Vec::new();
    for number in 0..OTHERS {
        others.push(hold(&near, &format!("{NAME}/{number}"), ttl(TTL)).await);
    }
    let made = sieve.keep_answer(TRYING);
    let mutex = far.mutex(NAME).unwrap().with_options(ttl(TTL));
    let trying = tokio::spawn(async move { mutex.try_acquire().await });
    eventually("its key is made", TIME_MAX, async || made.is_kept()).await;
    let behind = queue_for(&near, NAME, ttl(TTL).wait(TIME_MAX)).await;
    bounded(guard.release()).await.unwrap();
    made.let_go().await;
    let tried = bounded(trying).await.unwrap().unwrap();
    let next = bounded(behind).await.unwrap();
    assert!(matches!(tried, Attempt::Taken(_)), "two have the lock");
    bounded(next.release()).await.unwrap();
}

/// B207: the answer to the grant of a lease is lost: it is ended, and not left for its whole time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_nobody_heard_of_is_ended() {
    const LONG: Duration = Duration::from_secs(1000);
    let server = Etcd::start();
    let sieve = Sieve::start(server.address()).await;
    let far = connect(&format!("{}?request_timeout=1s", url_at(sieve.address))).await;
    // The time is the field 1 of the request.
    let granted = sieve.keep_answer(keep_alive(1000));
    let guard = hold(&far, NAME, ttl(LONG).retries(10)).await;
    assert!(granted.is_kept(), "no lease was asked for");
    let of_locks = || {
        let leases = server.leases();
        let leases = leases.iter().map(|lease| i64::from_str_radix(lease, 16).unwrap());
        leases.filter(|lease| seconds_of(&server, *lease) > WAITING_SECONDS_MAX).count()
    };
    eventually("one lease is left", TIME_MAX, async || of_locks() == 1).await;
    assert!(guard.check().is_ok());
    bounded(guard.release()).await.unwrap();
}
