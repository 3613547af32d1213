//! What goes wrong on the way to a Redis server, as a table (issue 2 lists the cases as C17 to C22):
//! each gets its code and a sentence that says where and why, without a password.

use std::net::TcpListener;

use lockfast_faults::certificate::{Authority, Flaw};
use lockfast_faults::port::Port;
use lockfast_faults::redis::topology::wait_for_sync;
use lockfast_faults::redis::{Redis, Setup};
use lockfast_faults::url::encode;

use crate::refusal::{SECRET, case, check};
use crate::sandbox::Sandbox;

#[test]
fn a_url_that_is_wrong() {
    let schemes =
        ["\"foo\"", "embedded:", "redis:", "rediss:", "redis+sentinel:", "redis+cluster:"];
    check(&[
        case("C17", "foo://x".into(), 78, &schemes),
        case("C18", String::new(), 78, &["set but empty"]),
        case("port", format!("redis://me:{SECRET}@h:65536"), 78, &["port", "1 to 65535"]),
        case("password", format!("redis://me:{SECRET}@{SECRET}@h"), 78, &["%40"]),
        case("option", format!("redis://me:{SECRET}@h?x=1"), 78, &["\"x\"", "min_replicas"]),
    ]);
}

#[test]
fn a_server_that_cannot_be_reached() {
    let dead = format!("127.0.0.1:{}", Port::take().number());
    // It accepts connections, and nobody ever reads them.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().unwrap().to_string();
    let url = |place: &str| format!("redis://me:{SECRET}@{place}");
    let slow = format!("{}?request_timeout=300ms", url(&silent));
    check(&[
        case(
            "C20 unknown",
            url("no-such-host.invalid"),
            69,
            &["no-such-host.invalid:6379", "not known"],
        ),
        case("C20 refused", url(&dead), 69, &[&dead, "connection refused"]),
        case("C20 silent", slow, 69, &[&silent, "did not answer within 300ms"]),
    ]);
}

#[test]
fn a_server_that_refuses() {
    let redis = Setup::new().password("another").start();
    let master = Redis::start();
    let replica = Setup::new().replica_of(&master).start();
    wait_for_sync(&master, &replica);
    let at = redis.address().to_string();
    check(&[
        case("C21", format!("redis://:{SECRET}@{at}"), 77, &[&at, "password"]),
        case("C21 user", format!("redis://me:{SECRET}@{at}"), 77, &[&at, "password"]),
        case("C21 none", format!("redis://{at}"), 77, &[&at, "password"]),
        case("replica", replica.url(), 69, &["replica", "master"]),
    ]);
}

#[test]
fn a_certificate_that_is_wrong() {
    let authority = Authority::new();
    let ca = encode(&authority.certificate().display().to_string());
    for (number, flaw, word) in
        [("C22 expired", Flaw::Expired, "expired"), ("C22 name", Flaw::WrongName, "name")]
    {
        let redis = Setup::new().tls(&authority, authority.sign_server(flaw), false).start();
        let at = redis.address().to_string();
        check(&[case(number, format!("rediss://{at}?ca={ca}"), 69, &[&at, word])]);
    }
}

/// C19.
#[test]
fn a_password_in_the_arguments_works_and_is_pointed_out() {
    let redis = Setup::new().user("me", SECRET, "~* &* +@all").start();
    let finished = Sandbox::new().run(["show", "x", "--on", &redis.url()]).expect(0);
    assert_eq!(finished.stdout, "x: free\n");
    assert!(finished.stderr.contains("visible to everybody"), "{}", finished.stderr);
    assert!(!finished.stderr.contains(SECRET), "{}", finished.stderr);
}

/// A lock's name may be in use for something else.
#[test]
fn a_key_that_is_no_lock() {
    let redis = Redis::start();
    redis.cli(&["RPUSH", "x", "item"]);
    let finished = Sandbox::new()
        .run(["acquire", "x", "--ttl", "9s", "--try", "--on", &redis.url()])
        .expect(78);
    assert!(finished.stderr.contains("no lock"), "{}", finished.stderr);
}

/// B31: a label could fake a line of its own, or turn the rest of one around.
#[test]
fn texts_of_other_programs_stay_on_their_line() {
    const PROGRAM: &str = "evil\nL: free";
    const TEXT: &str = "nightly\nL: free\u{1b}[2J\u{202e}";
    let redis = Redis::start();
    let sandbox = Sandbox::on(&redis.url());
    sandbox.run(["acquire", "L", "--ttl", "60s"]).expect(0);
    for client in redis.cli(&["KEYS", "lockfast:client:*"]).lines() {
        // The label comes after eight characters of bookkeeping.
        let head = redis.cli(&["GETRANGE", client, "0", "7"]);
        redis.cli(&["SET", client, &format!("{head}{PROGRAM}\thost\u{2067}\t7\t{TEXT}")]);
    }
    let json = sandbox.run(["show", "L", "--json"]).expect(0).json();
    let holder = &json["holders"][0];
    assert_eq!((&holder["program"], &holder["label"]), (&PROGRAM.into(), &TEXT.into()));
    for (arguments, code) in [
        (["show", "L"].as_slice(), 0),
        (&["list"], 0),
        (&["run", "L", "--try", "--", "true"], 75),
        (&["acquire", "L", "--ttl", "1s", "--wait", "10ms"], 75),
        (&["force-release", "L", "--yes", "--reason", "r"], 0),
    ] {
        let finished = sandbox.run(arguments).expect(code);
        let said = finished.stdout + &finished.stderr;
        let is_harmless = |c: char| c == '\n' || lockfast_core::error::is_printable(&c.to_string());
        assert!(said.chars().all(is_harmless), "{arguments:?}: {said:?}");
        assert!(!said.lines().any(|line| line.starts_with("L: free")), "{arguments:?}: {said}");
        assert!(said.contains("evil\\nL: free"), "{arguments:?}: {said}");
    }
}

/// B73: a lock of another program that has no ttl is shown, and no time is told.
#[test]
fn a_lock_without_an_end_is_shown() {
    let redis = Redis::start();
    redis.cli(&["SET", "x", "somebody"]);
    let sandbox = Sandbox::on(&redis.url());
    let shown = sandbox.run(["show", "x"]).expect(0).stdout;
    assert!(shown.contains("another program") && shown.contains("without an end"), "{shown}");
    let holder = sandbox.run(["show", "x", "--json"]).expect(0).json()["holders"][0].clone();
    assert!(holder["until"].is_null() && holder["remaining_ms"].is_null(), "{holder}");
    let refused = sandbox.run(["run", "x", "--try", "--", "true"]).expect(75).stderr;
    assert!(refused.contains("without an end"), "{refused}");
}
