//! Every rig: its servers start, each of its faults can be begun and healed, locks work again after
//! it, and what the store promises of it holds.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::time::Duration;

use lockfast::{Attempt, Guard, Locker, Options};
use lockfast_torture::rig::{Planned, ROWS, Rig, RigOptions, Row, ServerFault, row};
use tempfile::TempDir;

const TTL: Duration = Duration::from_secs(20);

/// Schemes without a rig, and why.
const NOT_SHARED: &[(&str, &str)] = &[("memory", "its locks reach one process only")];

/// A rig and somebody who uses it.
struct Scene {
    rig: Box<dyn Rig>,
    row: &'static Row,
    locker: Locker,
    _directory: TempDir,
}

impl Scene {
    async fn start(name: &str) -> Self {
        Self::start_with(name, TTL).await
    }

    /// Starts a rig that takes leases to be of this ttl.
    async fn start_with(name: &str, ttl: Duration) -> Self {
        let row = row(name).unwrap();
        row.check().unwrap();
        let directory = TempDir::new().unwrap();
        let options = RigOptions { directory: directory.path().to_owned(), ttl, clock: true };
        let rig = (row.start)(&options).unwrap();
        let locker = Locker::connect(&rig.url()).await.unwrap();
        Self { rig, row, locker, _directory: directory }
    }

    fn planned(&self, name: &str) -> Planned {
        let fault = self.row.faults.iter().find(|fault| fault.name == name).unwrap();
        // The least that is left to chance: the briefest of what may last.
        Planned { fault: *fault, server: 0, chance: 0 }
    }

    async fn take(&self, name: &str) -> Guard {
        let options = Options::default().ttl(TTL).wait(Duration::from_secs(60));
        self.locker.mutex(name).unwrap().with_options(options).acquire().await.unwrap()
    }
}

/// Begins and heals every fault of a row; whoever held a lock before still does, if the store's
/// guarantee covers it, and others get theirs.
async fn survive(name: &str) {
    let mut scene = Scene::start(name).await;
    for ServerFault { name, beyond, .. } in scene.row.faults {
        let planned = scene.planned(name);
        let before = scene.take(&format!("before-{name}")).await;
        scene.rig.begin(&planned).unwrap();
        scene.rig.heal(&planned).unwrap();
        let after = scene.take(&format!("after-{name}")).await;
        after.check().unwrap();
        if !beyond {
            before.lease().full().await.unwrap();
            let extended = before.extend(TTL).await;
            extended.unwrap_or_else(|error| panic!("{name}: the lease is lost: {error}"));
        }
    }
    scene.take("last").await.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn embedded() {
    survive("embedded").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis() {
    survive("redis").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_replicas() {
    survive("redis-replicas").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redlock() {
    survive("redlock").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres() {
    survive("postgres").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb() {
    survive("mariadb").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql() {
    survive("mysql").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd() {
    survive("etcd").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_cluster() {
    survive("etcd-cluster").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zookeeper() {
    survive("zookeeper").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zookeeper_ensemble() {
    survive("zookeeper-ensemble").await;
}

/// What theory says of a replica that takes over: what was granted while it heard nothing is granted
/// again, while the first holder still has time left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_of_redis_forgets_the_last_grants() {
    // The replica hears nothing for less than a lease lasts here.
    let mut scene = Scene::start_with("redis-failover", Duration::from_secs(1)).await;
    let planned = scene.planned("server-promotion");
    let mut rig = scene.rig;
    let promotion = tokio::task::spawn_blocking(move || {
        rig.begin(&planned).unwrap();
        rig
    });
    let mut held = Vec::new();
    while !promotion.is_finished() {
        let lock = scene.locker.mutex(format!("late-{}", held.len())).unwrap();
        if let Ok(Attempt::Acquired(guard)) = lock.try_acquire().await {
            held.push(guard);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    scene.rig = promotion.await.unwrap();
    let other = Locker::connect(&scene.rig.url()).await.unwrap();
    let mut twice = 0;
    for guard in &held {
        let attempt = other.mutex(guard.name()).unwrap().try_acquire().await.unwrap();
        if matches!(attempt, Attempt::Acquired(_)) && guard.check().is_ok() {
            twice += 1;
        }
    }
    assert!(twice > 0, "of {} grants none was forgotten", held.len());
    scene.rig.heal(&planned).unwrap();
    scene.take("last").await.release().await.unwrap();
}

/// Every scheme that Lockfast knows is served by a rig, and every rig's scheme is known.
#[test]
fn every_store_has_a_rig() {
    let known: BTreeSet<String> = lockfast::known_schemes().into_iter().collect();
    let rows = ROWS.iter().flat_map(|row| row.schemes).copied();
    let listed = rows.chain(NOT_SHARED.iter().map(|(scheme, _)| *scheme));
    let listed: BTreeSet<String> = listed.map(|scheme| format!("{scheme}:")).collect();
    assert_eq!(known, listed, "the schemes of Lockfast and those of the rigs");
}

/// Names are one word each, faults say what they do, and what no guarantee covers is marked.
#[test]
fn rows_are_as_the_command_shows_them() {
    for row in ROWS {
        assert!(!row.about.is_empty() && row.name == row.name.to_lowercase(), "{row:?}");
        for fault in row.faults {
            assert!(fault.name.starts_with("server-") && !fault.about.is_empty(), "{fault:?}");
            assert_eq!(fault.beyond, row.name == "redis-failover", "{fault:?}");
        }
    }
}
