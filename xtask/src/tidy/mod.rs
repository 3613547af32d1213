//! Style as a test: the rules that keep the code readable and that no compiler checks. Each rule
//! is a function from the tree to what it found, so that it can be tested on a made-up tree.

mod contract;
mod examples;
mod figures;
mod guarantees;
mod layout;
mod prose;
mod size;
mod source;
mod words;

use std::fmt;

use anyhow::{Result, bail};

use crate::tree::{File, Tree};
use crate::{bench, matrix, metrics, refuse_arguments};

/// One place where a rule is broken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    path: String,
    line: Option<usize>,
    message: String,
}

impl Finding {
    /// Something about a file or folder as a whole.
    pub(crate) fn of(path: &str, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line: None, message: message.into() }
    }

    /// Something on a line, counted from 1.
    fn on(file: &File, line: usize, message: impl Into<String>) -> Self {
        Self { line: Some(line), ..Self::of(&file.path, message) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.message)
    }
}

const RULES: &[fn(&Tree) -> Vec<Finding>] = &[
    size::functions,
    size::files,
    size::readme,
    words::unfinished,
    words::macros,
    words::ignored_tests,
    words::machine_paths,
    words::confined,
    layout::names,
    layout::backends,
    layout::code_map,
    contract::promises,
    examples::are_there,
    guarantees::tests_exist,
    figures::are_dated,
    metrics::are_documented,
    bench::chart::is_true,
    prose::titles,
    prose::links,
];

/// Checks the repository against all rules.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    refuse_arguments(arguments)?;
    let tree = Tree::load()?;
    let mut findings: Vec<Finding> = RULES.iter().flat_map(|rule| rule(&tree)).collect();
    findings.extend(matrix::findings(&tree)?);
    for finding in &findings {
        eprintln!("{finding}");
    }
    match findings.len() {
        0 => Ok(()),
        count => bail!("{count} found; repeat it with\n  cargo xtask tidy"),
    }
}

/// Shows findings one a line, for tests.
#[cfg(test)]
fn shown(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(ToString::to_string).collect()
}
