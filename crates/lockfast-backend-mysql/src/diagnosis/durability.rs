//! Whether a grant that was told outlives a crash of the machine.

use lockfast_core::Finding;

use super::Patient;

const FORGETS: &str =
    "a crash of the server's machine forgets the last grants, so that a lock is granted twice";

pub(super) fn look(patient: &Patient<'_>) -> Vec<Finding> {
    vec![judge_redo_log(patient), judge_doublewrite(patient), judge_binlog(patient)]
}

/// What is said of a setting that the server does not have.
fn missing(patient: &Patient<'_>, check: &'static str, name: &str) -> Option<Finding> {
    let fix = "see what the server's publisher says about crashes of its machine";
    let is_missing = patient.globals.get(name).is_none();
    is_missing.then(|| Finding::unknown(check, format!("the server has no {name}"), fix))
}

fn judge_redo_log(patient: &Patient<'_>) -> Finding {
    const CHECK: &str = "redo-log";
    let name = "innodb_flush_log_at_trx_commit";
    let method = "innodb_flush_method";
    let globals = &patient.globals;
    if let Some(unknown) = missing(patient, CHECK, name) {
        return unknown;
    }
    // MariaDB has a 3, which does what 1 does and more.
    if !matches!(globals.get(name), Some("1" | "3")) {
        return Finding::hazard(
            CHECK,
            globals.shown(name),
            FORGETS,
            format!("run SET GLOBAL {name} = 1, and set it in the server's configuration"),
        );
    }
    if globals.get(method).is_some_and(|it| matches!(it, "nosync" | "littlesync")) {
        return Finding::hazard(
            CHECK,
            globals.shown(method),
            FORGETS,
            format!("leave {method} out of the server's configuration, and restart it"),
        );
    }
    Finding::ok(CHECK, globals.shown(name))
}

fn judge_doublewrite(patient: &Patient<'_>) -> Finding {
    const CHECK: &str = "doublewrite";
    let name = "innodb_doublewrite";
    if let Some(unknown) = missing(patient, CHECK, name) {
        return unknown;
    }
    let fact = patient.globals.shown(name);
    if patient.globals.get(name).is_some_and(|it| matches!(it, "OFF" | "0" | "DETECT_ONLY")) {
        return Finding::hazard(
            CHECK,
            fact,
            "a crash of the server's machine can leave pages half written, and with them grants and \
             fences that are wrong",
            format!("set {name} = ON in the server's configuration"),
        );
    }
    Finding::ok(CHECK, fact)
}

/// After a crash the server undoes what is not in the binary log, also what InnoDB has.
fn judge_binlog(patient: &Patient<'_>) -> Finding {
    const CHECK: &str = "binlog";
    let globals = &patient.globals;
    if !globals.is_on("log_bin") {
        return Finding::ok(CHECK, "the server writes no binary log");
    }
    if globals.get("binlog_format") == Some("STATEMENT") {
        return Finding::hazard(
            CHECK,
            globals.shown("binlog_format"),
            "every call fails, because transactions are READ COMMITTED; no lock can be taken",
            "run SET GLOBAL binlog_format = 'ROW', and set it in the server's configuration",
        );
    }
    let name = "sync_binlog";
    if let Some(unknown) = missing(patient, CHECK, name) {
        return unknown;
    }
    // With MariaDB's 3 InnoDB does not rely on the binary log.
    let is_alone = globals.get("innodb_flush_log_at_trx_commit") == Some("3");
    if globals.get(name) != Some("1") && !is_alone {
        return Finding::hazard(
            CHECK,
            format!("{}, and the server writes a binary log", globals.shown(name)),
            "after a crash of its machine the server undoes what is not in the binary log, the last \
             grants too, so that a lock is granted twice",
            format!("run SET GLOBAL {name} = 1, and set it in the server's configuration"),
        );
    }
    Finding::ok(CHECK, globals.shown(name))
}
