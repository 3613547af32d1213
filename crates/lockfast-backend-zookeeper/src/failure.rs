//! What can go wrong on the way to the servers and there, and what is then known about the request.

use std::time::Duration;

use lockfast_core::ErrorKind;
use lockfast_core::failure::Handling;

/// The server's codes that mean something to a lock.
pub(crate) mod code {
    pub(crate) const UNIMPLEMENTED: i32 = -6;
    pub(crate) const NO_NODE: i32 = -101;
    pub(crate) const NO_AUTH: i32 = -102;
    pub(crate) const BAD_VERSION: i32 = -103;
    pub(crate) const NO_CHILDREN_FOR_EPHEMERALS: i32 = -108;
    pub(crate) const NODE_EXISTS: i32 = -110;
    pub(crate) const NOT_EMPTY: i32 = -111;
    pub(crate) const SESSION_EXPIRED: i32 = -112;
    pub(crate) const INVALID_ACL: i32 = -114;
    pub(crate) const AUTH_FAILED: i32 = -115;
    pub(crate) const SESSION_MOVED: i32 = -118;
    pub(crate) const EPHEMERAL_ON_LOCAL_SESSION: i32 = -120;
    pub(crate) const SESSION_CLOSED_REQUIRE_AUTH: i32 = -124;
    pub(crate) const QUOTA_EXCEEDED: i32 = -125;
    pub(crate) const THROTTLED: i32 = -127;
}

/// A request that was not served.
pub(crate) type Failure = lockfast_core::Failure<Fate>;

/// What became of a request that was not served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It was not sent, or cannot be served: nothing of it was done.
    #[default]
    Undone,
    /// The server refused it with this code, and nothing was done.
    Refused(i32),
    /// The connection broke before the answer came: whether it was done is not known.
    Broken,
    /// The session is over, and with it everything that it made.
    Ended,
}

impl Handling for Fate {
    const STORE: &'static str = "zookeeper";
}

impl Fate {
    /// Whether there is no such node.
    pub(crate) fn is_no_node(self) -> bool {
        self == Self::Refused(code::NO_NODE)
    }

    /// Whether the node is another user's.
    pub(crate) fn is_no_auth(self) -> bool {
        self == Self::Refused(code::NO_AUTH)
    }
}

/// The server refused a request.
pub(crate) fn of_refusal(refusal: i32) -> Failure {
    let (kind, message) = explain(refusal);
    Failure::new(kind, message).with(Fate::Refused(refusal))
}

/// The connection broke.
pub(crate) fn of_break(message: impl Into<String>) -> Failure {
    Failure::new(ErrorKind::Unreachable, message).with(Fate::Broken)
}

/// The server did not answer in time.
pub(crate) fn of_silence(endpoint: &str, limit: Duration) -> Failure {
    of_break(format!("{endpoint} did not answer within {limit:?}"))
}

/// A write whose answer was lost finds something else when it is repeated.
pub(crate) fn of_doubtful_write() -> Failure {
    let message =
        "the answer to the write was lost, and something else is there now: it may have happened";
    Failure::new(ErrorKind::Unreachable, message)
}

/// The server answered something else than we understand.
pub(crate) fn of_nonsense(what: &str) -> Failure {
    of_break(format!("unexpected reply from ZooKeeper: {what}"))
}

/// The session is over.
pub(crate) fn of_end() -> Failure {
    let message = "the server ended the session; try again";
    Failure::new(ErrorKind::Unreachable, message).with(Fate::Ended)
}

/// The server is from a time before something that locks need.
pub(crate) fn of_age() -> Failure {
    let (kind, message) = explain(code::UNIMPLEMENTED);
    Failure::new(kind, message)
}

fn explain(refusal: i32) -> (ErrorKind, String) {
    let (kind, message) = match refusal {
        code::UNIMPLEMENTED => (
            ErrorKind::Unsupported,
            "the server is too old: ZooKeeper 3.6 or newer is needed, for container nodes and for \
             streams of events; use a newer server",
        ),
        code::NO_AUTH | code::AUTH_FAILED | code::SESSION_CLOSED_REQUIRE_AUTH => (
            ErrorKind::Permission,
            "the ACL of the node does not allow it; check user and password in the URL, and the \
             rights on the node that holds the locks",
        ),
        code::INVALID_ACL => (
            ErrorKind::Permission,
            "the server does not accept our ACL; give user:password@ in the URL, or allow \
             world:anyone",
        ),
        code::EPHEMERAL_ON_LOCAL_SESSION => (
            ErrorKind::Unsupported,
            "the server opens local sessions, which cannot have claims; set \
             localSessionsUpgradingEnabled, or localSessionsEnabled=false",
        ),
        code::NO_CHILDREN_FOR_EPHEMERALS => (
            ErrorKind::ForeignKey,
            "the lock's node is an ephemeral node of another program, which can have no children",
        ),
        code::NO_NODE => (ErrorKind::Unreachable, "the node was deleted meanwhile; try again"),
        code::QUOTA_EXCEEDED => (ErrorKind::Unreachable, "the quota of the node is exceeded"),
        code::THROTTLED => (ErrorKind::Unreachable, "the server is overloaded; try again later"),
        _ => return (ErrorKind::Internal, format!("the server refused it with code {refusal}")),
    };
    (kind, message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockfast_core::Retry;

    #[test]
    fn each_failure_has_its_kind() {
        let table = [
            (of_refusal(code::UNIMPLEMENTED), ErrorKind::Unsupported, Retry::Never),
            (of_refusal(code::NO_AUTH), ErrorKind::Permission, Retry::Never),
            (of_refusal(code::SESSION_CLOSED_REQUIRE_AUTH), ErrorKind::Permission, Retry::Never),
            (of_refusal(code::EPHEMERAL_ON_LOCAL_SESSION), ErrorKind::Unsupported, Retry::Never),
            (of_refusal(-4711), ErrorKind::Internal, Retry::Never),
            (of_break("x"), ErrorKind::Unreachable, Retry::Later),
            (of_end(), ErrorKind::Unreachable, Retry::Later),
            (of_age(), ErrorKind::Unsupported, Retry::Never),
        ];
        for (failure, kind, retry) in table {
            let error = failure.to_error();
            assert_eq!((error.kind(), error.retry()), (kind, retry), "{failure:?}");
            assert_eq!(error.backend(), Some("zookeeper"));
        }
        assert!(of_refusal(code::NO_NODE).handling.is_no_node());
        assert!(!of_refusal(code::NO_AUTH).handling.is_no_node());
    }
}
