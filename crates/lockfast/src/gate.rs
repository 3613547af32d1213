//! Gates in a database, for whoever has no connection to it.

use lockfast_core::{Address, Error, ErrorKind, FencingToken, GateAnswer, GateStatement, Result};
use lockfast_fence::sql::{Dialect, TableGate};

use crate::connect::{self, Gates};
use crate::lease::keeper::Keeper;

/// A database in which the open step is done on a connection of Lockfast's own: for jobs and scripts
/// that have none, as `lockfast fence open` does it. A program that writes there checks the fence in
/// its own transaction instead, by [`TableGate::check`].
///
/// | URL | database |
/// |---|---|
/// | `sqlite:PATH` | SQLite; the file must be there |
/// | `postgres://HOST/DATABASE` | PostgreSQL, as the store of that name is reached |
/// | `mysql://USER:PASSWORD@HOST/DATABASE` | MySQL and MariaDB, likewise |
///
/// ```
/// use lockfast::fence::sql::TableGate;
/// use lockfast::{GateDatabase, Locker};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let file = directory.path().join("app.db");
/// # let url = format!("sqlite:{}", file.display());
/// let database = GateDatabase::at(&url)?; // "sqlite:app.db"
/// let gate = TableGate::new(database.dialect(), "account/7")?;
/// # rusqlite::Connection::open(&file)?.execute(gate.setup(), [])?;
///
/// let guard = Locker::connect("memory:").await?.lock("account/7").await?;
/// database.open(&gate, &guard.token()).await?; // from here on, who had the lock before is refused
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct GateDatabase {
    address: Address,
    gates: &'static Gates,
}

impl GateDatabase {
    /// The database at `url`. Nothing is touched yet. See [`GateDatabase`] for an example.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidUrl`] for what is no such database, or one that was not compiled in.
    pub fn at(url: &str) -> Result<Self> {
        let (address, gates) = connect::resolve_gates(url)?;
        Ok(Self { address, gates })
    }

    /// What it speaks, for the gate. See [`GateDatabase`] for an example.
    pub fn dialect(&self) -> Dialect {
        self.gates.dialect
    }

    /// Raises the fence, and commits that. Whoever has the row is waited for, 10 s at most.
    /// See [`GateDatabase`] for an example.
    ///
    /// # Cancel safety
    /// When dropped before its end, it may have happened.
    ///
    /// # Errors
    /// [`ErrorKind::StaleFence`] with the fence that was seen, [`ErrorKind::DifferentLock`] for the
    /// fence of another lock, [`ErrorKind::InvalidConfig`] when the table is missing, with the
    /// statement that makes it, or for a gate of another dialect; what the database meets.
    pub async fn open(&self, gate: &TableGate, token: &FencingToken) -> Result<()> {
        if gate.dialect() != self.dialect() {
            let message = "the gate speaks to another kind of database; make it with the dialect \
                           of this one";
            return Err(Error::new(ErrorKind::InvalidConfig, message).with_lock(&token.lock));
        }
        let open = gate.open(token)?;
        let sql = open.sql().to_owned();
        let statement = GateStatement { sql, fence: token.fence, lock: token.lock.clone() };
        // The caller may have any executor; the keeper's is one that clients can work on.
        let raising = (self.gates.raise)(self.address.clone(), statement);
        let ended = |error| Error::new(ErrorKind::Internal, "the check ended").with_source(error);
        let raised = Keeper::of_this_process()?.runtime().spawn(raising).await.map_err(ended)?;
        match raised.map_err(|error| error.with_lock(&token.lock))? {
            GateAnswer::Highest(highest) => open.admit(highest),
            GateAnswer::Refused(error) => Err(open.explain(error)),
        }
    }
}
