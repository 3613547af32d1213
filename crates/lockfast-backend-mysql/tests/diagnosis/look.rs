//! Looking at a server, and at what was found.

use lockfast::{Diagnosis, Severity};
use lockfast_backend_mysql::CHECKS;
use lockfast_core::Address;

use crate::kit::{Flavor, Mysql, bounded};

/// What a busy machine can change.
const PACE: [&str; 3] = ["clock-offset", "clock-rate", "latency"];

/// Looks at the server.
pub(crate) async fn diagnose(url: &str) -> Diagnosis {
    let address = Address::parse(url).unwrap();
    let diagnosis = bounded(lockfast_backend_mysql::diagnose(address)).await.unwrap();
    for finding in &diagnosis.findings {
        assert!(CHECKS.contains(&finding.check), "not listed: {finding:?}");
        assert_eq!(finding.fix.is_empty(), finding.severity == Severity::Ok, "{finding:?}");
    }
    diagnosis
}

/// Lets the user see everything that is looked at.
pub(crate) fn let_see(server: &Mysql) {
    server.sql("GRANT SELECT (User, Host, Super_priv) ON mysql.user TO locks");
    if crate::FLAVOR == Flavor::MySql {
        server.sql("GRANT REPLICATION CLIENT, REPLICATION SLAVE ON *.* TO locks");
    }
}

/// Everything that is not all right, apart from what a busy machine can change.
pub(crate) fn flaws(diagnosis: &Diagnosis) -> Vec<(&'static str, Severity)> {
    let findings = diagnosis.findings.iter();
    let flaws = findings.filter(|it| it.severity != Severity::Ok && !PACE.contains(&it.check));
    flaws.map(|finding| (finding.check, finding.severity)).collect()
}

/// That a check says this.
pub(crate) fn expect(diagnosis: &Diagnosis, check: &str, severity: Severity, parts: &[&str]) {
    let found = diagnosis.findings.iter().find(|finding| finding.check == check);
    let found = found.unwrap_or_else(|| panic!("nothing is said about {check}: {diagnosis:#?}"));
    let said = format!("{}. {}. {}", found.fact, found.meaning, found.fix);
    assert_eq!(found.severity, severity, "{check}: {said}");
    for part in parts {
        assert!(said.contains(part), "{check}: {said}");
    }
}
