//! What the tests of this store share: a user with the rights that the README names, few clusters at a
//! time, and a look at the server. The short ways to hold, lose and be refused a lock are those of
//! the conformance crate.
#![allow(dead_code, unused_imports, reason = "each test binary uses a part of it")]
#![allow(unreachable_pub, reason = "what is shared is public, whoever uses it")]

pub mod foreign;
pub mod sieve;
pub mod values;

use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use lockfast::{Locker, Result};
use lockfast_conformance::shorthand;

pub use lockfast_conformance::shorthand::{
    TIME_MAX, bounded, check_error, failure, hold, hold_detached, loss, queue_for, refusal, ttl,
    wait_for_renewal,
};
pub use lockfast_faults::etcd::{Cluster, Etcd, Setup};
pub use lockfast_faults::server::Server;
pub use lockfast_faults::wait::{eventually, wait_until};

/// The user with the documented rights, and the password that it has in tests.
pub const USER: &str = "app";
pub const PASSWORD: &str = "word";
/// What the keys start with on which it has rights.
pub const PREFIX: &str = "app/";

/// The commands of the README that make a user with the fewest rights, as arguments of `etcdctl`.
pub fn documented_rights() -> Vec<Vec<String>> {
    let readme = include_str!("../../README.md");
    let blocks = readme.split("```sh\n").skip(1).filter_map(|block| block.split("```").next());
    let commands = blocks.flat_map(str::lines).filter_map(|line| line.strip_prefix("etcdctl "));
    let commands = commands.filter(|line| line.starts_with("user ") || line.starts_with("role "));
    let commands: Vec<Vec<String>> =
        commands.map(|line| line.split_whitespace().map(str::to_owned).collect()).collect();
    assert!(commands.len() >= 4, "the README does not say how to make a user: {commands:?}");
    commands
}

/// Makes the user of the README, and asks for users from now on.
pub fn make_user(server: &mut Etcd) {
    for command in documented_rights() {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        match words.as_slice() {
            // Its password is asked for, or written there for people to change.
            ["user", "add", name, ..] => {
                let name = name.split(':').next().unwrap();
                assert_eq!(name, USER);
                server.ctl(&["user", "add", &format!("{name}:{PASSWORD}")]);
            }
            words => {
                server.ctl(words);
            }
        }
    }
    server.require_users();
}

/// The URL of the user of the README.
pub fn user_url(server: &Etcd) -> String {
    format!("{}?prefix={PREFIX}", server.url_as(USER, PASSWORD))
}

/// The URL of a server at another address.
pub fn url_at(address: SocketAddr) -> String {
    format!("etcd://{address}")
}

/// Connects to a store on the server.
pub async fn connect(url: &str) -> Locker {
    shorthand::connect(url, lockfast_backend_etcd::connect).await
}

/// Connects to a store on the server, which may fail.
pub async fn try_connect(url: &str) -> Result<Locker> {
    shorthand::try_connect(url, lockfast_backend_etcd::connect).await
}

/// How many clusters there may be at once: they want more of the machine than anything else, but their
/// tests mostly wait for elections and renewals.
const CLUSTERS_MAX: usize = 2;

/// Three members, while few other tests of this binary have any.
#[derive(Debug)]
pub struct OneCluster {
    cluster: Cluster,
    _turn: Turn,
}

/// One of the clusters that there may be.
#[derive(Debug)]
struct Turn;

static RUNNING: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

impl Turn {
    /// Waits until it is our turn.
    fn wait() -> Self {
        let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let running = ENDED.wait_while(running, |running| *running >= CLUSTERS_MAX);
        *running.unwrap_or_else(PoisonError::into_inner) += 1;
        Self
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        ENDED.notify_one();
    }
}

/// Starts them when it is our turn.
pub fn start_cluster() -> OneCluster {
    start_cluster_as(&Setup::new())
}

/// The same, each set up so.
pub fn start_cluster_as(setup: &Setup) -> OneCluster {
    let turn = Turn::wait();
    OneCluster { cluster: Cluster::start_as(setup), _turn: turn }
}

impl Deref for OneCluster {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl DerefMut for OneCluster {
    fn deref_mut(&mut self) -> &mut Cluster {
        &mut self.cluster
    }
}

/// Where a story happens: on a server of its own, or at a member of a cluster that does not lead.
#[derive(Debug)]
pub enum Home {
    Alone(Box<Etcd>),
    Member(Arc<OneCluster>, usize),
}

impl Home {
    /// A server of its own.
    pub fn alone() -> Self {
        Self::Alone(Box::new(Etcd::start()))
    }

    /// A member of a cluster in which nothing is left of the story before.
    pub async fn member(cluster: &Arc<OneCluster>) -> Self {
        let [follower, _] = cluster.followers();
        let home = Self::Member(Arc::clone(cluster), follower);
        eventually("nobody has a lock", TIME_MAX, async || {
            home.keys("").iter().all(|key| !key.contains('/'))
        })
        .await;
        home
    }

    /// The URL of the server, or of all members.
    pub fn url(&self) -> String {
        match self {
            Self::Alone(server) => server.url(),
            Self::Member(cluster, _) => cluster.url(),
        }
    }
}

impl Deref for Home {
    type Target = Etcd;

    fn deref(&self) -> &Etcd {
        match self {
            Self::Alone(server) => server,
            Self::Member(cluster, number) => cluster.member(*number),
        }
    }
}
