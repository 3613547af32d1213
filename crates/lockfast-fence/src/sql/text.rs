//! The statements. Each check raises the fence, locks its row until the transaction ends, and
//! answers the highest fence that is known then. It does so also when it is refused, so that an
//! answer tells more than "no row was changed".

use super::Dialect;

/// The statements of one dialect; `{table}`, `{column}` and `{key}` stand for quoted names.
pub(super) struct Texts {
    pub(super) create_table: &'static str,
    pub(super) check_table: &'static str,
    pub(super) add_column: &'static str,
    pub(super) check_column: &'static str,
}

const POSTGRES: Texts = Texts {
    create_table: "CREATE TABLE IF NOT EXISTS {table} \
                   (resource text PRIMARY KEY, fence bigint NOT NULL)",
    check_table: "INSERT INTO {table} AS gate (fence, resource) VALUES ($1, $2) \
                  ON CONFLICT (resource) DO UPDATE \
                  SET fence = GREATEST(gate.fence, excluded.fence) RETURNING fence",
    add_column: "ALTER TABLE {table} ADD COLUMN {column} bigint NOT NULL DEFAULT 0",
    check_column: "UPDATE {table} SET {column} = GREATEST({column}, $1) WHERE {key} = $2 \
                   RETURNING {column}",
};

// MySQL cannot return rows from a write. What is given to LAST_INSERT_ID comes back with the
// answer of the statement. VALUES(…) is the one way to name a new value that MySQL and MariaDB
// both have.
const MYSQL: Texts = Texts {
    create_table: "CREATE TABLE IF NOT EXISTS {table} \
                   (resource VARBINARY(255) NOT NULL PRIMARY KEY, fence BIGINT NOT NULL) \
                   ENGINE = InnoDB",
    check_table: "INSERT INTO {table} (fence, resource) VALUES (LAST_INSERT_ID(?), ?) \
                  ON DUPLICATE KEY UPDATE \
                  fence = LAST_INSERT_ID(GREATEST(fence, VALUES(fence)))",
    add_column: "ALTER TABLE {table} ADD COLUMN {column} BIGINT NOT NULL DEFAULT 0",
    check_column: "UPDATE {table} SET {column} = LAST_INSERT_ID(GREATEST(COALESCE({column}, 0), ?)) \
                   WHERE {key} = ?",
};

const SQLITE: Texts = Texts {
    create_table: "CREATE TABLE IF NOT EXISTS {table} \
                   (resource TEXT NOT NULL PRIMARY KEY, fence INTEGER NOT NULL) WITHOUT ROWID",
    check_table: "INSERT INTO {table} (fence, resource) VALUES (?1, ?2) \
                  ON CONFLICT (resource) DO UPDATE \
                  SET fence = max(fence, excluded.fence) RETURNING fence",
    add_column: "ALTER TABLE {table} ADD COLUMN {column} INTEGER NOT NULL DEFAULT 0",
    check_column: "UPDATE {table} SET {column} = max(COALESCE({column}, 0), ?1) WHERE {key} = ?2 \
                   RETURNING {column}",
};

/// The statements of a dialect.
pub(super) fn of(dialect: Dialect) -> &'static Texts {
    match dialect {
        Dialect::Postgres => &POSTGRES,
        Dialect::MySql => &MYSQL,
        Dialect::Sqlite => &SQLITE,
    }
}
