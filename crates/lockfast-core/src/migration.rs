//! What became of a store's schema when somebody asked for the one that this version works with.

use std::fmt;

/// What a migration did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migration {
    /// This store has no schema that somebody would have to create.
    NoSchema,
    /// The schema was there already.
    Unchanged {
        /// Its version.
        version: u32,
    },
    /// The schema was created, or changed.
    Changed {
        /// The version that was there, if there was one.
        from: Option<u32>,
        /// The version that is there now.
        to: u32,
    },
}

impl fmt::Display for Migration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSchema => f.write_str("nothing to migrate: this store needs no schema"),
            Self::Unchanged { version } => {
                write!(f, "nothing to migrate: the schema has version {version} already")
            }
            Self::Changed { from: None, to } => write!(f, "created the schema, version {to}"),
            Self::Changed { from: Some(from), to } => {
                write!(f, "upgraded the schema from version {from} to version {to}")
            }
        }
    }
}
