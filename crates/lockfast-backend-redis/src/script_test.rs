//! The scripts on a real server, called with batches that no client sends: one lock or holder named
//! several times. Those who wait are real connections.

use std::sync::Arc;
use std::time::Duration;

use lockfast_core::{
    AcquireOutcome, AcquireRequest, Address, Backend, ClientId, ConnectContext, HolderId, Label,
    LockName, LossReporter, Mode, Wait,
};
use lockfast_faults::redis::Redis;
use lockfast_faults::wait::eventually;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::*;
use crate::record::write_holder;

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(60);

/// A server on which scripts are called by hand.
struct Bench {
    redis: Redis,
    client: ClientId,
    backend: Arc<dyn Backend>,
}

impl Bench {
    async fn start() -> Self {
        let redis = Redis::start();
        let client = ClientId::random().unwrap();
        let context = ConnectContext {
            runtime: Handle::current(),
            client,
            label: Label::of_this_process(),
            losses: LossReporter::new(|_| {}),
        };
        let address = Address::parse(&redis.url()).unwrap();
        let backend = crate::connect(address, context).await.unwrap();
        Self { redis, client, backend }
    }

    fn request(&self, mode: Mode, wait: Wait) -> AcquireRequest {
        AcquireRequest {
            name: LockName::new(NAME).unwrap(),
            mode,
            holder: HolderId::random(self.client).unwrap(),
            ttl: TTL,
            lock_delay: Duration::ZERO,
            wait,
            detached: false,
            floor: None,
        }
    }

    async fn take(&self, mode: Mode) -> HolderId {
        let request = self.request(mode, Wait::No);
        let holder = request.holder;
        let outcome = self.backend.acquire(request).await.unwrap();
        assert!(matches!(outcome, AcquireOutcome::Granted(_)), "{outcome:?}");
        holder
    }

    /// Begins to wait, and returns when the server knows.
    async fn queue(&self, mode: Mode) -> JoinHandle<()> {
        let waiting = || self.redis.cli(&["ZCARD", &key("queue")]);
        let before = waiting();
        let (backend, request) = (Arc::clone(&self.backend), self.request(mode, Wait::Forever));
        let task = tokio::spawn(async move {
            let outcome = backend.acquire(request).await.unwrap();
            assert!(matches!(outcome, AcquireOutcome::Granted(_)), "{outcome:?}");
        });
        eventually("it waits", TTL, async || waiting() != before).await;
        task
    }

    /// Calls a script; its answer as redis-cli prints it, without the numbering.
    fn call(&self, source: &str, keys: &[String], arguments: &[String]) -> Vec<String> {
        let count = keys.len().to_string();
        let mut parts = vec!["EVAL", source, &count];
        parts.extend(keys.iter().chain(arguments).map(String::as_str));
        self.redis.cli(&parts).lines().map(str::to_owned).collect()
    }

    /// Calls the scripts that serve everything with one entry for each lock.
    fn call_full(&self, source: &str, count: usize, arguments: &[String]) -> Vec<String> {
        let client = format!("lockfast:client:{}", crate::record::write_client(self.client));
        let head =
            ["lockfast:fence", &client, "lockfast:watch", "lockfast:guard", "lockfast:crowd"];
        let mut keys: Vec<String> = head.map(str::to_owned).to_vec();
        for _ in 0..count {
            keys.extend([NAME.to_owned(), key("queue"), key("shared"), key("revoked")]);
        }
        let link = self.redis.cli(&["GETRANGE", &client, "0", "7"]);
        let arguments = [&[link, String::new(), "0".to_owned()], arguments].concat();
        self.call(source, &keys, &arguments)
    }

    fn give(&self, holders: &[HolderId]) -> Vec<String> {
        let mut keys =
            ["lockfast:fence", "lockfast:watch", "lockfast:crowd"].map(str::to_owned).to_vec();
        holders.iter().for_each(|_| keys.extend([NAME.to_owned(), key("queue")]));
        let arguments: Vec<_> =
            holders.iter().map(|it| format!("{}.", write_holder(*it))).collect();
        self.call(GIVE, &keys, &arguments)
    }

    fn release(&self, holders: &[HolderId]) -> Vec<String> {
        let arguments: Vec<_> = holders.iter().map(|it| write_holder(*it)).collect();
        self.call_full(single::RELEASE, holders.len(), &arguments)
    }

    fn value(&self) -> String {
        self.redis.cli(&["GET", NAME])
    }
}

fn key(what: &str) -> String {
    format!("lockfast:{{{NAME}}}:{what}")
}

/// How many of these have been granted, when there is nothing more to hear.
async fn count_granted(waiters: &[JoinHandle<()>]) -> usize {
    tokio::time::sleep(Duration::from_millis(300)).await;
    waiters.iter().filter(|waiter| waiter.is_finished()).count()
}

/// B14, P1: a call that names one lock and holder several times passes the lock on once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_is_named_twice_passes_on_once() {
    type Call = fn(&Bench, &[HolderId]) -> Vec<String>;
    for (script, call) in [("give", Bench::give as Call), ("release", Bench::release)] {
        for held in [Mode::Exclusive, Mode::Shared, Mode::permit(1).unwrap()] {
            if script == "give" && held != Mode::Exclusive {
                continue;
            }
            let bench = Bench::start().await;
            let holder = bench.take(held).await;
            let waiters = [
                bench.queue(Mode::Exclusive).await,
                bench.queue(Mode::Exclusive).await,
                bench.queue(Mode::Exclusive).await,
            ];
            assert_eq!(call(&bench, &[holder, holder, holder]), ["2", "0", "0"], "{script} {held}");
            assert_eq!(count_granted(&waiters).await, 1, "{script} {held}");
            let next = bench.value();
            assert_eq!(call(&bench, &[holder, holder]), ["0", "0"], "{script} {held}");
            assert_eq!(bench.value(), next, "{script} {held}");
            waiters.iter().for_each(JoinHandle::abort);
        }
    }
}

/// Without anybody who waits it is free once, and whoever is next in the call does not count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_is_named_twice_frees_once() {
    let bench = Bench::start().await;
    for held in [Mode::Exclusive, Mode::Shared, Mode::permit(2).unwrap()] {
        let holder = bench.take(held).await;
        assert_eq!(bench.release(&[holder, holder]), ["1", "0"], "{held}");
        assert_eq!(bench.redis.cli(&["EXISTS", NAME, &key("shared")]), "0", "{held}");
    }
    let holder = bench.take(Mode::Exclusive).await;
    assert_eq!(bench.give(&[holder, holder]), ["1", "0"]);
    assert_eq!(bench.value(), "");
}

/// A call in which the next holder gives back too what it is given there goes on to the one after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_of_the_next_in_the_same_call() {
    type Call = fn(&Bench, &[HolderId]) -> Vec<String>;
    for call in [Bench::give as Call, Bench::release] {
        let bench = Bench::start().await;
        let holder = bench.take(Mode::Exclusive).await;
        let waiters = [bench.queue(Mode::Exclusive).await, bench.queue(Mode::Exclusive).await];
        let queue = bench.redis.cli(&["ZRANGE", &key("queue"), "0", "0"]);
        let next = crate::record::read_holder(&queue[..22]).unwrap();
        assert_eq!(call(&bench, &[holder, next, holder]), ["2", "2", "0"]);
        assert_eq!(count_granted(&waiters).await, 2);
        assert!(!bench.value().starts_with(&write_holder(next)), "{}", bench.value());
        assert_eq!(bench.redis.cli(&["ZCARD", &key("queue")]), "0");
    }
}

/// B14, P7: an acquisition that a call names twice is one grant with one fence, and one place in the
/// queue; a lock that a call names for several is given to one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquisition_that_is_named_twice_is_one() {
    for mode in ["x", "s", "p1"] {
        let bench = Bench::start().await;
        let text = |_: usize| {
            let holder = HolderId::random(bench.client).unwrap();
            format!("{}.{mode}.60000.0", write_holder(holder))
        };
        let (first, second) = (text(1), text(2));
        let entries = [&first, &first, &second, &second].map(String::as_str);
        let arguments: Vec<String> =
            entries.iter().flat_map(|it| [*it, "60000", "1"]).map(str::to_owned).collect();
        let answers = bench.call_full(single::ACQUIRE, 4, &arguments);
        assert_eq!(answers[0], answers[1], "{mode}: {answers:?}");
        let head = ["0", "0"].map(str::to_owned);
        match mode {
            "s" => assert_eq!((answers.len(), &answers[2]), (4, &answers[3]), "{answers:?}"),
            // Two answers of five fields each: both wait at the same place.
            _ => assert_eq!((&answers[2..4], &answers[7..9]), (head.as_slice(), head.as_slice())),
        }
        let waiting = if mode == "s" { "0" } else { "1" };
        assert_eq!(bench.redis.cli(&["ZCARD", &key("queue")]), waiting, "{mode}");
    }
    let bench = Bench::start().await;
    let client = format!("lockfast:client:{}", crate::record::write_client(bench.client));
    let mut keys: Vec<String> =
        ["lockfast:fence", &client, "lockfast:watch", "lockfast:crowd"].map(str::to_owned).to_vec();
    (0..4).for_each(|_| keys.extend([NAME.to_owned(), key("queue")]));
    let mut arguments = vec![bench.redis.cli(&["GETRANGE", &client, "0", "7"])];
    let texts = [(); 2]
        .map(|()| format!("{}.x.60000.0", write_holder(HolderId::random(bench.client).unwrap())));
    for text in [&texts[0], &texts[0], &texts[1], &texts[1]] {
        arguments.extend([text.clone(), "60000".to_owned()]);
    }
    let answers = bench.call(TAKE, &keys, &arguments);
    assert!(answers[0].len() > 10 && answers[1] == "0", "granted once: {answers:?}");
    assert_eq!((answers.len(), answers[7].as_str()), (8, "0"), "queued once: {answers:?}");
    assert_eq!(bench.redis.cli(&["ZCARD", &key("queue")]), "1");
}

/// A renewal that a call names twice is one, also when the quarantine lets it be written down again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_is_named_twice_is_one() {
    for (held, mode) in [(Mode::Exclusive, "x"), (Mode::Shared, "s")] {
        let bench = Bench::start().await;
        let holder = write_holder(bench.take(held).await);
        let client = format!("lockfast:client:{}", crate::record::write_client(bench.client));
        let mut keys = vec![client.clone(), "lockfast:guard".to_owned()];
        for _ in 0..2 {
            keys.extend([NAME.to_owned(), key("queue"), key("shared"), key("revoked")]);
        }
        let link = bench.redis.cli(&["GETRANGE", &client, "0", "7"]);
        let lease = [holder.clone(), "60000".to_owned(), format!("{mode}.7")];
        for identity in ["", "this"] {
            if !identity.is_empty() {
                // The server has forgotten it and grants nothing: it is written down again.
                bench.redis.cli(&["DEL", NAME, &key("shared")]);
                bench.redis.cli(&["SET", "lockfast:guard", "this 99999999999999 60000"]);
            }
            let head = [link.clone(), identity.to_owned()];
            let arguments = [&head[..], &lease, &lease].concat();
            assert_eq!(
                bench.call(single::RENEW, &keys, &arguments),
                ["1", "1"],
                "{mode} {identity}"
            );
            assert_ne!(bench.value(), "", "{mode} {identity}");
        }
    }
}

/// What `cargo xtask soak --undone B14` takes away is there to be taken away.
#[test]
fn a_script_can_be_made_forgetful() {
    for (source, place) in [(GIVE, MEMORY[0]), (single::RELEASE, MEMORY[1])] {
        assert!(source.contains(place), "{place}");
        assert!(!forgetful(source).contains(place), "{place}");
    }
}
