//! What an address means for this store. Nothing is guessed: an option that does not exist is an
//! error, and so is a part that a person probably meant otherwise. No message holds what could
//! be a password.

use std::time::Duration;

use lockfast_core::address::{Place, Secret, invalid, percent_decode, read_host};
use lockfast_core::error::quote;
use lockfast_core::{Address, Error, ErrorKind, Result};
use lockfast_net::shedlock::read_table;
pub(crate) use lockfast_net::tls::Tls;

const PORT: u16 = 3306;
/// What to say to whoever leaves a part out.
const HINT: &str = "write \"mysql://user:password@localhost/database\"";
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// The longest name that the server gives a database, in bytes as we allow them.
const DATABASE_BYTES_MAX: usize = 64;

const OPTIONS: &[&str] =
    &["ca", "cert", "insecure", "key", "mode", "request_timeout", "table", "tls"];

/// An address that was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) user: String,
    pub(crate) password: Option<Secret>,
    pub(crate) database: String,
    pub(crate) tls: Option<Tls>,
    /// How long the server may take to answer before the connection counts as dead.
    pub(crate) request_timeout: Duration,
    pub(crate) mode: StoreMode,
    /// The table of ShedLock; checked, so that it needs no quotes.
    pub(crate) table: String,
}

/// What a lock is in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreMode {
    /// A row of our own.
    Lease,
    /// A row of ShedLock's table.
    Shedlock,
}

impl Config {
    /// Understands an address.
    pub(crate) fn read(address: &Address) -> Result<Self> {
        if !crate::SCHEMES.contains(&address.scheme()) {
            return Err(invalid(format!(
                "{} is not a scheme of the MySQL store; they are mysql: and mariadb:",
                quote(address.scheme())
            )));
        }
        address.allow_options(OPTIONS)?;
        let place = Place::split(address, "user:password@localhost/locks")?;
        let user = place.user.ok_or_else(|| invalid(format!("the URL names no user; {HINT}")))?;
        let (host, port) = read_host(place.authority, PORT, HINT)?;
        let modes = [("lease", StoreMode::Lease), ("shedlock", StoreMode::Shedlock)];
        let mode = address.choice("mode", &modes)?.unwrap_or(StoreMode::Lease);
        if address.option("table").is_some() && mode == StoreMode::Lease {
            return Err(invalid("option table is of use only with mode=shedlock"));
        }
        Ok(Self {
            host,
            port,
            user,
            password: place.password,
            database: read_database(place.path)?,
            tls: read_tls(address)?,
            request_timeout: address.span("request_timeout")?.unwrap_or(REQUEST_TIMEOUT),
            mode,
            table: read_table(address.option("table"))?,
        })
    }

    /// Where the server listens, for people.
    pub(crate) fn endpoint(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

/// The database is a part of statements that administrators will copy, so it is a plain word.
fn read_database(path: &str) -> Result<String> {
    let name = percent_decode(path.strip_prefix('/').unwrap_or(path))?;
    let flaw = if name.is_empty() {
        format!("the URL names no database; {HINT}")
    } else if name.len() > DATABASE_BYTES_MAX {
        format!("{} has more than {DATABASE_BYTES_MAX} bytes", quote(&name))
    } else if !name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'$')) {
        format!("{} holds more than letters, digits, _, - and $", quote(&name))
    } else {
        return Ok(name);
    };
    Err(match name.is_empty() {
        true => invalid(flaw),
        false => Error::new(
            ErrorKind::InvalidConfig,
            format!("the URL's database is no identifier that Lockfast uses: {flaw}"),
        ),
    })
}

fn read_tls(address: &Address) -> Result<Option<Tls>> {
    match address.choice("tls", &[("yes", true), ("no", false)])? {
        Some(true) => Tls::read(address).map(Some),
        None | Some(false) => Tls::refuse(address).map(|()| None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Config> {
        Address::parse(url).and_then(|address| Config::read(&address))
    }

    #[test]
    fn where_the_server_is() {
        let table = [
            ("mysql://u:p@h/d", "h", 3306, "d"),
            ("mariadb://u:p@h:7000/my-locks_2", "h", 7000, "my-locks_2"),
            ("mysql://u:p@[::1]/d", "::1", 3306, "d"),
            ("mysql://u:p@[::1]:1/d", "::1", 1, "d"),
        ];
        for (url, host, port, database) in table {
            let config = read(url).unwrap();
            let found = (config.host.as_str(), config.port, config.database.as_str());
            assert_eq!(found, (host, port, database), "{url}");
        }
    }

    #[test]
    fn who_we_are() {
        let table = [
            ("mysql://u@h/d", "u", None),
            ("mysql://u:@h/d", "u", Some("")),
            ("mysql://u%40:p%40%3A%2F%25@h/d", "u@", Some("p@:/%")),
        ];
        for (url, user, password) in table {
            let config = read(url).unwrap();
            assert_eq!(config.user, user, "{url}");
            assert_eq!(config.password.map(|secret| secret.0).as_deref(), password, "{url}");
        }
    }

    #[test]
    fn what_a_lock_is() {
        let config = read("mysql://u:p@h/d").unwrap();
        assert_eq!((config.mode, config.table.as_str()), (StoreMode::Lease, "shedlock"));
        let config = read("mysql://u:p@h/d?mode=shedlock&table=jobs.locks").unwrap();
        assert_eq!((config.mode, config.table.as_str()), (StoreMode::Shedlock, "jobs.locks"));
    }

    #[test]
    fn what_is_wrong_is_told_without_secrets() {
        use ErrorKind::{InvalidConfig, InvalidUrl};
        let table = [
            ("mysql:u:secret@h/d", InvalidUrl, "two slashes"),
            ("mysql://h/d", InvalidUrl, "no user"),
            ("mysql://:secret@h/d", InvalidUrl, "no user"),
            ("mysql://u:secret@/d", InvalidUrl, "no host"),
            ("mysql://u:secret@h", InvalidUrl, "no database"),
            ("mysql://u:secret@h/", InvalidUrl, "no database"),
            ("mysql://u:sec@ret@h/d", InvalidUrl, "%40"),
            ("mysql://u:sec:ret@h/d", InvalidUrl, "%3A"),
            ("mysql://u:secret@h:0/d", InvalidUrl, "1 to 65535"),
            ("mysql://u:secret@h:x/d", InvalidUrl, "1 to 65535"),
            ("mysql://u:secret@h/a%60b", InvalidConfig, "identifier"),
            ("mysql://u:secret@h/a%27b", InvalidConfig, "identifier"),
            ("mysql://u:secret@h/a%22b", InvalidConfig, "identifier"),
            ("mysql://u:secret@h/a/b", InvalidConfig, "identifier"),
            ("mysql://u:secret@h/d?schema=x", InvalidUrl, "it knows ca, cert"),
            ("mysql://u:secret@h/d?ca=x", InvalidUrl, "only with tls=yes"),
            ("mysql://u:secret@h/d?mode=both", InvalidUrl, "lease or shedlock"),
            ("mysql://u:secret@h/d?table=x", InvalidUrl, "only with mode=shedlock"),
            ("mysql://u:secret@h/d?mode=shedlock&table=a;b", InvalidConfig, "option table"),
            ("mysql://u:secret@h/d?tls=maybe", InvalidUrl, "yes or no"),
            ("mysql://u:secret@h/d?tls=yes&cert=x", InvalidUrl, "go together"),
            ("mysql://u:secret@h/d?tls=yes&ca=x&insecure=true", InvalidUrl, "contradict"),
            ("mysql://u:secret@h/d?request_timeout=3", InvalidUrl, "10ms to 24h"),
            ("redis://u:secret@h/d", InvalidUrl, "not a scheme"),
        ];
        for (url, kind, expected) in table {
            let error = read(url).unwrap_err();
            assert_eq!(error.kind(), kind, "{url}: {error}");
            assert!(error.to_string().contains(expected), "{url}: {error}");
            assert!(!error.to_string().contains("secret"), "{url}: {error}");
        }
        let config = read("mysql://u:secret@h/d").unwrap();
        assert!(!format!("{config:?}").contains("secret"));
    }
}
