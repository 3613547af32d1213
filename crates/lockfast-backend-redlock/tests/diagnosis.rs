//! What a diagnosis finds on several real servers. What it finds on each alone is tested with the
//! Redis store.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod kit;

use std::time::Duration;

use kit::{Link, Nodes, README, Redis, Setup, Ways, bounded, rights};
use lockfast::{Diagnosis, ErrorKind, Finding, Guarantee, Severity};
use lockfast_core::Address;
use lockfast_faults::server::Server as _;

async fn diagnose(url: &str) -> Diagnosis {
    let address = Address::parse(url).unwrap();
    let diagnosis = bounded(lockfast_backend_redlock::diagnose(address)).await.unwrap();
    for finding in &diagnosis.findings {
        assert!(lockfast_backend_redlock::CHECKS.contains(&finding.check), "{finding:?}");
        let is_well = finding.severity == Severity::Ok;
        assert_eq!((finding.meaning.is_empty(), finding.fix.is_empty()), (is_well, is_well));
    }
    assert_eq!(diagnosis.guarantee, Guarantee::Efficiency);
    diagnosis
}

fn find<'a>(diagnosis: &'a Diagnosis, check: &str, node: Option<&Redis>) -> &'a Finding {
    let place = node.map(|node| node.address().to_string());
    let mut found = diagnosis.findings.iter();
    let found = found.find(|it| it.check == check && it.server == place);
    found.unwrap_or_else(|| panic!("nothing is said of {check} at {place:?}"))
}

/// What is found of all nodes together.
#[track_caller]
fn check(diagnosis: &Diagnosis, check: &str, severity: Severity, words: &str) {
    let found = find(diagnosis, check, None);
    assert_eq!(found.severity, severity, "{found:?}");
    assert!(found.fact.contains(words), "{found:?}");
}

/// Nodes with a user of the page's rights and more.
fn start_with_rights(more: &str) -> (Nodes, String) {
    let rights = format!("{} {more}", rights("~jobs:*"));
    let start = || {
        let setup = Setup::new().append_always().line("user default off");
        setup.user("locks", "hush-7", &rights).start()
    };
    let nodes = Nodes((0..3).map(|_| start()).collect());
    let url = nodes.url().replace("redlock://", "redlock://locks:hush-7@");
    (nodes, url)
}

/// What depends on the machine that the tests run on: the version of its servers may have holes, and
/// when it is busy, answers are late.
const LEFT_OUT: [&str; 4] = ["version", "clock-rate", "latency", "node-latency"];

fn names(diagnosis: &Diagnosis, severity: Severity) -> Vec<&'static str> {
    let found = diagnosis.findings.iter();
    let found = found.filter(|it| it.severity == severity && !LEFT_OUT.contains(&it.check));
    let mut names: Vec<_> = found.map(|finding| finding.check).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// All is well but that a test has only one machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn good_nodes_are_all_ok() {
    let more = README.split_once("`lockfast doctor` also needs `").expect("what it needs").1;
    let (nodes, url) = start_with_rights(more.split('`').next().unwrap());
    let diagnosis = diagnose(&url).await;
    assert_eq!(names(&diagnosis, Severity::Warn), ["distinct-hosts"], "{diagnosis:#?}");
    assert!(names(&diagnosis, Severity::Unknown).is_empty(), "{diagnosis:#?}");
    assert!(names(&diagnosis, Severity::Unsafe).is_empty(), "{diagnosis:#?}");
    check(&diagnosis, "quorum", Severity::Ok, "1 may be out of reach, 0 may forget");
    check(&diagnosis, "distinct-servers", Severity::Ok, "3 that are not the same");
    check(&diagnosis, "persistence-mix", Severity::Ok, "3 keep everything");
    for node in &nodes.0 {
        for check in ["reachable", "eviction", "saving"] {
            assert_eq!(find(&diagnosis, check, Some(node)).severity, Severity::Ok);
        }
    }
    let said: Vec<_> = diagnosis.findings.iter().map(|finding| finding.check).collect();
    let missing: Vec<_> =
        lockfast_backend_redlock::CHECKS.iter().filter(|check| !said.contains(check)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// C51, with the rights of the store's page.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_rights_of_the_store_some_is_unseen() {
    let (_nodes, url) = start_with_rights("");
    let diagnosis = diagnose(&url).await;
    let unseen = [
        "acl-width",
        "idle-timeout",
        "persistence",
        "persistence-mix",
        "protected-mode",
        "tcp-keepalive",
    ];
    assert_eq!(names(&diagnosis, Severity::Unknown), unseen, "{diagnosis:#?}");
    assert_eq!(names(&diagnosis, Severity::Warn), ["distinct-hosts"], "{diagnosis:#?}");
    assert!(names(&diagnosis, Severity::Unsafe).is_empty(), "{diagnosis:#?}");
}

/// One node that forgets is one too many for three of which two decide, and none for a quorum of
/// all three.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_forget() {
    let mut nodes = Nodes::start_durable(2);
    nodes.0.push(Redis::start());
    let diagnosis = diagnose(&nodes.url()).await;
    check(&diagnosis, "persistence-mix", Severity::Unsafe, "1 forget when they are started anew");
    assert!(diagnosis.because.starts_with("persistence-mix is unsafe"), "{}", diagnosis.because);
    let found = find(&diagnosis, "persistence", Some(&nodes.0[2]));
    assert_eq!(found.severity, Severity::Warn, "{found:?}");
    let diagnosis = diagnose(&nodes.url_with("&quorum=3")).await;
    check(
        &diagnosis,
        "persistence-mix",
        Severity::Ok,
        "1 forget when they are started anew; 2 may",
    );
    nodes.0[2].cli(&["CONFIG", "SET", "appendonly", "yes"]);
    let diagnosis = diagnose(&nodes.url()).await;
    check(&diagnosis, "persistence-mix", Severity::Warn, "1 all but the last second");
}

/// By another name it is still the same server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_votes_twice() {
    let nodes = Nodes::start_durable(2);
    let (first, second) = (nodes.0[0].address(), nodes.0[1].address());
    let url = format!("redlock://{first},{second},localhost:{}", first.port());
    let diagnosis = diagnose(&url).await;
    let words = format!("{first} and localhost:{} are one server", first.port());
    check(&diagnosis, "distinct-servers", Severity::Unsafe, &words);
}

/// A minority that is gone costs its votes; with more nothing is granted; when all are gone there is
/// nothing to look at.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_are_gone() {
    let mut nodes = Nodes::start_durable(3);
    nodes.0[0].kill();
    let diagnosis = diagnose(&nodes.url()).await;
    let gone = find(&diagnosis, "reachable", Some(&nodes.0[0]));
    assert_eq!(gone.severity, Severity::Warn, "{gone:?}");
    check(&diagnosis, "quorum", Severity::Ok, "2 of 3");
    nodes.0[1].kill();
    check(&diagnose(&nodes.url()).await, "quorum", Severity::Warn, "1 can be reached");
    nodes.0[2].kill();
    let address = Address::parse(&nodes.url()).unwrap();
    let error = lockfast_backend_redlock::diagnose(address).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_that_differ() {
    let nodes = Nodes::start_with_clocks(3);
    check(&diagnose(&nodes.url()).await, "clock-spread", Severity::Ok, "differ by 0.");
    nodes.0[1].clock().step_forward(Duration::from_secs(20));
    check(&diagnose(&nodes.url()).await, "clock-spread", Severity::Warn, "differ by ");
    nodes.0[2].clock().step_back(Duration::from_secs(50));
    let diagnosis = diagnose(&nodes.url()).await;
    check(&diagnosis, "clock-spread", Severity::Unsafe, "differ by ");
    let behind = find(&diagnosis, "clock-offset", Some(&nodes.0[2]));
    assert_eq!(behind.severity, Severity::Warn, "{behind:?}");
}

/// One node, and an even number of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quorums_that_buy_nothing() {
    let nodes = Nodes::start_durable(2);
    check(&diagnose(&nodes.url()).await, "quorum", Severity::Warn, "2 of 2");
    let alone = format!("redlock://{}", nodes.0[0].address());
    check(&diagnose(&alone).await, "quorum", Severity::Warn, "1 of 1");
}

/// A node whose answers come too late to be counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_slow() {
    let nodes = Nodes::start_durable(3);
    let ways = Ways::to(&nodes).await;
    ways.0[1].set(Link::Delay(Duration::from_millis(40)));
    let diagnosis = diagnose(&ways.url_within("20ms", "")).await;
    let place = ways.0[1].address().to_string();
    let found = diagnosis
        .findings
        .iter()
        .find(|it| it.check == "node-latency" && it.server.as_deref() == Some(place.as_str()));
    let found = found.expect("a finding of the slow node");
    assert_eq!(found.severity, Severity::Warn, "{found:?}");
    assert!(found.fix.contains("node_timeout"), "{found:?}");
}
