//! Replicas, sentinels and clusters.

use std::time::Duration;

use lockfast::{Diagnosis, Severity};
use lockfast_faults::server::Server as _;

use crate::kit::port::Port;
use crate::kit::rights::row_of;
use crate::kit::topology::{add_replica, start_cluster_of, wait_for_sync, watch_over};
use crate::kit::wait_until;
use crate::{Redis, Setup, check, check_all, diagnose, find};

const TIME_MAX: Duration = Duration::from_secs(60);

/// A replica of a server that asks for a password.
fn replica_of(master: &Redis) -> Redis {
    let rights = format!("{} +psync +replconf +ping", crate::rights());
    let replica = Setup::new()
        .append_always()
        .line("user default off")
        .user("locks", "hush-7", &rights)
        .line("masteruser copy")
        .line("masterauth hush-7")
        .replica_of(master)
        .start();
    wait_for_sync(master, &replica);
    replica
}

/// A good master that a replica may copy, and that a sentinel may watch.
fn master(more: &str) -> Redis {
    let watcher = "user watch on >hush-7 allchannels -@all +multi +slaveof +ping +exec +subscribe \
                   +config|rewrite +role +publish +info +client|setname +client|kill +script|kill";
    let rights = format!("{} {}", crate::rights(), row_of("`redis+sentinel:`, on the master"));
    let setup = Setup::new()
        .append_always()
        .line("user default off")
        .user("locks", "hush-7", &rights)
        .line("user copy on >hush-7 -@all +psync +replconf +ping")
        .line(watcher);
    if more.is_empty() { setup.start() } else { setup.line(more).start() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_may_take_over_and_one_that_is_asked() {
    let master = master("");
    let replica = replica_of(&master);
    let diagnosis = diagnose(&master.url()).await;
    check_all(&diagnosis, &[], &["failover"], &[]);
    check(&diagnosis, "failover", Severity::Warn, "1 replicas");
    for option in ["min_replicas=1", "on_data_loss=quarantine"] {
        let diagnosis = diagnose(&format!("{}?{option}", master.url())).await;
        check(&diagnosis, "failover", Severity::Ok, "1 replicas");
    }
    let diagnosis = diagnose(&replica.url()).await;
    check(&diagnosis, "role", Severity::Unsafe, "replica");
    assert!(diagnosis.because.starts_with("role is unsafe"), "{}", diagnosis.because);
    // One that hangs does not copy any more.
    replica.pause();
    wait_until("it is late", TIME_MAX, || {
        let lag = master.info("slave0");
        let lag = lag.rsplit_once("lag=").unwrap().1.trim().parse::<u32>().unwrap();
        lag > 10
    });
    let diagnosis = diagnose(&master.url()).await;
    check(&diagnosis, "replica-lag", Severity::Warn, "lag=");
    replica.resume();
}

fn sentinel_of(master: &Redis) -> Redis {
    Setup::new()
        .sentinel()
        .line(format!("sentinel monitor main 127.0.0.1 {} 2", master.port()))
        .line("sentinel auth-user main watch")
        .line("sentinel auth-pass main hush-7")
        .start()
}

/// Three sentinels, replicas that writes need, and the quarantine: all is well. Without them, not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_that_are_enough() {
    let master = master("min-replicas-to-write 1");
    let _replica = replica_of(&master);
    let sentinels = [(); 3].map(|()| sentinel_of(&master));
    wait_until("all sentinels know each other", TIME_MAX, || {
        sentinels
            .iter()
            .all(|it| it.cli(&["SENTINEL", "MASTER", "main"]).contains("num-other-sentinels\n2"))
    });
    let hosts = sentinels.each_ref().map(|it| it.address().to_string()).join(",");
    let url = format!("redis+sentinel://locks:hush-7@{hosts}/main");
    let diagnosis = diagnose(&format!("{url}?on_data_loss=quarantine")).await;
    check_all(&diagnosis, &[], &[], &[]);
    check(&diagnosis, "sentinels", Severity::Ok, "3 know each other");
    let diagnosis = diagnose(&url).await;
    check_all(&diagnosis, &[], &[], &["failover"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_that_are_too_few() {
    let master = Setup::new().append_always().start();
    let replica = Setup::new().replica_of(&master).start();
    wait_for_sync(&master, &replica);
    let sentinel = watch_over(&master, &replica);
    let dead = Port::take();
    let (dead, alive) = (format!("127.0.0.1:{}", dead.number()), sentinel.address());
    let diagnosis = diagnose(&format!("redis+sentinel://{dead},{alive}/main")).await;
    let warned = ["sentinels", "sentinels", "split-brain", "acl-width", "default-user"];
    check_all(&diagnosis, &[], &warned, &["failover"]);
    let gone = find(&diagnosis, "sentinels");
    assert_eq!(gone.server.as_deref(), Some(dead.as_str()), "{gone:?}");
    let few = diagnosis.findings.iter().filter(|it| it.check == "sentinels").nth(1).unwrap();
    assert!(few.fact.starts_with("1 know each other"), "{few:?}");
}

/// What is said of one node.
fn of_node<'a>(diagnosis: &'a Diagnosis, name: &str, node: &Redis) -> &'a lockfast::Finding {
    let place = node.address().to_string();
    let mut found = diagnosis.findings.iter().filter(|it| it.check == name);
    found.find(|it| it.server.as_deref() == Some(place.as_str())).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_master_of_a_cluster_is_looked_at() {
    let rights = format!("{} {}", crate::rights(), row_of("`redis+cluster:`"));
    let mut cluster = start_cluster_of(|setup| {
        setup.append_always().line(format!("user locks on >hush-7 {rights}"))
    });
    let url = format!("redis+cluster://locks:hush-7@{}", cluster.nodes[0].address());
    let diagnosis = diagnose(&url).await;
    // The tests' own way in is that of the default user.
    check_all(&diagnosis, &[], &["default-user"; 3], &[]);
    check(&diagnosis, "slots", Severity::Ok, "16384 of 16384");
    for node in &cluster.nodes {
        assert_eq!(of_node(&diagnosis, "reachable", node).severity, Severity::Ok);
        assert_eq!(of_node(&diagnosis, "failover", node).severity, Severity::Ok);
    }
    // A node is no server to be used alone.
    let alone = format!("redis://locks:hush-7@{}", cluster.nodes[0].address());
    check(&diagnose(&alone).await, "topology", Severity::Warn, "Redis Cluster");

    let _replica = add_replica(&cluster, |setup| setup);
    let diagnosis = diagnose(&url).await;
    let first = &cluster.nodes[0];
    assert_eq!(of_node(&diagnosis, "failover", first).severity, Severity::Unsafe);
    assert_eq!(of_node(&diagnosis, "split-brain", first).severity, Severity::Warn);
    assert_eq!(of_node(&diagnosis, "failover", &cluster.nodes[1]).severity, Severity::Ok);

    cluster.nodes[2].kill();
    let diagnosis = diagnose(&url).await;
    let gone = of_node(&diagnosis, "reachable", &cluster.nodes[2]);
    assert_eq!(gone.severity, Severity::Warn, "{gone:?}");
    assert_eq!(of_node(&diagnosis, "reachable", &cluster.nodes[1]).severity, Severity::Ok);
}

/// Slots that nobody has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_that_nobody_serves() {
    let cluster = start_cluster_of(|setup| setup.line("cluster-require-full-coverage no"));
    for node in &cluster.nodes {
        node.cli(&["CLUSTER", "DELSLOTS", "5"]);
    }
    let diagnosis = diagnose(&format!("redis+cluster://{}", cluster.nodes[0].address())).await;
    check(&diagnosis, "slots", Severity::Warn, "16383 of 16384");
}
