//! Which server it is.

use std::ops::RangeInclusive;

use lockfast_core::Finding;

use super::{Patient, only};
use crate::failure::Failure;
use crate::wire::get;

/// The versions that the suite passes on, and those between them.
const TESTED: RangeInclusive<i32> = 15..=18;
/// The first that has what the functions call.
const NEEDED: i32 = 13;

pub(super) async fn look(patient: &Patient) -> Result<Vec<Finding>, Failure> {
    Ok(vec![
        judge_version(&patient.version, patient.version_number),
        judge_role(patient),
        judge_read_only(patient),
        patient.settle("timeline", look_at_timeline(patient).await)?,
    ])
}

fn judge_version(version: &str, number: i32) -> Finding {
    const CHECK: &str = "version";
    let major = number / 10_000;
    let fact = format!("PostgreSQL {version}");
    if major < NEEDED {
        let meaning = "it lacks what the schema's functions need, so no lock can be taken";
        return Finding::hazard(CHECK, fact, meaning, "upgrade the server");
    }
    if !TESTED.contains(&major) {
        let meaning = format!(
            "Lockfast is tested with {} to {}; nobody has looked whether its promises hold here",
            TESTED.start(),
            TESTED.end()
        );
        return Finding::warn(CHECK, fact, meaning, "use a version that is tested");
    }
    Finding::ok(CHECK, fact)
}

fn judge_role(patient: &Patient) -> Finding {
    const CHECK: &str = "role";
    if patient.is_standby {
        return Finding::hazard(
            CHECK,
            "the server is a standby",
            "no lock can be taken here before it is promoted",
            "give the URL of the primary, or of a proxy that leads to it",
        );
    }
    Finding::ok(CHECK, "the server is a primary")
}

fn judge_read_only(patient: &Patient) -> Finding {
    const CHECK: &str = "read-only";
    let name = "default_transaction_read_only";
    let fact = patient.settings.shown(name);
    if patient.is_read_only {
        let fix = patient.settings.remedy(name, "off", &patient.role);
        return Finding::hazard(
            CHECK,
            fact,
            "transactions only read, so no lock can be taken",
            fix,
        );
    }
    Finding::ok(CHECK, fact)
}

async fn look_at_timeline(patient: &Patient) -> Result<Finding, Failure> {
    // A standby does not write; it knows the timeline of its last checkpoint.
    let question = match patient.is_standby {
        true => "SELECT timeline_id FROM pg_control_checkpoint()",
        false => "SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer",
    };
    let rows = patient.ask(question).await?;
    let timeline: i32 = get(only(&rows)?, 0)?;
    Ok(Finding::ok(
        "timeline",
        match timeline {
            1 => "1: no standby has ever been promoted to this server".to_owned(),
            2 => "2: this server was a standby, and was promoted".to_owned(),
            _ => format!("{timeline}: standbys were promoted {} times to get here", timeline - 1),
        },
    ))
}

#[cfg(test)]
mod tests {
    use lockfast_core::Severity;

    use super::*;

    #[test]
    fn versions() {
        let table = [
            (120_022, Severity::Unsafe),
            (130_000, Severity::Warn),
            (140_011, Severity::Warn),
            (150_018, Severity::Ok),
            (180_006, Severity::Ok),
            (190_000, Severity::Warn),
        ];
        for (number, severity) in table {
            assert_eq!(judge_version("x", number).severity, severity, "{number}");
        }
    }
}
