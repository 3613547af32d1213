//! What is found out about a server: each condition is set on a real one, and seen. A server that is
//! well set up is all right.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

#[path = "diagnosis/clock.rs"]
mod clock;
#[path = "diagnosis/durability.rs"]
mod durability;
mod kit;
#[path = "diagnosis/pooler.rs"]
mod pooler;
#[path = "diagnosis/rights.rs"]
mod rights;
#[path = "diagnosis/settings.rs"]
mod settings;

use kit::{Postgres, ROLE, SCHEMA, Setup, TIME_MAX, bounded, eventually, migrate, url};
use lockfast::{Diagnosis, Guarantee, Severity};
use lockfast_backend_postgres::CHECKS;
use lockfast_core::Address;

/// Who made the schema.
const MAKER: &str = "maker";
/// What a busy machine can change.
const PACE: [&str; 4] = ["clock-offset", "clock-rate", "commits", "latency"];

/// A server as the README wants it: a role that owns the schema and nothing else, and one that uses it.
fn start(setup: Setup) -> Postgres {
    let postgres = setup.start();
    postgres.sql(&format!(
        "CREATE ROLE {ROLE} LOGIN; CREATE ROLE {MAKER} LOGIN; \
         GRANT CREATE ON DATABASE postgres TO {MAKER}"
    ));
    migrate(&postgres.url_as(MAKER, None)).unwrap();
    postgres.sql(&format!(
        "GRANT USAGE ON SCHEMA {SCHEMA} TO {ROLE}; \
         GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {SCHEMA} TO {ROLE}"
    ));
    postgres
}

/// Changes settings of the server while it runs, and waits until they are in force.
async fn set(postgres: &Postgres, settings: &[(&str, &str)]) {
    for (name, value) in settings {
        postgres.sql(&format!("ALTER SYSTEM SET {name} = '{value}'"));
    }
    postgres.sql("SELECT pg_reload_conf()");
    for (name, value) in settings {
        let shown = format!("SELECT current_setting('{name}') = '{value}'");
        eventually("the setting is in force", TIME_MAX, async || postgres.sql(&shown) == "t").await;
    }
}

async fn diagnose(url: &str) -> Diagnosis {
    let address = Address::parse(url).unwrap();
    let diagnosis = bounded(lockfast_backend_postgres::diagnose(address)).await.unwrap();
    for finding in &diagnosis.findings {
        assert!(CHECKS.contains(&finding.check), "not listed: {finding:?}");
        assert_eq!(finding.fix.is_empty(), finding.severity == Severity::Ok, "{finding:?}");
    }
    diagnosis
}

/// Everything that is not all right, apart from what a busy machine can change.
fn flaws(diagnosis: &Diagnosis) -> Vec<(&'static str, Severity)> {
    let findings = diagnosis.findings.iter();
    let flaws = findings.filter(|it| it.severity != Severity::Ok && !PACE.contains(&it.check));
    flaws.map(|finding| (finding.check, finding.severity)).collect()
}

/// One check's severity and all that is said about it.
fn finding(diagnosis: &Diagnosis, check: &str) -> (Severity, String) {
    let found = diagnosis.findings.iter().find(|finding| finding.check == check);
    let found = found.unwrap_or_else(|| panic!("nothing is said about {check}: {diagnosis:#?}"));
    (found.severity, format!("{}. {}. {}", found.fact, found.meaning, found.fix))
}

/// That a check says this.
fn expect(diagnosis: &Diagnosis, check: &str, severity: Severity, parts: &[&str]) {
    let (found, said) = finding(diagnosis, check);
    assert_eq!(found, severity, "{check}: {said}");
    for part in parts {
        assert!(said.contains(part), "{check}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_well_set_up() {
    let postgres = start(Setup::new().durable());
    let url = url(&postgres);
    let before = postgres.sql("SELECT max(oid), count(*) FROM pg_class");
    let diagnosis = diagnose(&url).await;
    // The rights that the README lists are enough.
    assert_eq!(flaws(&diagnosis), [], "{diagnosis:#?}");
    assert_eq!(diagnosis.guarantee, Guarantee::Correctness);
    eventually("all is well, once the machine is not too busy", TIME_MAX, async || {
        let diagnosis = diagnose(&url).await;
        assert_eq!(flaws(&diagnosis), [], "{diagnosis:#?}");
        let checks: Vec<&str> = diagnosis.findings.iter().map(|finding| finding.check).collect();
        assert_eq!(checks, CHECKS);
        diagnosis.worst() == Severity::Ok
    })
    .await;
    assert_eq!(postgres.sql("SELECT max(oid), count(*) FROM pg_class"), before);
    let diagnosis = diagnose(&format!("{url}?mode=advisory")).await;
    assert_eq!(flaws(&diagnosis), [("keepalive", Severity::Warn)], "{diagnosis:#?}");
    assert_eq!(diagnosis.guarantee, Guarantee::Efficiency);
}
