//! What people and programs may see of a lock. A holder's id is a secret and never part of it;
//! the fence says which grant is meant.

use std::fmt;
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc;

use crate::fence::Fence;
use crate::holder::Label;
use crate::name::LockName;
use crate::request::Mode;
use crate::time::wall_clock;

/// One lock as it was seen.
#[derive(Clone, Debug)]
pub struct LockView {
    /// Its name.
    pub name: LockName,
    /// Who has it; empty when it is free.
    pub holders: Vec<HolderView>,
    /// How many wait for it.
    pub waiting: usize,
}

/// One holder as it was seen.
#[derive(Clone, Debug)]
pub struct HolderView {
    /// Who, for people; absent for a program that is not Lockfast.
    pub label: Option<Label>,
    /// How.
    pub mode: Mode,
    /// With which fence; absent for a program that is not Lockfast.
    pub fence: Option<Fence>,
    /// Since when, by the wall clock of whoever wrote it: for people only.
    pub since: SystemTime,
    /// How much longer the store keeps it unless it is renewed.
    pub remaining: Duration,
}

impl fmt::Display for HolderView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.label {
            Some(label) => write!(f, "{label}")?,
            None => f.write_str("another program")?,
        }
        let held = wall_clock().duration_since(self.since).unwrap_or_default();
        write!(f, " for {}, {} left", brief(held), brief(self.remaining))
    }
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

/// Something that happened to a lock.
#[derive(Clone, Debug)]
pub struct WatchEvent {
    /// When, by the wall clock of whoever did it.
    pub at: SystemTime,
    /// To which lock.
    pub name: LockName,
    /// What.
    pub kind: WatchKind,
    /// The fence of the grant it is about, if there was one.
    pub fence: Option<Fence>,
    /// Whose claim, for people.
    pub label: Option<Label>,
}

/// What can happen to a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchKind {
    /// Somebody began to wait.
    Queued,
    /// Somebody got it.
    Granted,
    /// Its holder gave it back.
    Released,
    /// Somebody stopped waiting.
    Abandoned,
    /// Its holder died or did not renew it in time.
    Expired,
    /// An operator took it away.
    Revoked,
    /// The watcher was too slow and missed events before this one.
    Missed,
}

impl WatchKind {
    /// The word for it, stable.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Granted => "granted",
            Self::Released => "released",
            Self::Abandoned => "abandoned",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
            Self::Missed => "missed",
        }
    }
}

/// Events as they happen, until it is dropped or the store is gone.
#[derive(Debug)]
pub struct EventStream(mpsc::Receiver<WatchEvent>);

impl EventStream {
    /// How many events may wait to be read before some are missed.
    pub const BACKLOG_MAX: usize = 1024;

    /// A stream and the end that feeds it. The feeder uses `try_send`, and says
    /// [`WatchKind::Missed`] before the next event when one did not fit.
    pub fn channel() -> (mpsc::Sender<WatchEvent>, Self) {
        let (sender, receiver) = mpsc::channel(Self::BACKLOG_MAX);
        (sender, Self(receiver))
    }

    /// The next event; `None` when there will be no more.
    ///
    /// # Cancel safety
    /// Safe: no event is lost.
    pub async fn next(&mut self) -> Option<WatchEvent> {
        self.0.recv().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        let table = [(350, "350ms"), (12_450, "12.4s"), (185_000, "3m05s"), (7_620_000, "2h07m")];
        for (millis, expected) in table {
            assert_eq!(brief(Duration::from_millis(millis)), expected);
        }
    }
}
