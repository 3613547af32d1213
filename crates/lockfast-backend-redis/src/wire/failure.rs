//! What keeps a request from being served, told apart so that callers know what to do.

use std::io;
use std::time::Duration;

use lockfast_core::ErrorKind;
use lockfast_core::error::quote;
use lockfast_core::failure::Handling;

use crate::config::Endpoint;

/// Why something did not work. It is answered to every request of a batch.
pub type Failure = lockfast_core::Failure<Remedy>;

/// What to do about a failure before anybody is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Remedy {
    /// Nothing helps: tell.
    #[default]
    Tell,
    /// It was not simple: ask the script that serves everything.
    LookCloser,
    /// The server has forgotten the scripts: load them and repeat.
    LoadScripts,
    /// The server knows another connection of ours, by this link, or none: register in its place and
    /// repeat.
    Enroll(String),
    /// This is not the right server: tell, and connect anew.
    Reconnect,
    /// Another node of the cluster has it: find out which, and repeat there.
    Follow,
    /// This node has nothing of the lock (any more), whose slot is on its way to the one that is
    /// named: ask there.
    Ask(String),
    /// The lock's slot is on its way, and a part of the lock is at either node: repeat.
    TryAgain,
    /// This is not the server that it was: connect anew and repeat.
    ReconnectAndRepeat,
    /// Grants are suspended for so many milliseconds.
    Wait(u64),
    /// One of the locks of a call is refused, and so was the call: ask for each by itself.
    AskApart,
}

impl Handling for Remedy {
    const STORE: &'static str = "redis";
}

/// The connection could not be made or broke.
pub(crate) fn of_io(endpoint: &Endpoint, error: &io::Error) -> Failure {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    if let Some(tls) = tls {
        return of_handshake(endpoint, tls);
    }
    let message = match error.kind() {
        io::ErrorKind::ConnectionRefused => format!("connection refused: {endpoint}"),
        io::ErrorKind::NotFound => format!("there is no socket {endpoint}"),
        io::ErrorKind::PermissionDenied => {
            let message = format!("the operating system does not let us connect to {endpoint}");
            return Failure::new(ErrorKind::Permission, message);
        }
        _ => format!("the connection to {endpoint} failed: {error}"),
    };
    Failure::new(ErrorKind::Unreachable, message)
}

/// The connection could not be encrypted, or the server did not want it.
pub(crate) fn of_handshake(endpoint: &Endpoint, cause: &dyn std::fmt::Display) -> Failure {
    Failure::new(
        ErrorKind::TlsHandshake,
        format!(
            "no encrypted connection to {endpoint}: {cause}; check that the port is the one \
             for TLS, and the options ca, cert and key"
        ),
    )
}

/// The same, saying where it happened.
pub(crate) fn at(endpoint: &Endpoint, failure: Failure) -> Failure {
    let place = endpoint.to_string();
    if failure.message().contains(&place) {
        return failure;
    }
    let message = format!("{place}: {}", failure.message());
    failure.with_message(message)
}

/// The server did not answer in time.
pub fn of_silence(endpoint: &Endpoint, span: Duration) -> Failure {
    Failure::new(ErrorKind::Unreachable, format!("{endpoint} did not answer within {span:?}"))
}

/// The server closed the connection.
pub(crate) fn of_end(endpoint: &Endpoint) -> Failure {
    Failure::new(ErrorKind::Unreachable, format!("{endpoint} closed the connection"))
}

/// Another server has taken the place of this one.
pub(crate) fn of_move(endpoint: &Endpoint) -> Failure {
    Failure::new(ErrorKind::Unreachable, format!("{endpoint} is the master now; going there"))
}

/// The nodes of a cluster send us from one to the other.
pub(crate) fn of_disagreement() -> Failure {
    Failure::new(
        ErrorKind::Unreachable,
        "the nodes of the cluster do not agree on who has the lock's slot",
    )
}

/// The scripts for simple requests do not serve this one.
pub(crate) fn of_complexity() -> Failure {
    Failure::new(ErrorKind::Internal, "it was not simple").with(Remedy::LookCloser)
}

/// The server answered something that is not its language.
pub fn of_nonsense(what: impl std::fmt::Display) -> Failure {
    Failure::new(
        ErrorKind::CorruptRecord,
        format!("the server answered what no Redis answers: {what}"),
    )
    .with(Remedy::Reconnect)
}

/// The server refused.
pub(crate) fn of_server(code: &str, details: Option<&str>) -> Failure {
    use ErrorKind as Kind;
    let details = details.unwrap_or_default();
    let unreachable = |message: &str| Failure::new(Kind::Unreachable, message);
    match code {
        "LOADING" => unreachable("the server is starting and loads its data"),
        "BUSY" => unreachable("the server is busy with a script of somebody else's"),
        "CLUSTERDOWN" => unreachable("the cluster is not stable at the moment"),
        "TRYAGAIN" => of_moving_slot().with(Remedy::TryAgain),
        "ASK" => {
            let place = details.split_whitespace().nth(1).unwrap_or_default();
            of_moving_slot().with(Remedy::Ask(place.to_owned()))
        }
        "NOREPLICAS" => unreachable("the server has fewer replicas than its min-replicas-to-write"),
        "OOM" => unreachable(
            "the server is out of memory; raise its maxmemory, or give the locks a server of \
             their own",
        )
        .for_good(),
        "MISCONF" => unreachable(
            "the server does not accept writes because it cannot save its data; look at its \
             disk and its log",
        )
        .for_good(),
        "READONLY" | "MASTERDOWN" => Failure::new(
            Kind::WrongNode,
            "the server is a replica and does not take locks; connect to its master",
        )
        .with(Remedy::Reconnect),
        "NOAUTH" => Failure::new(
            Kind::Permission,
            "the server asks for a password; write it into the URL as user:password@",
        ),
        "WRONGPASS" => {
            Failure::new(Kind::Permission, "the server does not accept this user and password")
        }
        "NOPERM" => Failure::new(
            Kind::Permission,
            format!("the server's ACL does not allow it: {}", details.trim()),
        )
        .with(Remedy::AskApart),
        "WRONGTYPE" => Failure::new(Kind::ForeignKey, foreign_key(details)),
        "NOSCRIPT" => {
            unreachable("the server keeps forgetting the scripts").with(Remedy::LoadScripts)
        }
        "LFSTALE" => unreachable("another connection has taken the place of this one")
            .with(Remedy::Enroll(details.trim().to_owned())),
        "LFGUARD" => unreachable("the server may have lost data; connecting anew")
            .with(Remedy::ReconnectAndRepeat),
        "LFQUARANTINE" => of_quarantine(details.trim().parse().unwrap_or(1000)),
        "LFMAXTTL" => Failure::new(
            Kind::InvalidConfig,
            format!(
                "all who use this server must agree on max_ttl, and others have {} ms",
                details.trim()
            ),
        ),
        "LFCORRUPT" => of_rubbish(details.trim()),
        "MOVED" => of_cluster().with(Remedy::Follow),
        "CROSSSLOT" => of_cluster(),
        "NOPROTO" => old_server("6.0"),
        "ERR" => of_plain_error(details),
        _ => Failure::new(Kind::Internal, format!("the server answered {code} {details}")),
    }
}

/// Nothing is granted because the server may have lost data.
pub(crate) fn of_quarantine(ms: u64) -> Failure {
    Failure::new(
        ErrorKind::Unreachable,
        format!(
            "the server may have lost data, so nothing is granted for another {:?} while \
             those who hold locks come back",
            Duration::from_millis(ms)
        ),
    )
    .with(Remedy::Wait(ms))
}

fn foreign_key(details: &str) -> String {
    let key = details.trim();
    match key.contains(' ') {
        false if !key.is_empty() => format!("key {} is in use for something else", quote(key)),
        _ => "a key of this name is in use for something that is no lock; choose another name or \
              set the option prefix"
            .into(),
    }
}

fn of_rubbish(key: &str) -> Failure {
    let key = quote(key);
    Failure::new(
        ErrorKind::CorruptRecord,
        format!("key {key} does not hold what Lockfast writes there; repair or delete it"),
    )
}

fn of_moving_slot() -> Failure {
    Failure::new(ErrorKind::Unreachable, "the lock's slot is moving to another node")
}

fn of_cluster() -> Failure {
    Failure::new(
        ErrorKind::Unsupported,
        "the server is a part of a Redis Cluster; connect with redis+cluster:",
    )
}

fn old_server(needed: &str) -> Failure {
    Failure::new(
        ErrorKind::Unsupported,
        format!(
            "the server is too old: Redis {needed} or newer is needed, or something compatible \
             with it"
        ),
    )
}

/// What a command complained of inside a script, as servers before Redis 7.0 pass it on.
fn raised_in_script(details: &str) -> Option<(&str, &str)> {
    let (_, said) = details.strip_prefix("Error running script")?.split_once(": -")?;
    said.split_once(' ')
}

fn of_plain_error(details: &str) -> Failure {
    if let Some((code, details)) = raised_in_script(details) {
        return of_server(code, Some(details));
    }
    let lower = details.to_ascii_lowercase();
    if lower.contains("db index") || lower.contains("select is not allowed") {
        return Failure::new(
            ErrorKind::InvalidConfig,
            format!("the server has no such database: {details}"),
        );
    }
    if lower.contains("max number of clients") {
        return Failure::new(
            ErrorKind::Unreachable,
            "the server has as many connections as its maxclients allows",
        );
    }
    if lower.contains("non local key") {
        // A script has met a key that is at the other node already.
        return of_moving_slot().with(Remedy::TryAgain);
    }
    if lower.contains("unknown command") && lower.contains("hello") {
        return old_server("6.0");
    }
    if lower.contains("unknown command") && lower.contains("sunsubscribe") {
        return old_server("7.0, for a cluster,");
    }
    if lower.contains("without any password configured") || lower.contains("auth") {
        return Failure::new(
            ErrorKind::Permission,
            "the server does not accept this user and password",
        );
    }
    Failure::new(ErrorKind::Internal, format!("the server answered: {details}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockfast_core::Retry;

    #[test]
    fn every_refusal_has_its_class() {
        use ErrorKind as Kind;
        let table = [
            ("LOADING Redis is loading", Kind::Unreachable, Retry::Later),
            ("READONLY You can't write", Kind::WrongNode, Retry::Later),
            ("MASTERDOWN Link with MASTER is down", Kind::WrongNode, Retry::Later),
            ("BUSY Redis is busy", Kind::Unreachable, Retry::Later),
            ("OOM command not allowed", Kind::Unreachable, Retry::Never),
            ("MISCONF Redis is configured", Kind::Unreachable, Retry::Never),
            ("NOREPLICAS Not enough good replicas", Kind::Unreachable, Retry::Later),
            ("NOAUTH HELLO must be called", Kind::Permission, Retry::Never),
            ("WRONGPASS invalid", Kind::Permission, Retry::Never),
            ("NOPERM this user has no permissions", Kind::Permission, Retry::Never),
            ("WRONGTYPE Operation against", Kind::ForeignKey, Retry::Never),
            ("CLUSTERDOWN Hash slot not served", Kind::Unreachable, Retry::Later),
            ("TRYAGAIN Multiple keys request during", Kind::Unreachable, Retry::Later),
            ("ASK 5061 127.0.0.1:7000", Kind::Unreachable, Retry::Later),
            ("CROSSSLOT Keys in request", Kind::Unsupported, Retry::Never),
            (
                "ERR Script attempted to access a non local key in a cluster node",
                Kind::Unreachable,
                Retry::Later,
            ),
            ("ERR DB index is out of range", Kind::InvalidConfig, Retry::Never),
            ("ERR max number of clients reached", Kind::Unreachable, Retry::Later),
            ("ERR unknown command 'HELLO'", Kind::Unsupported, Retry::Never),
            ("ERR unknown command `SUNSUBSCRIBE`", Kind::Unsupported, Retry::Never),
            ("LFCORRUPT lockfast:fence", Kind::CorruptRecord, Retry::Never),
        ];
        for (line, kind, retry) in table {
            let (code, details) = line.split_once(' ').unwrap();
            let failure = of_server(code, Some(details));
            assert_eq!((failure.kind(), failure.retry()), (kind, retry), "{line}");
            assert_eq!(failure.to_error().backend(), Some("redis"));
            let place = "(call to f_0a1b): @user_script:9: @user_script: 9:";
            let wrapped = format!("Error running script {place} -{line}");
            let raised = of_server("ERR", Some(&wrapped));
            assert_eq!(raised.handling, failure.handling, "before Redis 7.0");
            assert_eq!(format!("{:?}", raised.error), format!("{:?}", failure.error));
        }
    }
}
