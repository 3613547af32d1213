//! What the tests of this store share: several real servers, the ways to them, and programs that
//! take locks without Lockfast. The short ways to hold, lose and be refused a lock are those of the
//! conformance crate.
#![allow(dead_code, unused_imports, reason = "each test binary uses a part of it")]
#![allow(unreachable_pub, reason = "what is shared is public, whoever uses it")]

pub mod foreign;

use std::sync::Arc;
use std::time::Duration;

use lockfast::{Error, Guard, Locker, Moment, Options, Result};
use lockfast_conformance::shorthand;
use lockfast_core::{Address, Backend, ClientId, ConnectContext, Label, LossReporter};
use tokio::runtime::Handle;

pub use lockfast_conformance::shorthand::{
    TIME_MAX, bounded, check_error, hold, hold_detached, lose_the_right_on_one, loss, queue_for,
    refusal, request, ttl, wait_for_renewal,
};
pub use lockfast_faults::proxy::{Link, Proxy};
pub use lockfast_faults::redis::{Redis, Setup};
pub use lockfast_faults::signpost::Signpost;
pub use lockfast_faults::wait::{eventually, wait_until};

pub const README: &str = include_str!("../../README.md");

/// The rights that the store's page names, for locks whose names match `names`.
pub fn rights(names: &str) -> String {
    let text = README.split_once("```text\nuser locks on >PASSWORD ").expect("the README's user").1;
    let text = text.split_once("```").expect("the end of the README's user").0;
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace("~NAMES*", names)
}

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

    /// With a user `locks` whose password is `word` and who has the rights of the store's page on
    /// locks whose names match `names`.
    pub fn start_with_user(count: usize, names: &str) -> Self {
        let line = format!("user locks on >word {}", rights(names));
        Self((0..count).map(|_| Setup::new().line(&line).start()).collect())
    }

    /// The URL of that user.
    pub fn user_url(&self) -> String {
        self.url().replace("redlock://", "redlock://locks:word@")
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
    count_calls(node, "calls")
}

/// How many scripts of a node have ended with a complaint.
pub fn refused_calls(node: &Redis) -> u64 {
    count_calls(node, "failed_calls")
}

fn count_calls(node: &Redis, which: &str) -> u64 {
    let stats = node.cli(&["INFO", "commandstats"]);
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:"));
    let fields = line.into_iter().flat_map(|line| line.split(','));
    let mut fields = fields.filter_map(|field| field.split_once('='));
    fields.find(|(name, _)| *name == which).map_or(0, |(_, count)| count.parse().unwrap())
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
        self.url_within("500ms", options)
    }

    /// The URL of all, with so much time for each node.
    pub fn url_within(&self, limit: &str, options: &str) -> String {
        let hosts: Vec<String> = self.0.iter().map(|it| it.address().to_string()).collect();
        format!("redlock://{}?node_timeout={limit}{options}", hosts.join(","))
    }
}

/// Connects to a store.
pub async fn connect(url: &str) -> Locker {
    shorthand::connect(url, lockfast_backend_redlock::connect).await
}

/// The store without the lease engine.
pub async fn connect_backend(url: &str, client: ClientId) -> Arc<dyn Backend> {
    let context = ConnectContext {
        runtime: Handle::current(),
        client,
        label: Label::of_this_process(),
        losses: LossReporter::new(|_| {}),
    };
    bounded(lockfast_backend_redlock::connect(Address::parse(url).unwrap(), context)).await.unwrap()
}

/// Connects to a store, which may fail.
pub async fn try_connect(url: &str) -> Result<Locker> {
    shorthand::try_connect(url, lockfast_backend_redlock::connect).await
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

/// The error that the first try to take a lock meets.
pub async fn failure(locker: &Locker, name: &str, options: Options) -> Error {
    shorthand::failure(locker, name, options.retries(0)).await
}
