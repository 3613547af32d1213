//! What is found out about a real etcd: each condition is set, and seen. A cluster that is well set up
//! is all right but for its version.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod kit;

use lockfast::{Diagnosis, Guarantee, Severity};
use lockfast_backend_etcd::CHECKS;
use lockfast_core::Address;
use lockfast_faults::certificate::{Authority, Flaw};
use lockfast_faults::url::encode;

use kit::{Etcd, Server as _, Setup, bounded, eventually, make_user, start_cluster, user_url};

/// What a busy machine can change.
const PACE: [&str; 2] = ["latency", "leader"];

/// Looks at the store.
async fn diagnose(url: &str) -> Diagnosis {
    let address = Address::parse(url).unwrap();
    let diagnosis = bounded(lockfast_backend_etcd::diagnose(address)).await.unwrap();
    for finding in &diagnosis.findings {
        assert!(CHECKS.contains(&finding.check), "not listed: {finding:?}");
        assert_eq!(finding.fix.is_empty(), finding.severity == Severity::Ok, "{finding:?}");
    }
    diagnosis
}

/// Everything that is not all right, apart from what a busy machine can change, and the version, which is
/// that of the machine's packages.
fn flaws(diagnosis: &Diagnosis) -> Vec<(&'static str, Severity)> {
    let findings = diagnosis.findings.iter();
    let flaws = findings.filter(|it| it.severity != Severity::Ok && !PACE.contains(&it.check));
    let flaws = flaws.filter(|it| it.check != "version");
    flaws.map(|finding| (finding.check, finding.severity)).collect()
}

/// That a check says this.
fn expect(diagnosis: &Diagnosis, check: &str, severity: Severity, parts: &[&str]) {
    let mut found = diagnosis.findings.iter().filter(|finding| finding.check == check);
    let said = |it: &lockfast::Finding| format!("{}. {}. {}", it.fact, it.meaning, it.fix);
    let fits = |it: &lockfast::Finding| {
        it.severity == severity && parts.iter().all(|part| said(it).contains(part))
    };
    assert!(found.any(fits), "{check} does not say {parts:?}: {diagnosis:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_well_set_up_and_then_is_not() {
    let mut cluster = start_cluster();
    make_user(cluster.member_mut(0));
    let places: Vec<_> = cluster.members().iter().map(|it| it.address().to_string()).collect();
    let url = format!("etcd://app:word@{}?prefix=app/", places.join(","));
    let before = cluster.member(0).ctl(&["get", "--prefix", "", "--write-out=fields"]);
    let diagnosis = diagnose(&url).await;
    // The newest servers tell their version and their size to the role root only.
    let is_told = |it: &(&str, Severity)| *it != ("space", Severity::Unknown);
    let found: Vec<_> = flaws(&diagnosis).into_iter().filter(is_told).collect();
    assert_eq!(found, [], "{diagnosis:#?}");
    let mut checks: Vec<&str> = diagnosis.findings.iter().map(|finding| finding.check).collect();
    checks.dedup();
    assert_eq!(checks, CHECKS);
    let after = cluster.member(0).ctl(&["get", "--prefix", "", "--write-out=fields"]);
    let values = |said: &str| {
        said.lines().filter(|it| it.starts_with("\"Count")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(values(&after), values(&before), "something was written");
    assert_eq!(cluster.member(0).leases(), [""; 0], "a lease is left");

    let [first, second] = cluster.followers();
    cluster.member_mut(first).kill();
    let diagnosis = diagnose(&url).await;
    expect(&diagnosis, "reachable", Severity::Warn, &["cannot be reached", "start it"]);
    cluster.member_mut(second).kill();
    let leader = cluster.member(3 - first - second);
    eventually("it knows that it does not lead", kit::TIME_MAX, async || !leader.leads()).await;
    let diagnosis = diagnose(&url).await;
    expect(&diagnosis, "leader", Severity::Unsafe, &["no lock can be taken"]);
    assert_eq!(diagnosis.guarantee, Guarantee::Efficiency);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_without_users() {
    let server = Etcd::start();
    let diagnosis = diagnose(&server.url()).await;
    assert_eq!(flaws(&diagnosis), [("members", Severity::Warn), ("users", Severity::Warn)]);
    expect(&diagnosis, "members", Severity::Warn, &["alone", "three members"]);
    expect(&diagnosis, "users", Severity::Warn, &["revoke every lease", "auth enable"]);
    expect(&diagnosis, "encryption", Severity::Ok, &["on this machine"]);
    expect(&diagnosis, "ttl-min", Severity::Ok, &["2s"]);
    let named = diagnose(&server.url_as("app", "secret")).await;
    expect(&named, "users", Severity::Warn, &["although the URL names a user"]);
    assert!(!format!("{named:?}").contains("secret"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_space_is_left() {
    let server = Setup::new().option("--quota-backend-bytes=150000").start();
    let value = "x".repeat(30_000);
    eventually("it is full", kit::TIME_MAX, async || !server.try_ctl(&["put", "filler", &value]).0)
        .await;
    let diagnosis = diagnose(&server.url()).await;
    expect(&diagnosis, "alarms", Severity::Warn, &["NOSPACE", "alarm disarm"]);
    // A lease would take space too, so the shortest is not known.
    expect(&diagnosis, "ttl-min", Severity::Unknown, &["database space exceeded"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elections_that_take_long() {
    let setup = Setup::new().option("--election-timeout=4000").option("--heartbeat-interval=400");
    let server = setup.start();
    let diagnosis = diagnose(&server.url()).await;
    expect(&diagnosis, "ttl-min", Severity::Warn, &["6s", "--election-timeout"]);
    assert_eq!(server.leases(), [""; 0], "a lease is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_that_differs() {
    let server = Etcd::start();
    let alarm = r#"{"action": "ACTIVATE", "alarm": "CORRUPT"}"#;
    let (status, said) = server.post("/v3/maintenance/alarm", alarm).unwrap();
    assert_eq!(status, 200, "{said}");
    let diagnosis = diagnose(&server.url()).await;
    expect(&diagnosis, "alarms", Severity::Unsafe, &["CORRUPT", "replace the member"]);
    assert_eq!(diagnosis.guarantee, Guarantee::Efficiency);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_do_not_help() {
    let cluster = start_cluster();
    let [follower, other] = cluster.followers();
    let asked = cluster.member(follower);
    let add = ["member", "add", "ghost", "--peer-urls=http://127.0.0.1:9"];
    // Not before the members have seen each other for a while.
    eventually("it is added", kit::TIME_MAX, async || asked.try_ctl(&add).0).await;
    let diagnosis = diagnose(&cluster.url()).await;
    expect(&diagnosis, "members", Severity::Warn, &["4 members", "1 never started"]);
    for (mark, left) in [("unstarted", 3), (format!(", member{other}, ").as_str(), 2)] {
        let list = asked.ctl(&["member", "list"]);
        let is_it = |line: &&str| line.contains(mark);
        let id = list.lines().find(is_it).and_then(|line| line.split(',').next()).unwrap();
        let remove = ["member", "remove", id];
        eventually("it is removed", kit::TIME_MAX, async || asked.try_ctl(&remove).0).await;
        let seen = asked.ctl(&["member", "list"]);
        assert_eq!(seen.lines().count(), left, "{seen}");
    }
    let diagnosis = diagnose(&asked.url()).await;
    expect(&diagnosis, "members", Severity::Warn, &["2 members", "an even number"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_of_two_clusters() {
    let (first, second) = (Etcd::start(), Etcd::start());
    // Their ids follow from their addresses.
    let url = format!("etcd://{},{}", first.address(), second.address());
    let diagnosis = diagnose(&url).await;
    expect(&diagnosis, "cluster", Severity::Unsafe, &["2 clusters", "granted twice"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_of_users() {
    let mut server = Etcd::start();
    server.add_user("wide", "word", "");
    server.add_user("narrow", "word", "others/");
    make_user(&mut server);
    expect(&diagnose(&user_url(&server)).await, "rights", Severity::Ok, &["no others"]);
    let url = |user: &str| format!("{}?prefix=app/", server.url_as(user, "word"));
    let diagnosis = diagnose(&url("wide")).await;
    expect(&diagnosis, "rights", Severity::Warn, &["outside the prefix"]);
    let diagnosis = diagnose(&url("narrow")).await;
    expect(&diagnosis, "rights", Severity::Unsafe, &["no lock can be taken"]);
    let diagnosis = diagnose(&server.url_as("root", "root-word")).await;
    expect(&diagnosis, "rights", Severity::Warn, &["role root"]);
    let address = Address::parse(&server.url()).unwrap();
    let error = bounded(lockfast_backend_etcd::diagnose(address)).await.unwrap_err();
    kit::check_error(&error, lockfast::ErrorKind::Permission, &["a user and a password"]);
}

/// With the rights of the store's page: what is outside the prefix is not looked at.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_no_lease_ends() {
    let mut server = Etcd::start();
    server.ctl(&["put", "other/12ab", ""]);
    server.ctl(&["put", "app/config/name", ""]);
    make_user(&mut server);
    let locker = kit::connect(&user_url(&server)).await;
    let guard = kit::hold(&locker, "held", kit::ttl(kit::TIME_MAX)).await;
    expect(&diagnose(&user_url(&server)).await, "claims", Severity::Ok, &["a lease"]);
    server.ctl(&["put", "app/nightly/12ab", ""]);
    let parts = ["app/nightly/12ab", "the lock \"nightly\" is taken for ever", "delete it"];
    expect(&diagnose(&user_url(&server)).await, "claims", Severity::Warn, &parts);
    // More than are read at once.
    let mut taking = tokio::task::JoinSet::new();
    for number in 0..1100 {
        let (locker, name) = (locker.clone(), format!("filler-{number}"));
        let options = kit::ttl(kit::TIME_MAX).retries(10);
        taking.spawn(async move { kit::hold(&locker, &name, options).await });
    }
    let _held = bounded(taking.join_all()).await;
    server.ctl(&["put", "app/zz/12ab", ""]);
    let diagnosis = diagnose(&user_url(&server)).await;
    expect(&diagnosis, "claims", Severity::Warn, &["2 keys", "app/nightly/12ab"]);
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn encrypted() {
    let authority = Authority::new();
    let server = Setup::new().tls(&authority, Flaw::None).start();
    let ca = encode(&authority.certificate().display().to_string());
    let diagnosis = diagnose(&format!("etcds://{}?ca={ca}", server.address())).await;
    expect(&diagnosis, "encryption", Severity::Ok, &["the certificate is checked"]);
    let diagnosis = diagnose(&format!("etcds://{}?insecure=true", server.address())).await;
    expect(&diagnosis, "encryption", Severity::Ok, &["on this machine"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_there() {
    let mut server = Etcd::start();
    server.kill();
    let address = Address::parse(&server.url()).unwrap();
    let error = bounded(lockfast_backend_etcd::diagnose(address)).await.unwrap_err();
    kit::check_error(&error, lockfast::ErrorKind::Unreachable, &["127.0.0.1"]);
}
