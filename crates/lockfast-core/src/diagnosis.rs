//! What a store's servers and this machine were found to be like, and what that means for a lock.

use std::fmt;

use crate::capability::Guarantee;

/// How much a fact hurts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// It is as it should be.
    Ok,
    /// It could not be found out, and so nothing is said about it.
    Unknown,
    /// Locks work, but something that people expect of them does not hold.
    Warn,
    /// A lock can be granted twice, or be lost without a word.
    Unsafe,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Unknown => "cannot check",
            Self::Warn => "warn",
            Self::Unsafe => "unsafe",
        })
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at: lower case with hyphens, the same in every version.
    pub check: &'static str,
    /// Of several servers, which one.
    pub server: Option<String>,
    /// How much it hurts.
    pub severity: Severity,
    /// What was seen; or why it could not be.
    pub fact: String,
    /// What that means for a lock, in one sentence. Empty if it is as it should be.
    pub meaning: String,
    /// What to do about it. Empty if there is nothing to be done.
    pub fix: String,
}

/// All that was looked at, and what is left of the store's promise.
#[derive(Clone, Debug)]
pub struct Diagnosis {
    /// What was looked at, in the order in which to read it.
    pub findings: Vec<Finding>,
    /// What grants are good for on this store as it is.
    pub guarantee: Guarantee,
    /// Why, in one sentence.
    pub because: String,
}

impl Diagnosis {
    /// The worst of what was found.
    pub fn worst(&self) -> Severity {
        self.findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Ok)
    }
}
