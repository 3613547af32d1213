//! Names of tables and columns, checked once, so that a statement can be made of them.

use std::fmt;

use lockfast_core::error::quote;
use lockfast_core::{Error, ErrorKind, Result};

use super::Dialect;

/// A name as it is written without quotes: letters, digits and underscores, with a schema or
/// database before a dot if it is a table's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identifier(String);

/// What every database allows.
const BYTES_MAX: usize = 63;

impl Identifier {
    pub(super) fn table(name: &str) -> Result<Self> {
        let parts: Vec<&str> = name.split('.').collect();
        if parts.len() <= 2 && parts.iter().all(|part| is_plain(part)) {
            return Ok(Self(name.to_owned()));
        }
        Err(refuse(name, "table", ", with a schema and a dot before it if needed"))
    }

    pub(super) fn column(name: &str) -> Result<Self> {
        match is_plain(name) {
            true => Ok(Self(name.to_owned())),
            false => Err(refuse(name, "column", "")),
        }
    }

    /// As it stands in a statement, so that it may be a reserved word.
    pub(super) fn quoted(&self, dialect: Dialect) -> String {
        let quoted: Vec<String> = self.0.split('.').map(|part| quote_part(part, dialect)).collect();
        quoted.join(".")
    }
}

impl fmt::Display for Identifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn quote_part(part: &str, dialect: Dialect) -> String {
    match dialect {
        // PostgreSQL reads a name without quotes in lower case.
        Dialect::Postgres => format!("\"{}\"", part.to_ascii_lowercase()),
        // SQLite takes a missing column in double quotes for a text, but not in these.
        Dialect::MySql | Dialect::Sqlite => format!("`{part}`"),
    }
}

fn is_plain(part: &str) -> bool {
    let is_word = part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let starts_well = part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    is_word && starts_well && part.len() <= BYTES_MAX
}

fn refuse(name: &str, what: &str, more: &str) -> Error {
    let message = format!(
        "{} is not the name of a {what} for a gate: use a letter or underscore, then letters, \
         digits and underscores, {BYTES_MAX} at most{more}",
        quote(name)
    );
    Error::new(ErrorKind::InvalidConfig, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_as_each_database_reads_them() {
        let name = Identifier::table("App.order").unwrap();
        assert_eq!(name.quoted(Dialect::Postgres), "\"app\".\"order\"");
        assert_eq!(name.quoted(Dialect::MySql), "`App`.`order`");
        assert_eq!(name.quoted(Dialect::Sqlite), "`App`.`order`");
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let long = "x".repeat(64);
        let names = [
            "", "a.b.c", ".", "a.", "1a", "a b", "a`b", "a\"b", "a;--", "é", "a'b", "{key}", &long,
        ];
        for name in names {
            for error in [Identifier::table(name), Identifier::column(name)].map(Result::unwrap_err)
            {
                assert_eq!(error.kind(), ErrorKind::InvalidConfig);
                assert!(error.to_string().contains("use a letter or underscore"), "{error}");
            }
        }
        assert!(Identifier::column("a.b").is_err());
        assert!(Identifier::table("_a1.b_2").is_ok());
    }
}
