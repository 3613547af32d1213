//! What keeps a request from being served, told apart so that callers know what to do.

use std::io;
use std::time::Duration;

use lockfast_core::ErrorKind;
use lockfast_core::failure::Handling;
use tokio_postgres::error::DbError;

use crate::config::Endpoint;

/// Why something did not work. It is answered to every request of a batch.
pub(crate) type Failure = lockfast_core::Failure<Treatment>;

/// How a failure is handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Treatment {
    /// What the link has to do about it.
    pub(crate) remedy: Remedy,
    /// Whether ours may have been done all the same: by an earlier try, or because this may be the
    /// answer to another one's request.
    pub(crate) is_unproven: bool,
}

impl Handling for Treatment {
    const STORE: &'static str = "postgres";
}

impl From<Remedy> for Treatment {
    fn from(remedy: Remedy) -> Self {
        Self { remedy, is_unproven: false }
    }
}

/// What to do about a failure before anybody is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Nothing helps: tell.
    #[default]
    Tell,
    /// The server does not know this connection: register and repeat.
    Enrol,
    /// Nothing was done: repeat.
    Repeat,
    /// The connection is of no use any more: make it anew, and repeat.
    Reconnect,
    /// This is not the right server: tell, and connect anew.
    TellAndReconnect,
}

/// The same, which is the answer to our request.
pub(crate) fn proven(mut failure: Failure) -> Failure {
    failure.handling.is_unproven = false;
    failure
}

/// The same by a way that mixes up answers.
pub(crate) fn without_proof(mut failure: Failure) -> Failure {
    failure.handling.is_unproven = true;
    failure
}

/// The failure of a change. The server undoes what it refuses, so it was not made unless that is open.
pub(crate) fn of_change(failure: Failure) -> Failure {
    match failure.handling.is_unproven {
        true => failure,
        false => Failure { error: failure.error.without_effect(), ..failure },
    }
}

/// The same of a change that is not asked for again to see whether the pooler gives the same answer.
pub(crate) fn of_single_change(failure: Failure) -> Failure {
    let failure = of_change(failure);
    if failure.error.is_without_effect() || failure.kind() == ErrorKind::Unreachable {
        return failure;
    }
    let message = format!(
        "{}; a pooler can give this answer to somebody else, so look whether it was done",
        failure.message()
    );
    failure.with_message(message)
}

/// Whether the server could not be asked, or not this one; otherwise it has an objection to what was
/// asked, or somebody else was in the way.
pub(crate) fn is_of_the_way(failure: &Failure) -> bool {
    matches!(failure.kind(), ErrorKind::Unreachable | ErrorKind::WrongNode)
        && failure.handling.remedy != Remedy::Repeat
}

/// Whether the server does not know our functions.
pub(crate) fn is_of_schema(failure: &Failure) -> bool {
    failure.kind() == ErrorKind::InvalidConfig && failure.message().contains("lockfast migrate")
}

/// The server closed the connection.
pub(crate) fn of_end(endpoint: &Endpoint) -> Failure {
    Failure::new(ErrorKind::Unreachable, format!("{endpoint} closed the connection"))
        .with(Remedy::Reconnect.into())
}

/// The connection could not be made or broke.
pub(crate) fn of_io(endpoint: &Endpoint, error: &io::Error) -> Failure {
    let message = match error.kind() {
        io::ErrorKind::ConnectionRefused => format!("connection refused: {endpoint}"),
        io::ErrorKind::NotFound => format!("there is no socket {endpoint}"),
        io::ErrorKind::PermissionDenied => {
            let message = format!("the operating system does not let us connect to {endpoint}");
            return Failure::new(ErrorKind::Permission, message);
        }
        _ => format!("the connection to {endpoint} failed: {error}"),
    };
    Failure::new(ErrorKind::Unreachable, message).with(Remedy::Reconnect.into())
}

/// The connection could not be encrypted.
pub(crate) fn of_handshake(endpoint: &Endpoint, cause: &dyn std::fmt::Display) -> Failure {
    Failure::new(
        ErrorKind::TlsHandshake,
        format!(
            "no encrypted connection to {endpoint}: {cause}; check that the server has ssl on, \
             and the options sslmode, ca, cert and key"
        ),
    )
}

/// The server did not answer in time.
pub(crate) fn of_silence(endpoint: &Endpoint, span: Duration) -> Failure {
    Failure::new(ErrorKind::Unreachable, format!("{endpoint} did not answer within {span:?}"))
        .with(Remedy::Reconnect.into())
}

/// The pooler gave us the answer to another one's statement.
pub(crate) fn of_mixture(endpoint: &Endpoint) -> Failure {
    let message = format!(
        "the pooler at {endpoint} answered what somebody else had asked; PgBouncer does so before \
         1.22.1 when a client disconnects that has sent several statements at once: update it"
    );
    Failure::new(ErrorKind::Unreachable, message).with(Remedy::Reconnect.into())
}

/// The server answered something else than our functions do.
pub(crate) fn of_nonsense(what: impl std::fmt::Display) -> Failure {
    Failure::new(
        ErrorKind::CorruptRecord,
        format!("the database answered what Lockfast's functions do not: {what}"),
    )
}

/// Nobody may write, although it is no standby.
pub(crate) fn of_reader() -> Failure {
    Failure::new(
        ErrorKind::WrongNode,
        "transactions are read-only here; if the server is not meant to be, run ALTER ROLE … (or \
         DATABASE, SYSTEM) RESET default_transaction_read_only",
    )
    .with(Remedy::TellAndReconnect.into())
}

/// A call that would have had to wait out of its turn.
pub(crate) fn of_haste() -> Failure {
    let message = "others keep making the rows of the same locks; try again";
    Failure::new(ErrorKind::Unreachable, message)
}

/// A release that had to be asked again found nothing: whether the first one did it is not known.
pub(crate) fn of_doubt() -> Failure {
    Failure::new(
        ErrorKind::Unreachable,
        "the answer to the release was lost; asked again, the lock is not held any more",
    )
}

/// A write that had to be asked again found something else: it may be there no more, or never was.
pub(crate) fn of_doubtful_write() -> Failure {
    Failure::new(
        ErrorKind::Unreachable,
        "the answer to the write was lost; asked again, something else is there: it may have happened",
    )
}

/// The server only reads.
pub(crate) fn of_standby() -> Failure {
    Failure::new(
        ErrorKind::WrongNode,
        "the server is a standby or read-only and does not take locks; connect to the primary",
    )
    .with(Remedy::TellAndReconnect.into())
}

/// Our schema is not there.
pub(crate) fn of_missing_schema(schema: &str) -> Failure {
    Failure::new(
        ErrorKind::InvalidConfig,
        format!(
            "schema {schema} is missing or not complete in this database; run \"lockfast \
             migrate\" as a role that may create it, or grant EXECUTE on its functions"
        ),
    )
}

/// What the driver says.
pub(crate) fn of_driver(endpoint: &Endpoint, error: &tokio_postgres::Error) -> Failure {
    use std::error::Error as _;
    if let Some(error) = error.as_db_error() {
        return of_server(error);
    }
    let source = error.source();
    if let Some(error) = source.and_then(|source| source.downcast_ref::<io::Error>()) {
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        return match tls {
            Some(tls) => of_handshake(endpoint, tls),
            None => of_io(endpoint, error),
        };
    }
    let text = error.to_string();
    if text.contains("TLS") {
        let cause = source.map_or(text, ToString::to_string);
        return of_handshake(endpoint, &cause);
    }
    if error.is_closed() {
        return of_end(endpoint);
    }
    if source.is_some_and(|source| source.to_string().contains("password missing")) {
        return Failure::new(
            ErrorKind::Permission,
            "the server asks for a password; write it into the URL as user:password@",
        );
    }
    Failure::new(ErrorKind::Unreachable, format!("the connection to {endpoint} failed: {error}"))
        .with(Remedy::Reconnect.into())
}

/// The server refused.
pub(crate) fn of_server(error: &DbError) -> Failure {
    of_state(error.code().code(), error.message())
}

/// What a state means for us. Classes are told apart by their first two characters.
fn of_state(code: &str, message: &str) -> Failure {
    use ErrorKind as Kind;
    let unreachable = |text: String| Failure::new(Kind::Unreachable, text);
    match code {
        "LF001" => unreachable("another connection has taken the place of this one".to_owned())
            .with(Remedy::Enrol.into()),
        "LF002" => Failure::new(
            Kind::InvalidConfig,
            "the pooler's role has another isolation level; run ALTER ROLE … SET \
             default_transaction_isolation = 'read committed'",
        ),
        // Two calls were in each other's way; all of this one was undone.
        "40001" | "40P01" | "55P03" => {
            unreachable(format!("somebody keeps the lock tables busy: {message}"))
                .with(Remedy::Repeat.into())
        }
        "25006" => of_standby(),
        "53300" => unreachable(
            "the server has as many connections as its max_connections allows".to_owned(),
        ),
        "53100" => unreachable("the server's disk is full".to_owned()).for_good(),
        "53200" => unreachable("the server is out of memory".to_owned()),
        "57P01" | "57P02" | "57P03" | "57P05" => {
            unreachable(format!("the server ended the connection: {message}"))
                .with(Remedy::Reconnect.into())
        }
        "57014" => unreachable(format!(
            "the server gave the statement up: {message}; if a role or database of a pooler has \
             a short statement_timeout, run ALTER ROLE … SET statement_timeout = 0"
        )),
        "28000" | "28P01" => Failure::new(
            Kind::Permission,
            format!("the server does not let this user in: {message}"),
        ),
        "3D000" => Failure::new(Kind::InvalidConfig, message),
        "42501" => Failure::new(
            Kind::Permission,
            format!(
                "the role lacks required privileges: {message}; run the GRANT statements of the \
                 store's page, such as GRANT USAGE ON SCHEMA lockfast TO the role"
            ),
        ),
        "22003" | "23502" | "23514" => Failure::new(
            Kind::CorruptRecord,
            format!("a row of the lock tables holds what cannot be: {message}"),
        ),
        "3F000" | "42883" | "42P01" | "42703" | "42804" => Failure::new(
            Kind::InvalidConfig,
            format!("the schema is missing or not complete ({message}); run \"lockfast migrate\""),
        ),
        _ if code.starts_with("08") => {
            unreachable(format!("the connection failed: {message}")).with(Remedy::Reconnect.into())
        }
        _ if code.starts_with("53") || code.starts_with("57") || code.starts_with("58") => {
            unreachable(format!("the server cannot serve this now: {message}"))
        }
        _ => Failure::new(Kind::Internal, format!("the server answered {code}: {message}")),
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
            ("40001", Kind::Unreachable, Retry::Later, Remedy::Repeat),
            ("40P01", Kind::Unreachable, Retry::Later, Remedy::Repeat),
            ("55P03", Kind::Unreachable, Retry::Later, Remedy::Repeat),
            ("25006", Kind::WrongNode, Retry::Later, Remedy::TellAndReconnect),
            ("53300", Kind::Unreachable, Retry::Later, Remedy::Tell),
            ("53100", Kind::Unreachable, Retry::Never, Remedy::Tell),
            ("57P01", Kind::Unreachable, Retry::Later, Remedy::Reconnect),
            ("57P03", Kind::Unreachable, Retry::Later, Remedy::Reconnect),
            ("08006", Kind::Unreachable, Retry::Later, Remedy::Reconnect),
            ("28P01", Kind::Permission, Retry::Never, Remedy::Tell),
            ("42501", Kind::Permission, Retry::Never, Remedy::Tell),
            ("42883", Kind::InvalidConfig, Retry::Never, Remedy::Tell),
            ("42P01", Kind::InvalidConfig, Retry::Never, Remedy::Tell),
            ("3D000", Kind::InvalidConfig, Retry::Never, Remedy::Tell),
            ("23514", Kind::CorruptRecord, Retry::Never, Remedy::Tell),
            ("LF001", Kind::Unreachable, Retry::Later, Remedy::Enrol),
            ("XX000", Kind::Internal, Retry::Never, Remedy::Tell),
        ];
        for (code, kind, retry, remedy) in table {
            let failure = of_state(code, "said so");
            assert_eq!(
                (failure.kind(), failure.retry(), failure.handling.remedy),
                (kind, retry, remedy),
                "{code}"
            );
            assert_eq!(failure.to_error().backend(), Some("postgres"));
        }
    }

    #[test]
    fn what_the_way_does_is_told_apart() {
        for code in ["57P01", "53300", "25006", "08006"] {
            assert!(is_of_the_way(&of_state(code, "said so")), "{code}");
        }
        for code in ["40001", "55P03", "42P01", "42501", "42804"] {
            assert!(!is_of_the_way(&of_state(code, "said so")), "{code}");
        }
    }
}
