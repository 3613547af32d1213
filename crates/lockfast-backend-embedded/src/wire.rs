//! The database: the only file that speaks SQL, and the only one that knows which library does.
//!
//! Commits are `synchronous=NORMAL`: a crash of the process loses nothing, and a crash of the
//! machine ends every holder together with what it may have lost. Only the fence must survive it,
//! see [`Meta::fence_ceiling`].

pub(crate) mod gate;
mod row;

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use lockfast_core::error::quote;
use lockfast_core::{
    Change, ClientId, ErrorKind, Label, LockName, Version, VersionedValue, WriteRequest,
};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, params};

use crate::claim::Claim;
use crate::failure::{Failure, Scope};
use crate::place::shown;

/// What this version writes into `user_version`.
const SCHEMA_VERSION: i64 = 2;
/// What version 2 added.
const VALUES: &str = include_str!("sql/values.sql");
/// `LkFs`, so that `file` and people can tell whose database it is.
const APPLICATION_ID: i64 = 0x4C6B_4673;
/// The first SQLite that never loses a write when two processes reset the log at once.
const SQLITE_VERSION_MIN: i32 = 3_051_003;

use row::{explain, read_claim, signed, write_claim};

type Outcome<T> = Result<T, Failure>;

/// An open database.
#[derive(Debug)]
pub(crate) struct Wire {
    connection: Connection,
    path: PathBuf,
    /// Whether every commit waits for the disk.
    always_full: bool,
    /// Labels never change, so they are read once.
    labels: RefCell<HashMap<ClientId, Label>>,
}

/// The store's one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    /// Which start of the machine the claims belong to.
    pub(crate) boot_id: String,
    /// The last fence that was handed out.
    pub(crate) fence: u64,
    /// No fence from here on was handed out before this number was safe on the disk, so that the
    /// counter can go on from it when the machine crashed and the last commits are lost.
    pub(crate) fence_ceiling: u64,
    /// How many clients watch.
    pub(crate) watchers: u64,
}

impl Wire {
    /// Opens the database and brings it to this version. The caller has the write lock.
    pub(crate) fn open(path: PathBuf, boot_id: &str, always_full: bool) -> Outcome<Self> {
        let version = rusqlite::version_number();
        if version < SQLITE_VERSION_MIN {
            return Err(Failure::new(
                ErrorKind::Unsupported,
                format!(
                    "SQLite {} can damage a database that several processes use; link 3.51.3 or \
                     later",
                    rusqlite::version()
                ),
            ));
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let connection =
            Connection::open_with_flags(&path, flags).map_err(|error| explain(&path, &error))?;
        let wire = Self { connection, path, always_full, labels: RefCell::default() };
        wire.prepare(boot_id)?;
        Ok(wire)
    }

    fn prepare(&self, boot_id: &str) -> Outcome<()> {
        let db = &self.connection;
        let ask = || -> rusqlite::Result<(i64, i64, i64)> {
            // Only foreign tools can make us wait: we have our own lock.
            db.busy_timeout(Duration::from_secs(5))?;
            db.set_prepared_statement_cache_capacity(32);
            // Otherwise statements are planned anew whenever their parameters change.
            db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
            let version = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
            let owner = db.pragma_query_value(None, "application_id", |row| row.get(0))?;
            let tables =
                db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
            Ok((owner, version, tables))
        };
        match ask().map_err(|error| self.explain(&error))? {
            (0, 0, 0) => {
                self.set_pragmas()?;
                self.create(boot_id)
            }
            (APPLICATION_ID, SCHEMA_VERSION, 1..) => self.set_pragmas(),
            (APPLICATION_ID, 1, 1..) => {
                self.set_pragmas()?;
                self.change_schema(|db| db.execute_batch(VALUES))
            }
            (APPLICATION_ID, 0, _) | (_, _, 0) => {
                Err(self.corrupt("has lost its tables; move its directory away to begin anew"))
            }
            (owner, ..) if owner != APPLICATION_ID => Err(self.corrupt(
                "is not a Lockfast database but another program's; use another directory",
            )),
            (_, version, _) => Err(self.corrupt(&format!(
                "was written by a later Lockfast (schema {version}, this one knows \
                 {SCHEMA_VERSION}), so upgrade this program"
            ))),
        }
    }

    fn set_pragmas(&self) -> Outcome<()> {
        let db = &self.connection;
        let set = || -> rusqlite::Result<String> {
            let mode = db.query_row("PRAGMA journal_mode=WAL", [], |row| row.get(0))?;
            // The log is written back every 8 MiB and does not stay longer than that.
            db.execute_batch(
                "PRAGMA wal_autocheckpoint=2000; PRAGMA journal_size_limit=8388608;
                 PRAGMA temp_store=MEMORY; PRAGMA foreign_keys=OFF;",
            )?;
            Ok(mode)
        };
        let mode = set().map_err(|error| self.explain(&error))?;
        if mode != "wal" {
            return Err(Failure::new(
                ErrorKind::Unsupported,
                format!(
                    "{} cannot use a write-ahead log here; use a directory on another file system",
                    shown(&self.path)
                ),
            ));
        }
        self.set_full(self.always_full)
    }

    fn create(&self, boot_id: &str) -> Outcome<()> {
        self.change_schema(|db| {
            db.execute_batch(include_str!("sql/schema.sql"))?;
            db.execute_batch(VALUES)?;
            db.execute("INSERT INTO meta VALUES (1, ?1, 0, 0, 0)", [boot_id]).map(|_| ())
        })
    }

    /// Brings the schema to this version, all of it or nothing.
    fn change_schema(&self, change: impl Fn(&Connection) -> rusqlite::Result<()>) -> Outcome<()> {
        self.set_full(true)?;
        let make = || -> rusqlite::Result<()> {
            let db = &self.connection;
            db.execute_batch("BEGIN IMMEDIATE")?;
            change(db)?;
            db.pragma_update(None, "user_version", SCHEMA_VERSION)?;
            db.pragma_update(None, "application_id", APPLICATION_ID)?;
            db.execute_batch("COMMIT")
        };
        make().map_err(|error| {
            self.roll_back();
            self.explain(&error)
        })?;
        self.set_full(self.always_full)
    }

    /// Whether the next commits wait for the disk.
    pub(crate) fn set_full(&self, full: bool) -> Outcome<()> {
        let level = if full || self.always_full { "FULL" } else { "NORMAL" };
        self.connection
            .pragma_update(None, "synchronous", level)
            .map_err(|error| self.explain(&error))
    }

    /// Begins a transaction that writes, or that only reads.
    pub(crate) fn begin(&self, writes: bool) -> Outcome<()> {
        self.run(if writes { "BEGIN IMMEDIATE" } else { "BEGIN" })
    }

    pub(crate) fn commit(&self) -> Outcome<()> {
        self.run("COMMIT")
    }

    /// Undoes the transaction, if there is one.
    pub(crate) fn roll_back(&self) {
        if !self.connection.is_autocommit() {
            // What fails here fails again, and then aloud, at the next begin.
            let _ = self.run("ROLLBACK");
        }
    }

    /// A number that differs after another connection has written.
    pub(crate) fn data_version(&self) -> Outcome<i64> {
        self.ask_one("PRAGMA data_version")
    }

    pub(crate) fn load_meta(&self) -> Outcome<Meta> {
        let load = || -> rusqlite::Result<(String, i64, i64, i64)> {
            let mut statement = self.connection.prepare_cached(
                "SELECT boot_id, fence, fence_ceiling, watchers FROM meta WHERE id = 1",
            )?;
            statement.query_row([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
        };
        let (boot_id, fence, ceiling, watchers) = load().map_err(|error| self.explain(&error))?;
        let number = |number: i64| {
            u64::try_from(number).map_err(|_| self.corrupt("holds a number below zero"))
        };
        Ok(Meta {
            boot_id,
            fence: number(fence)?,
            fence_ceiling: number(ceiling)?,
            watchers: number(watchers)?,
        })
    }

    pub(crate) fn save_meta(&self, meta: &Meta) -> Outcome<()> {
        self.execute(
            "UPDATE meta SET boot_id = ?1, fence = ?2, fence_ceiling = ?3, watchers = ?4
              WHERE id = 1",
            params![
                meta.boot_id,
                signed(meta.fence),
                signed(meta.fence_ceiling),
                signed(meta.watchers)
            ],
        )
    }

    /// The claims of a lock, in order.
    pub(crate) fn load_queue(&self, name: &LockName) -> Outcome<Vec<Claim>> {
        let load = || -> rusqlite::Result<Vec<Claim>> {
            let mut statement =
                self.connection.prepare_cached(include_str!("sql/load_queue.sql"))?;
            let mut rows = statement.query([name.as_str()])?;
            let mut claims = Vec::new();
            while let Some(row) = rows.next()? {
                claims.push(read_claim(row)?);
            }
            Ok(claims)
        };
        load().map_err(|error| self.explain_lock(name, &error))
    }

    pub(crate) fn insert_claim(&self, name: &LockName, claim: &Claim) -> Outcome<()> {
        self.write_claim(include_str!("sql/insert_claim.sql"), name, claim)
    }

    pub(crate) fn update_claim(&self, name: &LockName, claim: &Claim) -> Outcome<()> {
        self.write_claim(include_str!("sql/update_claim.sql"), name, claim)
    }

    pub(crate) fn delete_claim(&self, name: &LockName, ticket: u64) -> Outcome<()> {
        self.execute(
            "DELETE FROM claim WHERE name = ?1 AND ticket = ?2",
            params![name.as_str(), signed(ticket)],
        )
    }

    fn write_claim(&self, sql: &str, name: &LockName, claim: &Claim) -> Outcome<()> {
        (self.connection.prepare_cached(sql))
            .and_then(|mut statement| write_claim(&mut statement, name, claim))
            .map_err(|error| self.explain(&error))
    }

    /// The locks that are held or waited for.
    pub(crate) fn list_names(
        &self,
        prefix: &str,
        after: Option<&LockName>,
        now_ns: u64,
        mut each: impl FnMut(LockName) -> bool,
    ) -> Outcome<()> {
        let mut list = || -> rusqlite::Result<()> {
            let mut statement =
                self.connection.prepare_cached(include_str!("sql/list_names.sql"))?;
            let after = after.map_or("", LockName::as_str);
            let mut rows = statement.query(params![prefix, after, signed(now_ns)])?;
            while let Some(row) = rows.next()? {
                let name = row.get_ref(0)?.as_str()?;
                let Ok(name) = LockName::new(name) else {
                    continue;
                };
                if !name.as_str().starts_with(prefix) || !each(name) {
                    break;
                }
            }
            Ok(())
        };
        list().map_err(|error| self.explain(&error))
    }

    /// When the first claim ends by itself.
    pub(crate) fn next_end_ns(&self) -> Outcome<u64> {
        let end = self.ask_one("SELECT ifnull(min(ends_ns), 0x7fffffffffffffff) FROM claim")?;
        Ok(u64::try_from(end).unwrap_or_default())
    }

    /// The locks with claims that have ended.
    pub(crate) fn names_ended(&self, now_ns: u64) -> Outcome<Vec<LockName>> {
        let names: Vec<String> =
            self.column("SELECT DISTINCT name FROM claim WHERE ends_ns <= ?1", [signed(now_ns)])?;
        Ok(names.iter().flat_map(LockName::new).collect())
    }

    /// The locks that a client has claims on.
    pub(crate) fn names_of(&self, client: ClientId) -> Outcome<Vec<LockName>> {
        let names: Vec<String> =
            self.column("SELECT DISTINCT name FROM claim WHERE client = ?1", [client.as_bytes()])?;
        Ok(names.iter().flat_map(LockName::new).collect())
    }

    pub(crate) fn save_client(&self, client: ClientId, label: &Label) -> Outcome<()> {
        self.execute(
            "INSERT OR REPLACE INTO client VALUES (?1, ?2, ?3, ?4, ?5)",
            params![client.as_bytes(), label.program, label.host, label.pid, label.text],
        )
    }

    /// Forgets a client that is gone, unless a claim still shows its label.
    pub(crate) fn delete_client(&self, client: ClientId) -> Outcome<()> {
        self.execute(include_str!("sql/prune_clients.sql"), [client.as_bytes()])
    }

    /// Forgets every claim and client: the machine was started anew.
    pub(crate) fn clear(&self) -> Outcome<()> {
        for sql in ["DELETE FROM claim", "DELETE FROM client", "DELETE FROM watcher"] {
            self.execute(sql, [])?;
        }
        Ok(())
    }

    /// What people see of a client; a label that cannot be read is not worth an error.
    pub(crate) fn label(&self, client: &ClientId) -> Option<Label> {
        const LABELS_MAX: usize = 4096;
        if let Some(label) = self.labels.borrow().get(client) {
            return Some(label.clone());
        }
        let label = self.load_label(*client).ok()??;
        let mut labels = self.labels.borrow_mut();
        if labels.len() >= LABELS_MAX {
            labels.clear();
        }
        labels.insert(*client, label.clone());
        Some(label)
    }

    fn load_label(&self, client: ClientId) -> Outcome<Option<Label>> {
        let load = || {
            let mut statement = self
                .connection
                .prepare_cached("SELECT program, host, pid, text FROM client WHERE id = ?1")?;
            let label = statement.query_row([client.as_bytes()], |row| {
                Ok(Label::new(row.get(0)?, row.get(1)?, row.get(2)?).with_stored_text(row.get(3)?))
            });
            label.optional()
        };
        load().map_err(|error| self.explain(&error))
    }

    /// Who wants to be told of events.
    pub(crate) fn load_watchers(&self) -> Outcome<Vec<ClientId>> {
        let ids: Vec<[u8; 6]> = self.column("SELECT client FROM watcher", [])?;
        Ok(ids.into_iter().map(ClientId::from_bytes).collect())
    }

    /// Adds or removes a watcher, and returns how many there are.
    pub(crate) fn set_watching(&self, client: ClientId, watching: bool) -> Outcome<u64> {
        let sql = match watching {
            true => "INSERT OR IGNORE INTO watcher VALUES (?1)",
            false => "DELETE FROM watcher WHERE client = ?1",
        };
        self.execute(sql, [client.as_bytes()])?;
        let count = self.ask_one("SELECT count(*) FROM watcher")?;
        Ok(u64::try_from(count).unwrap_or_default())
    }

    /// The value of a name, unless it has ended.
    pub(crate) fn load_value(
        &self,
        name: &LockName,
        now_us: u64,
    ) -> Outcome<Option<VersionedValue>> {
        let load = || {
            let mut statement = self.connection.prepare_cached(
                "SELECT version, bytes, ends_us FROM value
                  WHERE name = ?1 AND (ends_us = 0 OR ends_us > ?2)",
            )?;
            let value = statement.query_row(params![name.as_str(), signed(now_us)], |row| {
                let ends_us: i64 = row.get(2)?;
                let left_us = (ends_us > 0).then(|| ends_us as u64 - now_us);
                let version = Version::from_bytes(row.get(0)?);
                let remaining = left_us.map(Duration::from_micros);
                Ok(VersionedValue::new(version, row.get(1)?, remaining))
            });
            value.optional()
        };
        load().map_err(|error| self.explain_lock(name, &error))
    }

    /// Leaves what a write wants there, and forgets the values that have ended.
    pub(crate) fn save_value(&self, request: &WriteRequest, now_us: u64) -> Outcome<()> {
        self.execute("DELETE FROM value WHERE ends_us > 0 AND ends_us <= ?1", [signed(now_us)])?;
        let name = request.name.as_str();
        match &request.change {
            Change::Put { bytes, keep } => {
                let ends_us = keep.map_or(0, |keep| now_us.saturating_add(micros(keep)));
                self.execute(
                    "INSERT OR REPLACE INTO value VALUES (?1, ?2, ?3, ?4)",
                    params![name, request.id, bytes, signed(ends_us)],
                )
            }
            Change::Remove => self.execute("DELETE FROM value WHERE name = ?1", [name]),
        }
    }

    fn run(&self, sql: &str) -> Outcome<()> {
        self.execute(sql, [])
    }

    fn execute(&self, sql: &str, params: impl rusqlite::Params) -> Outcome<()> {
        (self.connection.prepare_cached(sql))
            .and_then(|mut statement| statement.execute(params))
            .map(|_| ())
            .map_err(|error| self.explain(&error))
    }

    fn ask_one(&self, sql: &str) -> Outcome<i64> {
        (self.connection.prepare_cached(sql))
            .and_then(|mut statement| statement.query_row([], |row| row.get(0)))
            .map_err(|error| self.explain(&error))
    }

    fn column<T: rusqlite::types::FromSql>(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
    ) -> Outcome<Vec<T>> {
        (self.connection.prepare_cached(sql))
            .and_then(|mut statement| {
                let rows = statement.query_map(params, |row| row.get(0))?;
                rows.collect()
            })
            .map_err(|error| self.explain(&error))
    }

    fn explain(&self, error: &rusqlite::Error) -> Failure {
        explain(&self.path, error)
    }

    /// What went wrong with the record of one name.
    fn explain_lock(&self, name: &LockName, error: &rusqlite::Error) -> Failure {
        let failure = self.explain(error);
        match error {
            rusqlite::Error::SqliteFailure(..) | rusqlite::Error::SqlInputError { .. } => failure,
            // The database works, but this record is not ours.
            _ => {
                let message = format!("{} at lock {}", failure.message(), quote(name.as_str()));
                failure.with_message(message).with(Scope::Lock)
            }
        }
    }

    fn corrupt(&self, flaw: &str) -> Failure {
        Failure::new(ErrorKind::CorruptRecord, format!("{} {flaw}", shown(&self.path)))
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
