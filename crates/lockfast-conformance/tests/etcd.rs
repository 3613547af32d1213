//! A real etcd is set up and broken as asked, alone and as a cluster.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

use lockfast_faults::certificate::{Authority, Flaw};
use lockfast_faults::etcd::{Cluster, Etcd, Setup};
use lockfast_faults::server::Server as _;

#[test]
fn what_was_written_is_there_after_a_crash() {
    let mut server = Etcd::start();
    server.ctl(&["put", "name", "value"]);
    server.restart();
    assert_eq!(server.ctl(&["get", "name", "--print-value-only"]), "value");
    server.shut_down();
    assert!(!server.is_healthy());
    server.launch();
    assert_eq!(server.keys("na"), ["name"]);
    server.ctl(&["lease", "grant", "60"]);
    assert_eq!(server.leases().len(), 1);
}

#[test]
fn users_are_asked_for_passwords() {
    let mut server = Etcd::start();
    server.require_users();
    server.ctl(&["put", "name", "value"]);
    let anybody = server.post("/v3/kv/range", r#"{"key":"bmFtZQ=="}"#).unwrap();
    assert!(anybody.0 != 200 && anybody.1.contains("user name is empty"), "{anybody:?}");
    server.restart();
    assert_eq!(server.keys("na"), ["name"]);
}

#[test]
fn clients_without_a_certificate_are_refused() {
    let authority = Authority::new();
    let server = Setup::new().tls(&authority, Flaw::None).client_certificates().start();
    server.ctl(&["put", "name", "value"]);
    let mut nobody = std::process::Command::new(lockfast_faults::program::find("etcdctl"));
    nobody.arg(format!("--endpoints=https://{}", server.address())).env("ETCDCTL_API", "3");
    nobody.arg(format!("--cacert={}", authority.certificate().display()));
    assert!(!lockfast_faults::program::try_run(nobody.args(["get", "name"])).0);
}

/// One at a time: a member that is cut off, killed or paused does not keep the others from deciding,
/// and catches up.
#[test]
fn a_cluster_does_without_one_member() {
    let mut cluster = Cluster::start();
    let first = cluster.leader();
    cluster.cut_off(first);
    let second = cluster.leader_besides(first);
    cluster.member(second).ctl(&["put", "one", "1"]);
    let (written, said) =
        cluster.member(first).try_ctl(&["--command-timeout=500ms", "put", "two", "2"]);
    assert!(!written, "a member that is cut off wrote: {said}");
    cluster.rejoin(first);
    cluster.settle();
    assert_eq!(cluster.member(first).keys("one"), ["one"]);
    let leader = cluster.leader();
    cluster.member_mut(leader).kill();
    let next = cluster.leader_besides(leader);
    cluster.member(next).ctl(&["put", "three", "3"]);
    cluster.member_mut(leader).launch();
    cluster.settle();
    let paused = cluster.leader();
    cluster.member(paused).pause();
    let next = cluster.leader_besides(paused);
    assert_eq!(cluster.member(next).keys("t").len(), 1, "what was refused is there");
    cluster.member(paused).resume();
    cluster.settle();
    assert_eq!(cluster.members().len(), cluster.url().split(',').count());
    assert_ne!(cluster.followers()[0], cluster.leader());
}
