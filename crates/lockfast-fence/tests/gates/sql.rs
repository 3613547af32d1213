//! What the gates of all databases have in common.

use lockfast::fence::sql::{Check, ColumnGate, Dialect, TableGate};
use lockfast::{FencingToken, Result};

use crate::account::LOCK;

/// The key of the row.
pub(crate) const KEY: i64 = 7;

/// Where the fence is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a table of its own.
    Table,
    /// Beside the data.
    Column,
}

pub(crate) enum Gate {
    Table(TableGate),
    Column(ColumnGate),
}

impl Gate {
    pub(crate) fn new(dialect: Dialect, place: Place) -> Self {
        match place {
            Place::Table => Self::Table(TableGate::new(dialect, LOCK).unwrap()),
            Place::Column => Self::Column(ColumnGate::new(dialect, LOCK, "account", "id").unwrap()),
        }
    }

    pub(crate) fn setup(&self) -> &str {
        match self {
            Self::Table(gate) => gate.setup(),
            Self::Column(gate) => gate.setup(),
        }
    }

    pub(crate) fn check(&self, token: &FencingToken) -> Result<Check<'_>> {
        match self {
            Self::Table(gate) => gate.check(token),
            Self::Column(gate) => gate.check(token),
        }
    }

    /// The second parameter is the name of the lock, and not the key of the row.
    pub(crate) fn takes_name(&self) -> bool {
        matches!(self, Self::Table(_))
    }
}

/// The tables, for every database that knows how to number rows in this way.
pub(crate) fn tables(numbered: &str) -> [String; 3] {
    [
        "CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL)".into(),
        format!("INSERT INTO account VALUES ({KEY}, {})", crate::account::START),
        format!("CREATE TABLE history (id {numbered}, fence BIGINT NOT NULL)"),
    ]
}
