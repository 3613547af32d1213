//! What came out of a run, for callers that are not a test binary.

use std::fmt;

/// How one case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The store keeps the rule.
    Passed,
    /// The store cannot run the case, for this reason.
    Ignored(String),
    /// The store breaks the rule, in this way.
    Failed(String),
}

/// How every case ended, in the order of the suite.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// `group::case` and how it ended.
    pub verdicts: Vec<(String, Verdict)>,
}

impl Report {
    /// The cases that failed, with their messages.
    pub fn failures(&self) -> impl Iterator<Item = (&str, &str)> {
        self.verdicts.iter().filter_map(|(case, verdict)| match verdict {
            Verdict::Failed(message) => Some((case.as_str(), message.as_str())),
            _ => None,
        })
    }

    /// How the named case ended.
    pub fn verdict(&self, case: &str) -> Option<&Verdict> {
        self.verdicts.iter().find(|(name, _)| name == case).map(|(_, verdict)| verdict)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (case, verdict) in &self.verdicts {
            match verdict {
                Verdict::Passed => writeln!(f, "{case} ok")?,
                Verdict::Ignored(reason) => writeln!(f, "{case} ignored: {reason}")?,
                Verdict::Failed(message) => writeln!(f, "{case} FAILED: {message}")?,
            }
        }
        Ok(())
    }
}
