//! Nodes that answer, but say no: to what concerns one lock and not the others, or for a while.

use std::time::Duration;

use lockfast::{ErrorKind, Released};
use lockfast_core::ClientId;

use crate::kit::{
    Nodes, bounded, check_error, connect, connect_backend, eventually, failure, hold, hold_on_all,
    lose_the_right_on_one, ttl,
};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(6);
const SLACK: Duration = Duration::from_secs(8);

/// B143, P11: locks on which the user has no rights are asked for together with others.
/// The user sees: `Permission` for those, and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_without_rights_beside_others() {
    let nodes = Nodes::start_with_user(3, "~app/*");
    let locker = connect(&nodes.user_url()).await;
    let mut asking = tokio::task::JoinSet::new();
    for at in 0..50 {
        let (allowed, refused) = (format!("app/{at}"), format!("others/{at}"));
        let (asker, other) = (locker.clone(), locker.clone());
        asking.spawn(async move {
            let error = failure(&asker, &refused, ttl(TTL)).await;
            check_error(&error, ErrorKind::Permission, &["ACL"]);
        });
        asking.spawn(async move {
            let guard = hold(&other, &allowed, ttl(TTL).retries(0)).await;
            assert!(matches!(guard.release().await.unwrap(), Released::Released));
        });
    }
    while let Some(asked) = bounded(asking.join_next()).await {
        asked.unwrap();
    }
    eventually("all is released", SLACK, async || {
        nodes.0.iter().all(|node| node.cli(&["KEYS", "app/*"]).is_empty())
    })
    .await;
}

/// B143, P3, P6: the right on one of the locks that are renewed together, and released together, is
/// taken away: the others are renewed, and released.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_right_on_one_lock_is_taken_away() {
    let nodes = Nodes::start_with_user(3, "~app/*");
    let client = ClientId::random().unwrap();
    let backend = connect_backend(&nodes.user_url(), client).await;
    let withdraw = |left: &[String]| nodes.0.iter().for_each(|node| node.restrict("locks", left));
    lose_the_right_on_one(&backend, client, withdraw, ErrorKind::NoQuorum).await;
}

/// B142, P5: a node that does not take a release at the moment is told again, although its
/// connection is well and nobody else asks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_a_node_does_not_take_at_the_moment() {
    let nodes = Nodes::start(3);
    let locker = connect(&nodes.url()).await;
    let guard = hold_on_all(&locker, &nodes, NAME, ttl(Duration::from_secs(600))).await;
    let node = &nodes.0[2];
    node.cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    eventually("released by the others", SLACK, async || nodes.count_key(NAME) == 1).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(node.cli(&["EXISTS", NAME]), "1");
    node.cli(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    eventually("released by all", SLACK, async || nodes.count_key(NAME) == 0).await;
}

/// B141, P6: a node without memory gives back what it has, also in a call with something that it
/// does not have and whose fence it cannot raise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_without_memory_beside_one_that_was_not_held() {
    let nodes = Nodes::start(1);
    let locker = connect(&nodes.url()).await;
    let _guard = hold(&locker, NAME, ttl(TTL)).await;
    let node = &nodes.0[0];
    let script = include_str!("../../src/scripts/release.lua");
    let client = node.cli(&["KEYS", "lockfast:client:*"]);
    let link = &node.cli(&["GET", &client])[..8];
    let held = node.cli(&["GET", NAME]);
    node.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let keys = ["5", "lockfast:watchers", &client, "lockfast:crowd", "other", NAME];
    let args = [&["EVAL", script], &keys[..], &[link, "1", &held, &held]].concat();
    let (_, said) = node.try_cli(&args);
    let said: Vec<&str> = said.lines().filter(|line| !line.is_empty()).collect();
    assert!(said.len() == 2 && said[0].contains("OOM") && said[1] == "1", "{said:?}");
    assert_eq!(nodes.count_key(NAME), 0);
}
