//! `mode=shedlock`: the rows of ShedLock's table, by the statements of its variant with the server's
//! time, so that a Java fleet and Lockfast share a schedule.

use std::sync::Arc;
use std::time::Duration;

use lockfast_core::task::Task;
use lockfast_core::{Backend, ConnectContext, ErrorKind, Moment, Profile, Result};
use lockfast_net::shedlock::{self, Change, Columns, Field, KEY_CHARS, Row, Shedlock};
use tokio_postgres::types::Type;

use crate::failure::{self, Failure};
use crate::wire::{Dialer, Param, Session, get};

/// As ShedLock has it, but not the start of the transaction: a statement may have waited for the row.
const CLOCK: &str = "timezone('utc', clock_timestamp())";
/// What is written: whole milliseconds, which every such column holds without rounding.
const NOW: &str = "date_trunc('milliseconds', timezone('utc', clock_timestamp()))";
const COLUMNS: &str = include_str!("shedlock/columns.sql");
const TAKE: &str = include_str!("shedlock/take.sql");
const RENEW: &str = include_str!("shedlock/renew.sql");
const GIVE: &str = include_str!("shedlock/give.sql");
const REVOKE: &str = include_str!("shedlock/revoke.sql");
const LOOK: &str = include_str!("shedlock/look.sql");

/// The session that we are in, as nobody else's will be called.
const SELF: &str = "SELECT pid, (extract(epoch FROM backend_start) * 1000000)::bigint \
    FROM pg_stat_activity WHERE pid = pg_backend_pid()";
/// Ends an earlier one; no row when it is gone.
const END: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1 \
    AND (extract(epoch FROM backend_start) * 1000000)::bigint = $2";
/// How often it is looked whether it has ended.
const END_LOOK: Duration = Duration::from_millis(10);

pub(crate) fn profile() -> Profile {
    shedlock::profile("postgres")
}

/// The statement that makes the table, as ShedLock's own documentation has it.
pub(crate) fn creation(table: &str) -> String {
    format!(
        "CREATE TABLE {table}(name VARCHAR(64) NOT NULL, lock_until TIMESTAMP NOT NULL, locked_at \
         TIMESTAMP NOT NULL, locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))"
    )
}

/// Connects to a table that somebody has made.
pub(crate) async fn connect(
    dialer: Arc<Dialer>,
    context: ConnectContext,
) -> Result<Arc<dyn Backend>> {
    let runtime = context.runtime.clone();
    let opening = Task::start(&runtime, async move {
        let request_timeout = dialer.config.request_timeout;
        let mut table = Table::new(dialer);
        let columns = table.open().await?;
        let store = Shedlock::new(table, columns, profile(), request_timeout, context);
        Ok::<_, Failure>(Arc::new(store) as Arc<dyn Backend>)
    });
    opening.finish().await.map_err(|failure| failure.to_error())
}

/// The table by one connection.
struct Table {
    dialer: Arc<Dialer>,
    name: String,
    statements: Statements,
    session: Option<Session>,
    /// The session before this one, or this one: its process and when that was started.
    known: Option<(i32, i64)>,
}

struct Statements {
    take: String,
    renew: String,
    give: String,
    revoke: String,
    look: String,
}

impl Statements {
    fn new(table: &str) -> Self {
        let key = KEY_CHARS.to_string();
        let fill = |text: &str| {
            let text = text.replace("{table}", table).replace("{key}", &key);
            text.replace("{now}", NOW).replace("{clock}", CLOCK)
        };
        Self {
            take: fill(TAKE),
            renew: fill(RENEW),
            give: fill(GIVE),
            revoke: fill(REVOKE),
            look: fill(LOOK),
        }
    }
}

impl Table {
    fn new(dialer: Arc<Dialer>) -> Self {
        let name = dialer.config.table.clone();
        let statements = Statements::new(&name);
        Self { dialer, name, statements, session: None, known: None }
    }

    /// Connects, and looks at the table.
    async fn open(&mut self) -> Result<Columns, Failure> {
        self.session = None;
        let limit = self.dialer.config.request_timeout;
        let session = self.dialer.dial().await?;
        if !session.is_direct {
            return Err(Failure::new(
                ErrorKind::Unsupported,
                "mode=shedlock does not work through a pooler, where a statement whose connection \
                 was given up could take the lock later; connect to the server itself",
            ));
        }
        self.end_earlier(&session, limit).await?;
        let rows = session.ask(SELF, &[], limit).await?;
        let row = rows.first().ok_or_else(|| failure::of_nonsense("no session"))?;
        self.known = Some((get(row, 0)?, get(row, 1)?));
        let columns = self.look_at_columns(&session, limit).await?;
        self.session = Some(session);
        Ok(columns)
    }

    /// Ends the session before this one, so that it does nothing any more.
    async fn end_earlier(&self, session: &Session, limit: Duration) -> Result<(), Failure> {
        let Some((process, started)) = self.known else { return Ok(()) };
        let params: [Param<'_>; 2] = [(&process, Type::INT4), (&started, Type::INT8)];
        let until = Moment::now() + limit;
        while !session.ask(END, &params, limit).await?.is_empty() {
            if until.has_passed(Moment::now()) {
                let message = "the server does not end an earlier session of ours";
                return Err(Failure::new(ErrorKind::Unreachable, message));
            }
            tokio::time::sleep(END_LOOK).await;
        }
        Ok(())
    }

    async fn look_at_columns(
        &self,
        session: &Session,
        limit: Duration,
    ) -> Result<Columns, Failure> {
        let params: [Param<'_>; 1] = [(&self.name, Type::TEXT)];
        let rows = session.ask(COLUMNS, &params, limit).await?;
        let (mut name, mut owner) = (None, None);
        for row in &rows {
            if !get::<bool>(row, 0)? {
                return Err(self.of_missing());
            }
            let (column, kind, limited): (&str, &str, i32) =
                (get(row, 1)?, get(row, 2)?, get(row, 3)?);
            match column {
                "name" if !get::<bool>(row, 4)? => {
                    return Err(self.of_shape("column name is no primary key"));
                }
                "name" => name = Some(self.read_text(column, kind, limited)?),
                "locked_by" => owner = Some(self.read_text(column, kind, limited)?),
                _ => self.check_time(column, kind, limited)?,
            }
        }
        let (Some(name), Some(owner)) = (name, owner) else {
            return Err(failure::of_nonsense("no columns"));
        };
        if owner.chars < Columns::OWNER_CHARS_MIN {
            let flaw = format!("column locked_by has room for {} characters only", owner.chars);
            return Err(self.of_shape(&flaw));
        }
        Ok(Columns { name, owner })
    }

    fn read_text(&self, column: &str, kind: &str, limited: i32) -> Result<Field, Failure> {
        // The server counts its own four bytes.
        let chars = match (kind, limited) {
            ("character varying", 5..) => usize::try_from(limited - 4).unwrap_or(usize::MAX),
            ("character varying" | "text", _) => usize::MAX,
            _ => return Err(self.of_type(column, kind, "VARCHAR")),
        };
        Ok(Field { chars, highest: char::MAX })
    }

    fn check_time(&self, column: &str, kind: &str, limited: i32) -> Result<(), Failure> {
        if kind != "timestamp without time zone" {
            return Err(self.of_type(column, kind, "TIMESTAMP without time zone"));
        }
        if matches!(limited, 0..3) {
            return Err(self.of_shape(&format!("column {column} does not hold milliseconds")));
        }
        Ok(())
    }

    fn of_type(&self, column: &str, kind: &str, wanted: &str) -> Failure {
        let found = if kind.is_empty() { "missing" } else { kind };
        self.of_shape(&format!("column {column} is {found}, not {wanted}"))
    }

    fn of_shape(&self, flaw: &str) -> Failure {
        let Self { name, .. } = self;
        let message = format!(
            "table {name} is not as ShedLock has it: {flaw}; it is made by {}",
            creation(name)
        );
        Failure::new(ErrorKind::InvalidConfig, message)
    }

    fn of_missing(&self) -> Failure {
        let Self { name, .. } = self;
        let message = format!(
            "there is no table {name}, or not for this role; run {}; and grant SELECT, INSERT and \
             UPDATE on it",
            creation(name)
        );
        Failure::new(ErrorKind::InvalidConfig, message)
    }

    async fn ask(
        &self,
        statement: &str,
        params: &[Param<'_>],
        limit: Duration,
    ) -> Result<Vec<tokio_postgres::Row>, Failure> {
        let session = self.session.as_ref().ok_or_else(crate::store::closed)?;
        session.ask(statement, params, limit).await.map_err(|failure| match failure {
            failure if failure::is_of_schema(&failure) => self.of_missing(),
            failure => failure,
        })
    }
}

impl shedlock::Table for Table {
    type Handling = failure::Treatment;

    async fn connect(&mut self) -> Result<(), Failure> {
        self.open().await.map(drop)
    }

    async fn change(&mut self, change: &Change, limit: Duration) -> Result<bool, Failure> {
        let Statements { take, renew, give, revoke, .. } = &self.statements;
        let text = Type::TEXT;
        let rows = match change {
            Change::Take { name, key, revoked, owner, span_ms } => {
                let params: [Param<'_>; 5] = [
                    (name, text.clone()),
                    (span_ms, Type::INT8),
                    (owner, text.clone()),
                    (key, text.clone()),
                    (revoked, text),
                ];
                self.ask(take, &params, limit).await?
            }
            Change::Renew { name, key, span_ms } => {
                let params: [Param<'_>; 3] =
                    [(name, text.clone()), (span_ms, Type::INT8), (key, text)];
                self.ask(renew, &params, limit).await?
            }
            Change::Give { name, key } => {
                let params: [Param<'_>; 2] = [(name, text.clone()), (key, text)];
                self.ask(give, &params, limit).await?
            }
            Change::Revoke { name, owner, at_us, revoked } => {
                let params: [Param<'_>; 4] = [
                    (name, text.clone()),
                    (owner, text.clone()),
                    (at_us, Type::INT8),
                    (revoked, text),
                ];
                self.ask(revoke, &params, limit).await?
            }
        };
        Ok(!rows.is_empty())
    }

    async fn look(&mut self, name: Option<&str>, limit: Duration) -> Result<Vec<Row>, Failure> {
        let params: [Param<'_>; 1] = [(&name, Type::TEXT)];
        let rows = self.ask(&self.statements.look, &params, limit).await?;
        let read = |row: &tokio_postgres::Row| {
            Ok(Row {
                name: get(row, 0)?,
                owner: get(row, 1)?,
                at_us: get(row, 2)?,
                left_us: get(row, 3)?,
            })
        };
        rows.iter().map(read).collect()
    }

    fn remedy(failure: &Failure) -> shedlock::Remedy {
        use failure::Remedy;
        match failure.handling.remedy {
            Remedy::Tell => shedlock::Remedy::Tell,
            Remedy::Repeat => shedlock::Remedy::Repeat,
            Remedy::Enrol | Remedy::Reconnect | Remedy::TellAndReconnect => {
                shedlock::Remedy::Reconnect
            }
        }
    }

    async fn close(self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_to_fill_in() {
        let Statements { take, renew, give, revoke, look } = Statements::new("app.shedlock");
        for statement in [take, renew, give, revoke, look] {
            assert!(statement.contains("app.shedlock"), "{statement}");
            assert!(!statement.contains('{'), "{statement}");
        }
    }
}
