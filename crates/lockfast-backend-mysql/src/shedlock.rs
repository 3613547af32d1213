//! `mode=shedlock`: the rows of ShedLock's table, by the statements of its variant with the server's
//! time, so that a Java fleet and Lockfast share a schedule.
//!
//! A TIMESTAMP is read and written in the zone of the session, and what ShedLock writes there are the
//! digits of UTC. So our session has the zone that the server gives everybody, as that of a Java program
//! has: then both mean the same moment.

use std::sync::Arc;
use std::time::Duration;

use lockfast_core::task::Task;
use lockfast_core::{Backend, ClientId, ConnectContext, ErrorKind, Profile, Result};
use lockfast_net::shedlock::{self, Change, Columns, Field, KEY_CHARS, Row, Shedlock};

use crate::failure::{self, Failure};
use crate::migration::check_server;
use crate::wire::{Answer, Argument, Dialer, Wire};

const COLUMNS: &str = include_str!("shedlock/columns.sql");
const TAKE: &str = include_str!("shedlock/take.sql");
const MAKE: &str = include_str!("shedlock/make.sql");
const RENEW: &str = include_str!("shedlock/renew.sql");
const GIVE: &str = include_str!("shedlock/give.sql");
const REVOKE: &str = include_str!("shedlock/revoke.sql");
const LOOK: &str = include_str!("shedlock/look.sql");
const LIST: &str = include_str!("shedlock/list.sql");

pub(crate) fn profile() -> Profile {
    shedlock::profile("mysql")
}

/// The statement that makes the table, as ShedLock's own documentation has it.
pub(crate) fn creation(table: &str) -> String {
    format!(
        "CREATE TABLE {table}(name VARCHAR(64) NOT NULL, lock_until TIMESTAMP(3) NOT NULL, \
         locked_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), locked_by VARCHAR(255) NOT \
         NULL, PRIMARY KEY (name))"
    )
}

/// Connects to a table that somebody has made.
pub(crate) async fn connect(dialer: Dialer, context: ConnectContext) -> Result<Arc<dyn Backend>> {
    let runtime = context.runtime.clone();
    let opening = Task::start(&runtime, async move {
        let request_timeout = dialer.config().request_timeout;
        let mut table = Table::new(dialer, context.client);
        let columns = table.open().await?;
        let store = Shedlock::new(table, columns, profile(), request_timeout, context);
        Ok::<_, Failure>(Arc::new(store) as Arc<dyn Backend>)
    });
    opening.finish().await.map_err(|failure| failure.to_error())
}

/// The table by one connection.
struct Table {
    dialer: Dialer,
    name: String,
    statements: Statements,
    wire: Option<Wire>,
    /// The named lock of our connection, so that the next one knows it.
    turn: String,
}

struct Statements {
    take: String,
    make: String,
    renew: String,
    give: String,
    revoke: String,
    look: String,
    list: String,
}

impl Statements {
    fn new(table: &str) -> Self {
        let key = KEY_CHARS.to_string();
        let fill = |text: &str| text.replace("{table}", table).replace("{key}", &key);
        Self {
            take: fill(TAKE),
            make: fill(MAKE),
            renew: fill(RENEW),
            give: fill(GIVE),
            revoke: fill(REVOKE),
            look: fill(LOOK),
            list: fill(LIST),
        }
    }
}

impl Table {
    fn new(dialer: Dialer, client: ClientId) -> Self {
        let name = dialer.config().table.clone();
        let statements = Statements::new(&name);
        Self { dialer, name, statements, wire: None, turn: format!("lockfast:s:{client}") }
    }

    /// Connects, and looks at the table.
    async fn open(&mut self) -> Result<Columns, Failure> {
        self.wire = None;
        let limit = self.dialer.config().request_timeout;
        let mut wire = self.dialer.dial_in_zone().await?;
        // The server frees the lock of an earlier connection when everything there is over.
        wire.evict(&self.turn, limit).await?;
        let patience = limit.as_secs().max(1);
        let turn = format!("SELECT GET_LOCK('{}', {patience})", self.turn);
        let rows = wire.ask_all(&turn, Duration::from_secs(patience) + limit).await?;
        if rows.first().and_then(|row| row.number(0)) != Some(1) {
            let message = "the server does not end an earlier connection of ours";
            return Err(Failure::new(ErrorKind::Unreachable, message));
        }
        check_server(&mut wire, limit).await?;
        let columns = self.look_at_columns(&mut wire, limit).await?;
        self.wire = Some(wire);
        Ok(columns)
    }

    async fn look_at_columns(&self, wire: &mut Wire, limit: Duration) -> Result<Columns, Failure> {
        let (database, table) = match self.name.split_once('.') {
            Some((database, table)) => (Argument::from(database), table),
            None => (Argument::NULL, self.name.as_str()),
        };
        let rows = wire.call(COLUMNS, vec![database, Argument::from(table)], limit).await?;
        if rows.is_empty() {
            return Err(self.of_missing());
        }
        let column = |name: &'static str| {
            let found = rows.iter().find(|row| row.text(0) == Some(name));
            found
                .map(|row| (name, row))
                .ok_or_else(|| self.of_shape(&format!("column {name} is missing")))
        };
        let name = column("name")?;
        if name.1.text(5) != Some("1") {
            return Err(self.of_shape("column name is no primary key"));
        }
        self.check_time(column("lock_until")?)?;
        self.check_time(column("locked_at")?)?;
        let (name, owner) = (self.read_text(name)?, self.read_text(column("locked_by")?)?);
        if owner.chars < Columns::OWNER_CHARS_MIN {
            let flaw = format!("column locked_by has room for {} characters only", owner.chars);
            return Err(self.of_shape(&flaw));
        }
        Ok(Columns { name, owner })
    }

    fn read_text(&self, (column, row): (&str, &Answer)) -> Result<Field, Failure> {
        if !matches!(row.text(1), Some("varchar" | "text")) {
            return Err(self.of_type(column, row, "VARCHAR"));
        }
        let chars = row.number(2).and_then(|it| usize::try_from(it).ok()).unwrap_or(0);
        let highest = match row.text(4) {
            Some("utf8mb4") => char::MAX,
            Some("utf8mb3" | "utf8") => '\u{ffff}',
            _ => '\u{7f}',
        };
        Ok(Field { chars, highest })
    }

    fn check_time(&self, (column, row): (&str, &Answer)) -> Result<(), Failure> {
        if !matches!(row.text(1), Some("timestamp" | "datetime")) {
            return Err(self.of_type(column, row, "TIMESTAMP(3)"));
        }
        if row.number(3).unwrap_or(0) < 3 {
            return Err(self.of_shape(&format!("column {column} does not hold milliseconds")));
        }
        if row.text(6) == Some("1") {
            tracing::warn!(
                column,
                "the server's time zone is not UTC, and the column is read in the zone of each \
                 session: every program has to leave that as the server has it"
            );
        }
        Ok(())
    }

    fn of_type(&self, column: &str, row: &Answer, wanted: &str) -> Failure {
        let kind = row.text(1).unwrap_or("something else");
        self.of_shape(&format!("column {column} is {kind}, not {wanted}"))
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
            "there is no table {name}, or not for this user; run {}; and grant SELECT, INSERT and \
             UPDATE on it",
            creation(name)
        );
        Failure::new(ErrorKind::InvalidConfig, message)
    }

    /// What went wrong, where a table that was dropped is told as such.
    fn explain(&self, failure: Failure) -> Failure {
        match failure.kind() {
            ErrorKind::InvalidConfig => self.of_missing(),
            _ => failure,
        }
    }
}

fn closed() -> Failure {
    Failure::new(ErrorKind::Unreachable, "the connection was closed")
}

impl shedlock::Table for Table {
    type Handling = failure::Remedy;

    async fn connect(&mut self) -> Result<(), Failure> {
        self.open().await.map(drop)
    }

    async fn change(&mut self, change: &Change, limit: Duration) -> Result<bool, Failure> {
        let Statements { take, make, renew, give, revoke, .. } = &self.statements;
        let wire = self.wire.as_mut().ok_or_else(closed)?;
        let text = |text: &String| Argument::from(text);
        let span = |ms: &i64| Argument::from(ms.saturating_mul(1000));
        let changed = match change {
            Change::Take { name, key, revoked, owner, span_ms } => {
                let mine = [text(key), text(revoked)];
                let values = [text(key), span(span_ms), text(owner), text(name)];
                let values = values.into_iter().chain(mine).collect();
                match wire.change(take, values, limit).await {
                    Ok(0) => {
                        let values = vec![text(name), span(span_ms), text(owner)];
                        wire.change(make, values, limit).await
                    }
                    changed => changed,
                }
            }
            Change::Renew { name, key, span_ms } => {
                wire.change(renew, vec![span(span_ms), text(name), text(key)], limit).await
            }
            Change::Give { name, key } => {
                wire.change(give, vec![text(name), text(key)], limit).await
            }
            Change::Revoke { name, owner, at_us, revoked } => {
                let values = vec![text(revoked), text(name), text(owner), Argument::from(*at_us)];
                wire.change(revoke, values, limit).await
            }
        };
        changed.map(|count| count > 0).map_err(|failure| self.explain(failure))
    }

    async fn look(&mut self, name: Option<&str>, limit: Duration) -> Result<Vec<Row>, Failure> {
        let (statement, values) = match name {
            Some(name) => (&self.statements.look, vec![Argument::from(name)]),
            None => (&self.statements.list, Vec::new()),
        };
        let wire = self.wire.as_mut().ok_or_else(closed)?;
        let rows = wire.call(statement, values, limit).await;
        let rows = rows.map_err(|failure| self.explain(failure))?;
        let read = |row: &Answer| {
            let text = |at| row.text(at).map(ToOwned::to_owned);
            let (name, owner) = (text(0)?, text(1)?);
            Some(Row { name, owner, at_us: row.signed(2)?, left_us: row.signed(3)? })
        };
        let nonsense = || {
            let message = "a row of the table holds what cannot be";
            Failure::new(ErrorKind::CorruptRecord, message)
        };
        rows.iter().map(|row| read(row).ok_or_else(nonsense)).collect()
    }

    fn remedy(failure: &Failure) -> shedlock::Remedy {
        use failure::Remedy;
        match failure.handling {
            Remedy::Tell => shedlock::Remedy::Tell,
            Remedy::Repeat => shedlock::Remedy::Repeat,
            Remedy::RepeatInDoubt | Remedy::ReconnectAndRepeat | Remedy::Reconnect => {
                shedlock::Remedy::Reconnect
            }
        }
    }

    async fn close(self) {
        if let Some(wire) = self.wire {
            wire.close().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_to_fill_in() {
        let Statements { take, make, renew, give, revoke, look, list } = Statements::new("jobs.x");
        for statement in [take, make, renew, give, revoke, look, list] {
            assert!(statement.contains("jobs.x"), "{statement}");
            assert!(!statement.contains('{'), "{statement}");
        }
    }
}
