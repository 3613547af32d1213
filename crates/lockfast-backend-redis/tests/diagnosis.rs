//! What a diagnosis finds on real servers. Each test sets one condition and sees it found.
//!
//! | file | what is set up |
//! |---|---|
//! | `diagnosis/good.rs` | servers on which all is well, seen with many and with few rights |
//! | `diagnosis/data.rs` | memory, disk, quarantine |
//! | `diagnosis/access.rs` | encryption, users, rights |
//! | `diagnosis/service.rs` | connections and clocks |
//! | `diagnosis/group.rs` | replicas, sentinels, clusters |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod kit;

#[path = "diagnosis/access.rs"]
mod access;
#[path = "diagnosis/data.rs"]
mod data;
#[path = "diagnosis/good.rs"]
mod good;
#[path = "diagnosis/group.rs"]
mod group;
#[path = "diagnosis/service.rs"]
mod service;

use kit::{Redis, Setup, bounded};
use lockfast::{Diagnosis, Finding, Guarantee, Severity};
use lockfast_core::Address;

/// The rights that the store's page names, those of `doctor` among them, for locks of one prefix.
fn rights() -> String {
    kit::rights::rights("~jobs:*", &["`lockfast doctor`, to see everything"])
}

/// A server that is as it should be, seen by a user with exactly these rights.
fn good() -> Setup {
    Setup::new().append_always().line("user default off").user("locks", "hush-7", &rights())
}

async fn diagnose(url: &str) -> Diagnosis {
    let address = Address::parse(url).unwrap();
    let diagnosis = bounded(lockfast_backend_redis::diagnose(address)).await.unwrap();
    for finding in &diagnosis.findings {
        assert!(lockfast_backend_redis::CHECKS.contains(&finding.check), "{finding:?}");
        let is_well = finding.severity == Severity::Ok;
        assert_eq!((finding.meaning.is_empty(), finding.fix.is_empty()), (is_well, is_well));
        assert!(!finding.fact.is_empty() && !finding.fact.contains("hush-7"), "{finding:?}");
    }
    assert_eq!(diagnosis.guarantee, Guarantee::Efficiency);
    let is_unsafe = diagnosis.worst() == Severity::Unsafe;
    assert_eq!(diagnosis.because.contains(" is unsafe: "), is_unsafe, "{}", diagnosis.because);
    diagnosis
}

#[track_caller]
fn find<'a>(diagnosis: &'a Diagnosis, check: &str) -> &'a Finding {
    let found = diagnosis.findings.iter().find(|finding| finding.check == check);
    found.unwrap_or_else(|| panic!("nothing is said of {check}"))
}

/// What is found of one thing.
#[track_caller]
fn check(diagnosis: &Diagnosis, check: &str, severity: Severity, words: &str) {
    let found = find(diagnosis, check);
    assert_eq!(found.severity, severity, "{found:?}");
    assert!(found.fact.contains(words), "{found:?}");
}

/// What depends on the machine that the tests run on: the version of its servers may have holes, and
/// when it is busy, answers are late.
const LEFT_OUT: [&str; 3] = ["version", "clock-rate", "latency"];

/// The names of what is not ok.
fn flaws(diagnosis: &Diagnosis, severity: Severity) -> Vec<&'static str> {
    let found = diagnosis.findings.iter();
    let found = found.filter(|it| it.severity == severity && !LEFT_OUT.contains(&it.check));
    found.map(|finding| finding.check).collect()
}

/// All is well but for these.
#[track_caller]
fn check_all(diagnosis: &Diagnosis, unknown: &[&str], warned: &[&str], hazards: &[&str]) {
    assert_eq!(flaws(diagnosis, Severity::Unknown), unknown, "{:#?}", diagnosis.findings);
    assert_eq!(flaws(diagnosis, Severity::Warn), warned, "{:#?}", diagnosis.findings);
    assert_eq!(flaws(diagnosis, Severity::Unsafe), hazards, "{:#?}", diagnosis.findings);
}

/// On a good server to whose setup something is added, all is well but for one thing.
async fn check_only(setup: Setup, name: &str, severity: Severity, words: &str) -> Redis {
    let redis = setup.start();
    let diagnosis = diagnose(&redis.url()).await;
    check(&diagnosis, name, severity, words);
    let expected = |it| if it == severity { vec![name] } else { vec![] };
    for it in [Severity::Unknown, Severity::Warn, Severity::Unsafe] {
        assert_eq!(flaws(&diagnosis, it), expected(it), "{:#?}", diagnosis.findings);
    }
    redis
}
