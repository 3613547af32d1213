//! What an address means for this store. Nothing is guessed: an option that does not exist is an
//! error, and so is a part that a person probably meant otherwise. No message holds what could
//! be a password.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use lockfast_core::address::{Place, Secret, invalid, percent_decode, read_host};
use lockfast_core::error::quote;
use lockfast_core::{Address, Error, ErrorKind, Result};
use lockfast_net::shedlock::read_table;
use lockfast_net::tls;

const PORT: u16 = 5432;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
const SCHEMA: &str = "lockfast";
/// A channel's name has 63 bytes, and the schema's is a part of it.
const SCHEMA_BYTES_MAX: usize = 40;

const OPTIONS: &[&str] =
    &["ca", "cert", "key", "listen", "mode", "request_timeout", "schema", "sslmode", "table"];

/// An address that was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) endpoint: Endpoint,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
    pub(crate) database: Option<String>,
    pub(crate) tls: Tls,
    /// Where everything is stored; checked, so that it needs no quotes.
    pub(crate) schema: String,
    /// How long the server may take to answer before the connection counts as dead.
    pub(crate) request_timeout: Duration,
    pub(crate) mode: StoreMode,
    /// The table of ShedLock; checked, so that it needs no quotes.
    pub(crate) table: String,
    /// Where to listen instead, when a pooler is in the way.
    pub(crate) listen: Option<Box<Config>>,
}

/// Where the server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// What a lock is in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreMode {
    /// A row with an end.
    Lease,
    /// An advisory lock of a connection of its own.
    Advisory,
    /// A row of ShedLock's table.
    Shedlock,
}

/// How connections are encrypted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tls {
    pub(crate) mode: TlsMode,
    pub(crate) checks: tls::Tls,
}

/// The choices of `sslmode`, with libpq's meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TlsMode {
    Disable,
    /// Encrypted if the server can, whoever it is.
    #[default]
    Prefer,
    /// Encrypted, whoever it is.
    Require,
    /// Encrypted, with a certificate that is right for the host.
    VerifyFull,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl Config {
    /// Understands an address.
    pub(crate) fn read(address: &Address) -> Result<Self> {
        if !crate::SCHEMES.contains(&address.scheme()) {
            return Err(invalid(format!(
                "{} is not a scheme of the PostgreSQL store; they are postgres: and postgresql:",
                quote(address.scheme())
            )));
        }
        address.allow_options(OPTIONS)?;
        Self::read_parts(address).map_err(|error| error.with_backend("postgres"))
    }

    fn read_parts(address: &Address) -> Result<Self> {
        let place = Place::split(address, "localhost/app")?;
        if place.user.is_none() && place.password.is_some() {
            return Err(invalid("the URL has a password but no user; write user:password@"));
        }
        let endpoint = read_endpoint(place.authority)?;
        let modes = [
            ("lease", StoreMode::Lease),
            ("advisory", StoreMode::Advisory),
            ("shedlock", StoreMode::Shedlock),
        ];
        let mode = address.choice("mode", &modes)?.unwrap_or(StoreMode::Lease);
        let listen = address.option("listen").map(read_listen).transpose()?;
        if listen.is_some() && mode != StoreMode::Lease {
            return Err(invalid("option listen is of use only with mode=lease"));
        }
        if address.option("table").is_some() && mode != StoreMode::Shedlock {
            return Err(invalid("option table is of use only with mode=shedlock"));
        }
        if address.option("schema").is_some() && mode == StoreMode::Shedlock {
            return Err(invalid(
                "option schema names Lockfast's own tables, which mode=shedlock does not use; write \
                 table=SCHEMA.TABLE",
            ));
        }
        Ok(Self {
            tls: read_tls(address, &endpoint)?,
            endpoint,
            user: place.user,
            password: place.password,
            database: read_database(place.path)?,
            schema: read_schema(address)?,
            request_timeout: address.span("request_timeout")?.unwrap_or(REQUEST_TIMEOUT),
            mode,
            table: read_table(address.option("table"))?,
            listen,
        })
    }
}

fn read_endpoint(text: &str) -> Result<Endpoint> {
    if text.contains(',') {
        return Err(invalid(
            "the URL names several hosts; name the one that takes writes, or a proxy that knows it",
        ));
    }
    let (host, port) = read_host(text, PORT, "for example use \"postgres://localhost\"")?;
    Ok(match host.starts_with('/') {
        true => Endpoint::Unix(PathBuf::from(host).join(format!(".s.PGSQL.{port}"))),
        false => Endpoint::Tcp { host, port },
    })
}

fn read_database(path: &str) -> Result<Option<String>> {
    let name = path.trim_start_matches('/');
    if name.contains('/') {
        return Err(invalid("a slash in the database's name must be written as %2F"));
    }
    Ok(Some(percent_decode(name)?).filter(|name| !name.is_empty()))
}

fn read_listen(url: &str) -> Result<Box<Config>> {
    let wrong = |error: Error| invalid(format!("option listen is no URL of a server: {error}"));
    let address = Address::parse(url).map_err(wrong)?;
    let config = Config::read(&address).map_err(wrong)?;
    if config.mode != StoreMode::Lease || config.listen.is_some() {
        return Err(invalid("the URL in option listen has no options mode and listen"));
    }
    Ok(Box::new(config))
}

fn read_tls(address: &Address, endpoint: &Endpoint) -> Result<Tls> {
    let mut checks = tls::Tls::read_files(address)?;
    let is_local = matches!(endpoint, Endpoint::Unix(_));
    let modes = [
        ("disable", TlsMode::Disable),
        ("prefer", TlsMode::Prefer),
        ("require", TlsMode::Require),
        ("verify-full", TlsMode::VerifyFull),
    ];
    let mode = match address.choice("sslmode", &modes)? {
        Some(mode) => mode,
        None if is_local => TlsMode::Disable,
        None => TlsMode::Prefer,
    };
    if is_local && mode != TlsMode::Disable {
        return Err(invalid("a socket of this machine is not encrypted; leave sslmode out"));
    }
    if checks.ca.is_some() && mode != TlsMode::VerifyFull {
        return Err(invalid("option ca is of use only with sslmode=verify-full"));
    }
    if checks.identity.is_some() && !matches!(mode, TlsMode::Require | TlsMode::VerifyFull) {
        return Err(invalid("options cert and key need sslmode=require or verify-full"));
    }
    // As with libpq, only verify-full checks whose certificate it is.
    checks.insecure = mode != TlsMode::VerifyFull;
    Ok(Tls { mode, checks })
}

/// The schema's name becomes a part of statements, so it is a plain word.
fn read_schema(address: &Address) -> Result<String> {
    let schema = address.option("schema").unwrap_or(SCHEMA);
    let is_word = schema.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && schema.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if !is_word || schema.len() > SCHEMA_BYTES_MAX || schema.starts_with("pg_") {
        return Err(Error::new(
            ErrorKind::InvalidConfig,
            format!(
                "option schema is {}; it is 1 to {SCHEMA_BYTES_MAX} letters a-z, digits and _, \
                 does not start with a digit nor with pg_",
                quote(schema)
            ),
        ));
    }
    Ok(schema.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Config> {
        Address::parse(url).and_then(|address| Config::read(&address))
    }

    #[test]
    fn where_the_server_is() {
        let tcp = |host: &str, port| Endpoint::Tcp { host: host.into(), port };
        let table = [
            ("postgres://h", tcp("h", 5432), None),
            ("postgresql://h:1/", tcp("h", 1), None),
            ("postgres://h/app", tcp("h", 5432), Some("app")),
            ("postgres://[::1]:2/a%20b", tcp("::1", 2), Some("a b")),
            ("postgres://%2Frun%2Fpg:7/x", Endpoint::Unix("/run/pg/.s.PGSQL.7".into()), Some("x")),
        ];
        for (url, endpoint, database) in table {
            let config = read(url).unwrap();
            assert_eq!(config.endpoint, endpoint, "{url}");
            assert_eq!(config.database.as_deref(), database, "{url}");
        }
    }

    #[test]
    fn who_we_are() {
        let config = read("postgres://u:p%40%3A%2F%25@h").unwrap();
        assert_eq!(config.user.as_deref(), Some("u"));
        assert_eq!(config.password.unwrap().0, "p@:/%");
        let config = read("postgres://u@h").unwrap();
        assert_eq!((config.user.as_deref(), config.password), (Some("u"), None));
        let url = "postgres://u:hunter2@h?listen=postgres%3A%2F%2Fu%3Ahunter2%40d";
        assert!(!format!("{:?}", read(url).unwrap()).contains("hunter2"));
    }

    #[test]
    fn options() {
        let config = read("postgres://h?schema=a_1&request_timeout=250ms&mode=advisory").unwrap();
        assert_eq!((config.schema.as_str(), config.mode), ("a_1", StoreMode::Advisory));
        assert_eq!(config.request_timeout, Duration::from_millis(250));
        let config = read("postgres://h?mode=shedlock&table=app.jobs").unwrap();
        assert_eq!((config.table.as_str(), config.mode), ("app.jobs", StoreMode::Shedlock));
        let config = read("postgres://h?sslmode=verify-full&ca=/ca&cert=/c&key=/k").unwrap();
        assert_eq!(config.tls.mode, TlsMode::VerifyFull);
        assert_eq!(config.tls.checks.ca, Some("/ca".into()));
        assert!(!config.tls.checks.insecure);
        let config = read("postgres://h?listen=postgres%3A%2F%2Fd%3A7").unwrap();
        let direct = Endpoint::Tcp { host: "d".into(), port: 7 };
        assert_eq!(config.listen.unwrap().endpoint, direct);
    }

    #[test]
    fn addresses_that_are_refused() {
        let table = [
            ("postgres:h", "two slashes"),
            ("http://h", "they are postgres: and postgresql:"),
            ("postgres://", "no host"),
            ("postgres://a,b/x", "several hosts"),
            ("postgres://h:0", "port"),
            ("postgres://h:+1", "port"),
            ("postgres://[::1", "does not end"),
            ("postgres://:word@h", "no user"),
            ("postgres://u:sec@ret@h", "%40"),
            ("postgres://u:sec/ret@h", "%40"),
            ("postgres://u:sec:ret@h", "%3A"),
            ("postgres://h/a/b", "%2F"),
            ("postgres://h?x=1", "it knows ca, cert"),
            ("postgres://h?mode=both", "lease, advisory or shedlock"),
            ("postgres://h?table=x", "only with mode=shedlock"),
            ("postgres://h?mode=shedlock&schema=x", "table=SCHEMA.TABLE"),
            ("postgres://h?mode=shedlock&listen=postgres%3A%2F%2Fd", "only with mode=lease"),
            ("postgres://h?sslmode=on", "disable, prefer, require"),
            ("postgres://h?ca=x", "verify-full"),
            ("postgres://h?cert=x", "go together"),
            ("postgres://h?cert=x&key=y", "sslmode=require"),
            ("postgres://%2Frun?sslmode=require", "not encrypted"),
            ("postgres://h?request_timeout=5", "as 500ms, 3s or 2m"),
            ("postgres://h?listen=redis%3A%2F%2Fu%3Aret%40x", "no URL of a server"),
            ("postgres://h?mode=advisory&listen=postgres%3A%2F%2Fd", "only with mode=lease"),
            ("postgres://h?listen=postgres%3A%2F%2Fd%3Fmode%3Dadvisory", "no options mode"),
        ];
        for (url, expected) in table {
            let error = read(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidUrl, "{url}");
            assert!(error.to_string().contains(expected), "{url}: {error}");
            assert!(!error.to_string().contains("ret"), "{error}");
        }
    }

    #[test]
    fn a_schema_is_a_plain_word() {
        for schema in ["a\"b", "a'b", "A", "1a", "pg_x", "a.b", "a%20b", "ä", &"x".repeat(41)] {
            let error = read(&format!("postgres://h?schema={schema}")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
        }
        assert_eq!(read("postgres://h?schema=").unwrap_err().kind(), ErrorKind::InvalidConfig);
    }
}
