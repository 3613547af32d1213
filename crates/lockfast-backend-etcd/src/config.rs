//! What an address means for this store. Nothing is guessed: an option that does not exist is an
//! error, and so is a part that a person probably meant otherwise. No message holds what could
//! be a password.

use std::fmt;
use std::time::Duration;

use lockfast_core::address::{Place, Secret, invalid, read_host};
use lockfast_core::error::{is_printable, quote};
use lockfast_core::{Address, Error, ErrorKind, Result};
use lockfast_net::tls::Tls;

use crate::failure::Failure;

const PORT: u16 = 2379;
/// What to say to whoever leaves a part out.
const HINT: &str = "write \"etcd://localhost:2379\", or several with commas between them";
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
const PREFIX_BYTES_MAX: usize = 255;
const ENDPOINTS_MAX: usize = 31;

const OPTIONS: &[&str] = &["ca", "cert", "insecure", "key", "prefix", "request_timeout"];

/// An address that was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) login: Option<Login>,
    pub(crate) tls: Option<Tls>,
    /// What stands before the name of every lock.
    pub(crate) prefix: String,
    /// How long a member may take to answer before the connection counts as dead.
    pub(crate) request_timeout: Duration,
}

/// Who we are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) password: Secret,
}

/// Where a member listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl Config {
    /// Understands an address.
    pub(crate) fn read(address: &Address) -> Result<Self> {
        if !crate::SCHEMES.contains(&address.scheme()) {
            return Err(invalid(format!(
                "{} is not a scheme of the etcd store; they are etcd: and etcds:",
                quote(address.scheme())
            )));
        }
        address.allow_options(OPTIONS)?;
        let place = Place::split(address, "h1:2379,h2:2379,h3:2379")?;
        if !place.path.trim_matches('/').is_empty() {
            return Err(invalid(
                "the URL has a path after its hosts; etcd has no databases, and what stands before \
                 the names of locks is the option prefix, as in \"?prefix=locks/\"",
            ));
        }
        let endpoints = read_endpoints(place.authority)?;
        let login = match (place.user, place.password) {
            (None, None) => None,
            (Some(user), Some(password)) => Some(Login { user, password }),
            (Some(_), None) => {
                return Err(invalid(
                    "the URL names a user without a password; write \"etcd://user:password@host\"",
                ));
            }
            (None, Some(_)) => return Err(invalid("the URL has a password, but names no user")),
        };
        Ok(Self {
            endpoints,
            login,
            tls: read_tls(address)?,
            prefix: read_prefix(address)?,
            request_timeout: address.span("request_timeout")?.unwrap_or(REQUEST_TIMEOUT),
        })
    }

    /// What a failure means for whoever gave this address.
    pub(crate) fn explain(&self, failure: Failure) -> Failure {
        if failure.kind() != ErrorKind::Permission
            || !failure.message().contains("permission denied")
        {
            return failure;
        }
        let user = match &self.login {
            Some(login) => format!("user {}", quote(&login.user)),
            None => "the user of our certificate".to_owned(),
        };
        let message = match self.prefix.as_str() {
            "" => format!(
                "{}: {user} needs the right to read and write the keys NAME/… of a lock, or \
                 \\xffvalue/NAME of a value; give it with \"etcdctl role grant-permission --prefix \
                 ROLE readwrite NAME/\", or name the keys on which it has rights with the option \
                 prefix",
                failure.message()
            ),
            prefix => format!(
                "{}: {user} needs the right to read and write the keys that start with {}; give \
                 it with \"etcdctl role grant-permission --prefix ROLE readwrite {prefix}\"",
                failure.message(),
                quote(prefix)
            ),
        };
        failure.with_message(message)
    }

    /// Where the members listen, for people.
    pub(crate) fn shown(&self) -> String {
        let shown: Vec<String> = self.endpoints.iter().map(ToString::to_string).collect();
        shown.join(",")
    }
}

fn read_endpoints(authority: &str) -> Result<Vec<Endpoint>> {
    let mut endpoints: Vec<Endpoint> = Vec::new();
    for part in authority.split(',') {
        let (host, port) = read_host(part, PORT, HINT)?;
        let endpoint = Endpoint { host, port };
        if endpoints.contains(&endpoint) {
            return Err(invalid(format!("the URL names {endpoint} twice; leave one out")));
        }
        endpoints.push(endpoint);
    }
    if endpoints.len() > ENDPOINTS_MAX {
        return Err(invalid(format!(
            "{} members are too many; name at most {ENDPOINTS_MAX}",
            endpoints.len()
        )));
    }
    Ok(endpoints)
}

fn read_tls(address: &Address) -> Result<Option<Tls>> {
    if address.scheme() == "etcds" {
        return Tls::read(address).map(Some);
    }
    match Tls::OPTIONS.iter().find(|name| address.option(name).is_some()) {
        Some(name) => Err(invalid(format!("option {name} is of use only with etcds:"))),
        None => Ok(None),
    }
}

fn read_prefix(address: &Address) -> Result<String> {
    let prefix = address.option("prefix").unwrap_or_default();
    let flaw = if prefix.len() > PREFIX_BYTES_MAX {
        format!("it has {} bytes, at most {PREFIX_BYTES_MAX}", prefix.len())
    } else if !is_printable(prefix) {
        "it holds control or invisible characters".to_owned()
    } else {
        return Ok(prefix.to_owned());
    };
    Err(Error::new(ErrorKind::InvalidConfig, format!("option prefix is {}: {flaw}", quote(prefix))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Config> {
        Address::parse(url).and_then(|address| Config::read(&address))
    }

    #[test]
    fn where_the_members_are() {
        let table = [
            ("etcd://h", "h:2379"),
            ("etcd://h/", "h:2379"),
            ("etcd://a,b:1,[::1]:2", "a:2379,b:1,[::1]:2"),
            ("etcds://u:p@a,b", "a:2379,b:2379"),
        ];
        for (url, shown) in table {
            assert_eq!(read(url).unwrap().shown(), shown, "{url}");
        }
        assert!(read("etcds://h").unwrap().tls.is_some());
        assert!(read("etcd://h").unwrap().tls.is_none());
    }

    #[test]
    fn who_we_are_and_where_locks_are() {
        let config = read("etcd://u%40:p%2F@h?prefix=app/&request_timeout=500ms").unwrap();
        let login = config.login.unwrap();
        assert_eq!((login.user.as_str(), login.password.0.as_str()), ("u@", "p/"));
        assert_eq!(config.prefix, "app/");
        assert_eq!(config.request_timeout, Duration::from_millis(500));
    }

    #[test]
    fn what_is_wrong_is_told_without_secrets() {
        use ErrorKind::{InvalidConfig, InvalidUrl};
        let table = [
            ("etcd:h", InvalidUrl, "two slashes"),
            ("etcd://", InvalidUrl, "no host"),
            ("etcd://h,", InvalidUrl, "no host"),
            ("etcd://h,h:2379", InvalidUrl, "twice"),
            ("etcd://h:0", InvalidUrl, "1 to 65535"),
            ("etcd://h/locks", InvalidUrl, "prefix"),
            ("etcd://u@h", InvalidUrl, "without a password"),
            ("etcd://:secret@h", InvalidUrl, "no user"),
            ("etcd://u:sec@ret@h", InvalidUrl, "%40"),
            ("etcd://u:secret@h?db=1", InvalidUrl, "it knows ca, cert"),
            ("etcd://u:secret@h?ca=x", InvalidUrl, "only with etcds:"),
            ("etcds://u:secret@h?cert=x", InvalidUrl, "go together"),
            ("etcd://u:secret@h?request_timeout=3", InvalidUrl, "10ms to 24h"),
            ("etcd://u:secret@h?prefix=a%E2%80%8Bb", InvalidConfig, "invisible"),
            ("redis://u:secret@h", InvalidUrl, "not a scheme"),
        ];
        for (url, kind, expected) in table {
            let error = read(url).unwrap_err();
            assert_eq!(error.kind(), kind, "{url}: {error}");
            assert!(error.to_string().contains(expected), "{url}: {error}");
            assert!(!error.to_string().contains("secret"), "{url}: {error}");
        }
        let config = read("etcd://u:secret@h").unwrap();
        assert!(!format!("{config:?}").contains("secret"));
    }
}
