//! The schema: tables and the procedures that decide, created and brought up to date in one go.
//! Doing it twice, or by two programs at once, does no harm.

use lockfast_core::{ErrorKind, Migration};

use crate::failure::Failure;
use crate::wire::{Dialer, Wire};

/// The version that this crate works with.
pub(crate) const VERSION: u32 = 1;

const TABLES: &str = include_str!("sql/schema.sql");
/// Each after those that it calls.
const PROCEDURES: &[(&str, &str)] = &[
    ("lockfast_own", include_str!("sql/own.sql")),
    ("lockfast_wake", include_str!("sql/wake.sql")),
    ("lockfast_rouse", include_str!("sql/rouse.sql")),
    ("lockfast_listen", include_str!("sql/listen.sql")),
    ("lockfast_begin", include_str!("sql/begin.sql")),
    ("lockfast_end", include_str!("sql/end.sql")),
    ("lockfast_tell", include_str!("sql/tell.sql")),
    ("lockfast_push", include_str!("sql/push.sql")),
    ("lockfast_open", include_str!("sql/open.sql")),
    ("lockfast_close", include_str!("sql/close.sql")),
    ("lockfast_measure", include_str!("sql/measure.sql")),
    ("lockfast_lead", include_str!("sql/lead.sql")),
    ("lockfast_seen", include_str!("sql/seen.sql")),
    ("lockfast_settle", include_str!("sql/settle.sql")),
    ("lockfast_queue", include_str!("sql/queue.sql")),
    ("lockfast_enter", include_str!("sql/enter.sql")),
    ("lockfast_leave", include_str!("sql/leave.sql")),
    ("lockfast_first", include_str!("sql/first.sql")),
    ("lockfast_take", include_str!("sql/take.sql")),
    ("lockfast_give", include_str!("sql/give.sql")),
    ("lockfast_renew_all", include_str!("sql/renew_all.sql")),
    ("lockfast_take_all", include_str!("sql/take_all.sql")),
    ("lockfast_give_all", include_str!("sql/give_all.sql")),
    ("lockfast_work", include_str!("sql/work.sql")),
    ("lockfast_revoke", include_str!("sql/revoke.sql")),
    ("lockfast_look", include_str!("sql/look.sql")),
    ("lockfast_list", include_str!("sql/list.sql")),
    ("lockfast_labels", include_str!("sql/labels.sql")),
    ("lockfast_watch", include_str!("sql/watch.sql")),
    ("lockfast_sweep", include_str!("sql/sweep.sql")),
    ("lockfast_finish", include_str!("sql/finish.sql")),
    ("lockfast_enrol", include_str!("sql/enrol.sql")),
];

/// One program at a time changes the schema of a database.
const TURN: &str = "SELECT GET_LOCK(CONCAT('lockfast:m:', LEFT(SHA2(DATABASE(), 256), 32)), 60)";
/// Procedures keep the mode in which they were created.
const MODE: &str =
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'";

/// Brings the schema up to date on a connection of its own.
pub(crate) async fn migrate(dialer: &Dialer) -> Result<Migration, Failure> {
    let mut wire = dialer.dial().await?;
    let done = migrate_on(&mut wire).await;
    wire.close().await;
    done.map_err(|failure| explain(failure, dialer))
}

async fn migrate_on(wire: &mut Wire) -> Result<Migration, Failure> {
    check_server(wire).await?;
    wire.run(MODE).await?;
    wire.ask(TURN).await?;
    let from = read_version(wire).await?;
    match from {
        Some(version) if version > VERSION => return Err(of_newer(version)),
        Some(VERSION) => return Ok(Migration::Unchanged { version: VERSION }),
        _ => {}
    }
    for statement in statements(TABLES) {
        wire.run(&statement).await?;
    }
    for (name, create) in PROCEDURES {
        wire.run(&format!("DROP PROCEDURE IF EXISTS {name}")).await?;
        wire.run(create).await?;
    }
    wire.run(&format!("UPDATE lockfast_store SET version = {VERSION} WHERE id = 1")).await?;
    Ok(Migration::Changed { from, to: VERSION })
}

/// The schema's version; none where there is no schema, or only the start of one.
async fn read_version(wire: &mut Wire) -> Result<Option<u32>, Failure> {
    match wire.ask("SELECT version FROM lockfast_store WHERE id = 1").await {
        Ok(Some(row)) => {
            Ok(row.number(0).and_then(|it| u32::try_from(it).ok()).filter(|it| *it > 0))
        }
        Ok(None) => Ok(None),
        // A user who may only call the procedures cannot see it, and cannot change it either.
        Err(failure) if failure.kind == ErrorKind::InvalidConfig => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Refuses servers on which the procedures would not decide alone.
pub(crate) async fn check_server(wire: &mut Wire) -> Result<(), Failure> {
    const QUERY: &str = "SHOW VARIABLES WHERE (Variable_name = 'wsrep_on' AND Value = 'ON') OR \
        (Variable_name = 'group_replication_single_primary_mode' AND Value = 'OFF')";
    let Some(row) = wire.ask(QUERY).await? else { return Ok(()) };
    let group = match row.text(0) {
        Some("wsrep_on") => "a Galera cluster",
        _ => "a replication group with several primaries",
    };
    Err(Failure::new(
        ErrorKind::Unsupported,
        format!(
            "the server is a node of {group}, where several nodes decide at once; use another \
             store, or one server"
        ),
    ))
}

/// The store was made by a later version.
pub(crate) fn of_newer(version: u32) -> Failure {
    Failure::new(
        ErrorKind::InvalidConfig,
        format!(
            "the schema has version {version}, this Lockfast works with {VERSION}; use a newer \
             Lockfast"
        ),
    )
}

/// What is missing when a user may not create a schema.
pub(crate) fn explain(mut failure: Failure, dialer: &Dialer) -> Failure {
    if failure.kind == ErrorKind::Permission {
        let database = &dialer.config().database;
        failure.message = format!(
            "{}; to create the schema a user needs SELECT, INSERT, UPDATE, DELETE, CREATE, INDEX, \
             ALTER ROUTINE, CREATE ROUTINE and EXECUTE on `{database}`.*",
            failure.message
        );
    }
    failure
}

/// The statements of a file, each without its comments.
fn statements(file: &str) -> Vec<String> {
    let lines = file.lines().filter(|line| !line.trim_start().starts_with("--"));
    let text = lines.collect::<Vec<_>>().join("\n");
    let statements = text.split(';').map(|statement| statement.trim().to_owned());
    statements.filter(|statement| !statement.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_procedure_is_created_under_its_name() {
        for (name, create) in PROCEDURES {
            assert!(create.contains(&format!("CREATE PROCEDURE {name}(")), "{name}");
            assert!(create.contains("SQL SECURITY DEFINER"), "{name}");
        }
        let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/sql")).unwrap();
        assert_eq!(files.count(), PROCEDURES.len() + 1, "a file is not used");
        assert_eq!(statements(TABLES).len(), 6);
    }
}
