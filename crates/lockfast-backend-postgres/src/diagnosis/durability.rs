//! Whether a grant that was told can be forgotten: by a crash of the machine, or by a standby that
//! takes over.

use lockfast_core::Finding;

use super::Patient;
use crate::failure::Failure;
use crate::wire::get;

const NAMES: &str = "synchronous_standby_names";

pub(super) async fn look(patient: &Patient) -> Result<Vec<Finding>, Failure> {
    let mut findings = vec![
        judge_switch(
            patient,
            "fsync",
            "fsync",
            "a crash of the server's machine forgets grants, so that a lock is granted twice",
        ),
        judge_switch(
            patient,
            "full-page-writes",
            "full_page_writes",
            "a crash of the server's machine can leave pages half written, and with them grants and \
             fences that are wrong",
        ),
        judge_commit(patient),
    ];
    if !patient.is_standby {
        let found = look_at_standbys(patient).await;
        findings.push(patient.settle("failover", found)?);
    }
    Ok(findings)
}

/// Something that must be on.
fn judge_switch(
    patient: &Patient,
    check: &'static str,
    name: &str,
    meaning: &'static str,
) -> Finding {
    let fact = patient.settings.shown(name);
    match patient.settings.get(name) {
        Some("on") => Finding::ok(check, fact),
        Some(_) => {
            let fix = patient.settings.remedy(name, "on", &patient.role);
            Finding::hazard(check, fact, meaning, fix)
        }
        None => Finding::unknown(check, fact, patient.monitor()),
    }
}

fn judge_commit(patient: &Patient) -> Finding {
    const CHECK: &str = "synchronous-commit";
    let name = "synchronous_commit";
    let fact = patient.settings.shown(name);
    let fix = || patient.settings.remedy(name, "on", &patient.role);
    let has_names = patient.settings.get(NAMES).is_some_and(|names| !names.is_empty());
    match patient.settings.get(name) {
        None => Finding::unknown(CHECK, fact, patient.monitor()),
        Some("off") if patient.is_direct() => {
            Finding::ok(CHECK, format!("{fact}; Lockfast switches it on for its own connections"))
        }
        Some("off") => Finding::hazard(
            CHECK,
            format!("{fact}, and through a pooler it cannot be switched on"),
            "a crash of the server forgets the last grants, so that a lock is granted twice",
            fix(),
        ),
        Some("local") if has_names => Finding::hazard(
            CHECK,
            fact,
            "a grant is told before a standby has it, so that a failover grants the lock twice",
            fix(),
        ),
        Some(_) => Finding::ok(CHECK, fact),
    }
}

/// A server that follows this one.
#[derive(Debug)]
struct Standby {
    name: String,
    /// Unknown without the right to see it.
    state: Option<String>,
}

async fn look_at_standbys(patient: &Patient) -> Result<Finding, Failure> {
    // Programs that only fetch changes of rows, or a copy, cannot be promoted.
    const QUESTION: &str = "SELECT coalesce(nullif(r.application_name, ''), 'pid ' || r.pid), \
        r.sync_state FROM pg_stat_replication r WHERE NOT EXISTS (SELECT FROM pg_replication_slots s \
        WHERE s.active_pid = r.pid AND s.slot_type = 'logical') \
        AND r.application_name NOT IN ('pg_basebackup', 'pg_receivewal') ORDER BY 1";
    let mut standbys = Vec::new();
    for row in patient.ask(QUESTION).await? {
        standbys.push(Standby { name: get(&row, 0)?, state: get(&row, 1)? });
    }
    let Some(names) = patient.settings.get(NAMES) else {
        return Ok(Finding::unknown("failover", "the settings are hidden", patient.monitor()));
    };
    Ok(judge_standbys(names, &standbys, || patient.monitor()))
}

fn judge_standbys(names: &str, standbys: &[Standby], monitor: impl Fn() -> String) -> Finding {
    const CHECK: &str = "failover";
    let list = |standbys: &[&Standby]| {
        standbys.iter().map(|standby| standby.name.as_str()).collect::<Vec<_>>().join(", ")
    };
    let all: Vec<&Standby> = standbys.iter().collect();
    if names.is_empty() {
        return match standbys {
            [] => Finding::ok(CHECK, "no standby follows this server"),
            _ => Finding::hazard(
                CHECK,
                format!("{} follow(s) asynchronously, because {NAMES} is empty", list(&all)),
                "a standby that takes over lacks the last grants, so that a lock is granted twice",
                format!("set {NAMES} (and synchronous_commit = on), or never promote a standby"),
            ),
        };
    }
    if standbys.iter().any(|standby| standby.state.is_none()) {
        let why = format!(
            "{} follow(s), but without the rights of pg_monitor nobody is told which of them are \
             synchronous",
            list(&all)
        );
        return Finding::unknown(CHECK, why, monitor());
    }
    let is_waited_for =
        |standby: &&&Standby| matches!(standby.state.as_deref(), Some("sync" | "quorum"));
    let waited: Vec<&Standby> = all.iter().filter(is_waited_for).copied().collect();
    let others: Vec<&Standby> = all.iter().filter(|it| !is_waited_for(it)).copied().collect();
    if waited.is_empty() {
        return Finding::hazard(
            CHECK,
            format!("{NAMES} is {names}, and none of these is connected"),
            "no commit returns until one is, so no lock can be taken",
            format!("start a standby of these, or change {NAMES}"),
        );
    }
    if !others.is_empty() {
        return Finding::warn(
            CHECK,
            format!("{} is synchronous, {} is not", list(&waited), list(&others)),
            "after a failover to one that is not synchronous the last grants are forgotten, so that \
             a lock is granted twice",
            format!("never promote {}, or name it in {NAMES}", list(&others)),
        );
    }
    if quorum_of(names).is_some_and(|needed| needed < waited.len()) {
        return Finding::warn(
            CHECK,
            format!("{NAMES} is {names}, and {} are connected", list(&waited)),
            "not all of these have every grant: a failover to one that is behind the others grants a \
             lock twice",
            "let the failover choose the one that has received most, or wait for all of them",
        );
    }
    Finding::ok(CHECK, format!("every commit waits for {}", list(&waited)))
}

/// How many of several a commit waits for, where that is not all that are named.
fn quorum_of(names: &str) -> Option<usize> {
    let rest = names.trim_start().get(..4).filter(|word| word.eq_ignore_ascii_case("any "))?;
    let number = names.trim_start()[rest.len()..].trim_start();
    number.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use lockfast_core::Severity;

    use super::*;

    /// Standbys from "name=state" and, where the state is hidden, "name".
    fn read(text: &str) -> Vec<Standby> {
        let parts = text.split_whitespace().map(|part| match part.split_once('=') {
            Some((name, state)) => (name, Some(state.to_owned())),
            None => (part, None),
        });
        parts.map(|(name, state)| Standby { name: name.to_owned(), state }).collect()
    }

    #[test]
    fn standbys() {
        let table = [
            ("", "", Severity::Ok),
            ("", "a=async", Severity::Unsafe),
            ("", "a", Severity::Unsafe),
            ("a", "", Severity::Unsafe),
            ("a", "a", Severity::Unknown),
            ("a", "a=sync", Severity::Ok),
            ("a", "a=sync b=async", Severity::Warn),
            ("ANY 1 (a, b)", "a=quorum b=quorum", Severity::Warn),
            ("any 2 (a, b)", "a=quorum b=quorum", Severity::Ok),
        ];
        for (names, standbys, severity) in table {
            let finding = judge_standbys(names, &read(standbys), String::new);
            assert_eq!(finding.severity, severity, "{names}: {standbys}");
        }
    }
}
