//! Gates in a SQL database, in the transaction of the writer.
//!
//! The check is one statement with two parameters. It locks the row of the fence until the
//! transaction ends: a later holder's check waits for a commit or a rollback of an earlier one, and
//! an earlier holder's check that comes afterwards is refused. Begin the transaction with it, and
//! end the transaction with a rollback when it is refused.
//!
//! | | PostgreSQL | MySQL, MariaDB | SQLite |
//! |---|---|---|---|
//! | the answer is | the column of the row that is returned | the last insert id of the answer | the column of the row that is returned |
//! | two write at once | the later one waits | the later one waits; it may be told of a deadlock, and begins again | the later one waits, or is told that the database is busy |
//! | needs | 9.5 | MySQL 5.7, MariaDB 10.2, InnoDB | 3.35 |
//! | note | | take the id from the statement's answer: `LAST_INSERT_ID()` of the session keeps an earlier one when no row was there | begin by `BEGIN IMMEDIATE` |
//! | a column of yours is | `bigint` | `BIGINT`: a smaller one is filled to its limit without an error where `sql_mode` is not strict, and lets every fence pass | `INTEGER` |
//!
//! ```
//! use lockfast_core::{Fence, FencingToken, LockName};
//! use lockfast_fence::sql::{Dialect, TableGate};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut database = rusqlite::Connection::open_in_memory()?;
//! let gate = TableGate::new(Dialect::Sqlite, "account/7")?;
//! database.execute(gate.setup(), [])?; // once, where you make your tables
//! database.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER)", [])?;
//! # let token = FencingToken { lock: LockName::new("account/7")?, fence: Fence::new(42)? };
//!
//! let transaction = database.transaction()?;
//! let check = gate.check(&token)?; // with `guard.token()`
//! let answer = transaction
//!     .query_row(check.sql(), (check.fence(), check.lock()), |row| row.get::<_, i64>(0))
//!     .map_err(|error| check.explain(error))?;
//! check.admit(Some(answer))?; // refused: the transaction is dropped, which rolls it back
//! transaction.execute("INSERT INTO account VALUES (7, 100)", [])?;
//! transaction.commit()?;
//! # Ok(())
//! # }
//! ```

mod failure;
mod identifier;
mod text;

use lockfast_core::{Error, ErrorKind, FencingToken, LockName, Result};

use crate::rule::{check_lock, judge_raised};
use identifier::Identifier;

/// Whose SQL it is.
///
/// ```
/// use lockfast_fence::sql::{Dialect, TableGate};
///
/// # fn main() -> lockfast_core::Result<()> {
/// let gate = TableGate::new(Dialect::MySql, "account/7")?;
/// assert!(gate.setup().contains("ENGINE = InnoDB"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// PostgreSQL, and what speaks as it does.
    Postgres,
    /// MySQL and MariaDB.
    MySql,
    /// SQLite.
    Sqlite,
}

/// A gate whose fences are in a table of their own, one row for each lock.
///
/// With `tokio-postgres`:
///
/// ```no_run
/// use lockfast::Guard;
/// use lockfast::fence::sql::TableGate;
///
/// async fn pay_in(
///     client: &mut tokio_postgres::Client,
///     gate: &TableGate,
///     guard: &Guard,
/// ) -> Result<(), Box<dyn std::error::Error>> {
///     let transaction = client.transaction().await?;
///     let check = gate.check(&guard.token())?;
///     let row = transaction
///         .query_one(check.sql(), &[&check.fence(), &check.lock()])
///         .await
///         .map_err(|error| check.explain(error))?;
///     check.admit(Some(row.get::<_, i64>(0)))?;
///     transaction.execute("UPDATE account SET balance = balance + 10 WHERE id = 7", &[]).await?;
///     Ok(transaction.commit().await?)
/// }
/// ```
///
/// With `mysql_async`, where the answer is the last insert id:
///
/// ```no_run
/// use lockfast::Guard;
/// use lockfast::fence::sql::TableGate;
/// use mysql_async::prelude::Queryable as _;
///
/// async fn pay_in(
///     connection: &mut mysql_async::Conn,
///     gate: &TableGate,
///     guard: &Guard,
/// ) -> Result<(), Box<dyn std::error::Error>> {
///     let mut transaction = connection.start_transaction(Default::default()).await?;
///     let check = gate.check(&guard.token())?;
///     transaction
///         .exec_drop(check.sql(), (check.fence(), check.lock()))
///         .await
///         .map_err(|error| check.explain(error))?;
///     check.admit(transaction.last_insert_id())?;
///     transaction.query_drop("UPDATE account SET balance = balance + 10 WHERE id = 7").await?;
///     Ok(transaction.commit().await?)
/// }
/// ```
///
/// With `rusqlite`: see [the module](self). With `sqlx` on PostgreSQL, and on SQLite in the same way:
///
/// ```no_run
/// use lockfast::Guard;
/// use lockfast::fence::sql::TableGate;
/// use sqlx::{AssertSqlSafe, Connection as _};
///
/// async fn pay_in(
///     connection: &mut sqlx::PgConnection,
///     gate: &TableGate,
///     guard: &Guard,
/// ) -> Result<(), Box<dyn std::error::Error>> {
///     let mut transaction = connection.begin().await?;
///     let token = guard.token();
///     let check = gate.check(&token)?;
///     let answer: i64 = sqlx::query_scalar(AssertSqlSafe(check.sql()))
///         .bind(check.fence())
///         .bind(check.lock())
///         .fetch_one(&mut *transaction)
///         .await
///         .map_err(|error| check.explain(error))?;
///     check.admit(Some(answer))?;
///     let pay_in = "UPDATE account SET balance = balance + 10 WHERE id = 7";
///     sqlx::query(pay_in).execute(&mut *transaction).await?;
///     Ok(transaction.commit().await?)
/// }
/// ```
///
/// On MySQL and MariaDB the answer is the last insert id there too:
///
/// ```no_run
/// # use lockfast::Guard;
/// # use lockfast::fence::sql::TableGate;
/// # use sqlx::{AssertSqlSafe, Connection as _};
/// # async fn pay_in(
/// #     connection: &mut sqlx::MySqlConnection,
/// #     gate: &TableGate,
/// #     guard: &Guard,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// # let mut transaction = connection.begin().await?;
/// # let token = guard.token();
/// # let check = gate.check(&token)?;
/// let answer = sqlx::query(AssertSqlSafe(check.sql()))
///     .bind(check.fence())
///     .bind(check.lock())
///     .execute(&mut *transaction)
///     .await
///     .map_err(|error| check.explain(error))?;
/// check.admit(Some(answer.last_insert_id()))?;
/// # Ok(transaction.commit().await?)
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TableGate {
    dialect: Dialect,
    statements: Statements,
}

impl TableGate {
    /// The table unless another one is named.
    ///
    /// ```
    /// assert_eq!(lockfast_fence::sql::TableGate::TABLE, "lockfast_fences");
    /// ```
    pub const TABLE: &str = "lockfast_fences";

    /// The gate of what this lock guards, in the table [`TableGate::TABLE`].
    ///
    /// ```
    /// # use lockfast_fence::sql::{Dialect, TableGate};
    /// assert!(TableGate::new(Dialect::Postgres, "account/7").is_ok());
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`].
    pub fn new(dialect: Dialect, lock: impl AsRef<str>) -> Result<Self> {
        let lock = LockName::new(lock)?;
        let table = Identifier::table(Self::TABLE)?;
        Ok(Self { dialect, statements: Statements::of_table(dialect, lock, &table) })
    }

    /// The same in another table, with its schema or database if that is needed: `fences`,
    /// `app.fences`. Names are written as without quotes.
    ///
    /// ```
    /// # use lockfast_fence::sql::{Dialect, TableGate};
    /// # fn main() -> lockfast_core::Result<()> {
    /// let gate = TableGate::new(Dialect::Postgres, "account/7")?.with_table("app.fences")?;
    /// assert!(gate.setup().contains("\"app\".\"fences\""));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`] for what is no such name.
    pub fn with_table(self, table: &str) -> Result<Self> {
        let table = Identifier::table(table)?;
        let lock = self.statements.lock;
        Ok(Self { statements: Statements::of_table(self.dialect, lock, &table), ..self })
    }

    /// Whose SQL it speaks.
    ///
    /// ```
    /// # use lockfast_fence::sql::{Dialect, TableGate};
    /// # fn main() -> lockfast_core::Result<()> {
    /// assert_eq!(TableGate::new(Dialect::MySql, "account/7")?.dialect(), Dialect::MySql);
    /// # Ok(())
    /// # }
    /// ```
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// The statement that makes the table if it is not there. Run it once, where you make your
    /// other tables, and not in the transaction of a check. Whoever checks needs the rights to
    /// insert, update and select.
    ///
    /// ```
    /// # use lockfast_fence::sql::{Dialect, TableGate};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let database = rusqlite::Connection::open_in_memory()?;
    /// database.execute(TableGate::new(Dialect::Sqlite, "account/7")?.setup(), [])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn setup(&self) -> &str {
        &self.statements.setup
    }

    /// The open step of a new holder, in a transaction of its own before those that write: the same
    /// as [`TableGate::check`]. A transaction that begins with the check and reads after it needs
    /// none.
    ///
    /// ```
    /// # use lockfast_core::{Fence, FencingToken, LockName};
    /// # use lockfast_fence::sql::{Dialect, TableGate};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let database = rusqlite::Connection::open_in_memory()?;
    /// # let gate = TableGate::new(Dialect::Sqlite, "a")?;
    /// # let token = FencingToken { lock: LockName::new("a")?, fence: Fence::new(1)? };
    /// # database.execute(gate.setup(), [])?;
    /// let open = gate.open(&token)?;
    /// let parameters = (open.fence(), open.lock());
    /// let answer = database.query_row(open.sql(), parameters, |row| row.get::<_, i64>(0))?;
    /// open.admit(Some(answer))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::DifferentLock`] for the fence of another lock.
    pub fn open(&self, token: &FencingToken) -> Result<Check<'_>> {
        self.check(token)
    }

    /// The check of a token. The parameters of its statement are [`Check::fence`] and
    /// [`Check::lock`], in this order.
    ///
    /// ```
    /// # use lockfast_core::{Fence, FencingToken, LockName};
    /// # use lockfast_fence::sql::{Dialect, TableGate};
    /// # fn main() -> lockfast_core::Result<()> {
    /// # let gate = TableGate::new(Dialect::Sqlite, "a")?;
    /// # let token = FencingToken { lock: LockName::new("a")?, fence: Fence::new(41)? };
    /// let check = gate.check(&token)?;
    /// assert_eq!((check.fence(), check.lock()), (41, "a"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::DifferentLock`] for the fence of another lock.
    pub fn check(&self, token: &FencingToken) -> Result<Check<'_>> {
        self.statements.check(token)
    }
}

/// A gate whose fence is a column of the row that is written: nothing is locked but that row.
///
/// ```
/// use lockfast_core::{Fence, FencingToken, LockName};
/// use lockfast_fence::sql::{ColumnGate, Dialect};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let database = rusqlite::Connection::open_in_memory()?;
/// database.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER)", [])?;
/// database.execute("INSERT INTO account VALUES (7, 100)", [])?;
///
/// let gate = ColumnGate::new(Dialect::Sqlite, "account/7", "account", "id")?;
/// database.execute(gate.setup(), [])?; // once: adds the column `fence`
/// # let token = FencingToken { lock: LockName::new("account/7")?, fence: Fence::new(42)? };
/// let check = gate.check(&token)?;
/// let answer = database.query_row(check.sql(), (check.fence(), 7), |row| row.get::<_, i64>(0))?;
/// check.admit(Some(answer))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ColumnGate {
    dialect: Dialect,
    table: Identifier,
    key: Identifier,
    statements: Statements,
}

impl ColumnGate {
    /// The column unless another one is named.
    ///
    /// ```
    /// assert_eq!(lockfast_fence::sql::ColumnGate::COLUMN, "fence");
    /// ```
    pub const COLUMN: &str = "fence";

    /// The gate of a row that this lock guards, in a table whose rows are told apart by the column
    /// `key`. Names are written as without quotes.
    ///
    /// ```
    /// # use lockfast_fence::sql::{ColumnGate, Dialect};
    /// assert!(ColumnGate::new(Dialect::Postgres, "account/7", "app.account", "id").is_ok());
    /// assert!(ColumnGate::new(Dialect::Postgres, "account/7", "account", "id = 7; --").is_err());
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`], or [`ErrorKind::InvalidConfig`] for what is no name of a table or
    /// column.
    pub fn new(dialect: Dialect, lock: impl AsRef<str>, table: &str, key: &str) -> Result<Self> {
        let lock = LockName::new(lock)?;
        let (table, key) = (Identifier::table(table)?, Identifier::column(key)?);
        let column = Identifier::column(Self::COLUMN)?;
        let statements = Statements::of_column(dialect, lock, &table, &column, &key);
        Ok(Self { dialect, table, key, statements })
    }

    /// The same with the fence in another column.
    ///
    /// ```
    /// # use lockfast_fence::sql::{ColumnGate, Dialect};
    /// # fn main() -> lockfast_core::Result<()> {
    /// let gate = ColumnGate::new(Dialect::MySql, "a", "account", "id")?.with_column("last_fence")?;
    /// assert!(gate.setup().contains("`last_fence`"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`] for what is no name of a column.
    pub fn with_column(self, column: &str) -> Result<Self> {
        let column = Identifier::column(column)?;
        let lock = self.statements.lock;
        let statements = Statements::of_column(self.dialect, lock, &self.table, &column, &self.key);
        Ok(Self { statements, ..self })
    }

    /// The statement that adds the column to the table. Run it once, where you change your tables.
    ///
    /// ```
    /// # use lockfast_fence::sql::{ColumnGate, Dialect};
    /// # fn main() -> lockfast_core::Result<()> {
    /// let gate = ColumnGate::new(Dialect::Sqlite, "account/7", "account", "id")?;
    /// assert!(gate.setup().starts_with("ALTER TABLE `account` ADD COLUMN `fence`"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn setup(&self) -> &str {
        &self.statements.setup
    }

    /// The open step of a new holder, in a transaction of its own before those that write: the same
    /// as [`ColumnGate::check`].
    ///
    /// ```
    /// # use lockfast_core::{Fence, FencingToken, LockName};
    /// # use lockfast_fence::sql::{ColumnGate, Dialect};
    /// # fn main() -> lockfast_core::Result<()> {
    /// # let gate = ColumnGate::new(Dialect::Sqlite, "a", "account", "id")?;
    /// # let token = FencingToken { lock: LockName::new("a")?, fence: Fence::new(41)? };
    /// assert_eq!(gate.open(&token)?.fence(), 41);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::DifferentLock`] for the fence of another lock.
    pub fn open(&self, token: &FencingToken) -> Result<Check<'_>> {
        self.check(token)
    }

    /// The check of a token. The parameters of its statement are [`Check::fence`] and the key of
    /// the row, in this order. There is no answer when no row has that key, and
    /// [`Check::admit`] says so.
    ///
    /// ```
    /// # use lockfast_core::{Fence, FencingToken, LockName};
    /// # use lockfast_fence::sql::{ColumnGate, Dialect};
    /// # fn main() -> lockfast_core::Result<()> {
    /// # let gate = ColumnGate::new(Dialect::Sqlite, "a", "account", "id")?;
    /// # let token = FencingToken { lock: LockName::new("a")?, fence: Fence::new(41)? };
    /// let check = gate.check(&token)?;
    /// assert!(check.sql().contains("WHERE `id` = ?2"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::DifferentLock`] for the fence of another lock.
    pub fn check(&self, token: &FencingToken) -> Result<Check<'_>> {
        self.statements.check(token)
    }
}

/// What a gate runs, and for which lock.
#[derive(Clone, Debug)]
struct Statements {
    lock: LockName,
    setup: String,
    check: String,
    /// What there is when no row answers.
    no_answer: String,
}

impl Statements {
    fn of_table(dialect: Dialect, lock: LockName, table: &Identifier) -> Self {
        let fill = |text: &str| text.replace("{table}", &table.quoted(dialect));
        Self {
            lock,
            setup: fill(text::of(dialect).create_table),
            check: fill(text::of(dialect).check_table),
            no_answer: "the gate's statement had no answer, or its column holds something that is \
                        no number; run it unchanged, read the answer that its documentation names, \
                        and make the table as it says"
                .into(),
        }
    }

    fn of_column(
        dialect: Dialect,
        lock: LockName,
        table: &Identifier,
        column: &Identifier,
        key: &Identifier,
    ) -> Self {
        let fill = |text: &str| {
            text.replace("{table}", &table.quoted(dialect))
                .replace("{column}", &column.quoted(dialect))
                .replace("{key}", &key.quoted(dialect))
        };
        Self {
            lock,
            setup: fill(text::of(dialect).add_column),
            check: fill(text::of(dialect).check_column),
            no_answer: format!(
                "no row of table {table} has the {key} that was given, so that there is no fence; \
                 insert the row first, or keep the fences in a table of their own (TableGate)"
            ),
        }
    }

    fn check(&self, token: &FencingToken) -> Result<Check<'_>> {
        check_lock(&self.lock, token)?;
        Ok(Check { statements: self, token: token.clone() })
    }
}

/// One check: a statement, its parameters, and how its answer is read.
///
/// See [`TableGate`] for its use with each client.
///
/// ```
/// # use lockfast_core::{ErrorKind, Fence, FencingToken, LockName};
/// # use lockfast_fence::sql::{Dialect, TableGate};
/// # fn main() -> lockfast_core::Result<()> {
/// # let gate = TableGate::new(Dialect::Postgres, "a")?;
/// # let token = FencingToken { lock: LockName::new("a")?, fence: Fence::new(41)? };
/// let check = gate.check(&token)?;
/// check.admit(Some(41))?; // the database has seen nothing higher
/// let refused = check.admit(Some(42)).unwrap_err();
/// assert_eq!(refused.kind(), ErrorKind::StaleFence);
/// assert_eq!(refused.fence_seen(), Some(Fence::new(42)?));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a fence that is not checked protects nothing"]
pub struct Check<'gate> {
    statements: &'gate Statements,
    token: FencingToken,
}

impl Check<'_> {
    /// The statement. It is the same for every lock and fence, so that it can be prepared once for a
    /// connection and used again.
    ///
    /// ```
    /// # use lockfast_core::{Fence, FencingToken, LockName};
    /// # use lockfast_fence::sql::{Dialect, TableGate};
    /// # fn main() -> lockfast_core::Result<()> {
    /// # let gate = TableGate::new(Dialect::Postgres, "a")?;
    /// # let token = FencingToken { lock: LockName::new("a")?, fence: Fence::new(41)? };
    /// assert!(gate.check(&token)?.sql().contains("VALUES ($1, $2)"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn sql(&self) -> &str {
        &self.statements.check
    }

    /// The first parameter: the fence as a big integer of SQL.
    ///
    /// ```
    /// # use lockfast_core::{Fence, FencingToken, LockName};
    /// # use lockfast_fence::sql::{Dialect, TableGate};
    /// # fn main() -> lockfast_core::Result<()> {
    /// # let gate = TableGate::new(Dialect::Postgres, "a")?;
    /// # let token = FencingToken { lock: LockName::new("a")?, fence: Fence::new(41)? };
    /// assert_eq!(gate.check(&token)?.fence(), 41_i64);
    /// # Ok(())
    /// # }
    /// ```
    pub fn fence(&self) -> i64 {
        // A fence is below 2^53.
        self.token.fence.get().cast_signed()
    }

    /// The second parameter of a [`TableGate`]: the name of the lock.
    ///
    /// ```
    /// # use lockfast_core::{Fence, FencingToken, LockName};
    /// # use lockfast_fence::sql::{Dialect, TableGate};
    /// # fn main() -> lockfast_core::Result<()> {
    /// # let gate = TableGate::new(Dialect::Postgres, "a")?;
    /// # let token = FencingToken { lock: LockName::new("a")?, fence: Fence::new(41)? };
    /// assert_eq!(gate.check(&token)?.lock(), "a");
    /// # Ok(())
    /// # }
    /// ```
    pub fn lock(&self) -> &str {
        self.token.lock.as_str()
    }

    /// Reads the answer: the column of the row that was returned, or the last insert id on MySQL
    /// and MariaDB.
    ///
    /// ```
    /// # use lockfast_core::{ErrorKind, Fence, FencingToken, LockName};
    /// # use lockfast_fence::sql::{ColumnGate, Dialect};
    /// # fn main() -> lockfast_core::Result<()> {
    /// # let gate = ColumnGate::new(Dialect::Postgres, "a", "account", "id")?;
    /// # let token = FencingToken { lock: LockName::new("a")?, fence: Fence::new(41)? };
    /// let check = gate.check(&token)?;
    /// check.admit(Some(41))?;
    /// assert_eq!(check.admit(Some(42)).unwrap_err().kind(), ErrorKind::StaleFence);
    /// let missing = check.admit(None::<i64>).unwrap_err();
    /// assert!(missing.to_string().contains("no row of table account has the id"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::StaleFence`] with the fence that was seen: roll back. [`ErrorKind::InvalidConfig`]
    /// without an answer, [`ErrorKind::CorruptRecord`] for one that the statement does not give.
    pub fn admit(&self, answer: Option<impl TryInto<u64>>) -> Result<()> {
        let lock = &self.token.lock;
        match answer.map(TryInto::try_into) {
            // MySQL has a last insert id of 0 when there is none.
            None | Some(Ok(0)) => {
                let message = self.statements.no_answer.clone();
                Err(Error::new(ErrorKind::InvalidConfig, message).with_lock(lock))
            }
            Some(Ok(highest)) => judge_raised(&self.token, highest),
            Some(Err(_)) => Err(Error::new(
                ErrorKind::CorruptRecord,
                "the gate's column holds a number that is no fence; fences are from 1 to 2^53 - 1",
            )
            .with_lock(lock)),
        }
    }

    /// Says what the client's error means for the gate: when its table or column is missing, with
    /// the statement that makes it. Other errors are kept as the source.
    ///
    /// ```
    /// # use lockfast_core::{ErrorKind, Fence, FencingToken, LockName};
    /// # use lockfast_fence::sql::{Dialect, TableGate};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gate = TableGate::new(Dialect::Sqlite, "a")?;
    /// # let token = FencingToken { lock: LockName::new("a")?, fence: Fence::new(41)? };
    /// let check = gate.check(&token)?;
    /// let database = rusqlite::Connection::open_in_memory()?; // without the table
    /// let failed = database.execute(check.sql(), (check.fence(), check.lock())).unwrap_err();
    /// let error = check.explain(failed);
    /// assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    /// assert!(error.to_string().contains("CREATE TABLE IF NOT EXISTS `lockfast_fences`"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn explain(&self, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        failure::explain(&self.statements.setup, error.into()).with_lock(&self.token.lock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::tests::token;

    #[test]
    fn a_gate_takes_no_fence_of_another_lock() {
        let table = TableGate::new(Dialect::Postgres, "a").unwrap();
        let column = ColumnGate::new(Dialect::MySql, "a", "t", "id").unwrap();
        for refused in [table.check(&token("b", 1)), column.open(&token("b", 1))] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::DifferentLock);
        }
    }

    #[test]
    fn statements_have_two_parameters_and_no_gaps() {
        for dialect in [Dialect::Postgres, Dialect::MySql, Dialect::Sqlite] {
            let table = TableGate::new(dialect, "a").unwrap().with_table("app.fences").unwrap();
            let column = ColumnGate::new(dialect, "a", "account", "id").unwrap();
            for statements in [&table.statements, &column.statements] {
                let Statements { setup, check, .. } = statements;
                assert!(!setup.contains('{') && !check.contains('{'), "{setup} {check}");
                let parameters = check.matches(['?', '$']).count();
                assert_eq!(parameters, 2, "{check}");
            }
        }
    }

    #[test]
    fn a_statement_can_be_prepared_once_for_all_locks() {
        let gates = ["a", "b"].map(|lock| TableGate::new(Dialect::Postgres, lock).unwrap());
        let tokens = [token("a", 1), token("b", 2)];
        let checks = [0, 1].map(|at| gates[at].check(&tokens[at]).unwrap());
        assert_eq!(checks[0].sql(), checks[1].sql());
        assert_eq!((checks[1].fence(), checks[1].lock()), (2, "b"));
    }

    #[test]
    fn answers_that_no_statement_gives_are_told() {
        let gate = TableGate::new(Dialect::MySql, "a").unwrap();
        let token = token("a", 5);
        let check = gate.check(&token).unwrap();
        check.admit(Some(5_u64)).unwrap();
        for (answer, kind) in [
            (None, ErrorKind::InvalidConfig),
            (Some(0), ErrorKind::InvalidConfig),
            (Some(-1), ErrorKind::CorruptRecord),
            (Some(4), ErrorKind::CorruptRecord),
            (Some(6), ErrorKind::StaleFence),
            (Some(i64::MAX), ErrorKind::TokenExhausted),
        ] {
            assert_eq!(check.admit(answer).unwrap_err().kind(), kind, "{answer:?}");
        }
    }
}
