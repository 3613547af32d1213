//! What people and programs may see of a lock. A holder's id is a secret and never part of it;
//! the fence says which grant is meant.

use std::fmt;
use std::time::{Duration, SystemTime};

use crate::fence::Fence;
use crate::holder::Label;
use crate::name::LockName;
use crate::request::Mode;
use crate::time::wall_clock;

/// One lock as it was seen.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LockView {
    /// Its name.
    pub name: LockName,
    /// Who has it; empty when it is free.
    pub holders: Vec<HolderView>,
    /// How many wait for it.
    pub waiting: usize,
}

impl LockView {
    /// A lock with these holders and so many who wait.
    pub fn new(name: LockName, holders: Vec<HolderView>, waiting: usize) -> Self {
        Self { name, holders, waiting }
    }
}

/// One holder as it was seen.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HolderView {
    /// Who, for people; absent for a program that is not Lockfast.
    pub label: Option<Label>,
    /// How.
    pub mode: Mode,
    /// With which fence; absent for a program that is not Lockfast.
    pub fence: Option<Fence>,
    /// Since when, by the wall clock of whoever wrote it: for people only. Absent where nobody wrote it,
    /// as a program that is not Lockfast may not.
    pub since: Option<SystemTime>,
    /// How much longer the store keeps it unless it is renewed; [`Duration::MAX`] where no time ends
    /// it, as for another program's lock without a ttl, or one that lasts as long as a connection.
    pub remaining: Duration,
}

impl HolderView {
    /// A holder of whom nothing else is known, as of a program that is not Lockfast.
    pub fn new(mode: Mode, since: impl Into<Option<SystemTime>>, remaining: Duration) -> Self {
        Self { label: None, mode, fence: None, since: since.into(), remaining }
    }

    /// The same with its label, if it has one.
    #[must_use]
    pub fn with_label(self, label: Option<Label>) -> Self {
        Self { label, ..self }
    }

    /// The same with its fence, if it has one.
    #[must_use]
    pub fn with_fence(self, fence: Option<Fence>) -> Self {
        Self { fence, ..self }
    }

    /// How much longer the store keeps it unless it is renewed, where time ends it.
    pub fn time_left(&self) -> Option<Duration> {
        (self.remaining < Duration::MAX).then_some(self.remaining)
    }
}

impl fmt::Display for HolderView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.label {
            Some(label) => write!(f, "{label}")?,
            None => f.write_str("another program")?,
        }
        if let Some(since) = self.since {
            let held = wall_clock().duration_since(since).unwrap_or_default();
            write!(f, " for {}", brief(held))?;
        }
        write!(f, ", {}", left(self.time_left()))
    }
}

/// What is left of a lease, for people: `12.4s left`, or that no time ends it.
pub fn left(span: Option<Duration>) -> String {
    span.map_or_else(|| "without an end".to_owned(), |span| format!("{} left", brief(span)))
}

/// A duration for people: `350ms`, `12.4s`, `3m05s`, `2h07m`.
pub fn brief(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0 => format!("{}ms", span.as_millis()),
        1..60 => format!("{}.{}s", seconds, span.subsec_millis() / 100),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

/// A span of time to the nanosecond, in hours or minutes where these are whole.
pub fn exact(span: Duration) -> String {
    let seconds = span.as_secs();
    match (seconds % 3600, seconds % 60, span.subsec_nanos()) {
        (0, 0, 0) if seconds > 0 => format!("{}h", seconds / 3600),
        (_, 0, 0) if seconds > 0 => format!("{}m", seconds / 60),
        _ => format!("{span:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_told_to_the_letter() {
        let table =
            [(0, "0ns"), (1500, "1.5s"), (90_000, "90s"), (120_000, "2m"), (7_200_000, "2h")];
        for (millis, expected) in table {
            assert_eq!(exact(Duration::from_millis(millis)), expected);
        }
    }

    #[test]
    fn a_holder_without_an_end_is_told_as_such() {
        let later = wall_clock() + Duration::from_secs(60);
        let mut holder = HolderView::new(Mode::Exclusive, later, Duration::from_millis(12_450));
        assert_eq!(holder.to_string(), "another program for 0ms, 12.4s left");
        assert_eq!(holder.time_left(), Some(holder.remaining));
        holder.remaining = Duration::MAX;
        assert_eq!(holder.to_string(), "another program for 0ms, without an end");
        assert_eq!(holder.time_left(), None);
    }

    #[test]
    fn a_time_that_nobody_wrote_is_not_told() {
        let holder = HolderView::new(Mode::Exclusive, None, Duration::from_secs(5));
        assert_eq!(holder.to_string(), "another program, 5.0s left");
    }

    #[test]
    fn durations_read_well() {
        let table = [(350, "350ms"), (12_450, "12.4s"), (185_000, "3m05s"), (7_620_000, "2h07m")];
        for (millis, expected) in table {
            assert_eq!(brief(Duration::from_millis(millis)), expected);
        }
    }
}
