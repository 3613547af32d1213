//! What can go wrong on the way to the server and there, and what helps against it.

use lockfast_core::ErrorKind;
use lockfast_core::failure::Handling;
use mysql_async::{DriverError, IoError, ServerError};

/// A request that was not served.
pub(crate) type Failure = lockfast_core::Failure<Remedy>;

/// What to do about a failure before it is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Nothing.
    #[default]
    Tell,
    /// The same again: nothing of it was done.
    Repeat,
    /// The same again: it was interrupted, perhaps after it was done.
    RepeatInDoubt,
    /// The same again on a new connection: whether it was done is not known.
    ReconnectAndRepeat,
    /// A new connection is needed, but that took too long for the same again.
    Reconnect,
}

impl Handling for Remedy {
    const STORE: &'static str = "mysql";
}

/// Whoever must encrypt and does not is refused like somebody with a wrong password (1045).
pub(crate) fn with_hint_at_tls(failure: Failure) -> Failure {
    if failure.kind() != ErrorKind::Permission {
        return failure;
    }
    let hint = "if the server wants encryption, add tls=yes to the URL";
    let message = format!("{}; {hint}", failure.message());
    failure.with_message(message)
}

/// Whether the server could not be asked, or not this one; otherwise it has an objection to what was
/// asked, or somebody else was in the way.
pub(crate) fn is_of_the_way(failure: &Failure) -> bool {
    matches!(failure.kind(), ErrorKind::Unreachable | ErrorKind::WrongNode)
        && failure.handling != Remedy::Repeat
}

/// The server did not answer in time.
pub(crate) fn of_silence(endpoint: &str, limit: std::time::Duration) -> Failure {
    let message = format!("{endpoint} did not answer within {limit:?}");
    Failure::new(ErrorKind::Unreachable, message).with(Remedy::Reconnect)
}

/// A release whose answer was lost finds nothing when it is repeated: it may have been made, or
/// the lease may have ended before it.
pub(crate) fn of_doubt() -> Failure {
    let message = "the answer to the release was lost, and nothing is held any more";
    Failure::new(ErrorKind::Unreachable, message).for_good()
}

/// A write whose answer was lost finds something else when it is repeated.
pub(crate) fn of_doubtful_write() -> Failure {
    let message =
        "the answer to the write was lost, and something else is there now: it may have happened";
    Failure::new(ErrorKind::Unreachable, message)
}

/// The server answered something else than we understand.
pub(crate) fn of_nonsense(what: &str) -> Failure {
    let message = format!("the database holds procedures that are not Lockfast's: {what}");
    Failure::new(ErrorKind::CorruptRecord, message)
}

/// What the driver says.
pub(crate) fn of_driver(endpoint: &str, error: &mysql_async::Error) -> Failure {
    use mysql_async::Error as Driver;
    match error {
        Driver::Server(error) => of_server(error),
        Driver::Io(IoError::Tls(error)) => {
            let message = format!("no encrypted connection to {endpoint}: {error}");
            Failure::new(ErrorKind::TlsHandshake, message)
        }
        Driver::Io(IoError::Io(error))
            if error.get_ref().is_some_and(|source| source.is::<rustls::Error>()) =>
        {
            let message = format!("no encrypted connection to {endpoint}: {error}");
            Failure::new(ErrorKind::TlsHandshake, message)
        }
        Driver::Io(IoError::Io(error)) => {
            let message = format!("{endpoint} cannot be reached: {error}");
            Failure::new(ErrorKind::Unreachable, message).with(Remedy::ReconnectAndRepeat)
        }
        Driver::Driver(DriverError::NoClientSslFlagFromServer) => Failure::new(
            ErrorKind::TlsHandshake,
            format!("{endpoint} does not encrypt; set it up to, or leave out tls=yes"),
        ),
        // What a server asks for when it does not know the user, so that nobody learns that.
        Driver::Driver(DriverError::UnknownAuthPlugin { name }) => Failure::new(
            ErrorKind::Permission,
            format!(
                "access denied: {endpoint} does not know the user, or wants it to identify \
                 itself with {name}, which Lockfast cannot"
            ),
        ),
        Driver::Driver(DriverError::ConnectionClosed) => {
            let message = format!("{endpoint} closed the connection");
            Failure::new(ErrorKind::Unreachable, message).with(Remedy::ReconnectAndRepeat)
        }
        other => {
            let message = format!("{endpoint} does not speak as expected: {other}");
            Failure::new(ErrorKind::Unreachable, message).with(Remedy::ReconnectAndRepeat)
        }
    }
}

/// What the server says. Its message may name users and tables, but never a password.
fn of_server(error: &ServerError) -> Failure {
    let said = format!("the server says: {} (error {})", error.message, error.code);
    match error.code {
        // Our own: another connection of this client was made since.
        1644 if error.message.starts_with("lockfast: enrol") => Failure::new(
            ErrorKind::Unreachable,
            "the server does not know this connection any more",
        )
        .with(Remedy::ReconnectAndRepeat),
        1644 if error.message.starts_with("lockfast: interrupted") => {
            Failure::new(ErrorKind::Unreachable, said).with(Remedy::Repeat)
        }
        3159 => Failure::new(
            ErrorKind::TlsHandshake,
            format!("the server wants an encrypted connection; add tls=yes to the URL: {said}"),
        ),
        1370 => Failure::new(
            ErrorKind::Permission,
            format!(
                "{said}; it is not there (run lockfast migrate), or not granted: grant what the \
                 README names, also after each upgrade"
            ),
        ),
        1044 | 1045 | 1130 | 1142 | 1143 | 1227 | 1419 | 1698 => {
            Failure::new(ErrorKind::Permission, said)
        }
        1049 => Failure::new(ErrorKind::InvalidConfig, said),
        // A function of the server's own is missing, not one of ours.
        1305 if !error.message.contains("lockfast_") => Failure::new(ErrorKind::Unsupported, said),
        1054 | 1146 | 1305 | 1318 | 1449 => Failure::new(
            ErrorKind::InvalidConfig,
            format!("the schema is missing or not whole; run lockfast migrate: {said}"),
        ),
        1040 | 1203 | 1226 => Failure::new(ErrorKind::Unreachable, said),
        1644 if error.message.starts_with("lockfast: the server is read-only") => {
            Failure::new(ErrorKind::WrongNode, error.message.clone()).with(Remedy::Reconnect)
        }
        1290 | 1792 | 1836 => Failure::new(
            ErrorKind::WrongNode,
            format!("the server only reads, so it does not decide about locks: {said}"),
        )
        .with(Remedy::Reconnect),
        1020 | 1205 | 1213 => Failure::new(ErrorKind::Unreachable, said).with(Remedy::Repeat),
        1317 | 1969 => Failure::new(ErrorKind::Unreachable, said).with(Remedy::RepeatInDoubt),
        1053 | 1077 | 1079 | 1152 | 1158..=1161 | 1184 | 1927 | 4031 => {
            Failure::new(ErrorKind::Unreachable, said).with(Remedy::ReconnectAndRepeat)
        }
        // The disk or a table space is full, or the server is read-only by need.
        3 | 1021 | 1030 | 1041 | 1114 => Failure::new(ErrorKind::Unreachable, said).for_good(),
        _ => Failure::new(ErrorKind::Internal, said),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockfast_core::Retry;

    #[test]
    fn every_refusal_has_its_class() {
        use ErrorKind as Kind;
        let table = [
            (1044, Kind::Permission, Retry::Never, Remedy::Tell),
            (1045, Kind::Permission, Retry::Never, Remedy::Tell),
            (1370, Kind::Permission, Retry::Never, Remedy::Tell),
            (1130, Kind::Permission, Retry::Never, Remedy::Tell),
            (3159, Kind::TlsHandshake, Retry::Never, Remedy::Tell),
            (1049, Kind::InvalidConfig, Retry::Never, Remedy::Tell),
            (1146, Kind::InvalidConfig, Retry::Never, Remedy::Tell),
            (1305, Kind::InvalidConfig, Retry::Never, Remedy::Tell),
            (1040, Kind::Unreachable, Retry::Later, Remedy::Tell),
            (1290, Kind::WrongNode, Retry::Later, Remedy::Reconnect),
            (1792, Kind::WrongNode, Retry::Later, Remedy::Reconnect),
            (1205, Kind::Unreachable, Retry::Later, Remedy::Repeat),
            (1213, Kind::Unreachable, Retry::Later, Remedy::Repeat),
            (1317, Kind::Unreachable, Retry::Later, Remedy::RepeatInDoubt),
            (1927, Kind::Unreachable, Retry::Later, Remedy::ReconnectAndRepeat),
            (1114, Kind::Unreachable, Retry::Never, Remedy::Tell),
            (3, Kind::Unreachable, Retry::Never, Remedy::Tell),
            (9999, Kind::Internal, Retry::Never, Remedy::Tell),
        ];
        for (code, kind, retry, remedy) in table {
            let message = "PROCEDURE d.lockfast_take does not exist".into();
            let error = ServerError { code, message, state: "HY000".into() };
            let failure = of_server(&error);
            assert_eq!(
                (failure.kind(), failure.retry(), failure.handling),
                (kind, retry, remedy),
                "{code}"
            );
            assert_eq!(failure.to_error().backend(), Some("mysql"));
        }
    }

    #[test]
    fn what_the_way_does_is_told_apart() {
        let failure = |code| {
            let message = "said so".into();
            of_server(&ServerError { code, message, state: "HY000".into() })
        };
        for code in [1040, 1053, 1290, 1836, 1927] {
            assert!(is_of_the_way(&failure(code)), "{code}");
        }
        for code in [1205, 1213, 1142, 1146, 1292] {
            assert!(!is_of_the_way(&failure(code)), "{code}");
        }
    }

    /// B32: a function that the server does not have is not told as a missing schema.
    #[test]
    fn a_function_of_the_server_is_missing() {
        let message = "FUNCTION d.MD5 does not exist".to_owned();
        let failure = of_server(&ServerError { code: 1305, message, state: "42000".into() });
        assert_eq!(failure.kind(), ErrorKind::Unsupported);
        assert!(failure.message().contains("MD5") && !failure.message().contains("schema"));
    }
}
