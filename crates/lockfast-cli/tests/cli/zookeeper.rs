//! What is special about ZooKeeper: its servers say which ttls there are, and a lease ends with its
//! process. And what goes wrong on the way to it.

use std::net::TcpListener;

use lockfast_faults::port::Port;
use lockfast_faults::redis::Redis;
use lockfast_faults::zookeeper::{Access, Kind, ZooKeeper};

use crate::refusal::{SECRET, case, check};
use crate::sandbox::Sandbox;

/// What the servers do not keep becomes what they do, with one line on standard error; what they
/// lack is refused before anything is locked.
#[test]
fn a_ttl_that_the_servers_do_not_keep_becomes_one_that_they_do() {
    let server = ZooKeeper::start();
    let sandbox = Sandbox::on(&server.url());
    for (given, becomes) in [("100ms", "1s"), ("11s", "10s"), ("24h", "10s")] {
        let done = sandbox.run(["run", "job", "--ttl", given, "--", "true"]).expect(0);
        let warning = format!(
            "lockfast: warning: a ttl of {given} becomes {becomes}: zookeeper keeps leases of 1s to 10s"
        );
        assert!(done.stderr.starts_with(&warning), "{}", done.stderr);
        assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
    }
    // One that fits, and the one that nobody gave.
    for more in [["--ttl", "10s"].as_slice(), &[]] {
        let line = ["run", "job"].iter().chain(more).chain(&["--", "true"]);
        assert_eq!(sandbox.run(line).expect(0).stderr, "");
    }
    let refused = sandbox.run(["acquire", "job", "--ttl", "10s", "--try"]).expect(78);
    let words = "a lease ends with the session of the process that has it";
    assert!(refused.stderr.contains(words), "{}", refused.stderr);
    assert!(!sandbox.is_held("job"));
}

#[test]
fn a_url_that_is_wrong() {
    check(&[
        case("port", format!("zookeeper://me:{SECRET}@h:65536"), 78, &["port", "1 to 65535"]),
        case("password", format!("zookeeper://me:{SECRET}@{SECRET}@h"), 78, &["%40"]),
        case("option", format!("zookeeper://me:{SECRET}@h?x=1"), 78, &["\"x\"", "exclusive"]),
    ]);
}

#[test]
fn a_server_that_cannot_be_reached() {
    let dead = format!("127.0.0.1:{}", Port::take().number());
    // It accepts connections, and nobody ever reads them.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().unwrap().to_string();
    let other = Redis::start();
    let other = other.address().to_string();
    let url = |place: &str| format!("zookeeper://me:{SECRET}@{place}?request_timeout=1s");
    check(&[
        case("unknown", url("no-such-host.invalid"), 69, &["no-such-host.invalid"]),
        case("refused", url(&dead), 69, &[&dead]),
        case("silent", url(&silent), 69, &[&silent]),
        case("no ZooKeeper", url(&other), 69, &[&other]),
    ]);
}

#[test]
fn a_server_that_refuses() {
    let server = ZooKeeper::start();
    let mut session = server.session();
    session.introduce("me:another");
    let access = Access { rights: "cdrw", scheme: "auth", id: "" };
    for path in ["/locks", "/locks/x"] {
        session.try_create(path, b"", Kind::Persistent, &[access]).unwrap();
    }
    let at = server.address().to_string();
    check(&[
        case("password", format!("zookeeper://me:{SECRET}@{at}/locks"), 77, &["password"]),
        case("nobody", format!("zookeeper://{at}/locks"), 77, &["ACL"]),
        case("chroot", format!("zookeeper://{at}/none"), 78, &["/none", "create"]),
    ]);
}
