//! What the tests of this store share: several real servers, programs that take locks without
//! Lockfast, and short ways to hold, lose and be refused a lock.
#![allow(dead_code, unused_imports, reason = "each test binary uses a part of it")]
#![allow(unreachable_pub, reason = "what is shared is public, whoever uses it")]

pub mod foreign;

use std::future::Future;
use std::time::Duration;

use lockfast::{
    Address, Attempt, DetachedLease, Error, ErrorKind, Guard, Locker, LossCause, Mode, Moment,
    Options, Refusal, Result,
};

pub use lockfast_conformance::fault::proxy::{Link, Proxy};
pub use lockfast_conformance::fault::redis::{Redis, Setup};
pub use lockfast_conformance::fault::wait::{eventually, wait_until};

/// Nothing in these tests takes longer than this on a busy machine unless it hangs.
pub const TIME_MAX: Duration = Duration::from_secs(30);

/// Independent servers.
pub struct Nodes(pub Vec<Redis>);

impl Nodes {
    pub fn start(count: usize) -> Self {
        Self((0..count).map(|_| Redis::start()).collect())
    }

    /// With wall clocks that can be stepped.
    pub fn start_with_clocks(count: usize) -> Self {
        Self((0..count).map(|_| Setup::new().clock().start()).collect())
    }

    /// With everything on disk before it is answered.
    pub fn start_durable(count: usize) -> Self {
        Self((0..count).map(|_| Setup::new().append_always().start()).collect())
    }

    /// The URL of all, with more time for each node than a busy machine needs.
    pub fn url(&self) -> String {
        self.url_with("")
    }

    pub fn url_with(&self, options: &str) -> String {
        let hosts: Vec<String> = self.0.iter().map(|it| it.address().to_string()).collect();
        format!("redlock://{}?node_timeout=500ms{options}", hosts.join(","))
    }

    /// How many scripts all nodes have run.
    pub fn calls(&self) -> u64 {
        self.0.iter().map(calls).sum()
    }

    /// On how many nodes a key is there.
    pub fn count_key(&self, key: &str) -> usize {
        self.0.iter().filter(|node| node.try_cli(&["EXISTS", key]).1 == "1").count()
    }
}

/// How many scripts a node has run.
pub fn calls(node: &Redis) -> u64 {
    let stats = node.cli(&["INFO", "commandstats"]);
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    line.and_then(|line| line.split(',').next()).map_or(0, |count| count.parse().unwrap())
}

/// The way to each node, which can be broken.
pub struct Ways(pub Vec<Proxy>);

impl Ways {
    pub async fn to(nodes: &Nodes) -> Self {
        let mut ways = Vec::new();
        for node in &nodes.0 {
            ways.push(Proxy::start(node.address()).await.unwrap());
        }
        Self(ways)
    }

    pub fn url_with(&self, options: &str) -> String {
        let hosts: Vec<String> = self.0.iter().map(|it| it.address().to_string()).collect();
        format!("redlock://{}?node_timeout=500ms{options}", hosts.join(","))
    }
}

pub async fn connect(url: &str) -> Locker {
    try_connect(url).await.unwrap_or_else(|error| panic!("cannot connect: {error}"))
}

/// Connects, which may fail.
pub async fn try_connect(url: &str) -> Result<Locker> {
    let address = Address::parse(url)?;
    let connecting = Locker::builder()
        .connect_with(move |context| lockfast_backend_redlock::connect(address, context));
    bounded(connecting).await
}

/// A lease of this length, and one try.
pub fn ttl(ttl: Duration) -> Options {
    Options::default().ttl(ttl).no_wait()
}

/// Takes a lock.
pub async fn hold(locker: &Locker, name: &str, options: Options) -> Guard {
    let mutex = locker.mutex(name).unwrap().with(options).unwrap();
    bounded(mutex.acquire()).await.unwrap_or_else(|error| panic!("not granted: {error}"))
}

/// Takes a free lock on every node. A node whose connection is being made takes no part in a
/// round, so the lock is taken again until all do.
pub async fn hold_on_all(locker: &Locker, nodes: &Nodes, name: &str, options: Options) -> Guard {
    const ROUND: Duration = Duration::from_millis(500);
    let has_all = async || nodes.count_key(name) == nodes.0.len();
    let start = Moment::now();
    loop {
        let guard = hold(locker, name, options.clone()).await;
        let round = Moment::now();
        while Moment::now().since(round) < ROUND {
            if has_all().await {
                return guard;
            }
        }
        assert!(Moment::now().since(start) < TIME_MAX, "never held by all nodes: {name}");
        drop(guard.release().await);
    }
}

/// Takes a free lock for so long and no longer, as a holder does that dies at once.
pub async fn hold_detached(locker: &Locker, name: &str, span: Duration) -> DetachedLease {
    let lock = locker.lock(name, Mode::Exclusive).unwrap().with(ttl(span)).unwrap();
    bounded(lock.acquire_detached()).await.unwrap()
}

/// Who has a lock that is taken.
pub async fn refusal(locker: &Locker, name: &str) -> Refusal {
    let mutex = locker.mutex(name).unwrap();
    match bounded(mutex.try_acquire()).await.unwrap() {
        Attempt::Taken(refusal) => refusal,
        Attempt::Granted(guard) => panic!("granted with fence {}", guard.fence()),
    }
}

/// The error that a try to take a lock meets.
pub async fn failure(locker: &Locker, name: &str, options: Options) -> Error {
    let mutex = locker.mutex(name).unwrap().with(options.retries(0)).unwrap();
    match bounded(mutex.try_acquire()).await {
        Err(error) => error,
        Ok(Attempt::Taken(refusal)) => panic!("taken instead of an error: {refusal}"),
        Ok(Attempt::Granted(guard)) => panic!("granted with fence {}", guard.fence()),
    }
}

/// Checks what the user sees: the kind of error, and that its message has these words.
pub fn check_error(error: &Error, kind: ErrorKind, words: &[&str]) {
    assert_eq!(error.kind(), kind, "{error}");
    let message = error.to_string();
    for word in words {
        assert!(message.to_lowercase().contains(&word.to_lowercase()), "no {word:?} in: {message}");
    }
}

/// How a lease was lost, which must happen within `bound`.
pub async fn loss(guard: &Guard, bound: Duration) -> LossCause {
    let lost = tokio::time::timeout(bound, guard.lost()).await;
    lost.unwrap_or_else(|_| panic!("not lost within {bound:?}, it is {:?}", guard.status()))
}

/// Waits for a future that must not hang.
pub async fn bounded<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(TIME_MAX, future).await.expect("it takes too long")
}
