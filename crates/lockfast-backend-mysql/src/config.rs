//! What an address means for this store. Nothing is guessed: an option that does not exist is an
//! error, and so is a part that a person probably meant otherwise. No message holds what could
//! be a password.

use std::fmt;
use std::time::Duration;

use lockfast_core::address::percent_decode;
use lockfast_core::error::quote;
use lockfast_core::{Address, Error, ErrorKind, Result};
pub(crate) use lockfast_net::tls::Tls;

const PORT: u16 = 3306;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// The longest name that the server gives a database, in bytes as we allow them.
const DATABASE_BYTES_MAX: usize = 64;

const OPTIONS: &[&str] = &["ca", "cert", "insecure", "key", "request_timeout", "tls"];

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
}

/// A password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(pub(crate) String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
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
        let body = address.body().strip_prefix("//").ok_or_else(|| {
            invalid(format!(
                "two slashes must follow the scheme, as in \"{}://user:password@localhost/locks\"",
                address.scheme()
            ))
        })?;
        let (authority, path) = match body.find('/') {
            Some(slash) => body.split_at(slash),
            None => (body, ""),
        };
        let (user, password, authority) = read_login(authority, path)?;
        let (host, port) = read_host(authority)?;
        Ok(Self {
            host,
            port,
            user,
            password,
            database: read_database(path)?,
            tls: read_tls(address)?,
            request_timeout: read_span(address, "request_timeout")?.unwrap_or(REQUEST_TIMEOUT),
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

fn read_login<'a>(authority: &'a str, path: &str) -> Result<(String, Option<Secret>, &'a str)> {
    let (login, authority) = match authority.split_once('@') {
        Some((login, authority)) => (login, authority),
        None => ("", authority),
    };
    if authority.contains('@') || path.contains('@') {
        return Err(invalid(
            "the user or password holds a character with a meaning in URLs; write @ as %40, : as \
             %3A, / as %2F, ? as %3F and % as %25",
        ));
    }
    let (user, password) = match login.split_once(':') {
        None => (login, None),
        Some((_, password)) if password.contains(':') => {
            return Err(invalid("the password holds a colon; write it as %3A"));
        }
        Some((user, password)) => (user, Some(Secret(percent_decode(password)?))),
    };
    let user = percent_decode(user)?;
    if user.is_empty() {
        return Err(invalid(
            "the URL names no user; write \"mysql://user:password@localhost/database\"",
        ));
    }
    Ok((user, password, authority))
}

fn read_host(text: &str) -> Result<(String, u16)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, "")) => (host, None),
            Some((host, rest)) => (host, rest.strip_prefix(':').or(Some("?"))),
            None => return Err(invalid("the address in [ ] does not end")),
        },
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return Err(invalid(
            "the URL names no host; write \"mysql://user:password@localhost/database\"",
        ));
    }
    let port = match port {
        None => PORT,
        Some(port) => read_digits(port)
            .and_then(|port| u16::try_from(port).ok())
            .filter(|port| *port > 0)
            // With a password that was written wrong, this could be a part of it.
            .ok_or_else(|| invalid("the URL's port is not a number from 1 to 65535"))?,
    };
    Ok((percent_decode(host)?, port))
}

/// The database is a part of statements that administrators will copy, so it is a plain word.
fn read_database(path: &str) -> Result<String> {
    let name = percent_decode(path.strip_prefix('/').unwrap_or(path))?;
    let flaw = if name.is_empty() {
        "the URL names no database; write \"mysql://user:password@localhost/database\"".to_owned()
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
    match address.option("tls") {
        None | Some("no") => Tls::refuse(address).map(|()| None),
        Some("yes") => Tls::read(address).map(Some),
        Some(other) => Err(invalid(format!("option tls is {}; it can be yes or no", quote(other)))),
    }
}

/// A span of time: a whole number with `ms`, `s`, `m` or `h`.
fn read_span(address: &Address, name: &str) -> Result<Option<Duration>> {
    let Some(text) = address.option(name) else { return Ok(None) };
    let digits = text.trim_end_matches(|c: char| c.is_ascii_lowercase());
    let unit_ms = match &text[digits.len()..] {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    let ms = unit_ms.zip(read_digits(digits)).map(|(unit_ms, n)| u64::from(n) * unit_ms);
    match ms {
        Some(ms @ 10..=86_400_000) => Ok(Some(Duration::from_millis(ms))),
        _ => Err(invalid(format!(
            "option {name} is {}; write a time from 10ms to 24h, as 500ms, 3s or 2m",
            quote(text)
        ))),
    }
}

/// Plain digits: unlike `parse`, no sign.
fn read_digits(text: &str) -> Option<u32> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidUrl, message)
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
