//! The schema: tables and the procedures that decide, created and brought up to date in one go.
//! Doing it twice, or by two programs at once, does no harm.
//!
//! What is there is left as it is for those who are using it: an upgrade adds the tables and columns that
//! are missing, and makes the procedures that are missing or have another text.

use std::collections::HashSet;
use std::time::Duration;

use lockfast_core::{ErrorKind, Migration};

use crate::failure::Failure;
use crate::wire::{Dialer, Wire};

/// The version that this crate works with. Every release that changes a table or a procedure has the next.
pub(crate) const VERSION: u32 = 1;
/// The earliest version of Lockfast that the procedures of this version serve.
const SERVES: u32 = 1;

/// A column that is added later has a default, for the rows that are there and for procedures that do not
/// know it.
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
    ("lockfast_why_lost", include_str!("sql/why_lost.sql")),
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
    let found = read_version(wire).await?;
    let from = found.map(|(version, _)| version);
    if let Some((version, serves)) = found
        && (version > VERSION || extent == Extent::Create)
    {
        check_version(from, serves)?;
        return Ok(Migration::Unchanged { version });
    }
    let has_changed = [complete_tables(wire, limit).await?, make_procedures(wire, limit).await?];
    if from == Some(VERSION) && has_changed == [false; 2] {
        return Ok(Migration::Unchanged { version: VERSION });
    }
    let done = format!(
        "INSERT INTO lockfast_store (id, version, serves, floor, watched_us, swept_us, swept_name) \
         VALUES (1, {VERSION}, {SERVES}, 0, 0, 0, '') \
         ON DUPLICATE KEY UPDATE version = {VERSION}, serves = {SERVES}"
    );
    wire.run(&done).await?;
    warn_of_rights(wire).await?;
    Ok(Migration::Changed { from: from.filter(|from| *from != VERSION), to: VERSION })
}

/// Makes the tables that are missing, and adds the columns that others lack. Whether there were any.
async fn complete_tables(wire: &mut Wire, limit: Duration) -> Result<bool, Failure> {
    const COLUMNS: &str = "SELECT table_name, column_name FROM information_schema.columns WHERE \
        table_schema = DATABASE() AND table_name LIKE 'lockfast\\_%'";
    let rows = wire.ask_all(COLUMNS, limit).await?;
    let there: HashSet<_> = rows.iter().map(|row| [0, 1].map(|at| row.text(at))).collect();
    let mut has_changed = false;
    for (table, create) in statements(TABLES) {
        let due: Vec<String> = match there.iter().any(|[it, _]| *it == Some(table.as_str())) {
            false => vec![create],
            true => columns(&create)
                .filter(|(column, _)| !there.contains(&[table.as_str(), column].map(Some)))
                .map(|(column, definition)| match definition.contains(" DEFAULT ") {
                    true => Ok(format!("ALTER TABLE {table} ADD {definition}")),
                    false => Err(of_missing_column(&table, column)),
                })
                .collect::<Result<_, _>>()?,
        };
        for statement in &due {
            wire.run(statement).await?;
        }
        has_changed |= !due.is_empty();
    }
    Ok(has_changed)
}

/// What no upgrade adds was there from the start.
fn of_missing_column(table: &str, column: &str) -> Failure {
    let message = format!(
        "table {table} has no column {column}, which cannot be added to what is there; use another \
         database, or drop {table}, which forgets what it holds, and run lockfast migrate"
    );
    Failure::new(ErrorKind::InvalidConfig, message)
}

/// Makes the procedures that are missing, or differ from ours in text or rights. Whether there were any.
/// The rights to call the others stay.
async fn make_procedures(wire: &mut Wire, limit: Duration) -> Result<bool, Failure> {
    const MARKS: &str = "SELECT routine_name, security_type, routine_comment FROM \
        information_schema.routines WHERE routine_schema = DATABASE() AND routine_name LIKE \
        'lockfast\\_%'";
    let rows = wire.ask_all(MARKS, limit).await?;
    let there: HashSet<_> = rows.iter().map(|row| [0, 1, 2].map(|at| row.text(at))).collect();
    let mut has_changed = false;
    for (name, create) in PROCEDURES {
        let mark = format!("{:016x}", digest(create));
        let security = if is_public(name) { "DEFINER" } else { "INVOKER" };
        if there.contains(&[*name, security, mark.as_str()].map(Some)) {
            continue;
        }
        wire.run(&format!("DROP PROCEDURE IF EXISTS {name}")).await?;
        let marked = format!("COMMENT '{mark}' SQL SECURITY");
        wire.run(&create.replacen("SQL SECURITY", &marked, 1)).await?;
        has_changed = true;
    }
    Ok(has_changed)
}

fn is_public(procedure: &str) -> bool {
    procedure.strip_prefix("lockfast_").is_some_and(|name| PUBLIC.contains(&name))
}

/// A number by which a text is told from another one: FNV-1a.
fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
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
pub(crate) fn check_version(version: Option<u32>, serves: Option<u64>) -> Result<(), Failure> {
    let Some(version) = version else {
        return Err(Failure::new(
            ErrorKind::InvalidConfig,
            "the schema is not whole: lockfast_store does not say its version; run lockfast migrate",
        ));
    };
    let (is_newer, is_served) = (version > VERSION, serves.is_some_and(|it| it <= VERSION.into()));
    if version == VERSION || (is_newer && is_served) {
        return Ok(());
    }
    let remedy = match version {
        _ if is_newer => "use a newer Lockfast, or another database for this one",
        SERVES.. => "run lockfast migrate; programs of that version can go on",
        _ => "run lockfast migrate, when no older program uses the database any more",
    };
    Err(Failure::new(
        ErrorKind::InvalidConfig,
        format!("the schema has version {version}, this Lockfast works with {VERSION}; {remedy}"),
    ))
}

/// The schema's version and whom it serves; none where there is no schema, or only the start of one.
async fn read_version(wire: &mut Wire) -> Result<Option<(u32, Option<u64>)>, Failure> {
    match wire.ask("SELECT version, serves FROM lockfast_store WHERE id = 1").await {
        Ok(row) => Ok(row.and_then(|row| Some((row.small(0)?, row.number(1))))),
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

/// The statements of a file that make tables, each without its comments, by the table's name.
fn statements(file: &str) -> Vec<(String, String)> {
    let lines = file.lines().filter(|line| !line.trim_start().starts_with("--"));
    let text = lines.collect::<Vec<_>>().join("\n");
    let statements = text.split(';').filter_map(|statement| {
        let table = statement.split_whitespace().nth(5)?;
        Some((table.to_owned(), statement.trim().to_owned()))
    });
    statements.collect()
}

/// The columns of a table, each with its definition.
fn columns(create: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = create.lines().map(|line| line.trim().trim_end_matches(','));
    let definitions = lines.filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
    definitions.filter_map(|definition| Some((definition.split_once(' ')?.0, definition)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_procedure_is_created_under_its_name() {
        for (name, create) in PROCEDURES {
            assert!(create.contains(&format!("CREATE PROCEDURE {name}(")), "{name}");
            let rights =
                if is_public(name) { "SQL SECURITY DEFINER" } else { "SQL SECURITY INVOKER" };
            assert!(create.contains(rights), "{name}");
        }
        let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/sql")).unwrap();
        assert_eq!(files.count(), PROCEDURES.len() + 1, "a file is not used");
        let tables = statements(TABLES);
        assert_eq!(tables.len(), 6);
        assert!(tables.iter().all(|(table, _)| table.starts_with("lockfast_")));
        let counted: Vec<_> = tables.iter().map(|(_, create)| columns(create).count()).collect();
        assert_eq!(counted, [7, 8, 12, 14, 5, 4]);
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
            (Some(1), Some(1), true),
            (Some(2), Some(1), true),
            (Some(2), Some(0), true),
            (Some(2), Some(2), false),
            (Some(2), None, false),
            (Some(0), Some(0), false),
            (None, None, false),
            // Schemas that were made during development.
            (Some(2), Some(2), false),
            (Some(3), Some(2), false),
            (Some(4), Some(2), false),
        ];
        for (version, serves, fits) in table {
            assert_eq!(check_version(version, serves).is_ok(), fits, "{version:?} {serves:?}");
        }
    }
}
