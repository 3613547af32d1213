//! What a server has to do for this store, and what its table is like.

use std::time::Duration;

use lockfast_core::failure::Handling;
use lockfast_core::{Error, ErrorKind, Failure, LockName, Result};

use super::desk::Remedy;

/// The name of the table unless another is given.
const TABLE: &str = "shedlock";

/// The table on one server, by one connection.
pub trait Table: Send + 'static {
    /// How failures are handled there.
    type Handling: Handling + Send + 'static;

    /// Connects anew. When this returns, whatever an earlier connection was asked to do is done, or
    /// will never be.
    fn connect(&mut self) -> impl Future<Output = Result<(), Failure<Self::Handling>>> + Send;

    /// Changes a row, and tells whether it did. Times are the server's own, in UTC, cut to whole
    /// milliseconds.
    fn change(
        &mut self,
        change: &Change,
        limit: Duration,
    ) -> impl Future<Output = Result<bool, Failure<Self::Handling>>> + Send;

    /// The row of a name, or all rows that are held.
    fn look(
        &mut self,
        name: Option<&str>,
        limit: Duration,
    ) -> impl Future<Output = Result<Vec<Row>, Failure<Self::Handling>>> + Send;

    /// What to do about a failure.
    fn remedy(failure: &Failure<Self::Handling>) -> Remedy;

    /// Says goodbye.
    fn close(self) -> impl Future<Output = ()> + Send;
}

/// A change of one row.
#[derive(Clone, Debug)]
pub enum Change {
    /// Takes a row that is missing, free, or already of this holder, who then keeps its `locked_at`;
    /// not one that was taken away from this holder.
    Take {
        /// Which.
        name: String,
        /// How `locked_by` begins where it is the holder's.
        key: String,
        /// How it begins where it was taken away from the holder.
        revoked: String,
        /// The whole of it.
        owner: String,
        /// How long from now on.
        span_ms: i64,
    },
    /// Lets a row that the holder has end so long from now on.
    Renew {
        /// Which.
        name: String,
        /// As above.
        key: String,
        /// As above.
        span_ms: i64,
    },
    /// Lets a row that the holder has end now.
    Give {
        /// Which.
        name: String,
        /// As above.
        key: String,
    },
    /// Lets a row that is held as it was seen end now, under another owner's name.
    Revoke {
        /// Which.
        name: String,
        /// Who had it when it was seen.
        owner: String,
        /// Since when.
        at_us: i64,
        /// What to write in place of the owner.
        revoked: String,
    },
}

/// A row as it was seen.
#[derive(Clone, Debug)]
pub struct Row {
    /// `name`.
    pub name: String,
    /// `locked_by`.
    pub owner: String,
    /// `locked_at`, in microseconds since 1970.
    pub at_us: i64,
    /// How long until `lock_until`; below zero when that is over.
    pub left_us: i64,
}

/// What a text column can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// How many characters.
    pub chars: usize,
    /// The last character of its character set, as far as we use it.
    pub highest: char,
}

impl Field {
    /// What the column can hold of a text that people read.
    pub(super) fn fit(self, text: &str) -> String {
        text.chars().take(self.chars).map(|c| if c > self.highest { '?' } else { c }).collect()
    }
}

/// What the table's columns can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    /// `name`.
    pub name: Field,
    /// `locked_by`.
    pub owner: Field,
}

impl Columns {
    /// The least room in `locked_by` that a holder's id and a bit of its label need.
    pub const OWNER_CHARS_MIN: usize = 64;

    pub(super) fn check(&self, name: &LockName) -> Result<()> {
        let (text, field) = (name.as_str(), self.name);
        let count = text.chars().count();
        let flaw = if count > field.chars {
            format!(
                "it has {count} characters, and the column of the table {} at most",
                field.chars
            )
        } else if text.chars().any(|c| c > field.highest) {
            "it has characters that the column's character set lacks".to_owned()
        } else {
            return Ok(());
        };
        let message = format!("the name does not fit into the table of mode=shedlock: {flaw}");
        Err(Error::new(ErrorKind::InvalidName, message).without_effect())
    }
}

/// Reads the option `table`: one word, or two with a dot between, which stand in statements without
/// quotes, as with ShedLock.
///
/// # Errors
/// [`ErrorKind::InvalidConfig`] for anything else.
pub fn read_table(option: Option<&str>) -> Result<String> {
    let table = option.unwrap_or(TABLE);
    let is_word = |word: &str| {
        word.len() <= 63
            && word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    if table.split('.').all(is_word) && table.split('.').count() <= 2 {
        return Ok(table.to_owned());
    }
    let message = format!(
        "option table is {}; it is a word of letters, digits and _, or two with a dot between",
        lockfast_core::error::quote(table)
    );
    Err(Error::new(ErrorKind::InvalidConfig, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_one_word_or_two() {
        assert_eq!(read_table(None).unwrap(), "shedlock");
        for table in ["locks", "app.ShedLock_2", "_x"] {
            assert_eq!(read_table(Some(table)).unwrap(), table);
        }
        for table in ["", "a.b.c", "a.", "1a", "a b", "a;b", "a\"b", "é", &"x".repeat(64)] {
            let error = read_table(Some(table)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{table}");
        }
    }

    #[test]
    fn a_name_has_to_fit() {
        let field = Field { chars: 64, highest: '\u{7f}' };
        let columns = Columns { name: field, owner: field };
        let check = |text: &str| columns.check(&LockName::new(text).unwrap());
        assert!(check(&"x".repeat(64)).is_ok());
        for (text, expected) in [("x".repeat(65), "65 characters"), ("é".into(), "character set")]
        {
            let error = check(&text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidName);
            assert!(error.to_string().contains(expected), "{error}");
            assert!(error.is_without_effect());
        }
    }
}
