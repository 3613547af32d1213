//! What errors of clients mean for a gate.

use std::error::Error as StdError;

use lockfast_core::{Error, ErrorKind, Retry};

/// What MySQL and MariaDB, and SQLite, say when a table or a column is not there.
const MISSING: &[&str] =
    &["doesn't exist", "Unknown column", "no such table", "no such column", "has no column named"];

/// What they say when the transaction must begin again: two wrote at once.
const CROSSED: &[&str] = &[
    "could not serialize",
    "deadlock",
    "Deadlock",
    "database is locked",
    "Lock wait timeout",
    "lock timeout",
    "Record has changed since last read",
];

/// What they say when this user must not write there.
const DENIED: &[&str] = &["permission denied", "command denied", "readonly database"];

/// What they, and their clients, say when the column of the fence has, or is made for, no numbers.
const NO_NUMBER: &[&str] = &[
    "but expression is of type",
    "Truncated incorrect",
    "Incorrect integer value",
    "Invalid column type",
    "cannot convert between the Rust type",
];

/// Whether PostgreSQL says that a table or a column is not there; roles and prepared statements may not
/// exist either.
fn is_missing_in_postgres(said: &str) -> bool {
    said.lines().any(|line| {
        line.contains("does not exist") && (line.contains("relation ") || line.contains("column "))
    })
}

/// The error of a check that could not be run.
pub(super) fn explain(setup: &str, source: Box<dyn StdError + Send + Sync>) -> Error {
    let said = all_that_is_said(&*source);
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    let error = if has(MISSING) || is_missing_in_postgres(&said) {
        let message = format!(
            "the gate's table or column is missing, so that no fence can be checked; make it once \
             where you make your tables: {setup}"
        );
        Error::new(ErrorKind::InvalidConfig, message)
    } else if has(NO_NUMBER) {
        let message = format!(
            "the gate's column holds, or is made for, something that is no number, so that no fence \
             can be checked; it is made so: {setup}"
        );
        Error::new(ErrorKind::CorruptRecord, message)
    } else if has(DENIED) {
        let message = "this user may not write to the gate's table or column; grant it INSERT, \
                       UPDATE and SELECT";
        Error::new(ErrorKind::Permission, message)
    } else if has(CROSSED) {
        let message = "somebody else wrote at the same time; begin the transaction again";
        Error::new(ErrorKind::Internal, message).with_retry(Retry::Later)
    } else {
        Error::new(ErrorKind::Internal, "the fence could not be checked; roll back")
    };
    error.with_source(source)
}

/// Clients tell what the server said in the error itself or in a cause of it.
fn all_that_is_said(error: &(dyn StdError + 'static)) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        said.push('\n');
        said.push_str(&error.to_string());
        cause = error.source();
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_with_what_makes_it() {
        for said in [
            "no such table: x",
            "Table 'a.b' doesn't exist",
            "no such column: fence",
            "relation \"gate\" does not exist",
            "column \"fence\" of relation \"item\" does not exist",
        ] {
            let error = explain("CREATE TABLE x", said.into());
            assert_eq!((error.kind(), error.retry()), (ErrorKind::InvalidConfig, Retry::Never));
            assert!(error.to_string().contains("CREATE TABLE x"), "{error}");
            assert!(format!("{error:#}").contains(said), "{error:#}");
        }
    }

    #[test]
    fn who_may_not_write_and_what_is_no_number_are_told() {
        for (said, kind) in [
            ("permission denied for table lockfast_fences", ErrorKind::Permission),
            ("INSERT command denied to user 'app'@'%' for table 'x'", ErrorKind::Permission),
            ("attempt to write a readonly database", ErrorKind::Permission),
            ("Invalid column type Text at index: 0, name: fence", ErrorKind::CorruptRecord),
            ("Truncated incorrect INTEGER value: 'many'", ErrorKind::CorruptRecord),
            (
                "column \"fence\" is of type uuid but expression is of type bigint",
                ErrorKind::CorruptRecord,
            ),
        ] {
            let error = explain("CREATE", said.into());
            assert_eq!((error.kind(), error.retry()), (kind, Retry::Never), "{said}");
        }
    }

    #[test]
    fn who_met_another_writer_begins_again() {
        for said in ["database is locked", "canceling statement due to lock timeout"] {
            let error = explain("CREATE", said.into());
            assert_eq!(
                (error.kind(), error.retry()),
                (ErrorKind::Internal, Retry::Later),
                "{said}"
            );
        }
        for said in [
            "syntax error",
            "role \"app\" does not exist",
            "prepared statement \"s0\" does not exist",
        ] {
            let error = explain("CREATE", said.into());
            assert_eq!(
                (error.kind(), error.retry()),
                (ErrorKind::Internal, Retry::Never),
                "{said}"
            );
        }
    }
}
