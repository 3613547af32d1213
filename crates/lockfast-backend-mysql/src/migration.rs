//! The schema: tables and the procedures that decide, created and brought up to date in one go.
//! Doing it twice, or by two programs at once, does no harm.

use std::time::Duration;

use lockfast_core::{ErrorKind, Migration};

use crate::failure::Failure;
use crate::wire::{Dialer, Wire};

/// The version that this crate works with.
pub(crate) const VERSION: u32 = 4;
/// The earliest version of Lockfast that the procedures of this version serve.
const SERVES: u32 = 2;

const TABLES: &str = include_str!("sql/schema.sql");
/// Each after those that it calls.
const PROCEDURES: &[(&str, &str)] = &[
    ("lockfast_clock", include_str!("sql/clock.sql")),
    ("lockfast_refuse", include_str!("sql/refuse.sql")),
    ("lockfast_own", include_str!("sql/own.sql")),
    ("lockfast_wake", include_str!("sql/wake.sql")),
    ("lockfast_rouse", include_str!("sql/rouse.sql")),
    ("lockfast_listen", include_str!("sql/listen.sql")),
    ("lockfast_begin", include_str!("sql/begin.sql")),
    ("lockfast_end", include_str!("sql/end.sql")),
    ("lockfast_tell", include_str!("sql/tell.sql")),
    ("lockfast_push", include_str!("sql/push.sql")),
    ("lockfast_find", include_str!("sql/find.sql")),
    ("lockfast_pass_over", include_str!("sql/pass_over.sql")),
    ("lockfast_pass_over_sharers", include_str!("sql/pass_over_sharers.sql")),
    ("lockfast_awaken", include_str!("sql/awaken.sql")),
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
    ("lockfast_downgrade", include_str!("sql/downgrade.sql")),
    ("lockfast_revoke", include_str!("sql/revoke.sql")),
    ("lockfast_look", include_str!("sql/look.sql")),
    ("lockfast_list", include_str!("sql/list.sql")),
    ("lockfast_labels", include_str!("sql/labels.sql")),
    ("lockfast_watch", include_str!("sql/watch.sql")),
    ("lockfast_read", include_str!("sql/read.sql")),
    ("lockfast_write", include_str!("sql/write.sql")),
    ("lockfast_sweep", include_str!("sql/sweep.sql")),
    ("lockfast_finish", include_str!("sql/finish.sql")),
    ("lockfast_enrol", include_str!("sql/enrol.sql")),
];

/// What other programs and users may call. Everything else runs with the rights of the caller, who has
/// none, unless one of these calls it.
pub(crate) const PUBLIC: &[&str] = &[
    "downgrade",
    "enrol",
    "finish",
    "give",
    "labels",
    "list",
    "listen",
    "look",
    "read",
    "revoke",
    "rouse",
    "sweep",
    "take",
    "watch",
    "work",
    "write",
];

/// What a version lacks or does otherwise, and all versions before it. The rest stays as it is for
/// those who are using it, and so do the rights to it.
const SINCE: &[(u32, &str)] = &[
    (2, "lockfast_read"),
    (2, "lockfast_sweep"),
    (2, "lockfast_write"),
    (3, "lockfast_downgrade"),
];

/// What version 1 lacks, table by table: a column that tells whether it was done, and the change.
const SINCE_1: &[(&str, &str, &str)] = &[
    ("lockfast_store", "serves", "ADD serves INT NOT NULL DEFAULT 0 AFTER version"),
    ("lockfast_clients", "who", "ADD who BINARY(16) NOT NULL DEFAULT '' AFTER client"),
    (
        "lockfast_locks",
        "served",
        "ADD waiting INT NOT NULL DEFAULT 0, ADD sharing INT NOT NULL DEFAULT 0, ADD asleep INT NOT \
         NULL DEFAULT 0, ADD offered TINYINT NOT NULL DEFAULT 0, ADD ticket BIGINT NOT NULL DEFAULT \
         0, ADD served BIGINT NOT NULL DEFAULT 0",
    ),
    (
        "lockfast_claims",
        "offered",
        "ADD client BINARY(6) NOT NULL DEFAULT '' AFTER holder, ADD offered TINYINT NOT NULL DEFAULT \
         0 AFTER stage, DROP KEY lockfast_claims_line, ADD KEY lockfast_claims_turn (name, stage, \
         ticket), ADD KEY lockfast_claims_client (name, stage, client, ticket), ADD KEY \
         lockfast_claims_mode (name, mode), ADD KEY lockfast_claims_end (name, until_us)",
    ),
];
/// What was written down by version 1. Who waits has to ask again; who holds goes on.
const REST_1: &[&str] = &[
    "DELETE FROM lockfast_claims WHERE stage = 0",
    "UPDATE lockfast_claims SET client = LEFT(holder, 6)",
    "UPDATE lockfast_locks l SET crowd = (SELECT COUNT(*) FROM lockfast_claims c WHERE c.name = \
     l.name), sharing = (SELECT COUNT(*) FROM lockfast_claims c WHERE c.name = l.name AND c.stage = \
     1), waiting = 0, asleep = 0",
];

/// One program at a time changes the schema of a database.
const TURN: &str = "SELECT GET_LOCK(CONCAT('lockfast:m:', LEFT(SHA2(DATABASE(), 256), 32)), 60)";
/// Procedures keep the mode in which they were created.
const MODE: &str =
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'";

/// What may be done about a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// It is made if there is none. One of another version is left alone: others may use it.
    Create,
    /// It is also brought up to date.
    Upgrade,
}

/// Makes the schema or brings it up to date, on a connection of its own.
pub(crate) async fn migrate(dialer: &Dialer, extent: Extent) -> Result<Migration, Failure> {
    let mut wire = dialer.dial().await?;
    let done = migrate_on(&mut wire, extent, dialer.config().request_timeout).await;
    wire.close().await;
    done.map_err(|failure| explain(failure, dialer))
}

async fn migrate_on(
    wire: &mut Wire,
    extent: Extent,
    limit: Duration,
) -> Result<Migration, Failure> {
    check_server(wire, limit).await?;
    wire.run(MODE).await?;
    wire.ask(TURN).await?;
    let from = read_version(wire).await?;
    match from {
        Some(version) if version > VERSION => {
            let row = wire.ask("SELECT serves FROM lockfast_store WHERE id = 1").await?;
            let serves = row.and_then(|row| row.number(0));
            check_version(version, serves)?;
            return Ok(Migration::Unchanged { version });
        }
        Some(VERSION) => return Ok(Migration::Unchanged { version: VERSION }),
        Some(version) if extent == Extent::Create => check_version(version, None)?,
        _ => {}
    }
    for statement in statements(TABLES) {
        wire.run(&statement).await?;
    }
    if from == Some(1) {
        alter(wire).await?;
    }
    let is_due = |name: &str| match from {
        Some(from @ 2..) => SINCE.iter().any(|(lacked, it)| *lacked >= from && *it == name),
        _ => true,
    };
    for (name, create) in PROCEDURES.iter().filter(|(name, _)| is_due(name)) {
        wire.run(&format!("DROP PROCEDURE IF EXISTS {name}")).await?;
        wire.run(create).await?;
    }
    if from == Some(1) {
        for statement in REST_1 {
            wire.run(statement).await?;
        }
    }
    let done = format!("UPDATE lockfast_store SET version = {VERSION}, serves = {SERVES}");
    wire.run(&done).await?;
    warn_of_rights(wire).await?;
    Ok(Migration::Changed { from, to: VERSION })
}

/// Adds to the tables of version 1 what they lack. What an earlier try has done is not done again.
async fn alter(wire: &mut Wire) -> Result<(), Failure> {
    for (table, column, change) in SINCE_1 {
        let query = format!(
            "SELECT 1 FROM information_schema.columns WHERE table_schema = DATABASE() AND \
             table_name = '{table}' AND column_name = '{column}'"
        );
        if wire.ask(&query).await?.is_none() {
            wire.run(&format!("ALTER TABLE {table} {change}")).await?;
        }
    }
    Ok(())
}

/// The procedures run with the rights of whoever made them, so that should be few.
async fn warn_of_rights(wire: &mut Wire) -> Result<(), Failure> {
    let query = "SELECT GROUP_CONCAT(privilege_type SEPARATOR ', ') FROM \
        information_schema.user_privileges WHERE privilege_type <> 'USAGE' AND grantee = \
        CONCAT(QUOTE(SUBSTRING_INDEX(CURRENT_USER(), '@', 1)), '@', \
        QUOTE(SUBSTRING_INDEX(CURRENT_USER(), '@', -1)))";
    let row = wire.ask(query).await?;
    if let Some(rights) = row.as_ref().and_then(|row| row.text(0)) {
        tracing::warn!(
            rights,
            "the procedures run with the rights of this user, who may do much more than they need; \
             migrate as a user with the rights that the README names"
        );
    }
    Ok(())
}

/// Whether this Lockfast can work with a schema, which says whom it serves.
pub(crate) fn check_version(version: u32, serves: Option<u64>) -> Result<(), Failure> {
    let (is_newer, is_served) = (version > VERSION, serves.is_some_and(|it| it <= VERSION.into()));
    if version == VERSION || (is_newer && is_served) {
        return Ok(());
    }
    if version == 0 {
        return Err(Failure::new(
            ErrorKind::InvalidConfig,
            "the schema is not whole: lockfast_store does not say its version; run lockfast migrate",
        ));
    }
    let remedy = match version {
        _ if is_newer => "use a newer Lockfast",
        SERVES.. => "run lockfast migrate; programs of that version can go on",
        _ => "run lockfast migrate, when no older program uses the database any more",
    };
    Err(Failure::new(
        ErrorKind::InvalidConfig,
        format!("the schema has version {version}, this Lockfast works with {VERSION}; {remedy}"),
    ))
}

/// The schema's version; none where there is no schema, or only the start of one.
async fn read_version(wire: &mut Wire) -> Result<Option<u32>, Failure> {
    match wire.ask("SELECT version FROM lockfast_store WHERE id = 1").await {
        Ok(Some(row)) => {
            Ok(row.number(0).and_then(|it| u32::try_from(it).ok()).filter(|it| *it > 0))
        }
        Ok(None) => Ok(None),
        // A user who may only call the procedures cannot see it, and cannot change it either.
        Err(failure) if failure.kind() == ErrorKind::InvalidConfig => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Refuses servers on which the procedures would not decide alone.
pub(crate) async fn check_server(wire: &mut Wire, limit: Duration) -> Result<(), Failure> {
    const QUERY: &str = "SHOW VARIABLES WHERE (Variable_name = 'wsrep_on' AND Value = 'ON') OR \
        (Variable_name = 'group_replication_single_primary_mode' AND Value = 'OFF')";
    let rows = wire.ask_all(QUERY, limit).await?;
    let Some(row) = rows.first() else { return Ok(()) };
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

/// What is missing when a user may not create a schema.
pub(crate) fn explain(failure: Failure, dialer: &Dialer) -> Failure {
    if failure.kind() != ErrorKind::Permission {
        return failure;
    }
    let database = &dialer.config().database;
    let message = format!(
        "{}; to create the schema a user needs SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, \
         INDEX, ALTER ROUTINE, CREATE ROUTINE and EXECUTE on `{database}`.*",
        failure.message()
    );
    failure.with_message(message)
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
            let is_public = PUBLIC.contains(&name.trim_start_matches("lockfast_"));
            let rights = if is_public { "SQL SECURITY DEFINER" } else { "SQL SECURITY INVOKER" };
            assert!(create.contains(rights), "{name}");
        }
        let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/sql")).unwrap();
        assert_eq!(files.count(), PROCEDURES.len() + 1, "a file is not used");
        assert_eq!(statements(TABLES).len(), 7);
    }

    /// B26: the README names the rights that a user needs, one by one.
    #[test]
    fn the_rights_are_documented() {
        let readme = include_str!("../README.md");
        for name in PUBLIC {
            let line = format!("GRANT EXECUTE ON PROCEDURE locks.lockfast_{name} TO app;\n");
            assert!(readme.contains(&line), "{name}");
        }
        assert_eq!(readme.matches("GRANT EXECUTE ON PROCEDURE").count(), PUBLIC.len());
    }

    /// B35: a schema that is newer says whom it serves; one that is older is not used.
    #[test]
    fn versions_that_fit() {
        let table = [
            (4, Some(2), true),
            (5, Some(3), true),
            (5, Some(4), true),
            (5, Some(5), false),
            (5, None, false),
            (3, Some(2), false),
            (2, Some(2), false),
            (1, None, false),
            (1, Some(1), false),
        ];
        for (version, serves, fits) in table {
            assert_eq!(check_version(version, serves).is_ok(), fits, "{version} {serves:?}");
        }
    }
}
