//! What the server shows as names with values.

use std::collections::HashMap;

use crate::wire::Answer;

/// By their names in lower case. What a server does not have is not there.
pub(super) struct Variables(HashMap<String, String>);

impl Variables {
    pub(super) fn read(rows: Vec<Answer>) -> Self {
        let pairs = rows.iter().filter_map(|row| {
            Some((row.text(0)?.to_ascii_lowercase(), row.text(1).unwrap_or_default().to_owned()))
        });
        Self(pairs.collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(super) fn is_on(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| matches!(value, "ON" | "1" | "YES"))
    }

    pub(super) fn number(&self, name: &str) -> Option<f64> {
        self.get(name).and_then(|value| value.parse().ok())
    }

    /// The first of several names that it has: some have been renamed.
    pub(super) fn first<'a>(&self, names: &[&'a str]) -> Option<&'a str> {
        names.iter().copied().find(|name| self.0.contains_key(*name))
    }

    /// One with its value, for people.
    pub(super) fn shown(&self, name: &str) -> String {
        match self.get(name) {
            None => format!("{name} is not known"),
            Some("") => format!("{name} is empty"),
            Some(value) => format!("{name} is {value}"),
        }
    }
}
