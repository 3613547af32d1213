//! The part of an address that says where servers are and who we are to them:
//! `//user:password@host:port/path`. No message holds what could be a password.

use std::fmt;

use super::{Address, digits, invalid, percent_decode};
use crate::error::Result;

/// A password.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// The parts between the slashes.
#[derive(Debug)]
pub struct Place<'a> {
    /// Who we are, if that is said.
    pub user: Option<String>,
    /// How we prove it.
    pub password: Option<Secret>,
    /// The host and its port, or several; see [`read_host`].
    pub authority: &'a str,
    /// What follows, with its slash, not yet decoded.
    pub path: &'a str,
}

impl<'a> Place<'a> {
    /// Splits an address; `example` is what may follow the scheme and two slashes.
    ///
    /// # Errors
    /// [`InvalidUrl`](crate::ErrorKind::InvalidUrl), also for a password that was written wrong.
    pub fn split(address: &'a Address, example: &str) -> Result<Self> {
        let body = address.body().strip_prefix("//").ok_or_else(|| {
            invalid(format!(
                "two slashes must follow the scheme, as in \"{}://{example}\"",
                address.scheme()
            ))
        })?;
        let (authority, path) = match body.find('/') {
            Some(slash) => body.split_at(slash),
            None => (body, ""),
        };
        let (login, authority) = match authority.split_once('@') {
            Some((login, authority)) => (Some(login), authority),
            None => (None, authority),
        };
        if authority.contains('@') || path.contains('@') {
            return Err(invalid(
                "the user or password holds a character with a meaning in URLs; write @ as %40, \
                 : as %3A, / as %2F, ? as %3F and % as %25",
            ));
        }
        let (user, password) = match login.map(|login| login.split_once(':')) {
            None => (None, None),
            Some(None) => (login.map(percent_decode).transpose()?, None),
            Some(Some((_, password))) if password.contains(':') => {
                return Err(invalid("the password holds a colon; write it as %3A"));
            }
            Some(Some((user, password))) => {
                (Some(percent_decode(user)?), Some(Secret(percent_decode(password)?)))
            }
        };
        let user = user.filter(|user| !user.is_empty());
        Ok(Self { user, password, authority, path })
    }
}

/// A host and its port: `host`, `host:port` or `[address]:port`. `hint` is what to say to whoever
/// gives no host.
///
/// # Errors
/// [`InvalidUrl`](crate::ErrorKind::InvalidUrl).
pub fn read_host(text: &str, default_port: u16, hint: &str) -> Result<(String, u16)> {
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
        return Err(invalid(format!("the URL names no host; {hint}")));
    }
    let port = match port {
        None => default_port,
        Some(port) => digits(port)
            .and_then(|port| u16::try_from(port).ok())
            .filter(|port| *port > 0)
            // With a password that was written wrong, this could be a part of it.
            .ok_or_else(|| invalid("the URL's port is not a number from 1 to 65535"))?,
    };
    Ok((percent_decode(host)?, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn who_and_where() {
        let table = [
            ("x://h", (None, None, "h", "")),
            ("x://h:1/a/b", (None, None, "h:1", "/a/b")),
            ("x://:p@h/", (None, Some("p"), "h", "/")),
            ("x://u@h", (Some("u"), None, "h", "")),
            ("x://u:@h", (Some("u"), Some(""), "h", "")),
            ("x://u%40:p%40%3A%2F%25@a,b", (Some("u@"), Some("p@:/%"), "a,b", "")),
        ];
        for (url, expected) in table {
            let address = Address::parse(url).unwrap();
            let place = Place::split(&address, "h").unwrap();
            let password = place.password.as_ref().map(|secret| secret.0.as_str());
            let found = (place.user.as_deref(), password, place.authority, place.path);
            assert_eq!(found, expected, "{url}");
        }
        let address = Address::parse("x://u:hunter2@h").unwrap();
        assert!(!format!("{:?}", Place::split(&address, "h").unwrap()).contains("hunter2"));
    }

    #[test]
    fn places_that_are_refused() {
        let table = [
            ("x:u:secret@h", "as in \"x://h\""),
            ("x://u:sec@secret@h", "%40"),
            ("x://u:sec/secret@h", "%40"),
            ("x://u:sec:secret@h", "%3A"),
            ("x://u:sec%secret@h", "%25"),
        ];
        for (url, expected) in table {
            let address = Address::parse(url).unwrap();
            let error = Place::split(&address, "h").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidUrl, "{url}");
            assert!(error.to_string().contains(expected), "{url}: {error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn hosts_and_ports() {
        let table = [("h", "h", 7), ("h:1", "h", 1), ("[::1]", "::1", 7), ("[::1]:2", "::1", 2)];
        for (text, host, port) in table {
            assert_eq!(read_host(text, 7, "").unwrap(), (host.to_owned(), port), "{text}");
        }
        assert_eq!(read_host("%2Frun:1", 7, "").unwrap(), ("/run".to_owned(), 1));
        let table = [
            ("", "no host; use x"),
            (":1", "no host"),
            ("h:0", "1 to 65535"),
            ("h:65536", "1 to 65535"),
            ("h:+1", "1 to 65535"),
            ("h:", "1 to 65535"),
            ("[::1]x", "1 to 65535"),
            ("[::1", "does not end"),
        ];
        for (text, expected) in table {
            let error = read_host(text, 7, "use x").unwrap_err();
            assert!(error.to_string().contains(expected), "{text}: {error}");
        }
    }
}
