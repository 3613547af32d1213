//! The schema, and with whose rights its procedures run. A user sees of it what it may call.

use std::collections::BTreeSet;

use lockfast_core::{ErrorKind, Finding};

use super::{Patient, is_over, quoted, settle};
use crate::failure::Failure;
use crate::migration::{self, PUBLIC, VERSION};

const MIGRATE: &str = "run \"lockfast migrate\" as the user that the store's page describes";
/// Who introduces itself with that is told the version, and nothing is written down.
const ASK_VERSION: &str = "CALL lockfast_enrol('000000000000', '', '', 0, '')";
/// What locks need not: whoever must not take them away from others, uses no values, or has no writer that
/// becomes a reader, is not given it.
const OPTIONAL: &[&str] =
    &["lockfast_downgrade", "lockfast_read", "lockfast_revoke", "lockfast_write"];

/// A procedure as the server shows it.
struct Procedure {
    name: String,
    is_definers: bool,
    definer: String,
}

pub(super) async fn look(patient: &mut Patient<'_>) -> Result<Vec<Finding>, Failure> {
    let procedures = read_procedures(patient).await?;
    let schema = look_at_version(patient, &procedures).await?;
    let mut findings = vec![schema];
    if !procedures.is_empty() {
        findings.push(judge_procedures(&procedures));
        findings.push(look_at_definer(patient, &procedures).await?);
    }
    Ok(findings)
}

async fn read_procedures(patient: &mut Patient<'_>) -> Result<Vec<Procedure>, Failure> {
    const QUERY: &str = "SELECT ROUTINE_NAME, SECURITY_TYPE, DEFINER FROM information_schema.ROUTINES \
        WHERE ROUTINE_SCHEMA = DATABASE() AND ROUTINE_NAME LIKE 'lockfast\\_%' ORDER BY 1";
    let rows = patient.ask(QUERY).await?;
    let read = rows.iter().filter_map(|row| {
        let (name, definer) = (row.text(0)?.to_owned(), row.text(2)?.to_owned());
        Some(Procedure { name, is_definers: row.text(1)? == "DEFINER", definer })
    });
    Ok(read.collect())
}

async fn look_at_version(
    patient: &mut Patient<'_>,
    procedures: &[Procedure],
) -> Result<Finding, Failure> {
    const CHECK: &str = "schema";
    let database = &patient.config.database;
    if !procedures.iter().any(|it| it.name == "lockfast_enrol") {
        let may_make = patient.grants.has("CREATE ROUTINE", database);
        return Ok(judge_absence(database, may_make));
    }
    match patient.ask(ASK_VERSION).await {
        Ok(rows) => {
            let said = rows.first();
            let version = said.and_then(|row| row.small(0));
            Ok(judge_version(version, said.and_then(|row| row.number(2))))
        }
        Err(failure) if is_over(&failure) => Err(failure),
        Err(failure) => {
            let fact = failure.message();
            Ok(Finding::hazard(CHECK, fact, "no lock can be taken", MIGRATE))
        }
    }
}

fn judge_absence(database: &str, may_make: bool) -> Finding {
    const CHECK: &str = "schema";
    let fact = format!("no procedure of Lockfast in {database} is shown to this user");
    match may_make {
        true => Finding::warn(
            CHECK,
            fact,
            "the first program that connects makes the schema, and it then runs with that user's rights",
            MIGRATE,
        ),
        false => Finding::hazard(
            CHECK,
            fact,
            "no lock can be taken",
            format!("{MIGRATE}, then grant the rights that are listed there"),
        ),
    }
}

fn judge_version(version: Option<u32>, serves: Option<u64>) -> Finding {
    const CHECK: &str = "schema";
    let said = version.map_or("no version".to_owned(), |version| format!("version {version}"));
    let fact = format!("the schema has {said}, this program makes version {VERSION}");
    match migration::check_version(version, serves) {
        Ok(()) => Finding::ok(CHECK, fact),
        Err(failure) => Finding::hazard(CHECK, fact, "no lock can be taken", failure.message()),
    }
}

/// Whether we may call what we must, and whether what nobody should call alone does nothing then.
fn judge_procedures(procedures: &[Procedure]) -> Finding {
    const CHECK: &str = "procedure-rights";
    let public: BTreeSet<String> = PUBLIC.iter().map(|name| format!("lockfast_{name}")).collect();
    let wrong: Vec<&str> = procedures
        .iter()
        .filter(|it| it.is_definers != public.contains(&it.name))
        .map(|it| it.name.as_str())
        .collect();
    if !wrong.is_empty() {
        return Finding::hazard(
            CHECK,
            format!("{} run(s) with other rights than it was made with", wrong.join(", ")),
            "whoever may call an inner procedure with its owner's rights can show secrets and end leases",
            MIGRATE,
        );
    }
    let shown: BTreeSet<&str> = procedures.iter().map(|it| it.name.as_str()).collect();
    let missing: Vec<&str> =
        public.iter().map(String::as_str).filter(|name| !shown.contains(name)).collect();
    match missing.as_slice() {
        [] => Finding::ok(CHECK, "all that is needed may be called"),
        missing if missing.iter().all(|name| OPTIONAL.contains(name)) => {
            Finding::ok(CHECK, format!("all but {} may be called", missing.join(", ")))
        }
        _ => Finding::hazard(
            CHECK,
            format!("this user may not call {}", missing.join(", ")),
            "no lock can be taken, or not be given back",
            "run GRANT EXECUTE ON PROCEDURE … for each of them, as the store's page lists them",
        ),
    }
}

/// With whose rights the procedures run. That the user is there was seen when one of them ran.
async fn look_at_definer(
    patient: &mut Patient<'_>,
    procedures: &[Procedure],
) -> Result<Finding, Failure> {
    const CHECK: &str = "definer";
    let definers: BTreeSet<&str> = procedures.iter().map(|it| it.definer.as_str()).collect();
    let list = definers.iter().copied().collect::<Vec<_>>().join(", ");
    let fact = format!("the procedures run with the rights of {list}");
    if definers.len() > 1 {
        let fix = format!("drop the procedures, then {MIGRATE}");
        let meaning = "each of these users must stay, and can change what the procedures do";
        return Ok(Finding::warn(CHECK, fact, meaning, fix));
    }
    let (user, host) = list.rsplit_once('@').unwrap_or((&list, "%"));
    let query = format!(
        "SELECT Super_priv FROM mysql.user WHERE User = {} AND Host = {}",
        quoted(user),
        quoted(host)
    );
    let found = match patient.ask(&query).await {
        Ok(rows) => Ok(judge_definer(fact, rows.first().and_then(|row| row.text(0)))),
        // Everybody knows what that one may do.
        Err(failure) if failure.kind() == ErrorKind::Permission && user == "root" => {
            Ok(judge_definer(fact, Some("Y")))
        }
        Err(failure) => Err(failure),
    };
    settle(CHECK, found, || patient.grant("SELECT (User, Host, Super_priv) ON mysql.user"))
}

fn judge_definer(fact: String, is_super: Option<&str>) -> Finding {
    const CHECK: &str = "definer";
    match is_super {
        Some("N") => Finding::ok(CHECK, fact),
        Some(_) => Finding::warn(
            CHECK,
            format!("{fact}, who may do everything"),
            "a fault in a procedure would give whoever may call it all rights on the server",
            format!("drop the procedures, then {MIGRATE}"),
        ),
        None => Finding::hazard(
            CHECK,
            format!("{fact}, who is not there any more"),
            "no procedure can run, so no lock can be taken",
            format!("make that user again, or drop the procedures and {MIGRATE}"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use lockfast_core::Severity;

    use super::*;

    #[test]
    fn procedures_and_their_rights() {
        let all = || {
            let public = PUBLIC.iter().map(|name| Procedure {
                name: format!("lockfast_{name}"),
                is_definers: true,
                definer: "maker@%".to_owned(),
            });
            public.collect::<Vec<_>>()
        };
        let inner = |is_definers| Procedure {
            name: "lockfast_open".to_owned(),
            is_definers,
            definer: "maker@%".to_owned(),
        };
        let without =
            |name: &str| all().into_iter().filter(|it| it.name != name).collect::<Vec<_>>();
        let with = |procedure| all().into_iter().chain([procedure]).collect::<Vec<_>>();
        for (procedures, severity) in [
            (all(), Severity::Ok),
            (without("lockfast_revoke"), Severity::Ok),
            (without("lockfast_write"), Severity::Ok),
            (without("lockfast_take"), Severity::Unsafe),
            (with(inner(false)), Severity::Ok),
            (with(inner(true)), Severity::Unsafe),
        ] {
            assert_eq!(judge_procedures(&procedures).severity, severity);
        }
    }
}
