//! What goes wrong on the way to etcd, as a table, and lease times that it does not keep.

use std::net::TcpListener;

use lockfast_faults::certificate::{Authority, Flaw};
use lockfast_faults::etcd::{Etcd, Setup};
use lockfast_faults::port::Port;
use lockfast_faults::redis::Redis;
use lockfast_faults::url::encode;

use crate::refusal::{SECRET, case, check};
use crate::sandbox::Sandbox;

#[test]
fn a_url_that_is_wrong() {
    check(&[
        case("port", format!("etcd://me:{SECRET}@h:65536"), 78, &["port", "1 to 65535"]),
        case("option", format!("etcd://me:{SECRET}@h?x=1"), 78, &["\"x\"", "request_timeout"]),
        case("path", format!("etcd://me:{SECRET}@h/db"), 78, &["prefix"]),
        case("twice", format!("etcd://me:{SECRET}@h,h:2379"), 78, &["h:2379 twice"]),
        case("plain", format!("etcd://me:{SECRET}@h?insecure=true"), 78, &["only with etcds:"]),
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
    let url = |place: &str| format!("etcd://me:{SECRET}@{place}?request_timeout=2s");
    check(&[
        case("unknown", url("no-such-host.invalid"), 69, &["no-such-host.invalid:2379"]),
        case("dead", url(&dead), 69, &[&dead, "cannot be reached"]),
        case("silent", url(&silent), 69, &[&silent, "did not answer within 2s"]),
        case("no etcd", url(&other), 69, &[&other, "as etcd"]),
    ]);
}

#[test]
fn a_server_that_refuses() {
    let mut server = Setup::new().option("--bcrypt-cost=4").start();
    server.add_user("me", "another", "");
    server.add_user("narrow", SECRET, "others/");
    server.require_users();
    check(&[
        case("password", server.url_as("me", SECRET), 77, &["invalid user ID or password"]),
        case("user", server.url_as("nobody", SECRET), 77, &["invalid user ID or password"]),
        case("none", server.url(), 77, &["a user and a password", "etcd://user:password@host"]),
        case("rights", server.url_as("narrow", SECRET), 77, &["permission denied"]),
    ]);
}

#[test]
fn a_certificate_that_is_wrong() {
    let authority = Authority::new();
    let ca = encode(&authority.certificate().display().to_string());
    for (number, flaw, word) in
        [("expired", Flaw::Expired, "expired"), ("name", Flaw::WrongName, "name")]
    {
        let server = Setup::new().tls(&authority, flaw).start();
        let at = server.address().to_string();
        check(&[case(number, format!("etcds://{at}?ca={ca}"), 69, &[&at, word])]);
    }
}

/// A script goes on working when its store keeps other lease times.
#[test]
fn a_lease_time_that_etcd_does_not_keep() {
    let server = Etcd::start();
    let sandbox = Sandbox::on(&server.url());
    for (ttl, becomes) in [("1s", "a ttl of 1s becomes 2s"), ("2500ms", "a ttl of 2.5s becomes 3s")]
    {
        let finished = sandbox.run(["run", "x", "--ttl", ttl, "--", "true"]).expect(0);
        assert!(finished.stderr.contains(becomes), "{}", finished.stderr);
        assert!(finished.stderr.contains("etcd keeps whole seconds"), "{}", finished.stderr);
    }
    let finished = sandbox.run(["run", "x", "--ttl", "3s", "--", "true"]).expect(0);
    assert_eq!(finished.stderr, "");
}
