//! The program that measures stores side by side, on servers that it starts.

use anyhow::Result;
use serde_json::Value;

use super::built;
use crate::step::{Step, timed};

/// Builds it for release.
pub(crate) fn build() -> Result<()> {
    let example = ["-p", "lockfast-cli", "--example", "figures"];
    timed("build", || {
        Step::cargo(&[&["build", "--release", "--locked"], &example[..]].concat()).run()
    })
}

/// What it says of a store.
pub(crate) fn measure(what: &str, store: &str) -> Result<Value> {
    built("examples/figures", &[what, store])
}

/// How a table calls a store: with the server that stood for it, where its URL can mean several.
pub(crate) fn label(store: &str, url: &str) -> String {
    match store {
        "mysql" => format!("`{url}` (MariaDB)"),
        _ => format!("`{url}`"),
    }
}
