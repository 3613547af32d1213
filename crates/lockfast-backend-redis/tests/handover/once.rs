//! One release passes the lock on to one, however often it is sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockfast_core::{
    AcquireRequest, ErrorKind, LockName, Mode, Moment, ReleaseOutcome, ReleaseRequest, Wait,
};
use lockfast_faults::proxy::{Link, Proxy};

use tokio::task::JoinHandle;

use crate::kit::direct::Direct;
use crate::kit::{Redis, Setup, bounded, check_error, eventually, topology};

const NAME: &str = "nightly";
/// Longer than anything takes that is not held up, and shorter than the slow poll.
const SOON: Duration = Duration::from_secs(3);

/// Asks as much as may be unanswered, so that what follows is sent together.
async fn fill_the_way(direct: &Direct) -> Vec<JoinHandle<usize>> {
    let mut looks = Vec::new();
    for _ in 0..2 {
        let direct = direct.clone();
        looks.push(tokio::spawn(async move { direct.waiting(NAME).await }));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    looks
}

/// B14, P1: releases of one holder that have piled up while its way to the server was stalled, and
/// meet a lock that was offered to it meanwhile, pass it on to one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases_that_have_piled_up() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.address()).await.unwrap();
    let near = Direct::connect(&redis.url()).await;
    let far = Direct::connect(&redis.url_at(proxy.address())).await;
    let holder = near.take(near.request(NAME, Wait::No)).await;
    let request = far.request(NAME, Wait::Forever);
    let given_up = request.holder;
    let waiting = tokio::spawn({
        let far = far.clone();
        async move { far.backend.acquire(request).await }
    });
    eventually("it waits", SOON, async || near.waiting(NAME).await == 1).await;
    let others = [near.queue(NAME).await, near.queue(NAME).await];
    proxy.set(Link::Stall);
    waiting.abort();
    let looks = fill_the_way(&far).await;
    let releases = [(); 3].map(|()| {
        let (far, name) = (far.clone(), LockName::new(NAME).unwrap());
        let request = ReleaseRequest { name, holder: given_up };
        tokio::spawn(async move { far.backend.release(request).await })
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(near.give(NAME, holder).await, ReleaseOutcome::Released);
    assert!(redis.cli(&["PTTL", NAME]).parse::<i64>().unwrap() > 0, "it is offered");
    proxy.set(Link::Pass);
    for release in releases {
        bounded(release).await.unwrap().unwrap();
    }
    eventually("one of the others has it", SOON, async || others.iter().any(|it| it.is_finished()))
        .await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let granted = others.iter().filter(|it| it.is_finished()).count();
    assert_eq!(granted, 1, "of those who waited");
    others.iter().for_each(JoinHandle::abort);
    looks.iter().for_each(JoinHandle::abort);
}

/// B14, P1: whoever drops a release and sends it again frees nobody else's lock, and both askers are
/// answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_is_sent_twice_at_once() {
    let redis = Redis::start();
    let direct = Direct::connect(&redis.url()).await;
    let inside = Arc::new(AtomicUsize::new(0));
    let tasks = (0..8).map(|_| {
        let (direct, inside) = (direct.clone(), Arc::clone(&inside));
        tokio::spawn(async move {
            for _ in 0..100 {
                let holder = direct.take(direct.request(NAME, Wait::Forever)).await;
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two have it");
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                let name = || LockName::new(NAME).unwrap();
                let mut dropped = direct.backend.release(ReleaseRequest { name: name(), holder });
                let waker = std::task::Waker::noop();
                let _ = dropped.as_mut().poll(&mut std::task::Context::from_waker(waker));
                drop(dropped);
                let (one, two) = tokio::join!(direct.give(NAME, holder), direct.give(NAME, holder));
                for outcome in [one, two] {
                    let expected = [ReleaseOutcome::Released, ReleaseOutcome::NotHeld];
                    assert!(expected.contains(&outcome), "{outcome:?}");
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        bounded(task).await.unwrap();
    }
}

/// B18, P10: who is given the lock in the same breath in which it begins to wait has it at once: the
/// offer is heard before the answer that it waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_offer_that_is_heard_before_the_answer() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.address()).await.unwrap();
    let direct = Direct::connect(&redis.url_at(proxy.address())).await;
    let holder = direct.take(direct.request(NAME, Wait::No)).await;
    proxy.set(Link::Stall);
    let looks = fill_the_way(&direct).await;
    let waiting = tokio::spawn({
        let direct = direct.clone();
        async move { (direct.take(direct.request(NAME, Wait::Forever)).await, Moment::now()) }
    });
    let releasing = tokio::spawn({
        let direct = direct.clone();
        async move { direct.give(NAME, holder).await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    let start = Moment::now();
    proxy.set(Link::Pass);
    assert_eq!(bounded(releasing).await.unwrap(), ReleaseOutcome::Released);
    let (next, granted) = bounded(waiting).await.unwrap();
    assert!(granted.since(start) < SOON, "{:?}", granted.since(start));
    assert!(redis.cli(&["GET", NAME]).len() > 22, "it has it");
    assert_eq!(direct.give(NAME, next).await, ReleaseOutcome::Released);
    looks.iter().for_each(JoinHandle::abort);
}

/// B18, P10: the same where every answer waits for a replica, so that offers come long before answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_offer_that_waits_for_a_replica() {
    let redis = Redis::start();
    let replica = Setup::new().replica_of(&redis).start();
    topology::wait_for_sync(&redis, &replica);
    let direct = Direct::connect(&format!("{}?min_replicas=1", redis.url())).await;
    let other = Direct::connect(&redis.url()).await;
    for _ in 0..3 {
        let holder = other.take(other.request(NAME, Wait::No)).await;
        let waiting = tokio::spawn({
            let direct = direct.clone();
            async move { (direct.take(direct.request(NAME, Wait::Forever)).await, Moment::now()) }
        });
        eventually("it waits", SOON, async || other.waiting(NAME).await == 1).await;
        let start = Moment::now();
        assert_eq!(other.give(NAME, holder).await, ReleaseOutcome::Released);
        let (next, granted) = bounded(waiting).await.unwrap();
        let took = granted.since(start);
        assert!(took < SOON, "{took:?}");
        assert_eq!(direct.give(NAME, next).await, ReleaseOutcome::Released);
    }
}

/// How many stand in a long line.
const CROWD: usize = 50_000;

/// Lets many wait who are not there. Returns the key of the queue.
fn fill_the_line(redis: &Redis) -> String {
    let queue = format!("lockfast:{{{NAME}}}:queue");
    for some in 0..CROWD / 1000 {
        let members = (0..1000).flat_map(|at| {
            let number = 1000 * some + at;
            [number.to_string(), format!("{number:022}.x.60000.0")]
        });
        let members: Vec<String> = members.collect();
        let head = ["ZADD", &queue].into_iter();
        redis.cli(&head.chain(members.iter().map(String::as_str)).collect::<Vec<_>>());
    }
    queue
}

/// How long the server has looked through queues.
fn searched(redis: &Redis) -> Duration {
    let stats = redis.cli(&["INFO", "commandstats"]);
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_zrange:"));
    let usec = line.and_then(|line| line.split_once("usec="));
    let usec = usec.map_or(0, |(_, rest)| rest.split(',').next().unwrap().parse().unwrap());
    Duration::from_micros(usec)
}

/// B23: whoever gives up waiting costs the server the same however long the line is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn giving_up_in_a_long_line() {
    let redis = Redis::start();
    let direct = Direct::connect(&redis.url()).await;
    direct.take(direct.request(NAME, Wait::No)).await;
    let queue = fill_the_line(&redis);
    let request = direct.request(NAME, Wait::Forever);
    let holder = request.holder;
    let waiter = tokio::spawn({
        let direct = direct.clone();
        async move { direct.take(request).await }
    });
    let count = (CROWD + 1).to_string();
    eventually("it waits", SOON, async || redis.cli(&["ZCARD", &queue]) == count).await;
    let before = searched(&redis);
    // As whoever drops a request must.
    waiter.abort();
    direct.give(NAME, holder).await;
    assert_eq!(redis.cli(&["ZCARD", &queue]), CROWD.to_string(), "it has left");
    let took = searched(&redis) - before;
    assert!(took < Duration::from_millis(1), "the server looked through the queue for {took:?}");
}

/// B50: whoever begins to wait to share a lock costs the server the same however long the line is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sharing_at_the_end_of_a_long_line() {
    let redis = Redis::start();
    let direct = Direct::connect(&redis.url()).await;
    direct.take(direct.request(NAME, Wait::No)).await;
    let queue = fill_the_line(&redis);
    let before = searched(&redis);
    let waiter = tokio::spawn({
        let direct = direct.clone();
        let request = AcquireRequest { mode: Mode::Shared, ..direct.request(NAME, Wait::Forever) };
        async move { direct.take(request).await }
    });
    let count = (CROWD + 1).to_string();
    eventually("it waits", SOON, async || redis.cli(&["ZCARD", &queue]) == count).await;
    let took = searched(&redis) - before;
    assert!(took < Duration::from_millis(1), "the server looked through the queue for {took:?}");
    let other = Mode::permit(2).unwrap();
    let request = AcquireRequest { mode: other, ..direct.request(NAME, Wait::Forever) };
    let error = bounded(direct.backend.acquire(request)).await.unwrap_err();
    check_error(&error, ErrorKind::Conflict, &[]);
    waiter.abort();
}

/// Whoever may publish on the server pushes rubbish to a client that waits: nothing is granted, and it
/// goes on waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pushes_that_are_not_the_servers() {
    let redis = Redis::start();
    let (near, far) = (Direct::connect(&redis.url()).await, Direct::connect(&redis.url()).await);
    let holder = near.take(near.request(NAME, Wait::No)).await;
    let waiter = far.queue(NAME).await;
    let claim = redis.cli(&["ZRANGE", &format!("lockfast:{{{NAME}}}:queue"), "0", "0"]);
    let (claimant, channel) = (&claim[..22], format!("lockfast:push:{}", &claim[..8]));
    let now = redis.cli(&["GET", "lockfast:fence"]);
    for push in [
        "".to_owned(),
        "G".to_owned(),
        "G\t\t\t\t\t".to_owned(),
        format!("G\t{claimant}\t{now}\t{now}\t1500\tanother"),
        format!("G\t{claimant}\t0\t{now}\t1500\t{NAME}"),
        format!("G\t{claimant}\t-1\t{now}\t1500\t{NAME}"),
        format!("G\t{claimant}\t9007199254740992\t{now}\t1500\t{NAME}"),
        format!("G\t{claimant}\tnan\t{now}\t1500\t{NAME}"),
        format!("G\t{claimant}\t{now}\tsoon\t1500\t{NAME}"),
        format!("G\t{claimant}\t{now}\t{now}\tlong\t{NAME}"),
        format!("G\tAAAAAAAAAAAAAAAAAAAAAA\t{now}\t{now}\t1500\t{NAME}"),
        format!("H\t{claimant}\t18446744073709551615"),
        format!("H\t{claimant}\t-1\t"),
        format!("H\t{claimant}\t0\t{}", &claim[..8]),
        "R\t\t".to_owned(),
        "R\tAAAAAAAAAAAAAAAAAAAAAA\t\u{1b}[2J".to_owned(),
        "W".to_owned(),
        "Z\t\u{202e}".to_owned(),
    ] {
        assert_eq!(redis.cli(&["PUBLISH", &channel, &push]), "1");
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiter.is_finished(), "it was let in");
    assert_eq!(near.waiting(NAME).await, 1);
    let start = Moment::now();
    assert_eq!(near.give(NAME, holder).await, ReleaseOutcome::Released);
    let (_, granted) = bounded(waiter).await.unwrap();
    assert!(granted.since(start) < SOON, "{:?}", granted.since(start));
}
