//! What a store's servers and this machine were found to be like, and what that means for a lock.

mod clock;
mod latency;
mod way;

use std::fmt;

use crate::capability::Guarantee;

pub use clock::{ClockSample, judge_clock, sample_clock};
pub use latency::judge_latency;
pub use way::Way;

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
#[non_exhaustive]
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

impl Finding {
    /// Something that is as it should be.
    pub fn ok(check: &'static str, fact: impl Into<String>) -> Self {
        Self::new(check, Severity::Ok, fact, "", "")
    }

    /// Something that could not be found out: why not, and what would let it be.
    pub fn unknown(check: &'static str, reason: impl Into<String>, fix: impl Into<String>) -> Self {
        let meaning = "nothing is known about it";
        Self::new(check, Severity::Unknown, reason, meaning, fix)
    }

    /// Something that people should know: what was seen, what it means and what to do.
    pub fn warn(
        check: &'static str,
        fact: impl Into<String>,
        meaning: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self::new(check, Severity::Warn, fact, meaning, fix)
    }

    /// Something with which a lock can be granted twice: what was seen, what it means and what to
    /// do.
    pub fn hazard(
        check: &'static str,
        fact: impl Into<String>,
        meaning: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self::new(check, Severity::Unsafe, fact, meaning, fix)
    }

    fn new(
        check: &'static str,
        severity: Severity,
        fact: impl Into<String>,
        meaning: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        let (fact, meaning, fix) = (fact.into(), meaning.into(), fix.into());
        Self { check, server: None, severity, fact, meaning, fix }
    }

    /// The same, of one server of several.
    pub fn at(mut self, server: impl Into<String>) -> Self {
        self.server = Some(server.into());
        self
    }
}

/// All that was looked at, and what is left of the store's promise.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Diagnosis {
    /// What was looked at, in the order in which to read it.
    pub findings: Vec<Finding>,
    /// What grants are good for on this store as it is.
    pub guarantee: Guarantee,
    /// Why, in one sentence.
    pub because: String,
}

impl Diagnosis {
    /// What is left of a store's promise after what was found: with anything unsafe, no more than
    /// [`Guarantee::Efficiency`].
    pub fn conclude(
        findings: Vec<Finding>,
        guarantee: Guarantee,
        because: impl Into<String>,
    ) -> Self {
        let hazard = findings.iter().find(|finding| finding.severity == Severity::Unsafe);
        let (guarantee, because) = match hazard {
            None => (guarantee, because.into()),
            Some(hazard) => {
                let because = format!("{} is unsafe: {}", hazard.check, hazard.meaning);
                (Guarantee::Efficiency, because)
            }
        };
        Self { findings, guarantee, because }
    }

    /// The same after more was found.
    pub fn with(mut self, more: Vec<Finding>) -> Self {
        self.findings.extend(more);
        Self::conclude(self.findings, self.guarantee, self.because)
    }

    /// The worst of what was found.
    pub fn worst(&self) -> Severity {
        self.findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unsafe_lowers_the_guarantee() {
        let good = Diagnosis::conclude(vec![Finding::ok("a", "x")], Guarantee::Correctness, "so");
        assert_eq!((good.guarantee, good.because.as_str()), (Guarantee::Correctness, "so"));
        assert_eq!(good.worst(), Severity::Ok);
        let warned = good.with(vec![
            Finding::unknown("b", "no right", "grant it"),
            Finding::warn("c", "x", "m", "f"),
        ]);
        assert_eq!((warned.guarantee, warned.worst()), (Guarantee::Correctness, Severity::Warn));
        let bad = warned.with(vec![Finding::hazard("d", "x", "it is granted twice", "f").at("s")]);
        assert_eq!((bad.guarantee, bad.worst()), (Guarantee::Efficiency, Severity::Unsafe));
        assert_eq!(bad.because, "d is unsafe: it is granted twice");
        assert_eq!(bad.findings.len(), 4);
    }
}
