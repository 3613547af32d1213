//! What a member's refusal means.

use lockfast_core::ErrorKind;
use tonic::{Code, Status};

use crate::failure::{Failure, Fate};

/// What to say to whoever names no user where one is asked for.
pub(super) const WANTS_USER: &str =
    "the server wants a user and a password; write \"etcd://user:password@host\"";

/// Understands a status. Its message may name users and keys, but never a password.
pub(super) fn read_status(endpoint: &str, status: &Status) -> Failure {
    let said = status.message().trim_start_matches("etcdserver: ");
    let refused = |kind| Failure::new(kind, format!("the server says: {said}"));
    match status.code() {
        Code::Unauthenticated | Code::InvalidArgument if is_about_token(said) => {
            refused(ErrorKind::Permission).with(Fate::Stranger)
        }
        Code::InvalidArgument if said.contains("user name is empty") => {
            Failure::new(ErrorKind::Permission, WANTS_USER)
        }
        Code::InvalidArgument if said.contains("authentication failed") => {
            refused(ErrorKind::Permission)
        }
        Code::PermissionDenied | Code::Unauthenticated => refused(ErrorKind::Permission),
        Code::NotFound if said.contains("lease not found") => {
            refused(ErrorKind::Unreachable).with(Fate::NoLease)
        }
        Code::ResourceExhausted if said.contains("database space exceeded") => {
            let hint = "compact and defragment it, and disarm the alarm";
            let message = format!("the server says: {said}; {hint}");
            Failure::new(ErrorKind::Unreachable, message).for_good()
        }
        Code::ResourceExhausted => refused(ErrorKind::Unreachable),
        Code::FailedPrecondition | Code::AlreadyExists | Code::OutOfRange => {
            refused(ErrorKind::Internal)
        }
        Code::InvalidArgument => refused(ErrorKind::Internal),
        Code::Unimplemented => Failure::new(
            ErrorKind::Unsupported,
            format!("{endpoint} does not serve etcd's API of version 3: {said}"),
        ),
        // The cluster has no leader, or lost it: the member itself is well.
        Code::Unavailable | Code::DeadlineExceeded if status.message() != said => {
            Failure::new(ErrorKind::Unreachable, format!("{endpoint} says: {said}"))
                .with(Fate::Unknown)
        }
        _ => {
            let message = format!("{endpoint} does not answer as etcd: {}", describe(status));
            Failure::new(ErrorKind::Unreachable, message).with(Fate::Broken)
        }
    }
}

fn is_about_token(said: &str) -> bool {
    said.contains("invalid auth token") || said.contains("revision of auth store is old")
}

/// The innermost cause says most.
fn describe(status: &Status) -> String {
    let mut said = status.message().to_owned();
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        said = error.to_string();
        cause = error.source();
    }
    if said.is_empty() { format!("{:?}", status.code()) } else { said }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_about_a_request_that_was_not_served() {
        use ErrorKind::{Permission, Unreachable, Unsupported};
        let table = [
            (Code::Unauthenticated, "etcdserver: invalid auth token", Permission, Fate::Stranger),
            (
                Code::InvalidArgument,
                "etcdserver: revision of auth store is old",
                Permission,
                Fate::Stranger,
            ),
            (Code::InvalidArgument, "etcdserver: user name is empty", Permission, Fate::Refused),
            (
                Code::InvalidArgument,
                "etcdserver: authentication failed, invalid user ID or password",
                Permission,
                Fate::Refused,
            ),
            (Code::PermissionDenied, "etcdserver: permission denied", Permission, Fate::Refused),
            (Code::NotFound, "etcdserver: requested lease not found", Unreachable, Fate::NoLease),
            (Code::Unavailable, "etcdserver: request timed out", Unreachable, Fate::Unknown),
            (Code::Unavailable, "etcdserver: leader changed", Unreachable, Fate::Unknown),
            (Code::Unavailable, "tcp connect error", Unreachable, Fate::Broken),
            (Code::Unknown, "h2 protocol error", Unreachable, Fate::Broken),
            (Code::Cancelled, "", Unreachable, Fate::Broken),
            (Code::Unimplemented, "", Unsupported, Fate::Refused),
        ];
        for (code, message, kind, fate) in table {
            let failure = read_status("h:1", &Status::new(code, message));
            assert_eq!((failure.kind(), failure.handling), (kind, fate), "{code:?} {message}");
        }
        let full =
            Status::new(Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded");
        assert_eq!(read_status("h:1", &full).retry(), lockfast_core::Retry::Never);
    }
}
