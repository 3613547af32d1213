//! What can go wrong on the way to a member and there, and what is then known about the request.

use std::time::Duration;

use lockfast_core::ErrorKind;
use lockfast_core::failure::Handling;

/// A request that was not served.
pub(crate) type Failure = lockfast_core::Failure<Fate>;

/// What became of a request that was not served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It was refused: nothing of it was done, and nothing will be.
    #[default]
    Refused,
    /// It was refused because of our token; a new one helps.
    Stranger,
    /// It was refused because a lease that it names does not exist.
    NoLease,
    /// It may have been done, or may still be. The cluster could not serve it for now.
    Unknown,
    /// The same: nobody answered in time.
    Silent,
    /// The same, and the connection is of no use any more.
    Broken,
}

impl Handling for Fate {
    const STORE: &'static str = "etcd";
}

impl Fate {
    /// Whether the request can still take effect, or has.
    pub(crate) fn is_in_doubt(self) -> bool {
        matches!(self, Self::Unknown | Self::Silent | Self::Broken)
    }
}

/// A member did not answer in time.
pub(crate) fn of_silence(endpoint: &str, limit: Duration) -> Failure {
    let message = format!("{endpoint} did not answer within {limit:?}");
    Failure::new(ErrorKind::Unreachable, message).with(Fate::Silent)
}

/// The store was closed.
pub(crate) fn of_closing() -> Failure {
    Failure::new(ErrorKind::Unreachable, "the connection was closed").with(Fate::Unknown)
}

/// A write whose answer was lost finds something else when it is repeated.
pub(crate) fn of_doubtful_write() -> Failure {
    let message =
        "the answer to the write was lost, and something else is there now: it may have happened";
    Failure::new(ErrorKind::Unreachable, message).with(Fate::Unknown)
}

/// A member answered something else than we understand.
pub(crate) fn of_nonsense(what: &str) -> Failure {
    let message = format!("the server does not speak as etcd: {what}");
    Failure::new(ErrorKind::CorruptRecord, message)
}
