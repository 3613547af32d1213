//! The check of a fence in a database that a store's crate can reach, for whoever has no connection of
//! their own.

use std::error::Error as StdError;
use std::time::Duration;

use crate::fence::Fence;
use crate::name::LockName;

/// A gate's statement and its two parameters. It is run alone, and what it did is committed before its
/// answer is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateStatement {
    /// In the SQL of the database: raises the fence, and answers the highest that is known then.
    pub sql: String,
    /// The first parameter.
    pub fence: Fence,
    /// The second parameter.
    pub lock: LockName,
}

impl GateStatement {
    /// How long a writer that has the row of the fence is waited for.
    pub const WAIT: Duration = Duration::from_secs(10);

    /// The first parameter as a big integer of SQL.
    pub fn fence(&self) -> i64 {
        // A fence is below 2^53.
        self.fence.get().cast_signed()
    }
}

/// What a database answered to a gate's statement.
#[derive(Debug)]
pub enum GateAnswer {
    /// The highest fence that is known now; nothing when there was no row.
    Highest(Option<i64>),
    /// It did not run the statement, and why. What that means is for the gate to say.
    Refused(Box<dyn StdError + Send + Sync>),
}
