//! What is this store's own: one round trip, proposals, votes, calls to those who wait, and the
//! addresses that are refused.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod kit;

use std::time::Duration;

use kit::{
    Link, Nodes, Setup, Ways, bounded, calls, check_error, connect, connect_backend, eventually,
    failure, hold, hold_on_all, refusal, request, try_connect, ttl,
};
use lockfast::{Attempt, ErrorKind, Fence, Guarantee, Mode, Moment, Options, Released, WatchKind};
use lockfast_core::{
    AcquireOutcome, ClientId, LockName, ReleaseOutcome, ReleaseRequest, Vote, Wait,
};
use lockfast_faults::server::Server as _;

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(30);
/// How long it may take until something is so, but less than a lease lasts.
const SLACK: Duration = Duration::from_secs(15);

/// One round trip: an acquisition and a release of a free lock are one call of a script each on
/// every node, and the caller waits for one round trip to the nodes and not for two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_round_trip() {
    const ROUNDS: u64 = 10;
    let nodes = Nodes::start(3);
    let ways = Ways::to(&nodes).await;
    let locker = connect(&ways.url_with("")).await;
    let guard = hold_on_all(&locker, &nodes, NAME, ttl(TTL)).await;
    assert!(guard.release().await.is_ok());
    eventually("all are free", SLACK, async || nodes.count_key(NAME) == 0).await;
    let before: Vec<u64> = nodes.0.iter().map(calls).collect();
    for _ in 0..ROUNDS {
        let guard = hold(&locker, NAME, ttl(TTL)).await;
        // What is given up before it was ever sent to a slow node is not sent at all.
        eventually("all have it", SLACK, async || nodes.count_key(NAME) == 3).await;
        assert!(guard.release().await.is_ok());
        eventually("all are free", SLACK, async || nodes.count_key(NAME) == 0).await;
    }
    for (node, before) in nodes.0.iter().zip(before) {
        eventually("two calls a cycle", SLACK, async || calls(node) == before + 2 * ROUNDS).await;
    }
    let way = Duration::from_millis(100);
    ways.0.iter().for_each(|it| it.set(Link::Delay(way)));
    let start = Moment::now();
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    let took = Moment::now().since(start);
    assert!(took >= way && took < way * 4, "took {took:?} with {way:?} each way");
    ways.0.iter().for_each(|it| it.set(Link::Pass));
    assert!(guard.release().await.is_ok());
}

/// P4: a node that has seen a higher fence is proposed a higher one, and so are the others: one
/// more round trip, and one fence on all nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fence_that_was_seen_is_exceeded() {
    let nodes = Nodes::start(3);
    let locker = connect(&nodes.url()).await;
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    let ahead = guard.fence().get() + 30_000_000;
    assert!(guard.release().await.is_ok());
    let key = format!("lockfast:{{{NAME}}}:fence");
    for node in &nodes.0[..2] {
        node.cli(&["SET", &key, &ahead.to_string()]);
    }
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    assert!(guard.fence().get() > ahead);
    for node in &nodes.0 {
        let has = || node.cli(&["GET", NAME]).ends_with(&format!(".{}", guard.fence()));
        eventually("every node has the fence", SLACK, async || has()).await;
        assert_eq!(node.cli(&["GET", &key]), guard.fence().to_string());
    }
    // The fence outlives the lock by about a day.
    let left: u64 = nodes.0[0].cli(&["PTTL", &key]).parse().unwrap();
    assert!((86_400_000..=86_430_000).contains(&left), "{left}");
    assert!(guard.release().await.is_ok());
}

/// P4: a floor that no node can have given is refused, and leaves nothing behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_floor_too_far_ahead_is_refused() {
    let nodes = Nodes::start(3);
    let locker = connect(&nodes.url()).await;
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    let near = Fence::new(guard.fence().get() + 20_000_000).unwrap();
    let far = Fence::new(guard.fence().get() + 120_000_000).unwrap();
    assert!(guard.release().await.is_ok());
    let error = failure(&locker, NAME, ttl(TTL).floor(far)).await;
    check_error(&error, ErrorKind::InvalidToken, &["more than a minute ahead"]);
    assert_eq!(nodes.count_key(NAME), 0);
    let guard = hold(&locker, NAME, ttl(TTL).floor(near)).await;
    assert!(guard.fence().get() > near.get());
}

/// P7: a holder that asks twice, of the connection that it asked before or of one that knows of
/// nothing, is granted once, with one fence, and one release frees the lock. (The suite's case of
/// this wants shared locks and permits as well.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_asks_twice_has_one_fence() {
    let nodes = Nodes::start(3);
    let client = ClientId::random().unwrap();
    let request = request(client, NAME, TTL, Wait::No);
    let mut fences = Vec::new();
    let first = connect_backend(&nodes.url(), client).await;
    let second = connect_backend(&nodes.url(), client).await;
    for backend in [&first, &first, &second, &second] {
        let AcquireOutcome::Granted(grant) = backend.acquire(request.clone()).await.unwrap() else {
            panic!("refused after {fences:?}");
        };
        fences.push(grant.fence);
    }
    assert!(fences.iter().all(|fence| *fence == fences[0]), "{fences:?}");
    let view = connect(&nodes.url()).await.inspect(&request.name).await.unwrap();
    let [holder] = view.holders.as_slice() else { panic!("{view:?}") };
    assert_eq!((holder.fence, view.waiting), (Some(fences[0]), 0));
    let release = ReleaseRequest { name: request.name.clone(), holder: request.holder };
    assert_eq!(second.release(release).await.unwrap(), ReleaseOutcome::Released);
    eventually("it is free", SLACK, async || nodes.count_key(NAME) == 0).await;
}

/// P11: a lock is seen with its holder, its fence and those who wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_seen_with_its_holder() {
    let nodes = Nodes::start(3);
    let (first, second) = (connect(&nodes.url()).await, connect(&nodes.url()).await);
    let guard = hold(&first, NAME, ttl(TTL)).await;
    let mutex = second.mutex(NAME).unwrap().with_options(ttl(TTL).wait_forever());
    let waiter = tokio::spawn(async move { mutex.acquire().await.unwrap() });
    eventually("it waits", SLACK, async || {
        second.inspect(guard.name()).await.unwrap().waiting == 1
    })
    .await;
    let view = second.inspect(guard.name()).await.unwrap();
    let [holder] = view.holders.as_slice() else { panic!("{view:?}") };
    assert_eq!(holder.fence, Some(guard.fence()));
    assert_eq!(holder.mode, Mode::Exclusive);
    assert!(holder.label.is_some() && holder.remaining <= TTL, "{holder:?}");
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    let next = bounded(waiter).await.unwrap();
    assert!(next.release().await.is_ok());
}

/// P11: a refusal says what each node said.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_lists_the_votes() {
    let mut nodes = Nodes::start(3);
    let (first, second) = (connect(&nodes.url()).await, connect(&nodes.url()).await);
    let guard = hold_on_all(&first, &nodes, NAME, ttl(TTL)).await;
    let refused = refusal(&second, NAME).await;
    assert_eq!(refused.votes.len(), 3);
    let held = refused.votes.iter().filter(|it| matches!(it.vote, Vote::Held { .. })).count();
    assert!(held >= 2, "{refused}");
    assert!(refused.to_string().contains("held by"), "{refused}");
    assert!(guard.release().await.is_ok());
    nodes.0[1].kill();
    nodes.0[2].kill();
    let error = failure(&second, NAME, ttl(TTL)).await;
    check_error(&error, ErrorKind::NoQuorum, &["2 of 3 nodes must agree", "connection refused: "]);
    let [first, second, third] = error.votes() else { panic!("{error}") };
    assert!(matches!(first.vote, Vote::Granted), "{error}");
    for vote in [second, third] {
        assert!(matches!(vote.vote, Vote::Unreachable { .. }), "{error}");
    }
    assert_eq!(nodes.count_key(NAME), 0, "what was granted is undone");
}

/// Shared locks and permits are refused with the reason, when they are made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_exclusive_locks() {
    let nodes = Nodes::start(1);
    let locker = connect(&nodes.url()).await;
    for mode in [Mode::Shared, Mode::permit(3).unwrap()] {
        let error = locker.any_lock(NAME, mode).unwrap_err();
        check_error(&error, ErrorKind::Unsupported, &["one holder at a time", "another store"]);
    }
    check_error(&locker.rwlock(NAME).unwrap_err(), ErrorKind::Unsupported, &["another store"]);
}

/// P10: a release calls one waiter and no herd: with sixteen waiting, a hand-over costs little
/// more than its release and one acquisition, and whoever only waits asks for nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_wakes_no_herd() {
    const WAITERS: u64 = 16;
    let nodes = Nodes::start(3);
    let lockers = [connect(&nodes.url()).await, connect(&nodes.url()).await];
    let guard = hold(&lockers[0], NAME, ttl(TTL)).await;
    let mut waiters = Vec::new();
    for at in 0..WAITERS {
        let mutex = lockers[at as usize % 2].mutex(NAME).unwrap();
        let mutex = mutex.with_options(ttl(TTL).wait_forever());
        waiters.push(tokio::spawn(async move {
            let guard = mutex.acquire().await.unwrap();
            guard.release().await.unwrap();
        }));
    }
    eventually("all wait", Duration::from_secs(10), async || {
        lockers[0].inspect(guard.name()).await.unwrap().waiting as u64 == WAITERS
    })
    .await;
    let (before, start) = (nodes.calls(), Moment::now());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let idle = nodes.calls() - before;
    // One of each process looks every 1.3 s, on three nodes, and not every waiter.
    let looks = 2 * (Moment::now().since(start).as_secs() + 1);
    assert!(idle <= 3 * looks, "{idle} calls while nothing happens");
    let before = nodes.calls();
    let start = Moment::now();
    assert!(guard.release().await.is_ok());
    for waiter in waiters {
        bounded(waiter).await.unwrap();
    }
    let took = Moment::now().since(start);
    let spent = nodes.calls() - before;
    let least = 2 * 3 * WAITERS;
    assert!(spent <= 2 * least, "{spent} calls for {WAITERS} hand-overs, {least} are needed");
    assert!(took < Duration::from_secs(10), "{took:?}");
}

/// A node that has forgotten the scripts is told them again, and nobody notices.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_are_loaded_again() {
    let nodes = Nodes::start(3);
    let locker = connect(&nodes.url()).await;
    nodes.0.iter().for_each(|node| drop(node.cli(&["SCRIPT", "FLUSH"])));
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    nodes.0.iter().for_each(|node| drop(node.cli(&["SCRIPT", "FLUSH"])));
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
}

/// B66: a key of another type, and a fence that is none, are told as what they are, and nothing is
/// granted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_lock_is_told() {
    let nodes = Nodes::start(3);
    let locker = connect(&nodes.url()).await;
    for node in &nodes.0 {
        node.cli(&["RPUSH", "list", "x"]);
        node.cli(&["SET", "lockfast:{rubbish}:fence", "x"]);
        node.cli(&["RPUSH", "lockfast:{listed}:fence", "7"]);
        node.cli(&["SET", "lockfast:{awaited}:callers", "x"]);
        node.cli(&["SET", "awaited", "another program's"]);
    }
    // A watcher makes nodes decide in another way.
    for is_watched in [false, true] {
        let _events = if is_watched { Some(locker.watch().await.unwrap()) } else { None };
        let error = failure(&locker, "list", ttl(TTL)).await;
        check_error(&error, ErrorKind::ForeignKey, &["no lock"]);
        let error = failure(&locker, "rubbish", ttl(TTL)).await;
        check_error(&error, ErrorKind::CorruptRecord, &["fence"]);
        let error = failure(&locker, "listed", ttl(TTL)).await;
        check_error(&error, ErrorKind::CorruptRecord, &["fence"]);
        let waiting = ttl(TTL).wait(Duration::from_millis(100));
        let error = failure(&locker, "awaited", waiting).await;
        check_error(&error, ErrorKind::CorruptRecord, &["those who wait", "delete it"]);
    }
    let error = failure(&locker, "lockfast:x", ttl(TTL)).await;
    check_error(&error, ErrorKind::InvalidName, &["Lockfast's own"]);
    eventually("nothing is left", SLACK, async || {
        nodes.count_key("rubbish") + nodes.count_key("listed") == 0
    })
    .await;
    for node in &nodes.0 {
        assert_eq!(node.cli(&["LRANGE", "lockfast:{listed}:fence", "0", "-1"]), "7");
    }
}

/// B66: rubbish beside one lock does not keep it, or others, from being seen, renewed and released.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rubbish_beside_a_lock_keeps_nothing_from_ending() {
    let nodes = Nodes::start(3);
    let locker = connect(&nodes.url()).await;
    let (guard, other) = (hold(&locker, NAME, ttl(TTL)).await, hold(&locker, "b", ttl(TTL)).await);
    for node in &nodes.0 {
        node.cli(&["SET", "lockfast:crowd", "1"]);
        node.cli(&["SET", "lockfast:{nightly}:callers", "x"]);
        node.cli(&["RPUSH", "lockfast:{nightly}:revoked", "x"]);
    }
    let view = locker.inspect(guard.name()).await.unwrap();
    assert_eq!((view.holders.len(), view.waiting), (1, 0), "{view:?}");
    bounded(guard.extend(TTL / 2)).await.unwrap();
    let (one, two) = tokio::join!(guard.release(), other.release());
    assert!(matches!((one.unwrap(), two.unwrap()), (Released::Released, Released::Released)));
    eventually("both are free", SLACK, async || nodes.count_key(NAME) + nodes.count_key("b") == 0)
        .await;
}

/// A value that is none of ours is another program's lock, whatever it looks like.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_impossible_value_is_not_taken_for_ours() {
    let nodes = Nodes::start(3);
    let locker = connect(&nodes.url()).await;
    let holder = "A".repeat(22);
    let values = ["", "x", ".", "\u{7f}", &holder, &format!("{holder}."), &format!("{holder}.x")];
    for value in values.into_iter().chain([&*format!("{holder}.{}", u64::MAX)]) {
        for node in &nodes.0 {
            node.cli(&["SET", NAME, value, "PX", "60000"]);
        }
        let refused = refusal(&locker, NAME).await;
        assert_eq!(refused.lock.holders[0].fence, None, "{value:?}: {refused}");
        let view = locker.inspect(&LockName::new(NAME).unwrap()).await.unwrap();
        assert_eq!(view.holders.len(), 1, "{value:?}: {view:?}");
    }
}

/// Whatever is published on the channels of Lockfast that Lockfast would not: nobody is let in by
/// it, and nobody is kept from hearing the rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_pushes_do_no_harm() {
    let nodes = Nodes::start(3);
    let (locker, watcher) = (connect(&nodes.url()).await, connect(&nodes.url()).await);
    let mut events = watcher.watch().await.unwrap();
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    let mutex = watcher.mutex(NAME).unwrap().with_options(ttl(TTL).wait_forever());
    let waiter = tokio::spawn(async move { mutex.acquire().await.unwrap() });
    eventually("it waits", SLACK, async || {
        watcher.inspect(guard.name()).await.unwrap().waiting == 1
    })
    .await;
    let most = u64::MAX;
    for node in &nodes.0 {
        for client in node.cli(&["KEYS", "lockfast:client:*"]).lines() {
            let channel = client.replace("client", "push");
            for payload in
                ["", "C", "R", "C\t\t", "R\t\t", "C\tx\t0", "R\tx\ty", "Z\ta\tb", "E\n", "\u{1}"]
            {
                node.cli(&["PUBLISH", &channel, payload]);
            }
        }
        let line = format!("g\t{most}\tAAAAAAAA\tx\t{most}\tnightly");
        let lines = ["", "\t\t\t\t\t", "z\t1\tAAAAAAAA\tx\t1\tn", "g\t1\t?\tx\t1\tn", &line];
        for payload in lines.map(|line| format!("E\n{most}\n{line}")) {
            node.cli(&["PUBLISH", "lockfast:events:0", &payload]);
        }
        node.cli(&["PUBLISH", "lockfast:events:0", "E\nx\ny"]);
    }
    assert_eq!(guard.check().unwrap().fence, guard.fence());
    assert!(!waiter.is_finished());
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    let next = bounded(waiter).await.unwrap();
    loop {
        let event = bounded(events.next()).await.unwrap();
        if (event.kind, event.fence) == (WatchKind::Granted, Some(next.fence())) {
            break;
        }
    }
}

/// L27, L29, L30 and C47: one server under two names and a replica are refused, an even number
/// of nodes is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_will_not_do() {
    let nodes = Nodes::start(2);
    let port = nodes.0[0].port();
    let alias = format!("redlock://127.0.0.1:{port},{},localhost:{port}", nodes.0[1].address());
    let error = try_connect(&alias).await.map(|_| ()).unwrap_err();
    check_error(&error, ErrorKind::InvalidConfig, &["nodes 1 and 3 are one server"]);
    let replica = Setup::new().replica_of(&nodes.0[0]).start();
    let url = format!("{},{}", nodes.url().split('?').next().unwrap(), replica.address());
    let error = try_connect(&url).await.map(|_| ()).unwrap_err();
    check_error(&error, ErrorKind::WrongNode, &["is a replica", &replica.address().to_string()]);
    let even = connect(&nodes.url()).await;
    assert!(even.profile().because.contains("an even number"), "{:?}", even.profile());
    assert_eq!(even.profile().guarantee, Guarantee::Efficiency);
    let one = Nodes::start(1);
    let alone = connect(&one.url()).await;
    assert!(!alone.profile().because.contains("an even number"));
    assert!(hold(&alone, NAME, ttl(TTL)).await.release().await.is_ok());
}

/// When no quorum can be reached, connecting says so of each node; a minority may be missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_there_when_connecting() {
    let mut nodes = Nodes::start(3);
    nodes.0[2].kill();
    let locker = connect(&nodes.url()).await;
    assert!(hold(&locker, NAME, ttl(TTL)).await.release().await.is_ok());
    nodes.0[1].kill();
    let error = try_connect(&nodes.url()).await.map(|_| ()).unwrap_err();
    check_error(&error, ErrorKind::NoQuorum, &["2 of 3 nodes must agree"]);
    for node in &nodes.0[1..] {
        assert!(error.to_string().contains(&node.address().to_string()), "{error}");
    }
    assert_eq!(error.votes().len(), 3);
    // A node that was missing at first is used when it is there.
    nodes.0[2].restart();
    eventually("a quorum again", Duration::from_secs(10), async || {
        let mutex = locker.mutex(NAME).unwrap().with_options(ttl(TTL));
        matches!(mutex.try_acquire().await, Ok(Attempt::Acquired(_)))
    })
    .await;
}

/// P11: whoever watches sees what a quorum of nodes did, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_told_once() {
    let nodes = Nodes::start(3);
    let (locker, watcher) = (connect(&nodes.url()).await, connect(&nodes.url()).await);
    let mut events = watcher.watch().await.unwrap();
    let mut expected = Vec::new();
    for _ in 0..3 {
        let guard = hold(&locker, NAME, ttl(TTL)).await;
        expected.push((WatchKind::Granted, Some(guard.fence())));
        expected.push((WatchKind::Released, Some(guard.fence())));
        assert!(guard.release().await.is_ok());
    }
    let mut seen = Vec::new();
    while seen.len() < expected.len() {
        let event = bounded(events.next()).await.unwrap();
        seen.push((event.kind, event.fence));
    }
    assert_eq!(seen, expected);
}

/// B69: pages are served by one look through the keys of the nodes, and are complete and in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_looks_through_the_keys_once() {
    const LOCKS: usize = 1500;
    let nodes = Nodes::start(3);
    let locker = connect(&nodes.url()).await;
    // Names that follow each other are set by one command, and last as long as the servers.
    let lock = |at: usize| (format!("page/{at:04}"), format!("{:A<22}.{}", at, 1_000_000 + at));
    for node in &nodes.0 {
        for from in (0..LOCKS).step_by(500) {
            let pairs: Vec<_> = (from..from + 500).map(lock).collect();
            let parts = pairs.iter().flat_map(|(name, value)| [name.as_str(), value]);
            node.cli(&["MSET"].into_iter().chain(parts).collect::<Vec<_>>());
        }
    }
    let scans = || nodes.0.iter().map(|node| commands(node, "scan")).sum::<u64>();
    let before = scans();
    let mut seen = Vec::new();
    loop {
        let page = locker.list("page/", seen.last(), 50).await.unwrap();
        let is_last = page.len() < 50;
        seen.extend(page.into_iter().map(|view| view.name));
        if is_last {
            break;
        }
    }
    let expected: Vec<_> = (0..LOCKS).map(|at| LockName::new(lock(at).0).unwrap()).collect();
    assert!(seen == expected, "{} locks, or in another order", seen.len());
    // Two nodes, a thousand keys at a time.
    assert!(scans() - before <= 12, "{} calls of SCAN for a listing", scans() - before);
    // A new listing sees what came since, and what is gone.
    let guard = hold(&locker, "page/0000a", ttl(TTL)).await;
    nodes.0.iter().for_each(|node| drop(node.cli(&["DEL", "page/0001"])));
    let page = locker.list("page/", None, 3).await.unwrap();
    let names: Vec<_> = page.iter().map(|view| view.name.as_str()).collect();
    assert_eq!(names, ["page/0000", "page/0000a", "page/0002"]);
    drop(guard);
}

/// How often a node has run a command.
fn commands(node: &kit::Redis, command: &str) -> u64 {
    let stats = node.cli(&["INFO", "commandstats"]);
    let start = format!("cmdstat_{command}:calls=");
    let line = stats.lines().find_map(|line| line.strip_prefix(&start));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

/// B67, P11: each database of the nodes has its own locks, and its own events.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn databases_do_not_hear_of_each_other() {
    let nodes = Nodes::start(3);
    let url = |database: u32| nodes.url().replace('?', &format!("/{database}?"));
    let lockers = [connect(&url(0)).await, connect(&url(1)).await];
    let mut events = [lockers[0].watch().await.unwrap(), lockers[1].watch().await.unwrap()];
    for _ in 0..3 {
        let [first, second] = lockers.each_ref().map(|locker| hold(locker, NAME, ttl(TTL)));
        let (first, second) = tokio::join!(first, second);
        for (guard, events) in [first, second].into_iter().zip(&mut events) {
            let fence = guard.fence();
            assert!(guard.release().await.is_ok());
            for kind in [WatchKind::Granted, WatchKind::Released] {
                let event = bounded(events.next()).await.unwrap();
                assert_eq!((event.kind, event.fence), (kind, Some(fence)));
            }
        }
    }
}

/// B31: a holder's id is what it takes to release its lock, so nothing that is published tells it;
/// and those who wait, who watch and who lose their lock hear all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_ids_are_told_to_nobody() {
    let nodes = Nodes::start(3);
    let heard = nodes.0.iter().map(Overheard::start).collect::<Vec<_>>();
    let (locker, watcher) = (connect(&nodes.url()).await, connect(&nodes.url()).await);
    let mut events = watcher.watch().await.unwrap();
    let guard = hold_on_all(&locker, &nodes, NAME, ttl(TTL)).await;
    let mutex = watcher.mutex(NAME).unwrap().with_options(ttl(TTL).wait_forever());
    let waiter = tokio::spawn(async move { mutex.acquire().await.unwrap() });
    let callers = format!("lockfast:{{{NAME}}}:callers");
    let waits = || nodes.0.iter().all(|node| node.cli(&["ZCARD", &callers]) == "1");
    eventually("it waits", SLACK, async || waits()).await;
    let mut secrets = vec![nodes.0[0].cli(&["ZRANGE", &callers, "0", "-1"])];
    secrets.push(nodes.0[0].cli(&["GET", NAME])[..22].to_owned());
    locker.revoke(guard.name(), "maintenance").await.unwrap();
    kit::loss(&guard, SLACK).await;
    let next = bounded(waiter).await.unwrap();
    assert!(next.release().await.is_ok());
    let mut kinds = Vec::new();
    while kinds.last() != Some(&WatchKind::Released) {
        kinds.push(bounded(events.next()).await.unwrap().kind);
    }
    for kind in [WatchKind::Granted, WatchKind::Queued, WatchKind::Revoked] {
        assert!(kinds.contains(&kind), "{kinds:?}");
    }
    for heard in heard {
        let said = heard.end();
        for word in ["lockfast:push:", "lockfast:events", "C\t", "R\t", "maintenance"] {
            assert!(said.contains(word), "{word} was not overheard: {said}");
        }
        for secret in &secrets {
            assert_eq!(secret.len(), 22, "{secret}");
            assert!(!said.contains(secret.as_str()), "a holder's id was published: {said}");
        }
    }
}

/// Somebody who subscribes to everything that a node publishes.
struct Overheard(std::net::TcpStream, std::thread::JoinHandle<String>);

impl Overheard {
    fn start(node: &kit::Redis) -> Self {
        use std::io::{Read as _, Write as _};
        let mut stream = std::net::TcpStream::connect(node.address()).unwrap();
        stream.write_all(b"PSUBSCRIBE *\r\n").unwrap();
        let mut reply = [0; 16];
        stream.read_exact(&mut reply).unwrap();
        let mut reader = stream.try_clone().unwrap();
        let reading = std::thread::spawn(move || {
            let mut said = Vec::new();
            reader.read_to_end(&mut said).unwrap();
            String::from_utf8_lossy(&said).into_owned()
        });
        Self(stream, reading)
    }

    fn end(self) -> String {
        self.0.shutdown(std::net::Shutdown::Both).unwrap();
        self.1.join().unwrap()
    }
}

/// B65, P6: a call that names a lock and its holder twice releases once, and says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_is_asked_for_twice_is_made_once() {
    let nodes = Nodes::start(1);
    let locker = connect(&nodes.url()).await;
    let node = &nodes.0[0];
    let script = include_str!("../src/scripts/release.lua");
    let client = node.cli(&["KEYS", "lockfast:client:*"]);
    let link = &node.cli(&["GET", &client])[..8];
    for is_crowded in [false, true] {
        let guard = hold(&locker, NAME, ttl(TTL)).await;
        if is_crowded {
            node.cli(&["SET", "lockfast:crowd", "1"]);
        }
        let hold = node.cli(&["GET", NAME]);
        let keys = ["5", "lockfast:watchers", &client, "lockfast:crowd", NAME, NAME];
        let args = [&["EVAL", script], &keys[..], &[link, "1", &hold, &hold]].concat();
        assert_eq!(node.cli(&args), "1\n0", "crowded: {is_crowded}");
        drop(guard.release().await);
    }
}

/// An encrypted and authenticated connection to each node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passwords_are_sent_and_never_shown() {
    let nodes = Nodes((0..3).map(|_| Setup::new().password("pass@word").start()).collect());
    let hosts: Vec<String> = nodes.0.iter().map(|it| it.address().to_string()).collect();
    let url = |password: &str| format!("redlock://:{password}@{}", hosts.join(","));
    let locker = connect(&url("pass%40word")).await;
    assert!(hold(&locker, NAME, ttl(TTL)).await.release().await.is_ok());
    let error = try_connect(&url("wrong-one")).await.map(|_| ()).unwrap_err();
    check_error(&error, ErrorKind::Permission, &["does not accept this user and password"]);
    assert!(!error.to_string().contains("wrong-one"), "{error}");
    let options = Options::default();
    assert!(options.check(locker.profile()).is_ok());
}
