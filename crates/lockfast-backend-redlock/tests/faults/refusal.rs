//! Nodes that answer, but say no: to what concerns one lock and not the others, or for a while.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use lockfast::{ErrorKind, Released};
use lockfast_core::ClientId;

use crate::kit::{
    Nodes, Redis, Setup, bounded, check_error, connect, connect_backend, eventually, failure, hold,
    hold_on_all, lose_the_right_on_one, try_connect, ttl,
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

/// P5, P11: a minority without memory is done without. Without a majority nothing new is granted, and
/// nothing is left of what was asked for; who has a lock can renew it and give it back.
/// The user sees: an error that names maxmemory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn out_of_memory() {
    let nodes = Nodes::start(3);
    let locker = connect(&nodes.url()).await;
    let held = hold_on_all(&locker, &nodes, "held", ttl(TTL)).await;
    let fill = |node: &Redis| drop(node.cli(&["CONFIG", "SET", "maxmemory", "1"]));
    fill(&nodes.0[0]);
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    nodes.0[1..].iter().for_each(fill);
    let error = failure(&locker, "another", ttl(TTL)).await;
    check_error(&error, ErrorKind::NoQuorum, &["maxmemory"]);
    bounded(held.extend(TTL * 2)).await.unwrap();
    assert!(matches!(held.release().await.unwrap(), Released::Released));
    for name in ["held", NAME, "another"] {
        eventually("nothing is left", SLACK, async || nodes.count_key(name) == 0).await;
    }
}

/// P11: nodes that cannot save take no writes.
/// The user sees: an error that names the disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disks_that_are_full() {
    let start = |_| Setup::new().line("save 3600 100000").start();
    let nodes = Nodes((0..3).map(start).collect());
    let locker = connect(&nodes.url()).await;
    for node in &nodes.0[1..] {
        std::fs::remove_dir_all(node.data()).unwrap();
        node.cli(&["BGSAVE"]);
        let has_failed = async || node.info("rdb_last_bgsave_status") == "err";
        eventually("the save failed", SLACK, has_failed).await;
    }
    let error = failure(&locker, NAME, ttl(TTL)).await;
    check_error(&error, ErrorKind::NoQuorum, &["disk"]);
    for node in &nodes.0[1..] {
        node.cli(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    }
    eventually("nothing is left", SLACK, async || nodes.count_key(NAME) == 0).await;
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
}

/// P11: nodes that have no room for another client. A minority is done without.
/// The user sees: `NoQuorum`, with their addresses, where they are a majority.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_connection_is_left() {
    let start = |limit: &str| Setup::new().line(limit).start();
    let nodes = Nodes(["maxclients 100", "maxclients 1", "maxclients 1"].map(start).into());
    let occupants = (occupy(&nodes.0[1]).await, occupy(&nodes.0[2]).await);
    let error = match try_connect(&nodes.url()).await {
        Err(error) => error,
        Ok(locker) => failure(&locker, NAME, ttl(TTL)).await,
    };
    check_error(&error, ErrorKind::NoQuorum, &[&nodes.0[1].address().to_string(), "maxclients"]);
    drop(occupants.0);
    let widen = ["CONFIG", "SET", "maxclients", "100"];
    eventually("one has room", SLACK, async || nodes.0[1].try_cli(&widen).0).await;
    let locker = connect(&nodes.url()).await;
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    drop(occupants.1);
}

/// Takes the only connection that a node has. That which waited for its start may still be there, so
/// one try may not do.
async fn occupy(node: &Redis) -> TcpStream {
    let mut occupant = None;
    eventually("it is full", SLACK, async || {
        let mut stream = TcpStream::connect(node.address()).unwrap();
        let mut said = [0; 7];
        let has_place = stream.write_all(b"PING\r\n").is_ok()
            && stream.read_exact(&mut said).is_ok()
            && &said == b"+PONG\r\n";
        occupant = has_place.then_some(stream);
        has_place
    })
    .await;
    occupant.unwrap()
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
