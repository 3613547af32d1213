//! What an address means for this store. Nothing is guessed: an option that does not exist is an
//! error, and so is a part that a person probably meant otherwise. No message holds what could
//! be a password.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use lockfast_core::address::{self, Place, Secret, digits, invalid, percent_decode};
use lockfast_core::error::quote;
use lockfast_core::{Address, Error, ErrorKind, Result};
use lockfast_net::tls::Tls;

use crate::topology::{Nodes, Service};

pub(crate) const PORT: u16 = 6379;
const MAX_TTL: Duration = Duration::from_secs(60);
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);

const OPTIONS: &[&str] = &["max_ttl", "min_replicas", "on_data_loss", "prefix", "request_timeout"];
const UNIX_OPTIONS: &[&str] = &["db"];
const CLUSTER_OPTIONS: &[&str] = &["ca", "cert", "insecure", "key", "tls"];
const SENTINEL_OPTIONS: &[&str] =
    &["ca", "cert", "insecure", "key", "sentinel_password", "sentinel_user", "tls"];

/// An address that was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where the server is.
    pub endpoint: Endpoint,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
    /// The number of the database.
    pub database: u32,
    /// Stands before the name of every lock.
    pub prefix: String,
    /// How long the server may take to answer before the connection counts as dead.
    pub request_timeout: Duration,
    pub(crate) on_data_loss: OnDataLoss,
    /// How many replicas must have a grant before it counts.
    pub(crate) min_replicas: u32,
}

/// Where the server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// At a port of a host.
    Tcp {
        /// The host's name or address.
        host: String,
        /// Its port.
        port: u16,
        /// How it is encrypted, if it is.
        tls: Option<Tls>,
    },
    /// On a socket of this machine.
    Unix(PathBuf),
    /// Wherever sentinels say.
    Service(Service),
    /// On the nodes of a cluster.
    Cluster(Nodes),
}

/// What to do when the server may have forgotten locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDataLoss {
    /// Say so.
    Warn,
    /// Grant nothing until every lease that could have been forgotten is over.
    Quarantine {
        /// The longest lease that anybody may have.
        max_ttl: Duration,
    },
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port, .. } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port, .. } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Cluster(_) => f.write_str("the cluster"),
            Self::Service(service) => write!(f, "the master of service {}", quote(&service.name)),
        }
    }
}

impl Config {
    /// Understands an address.
    pub(crate) fn read(address: &Address) -> Result<Self> {
        let more_options = match address.scheme() {
            "redis" => &[],
            "rediss" => Tls::OPTIONS,
            "redis+unix" => UNIX_OPTIONS,
            "redis+sentinel" => SENTINEL_OPTIONS,
            "redis+cluster" => CLUSTER_OPTIONS,
            other => {
                return Err(invalid(format!(
                    "{} is not a scheme of the Redis store; they are redis:, rediss:, \
                     redis+unix:, redis+sentinel: and redis+cluster:",
                    quote(other)
                )));
            }
        };
        address.allow_options(&[OPTIONS, more_options].concat())?;
        let place = read_place(address)?;
        let (endpoint, database) = if address.scheme() == "redis+unix" {
            let database = address.number("db")?.unwrap_or(0);
            (Endpoint::Unix(read_socket(&place)?), database)
        } else {
            let tls = match address.scheme() {
                "redis" => None,
                "rediss" => Some(Tls::read(address)?),
                _ => read_tls_choice(address)?,
            };
            match address.scheme() {
                "redis+sentinel" => {
                    let (service, database) =
                        Service::read(address, place.authority, place.path, tls)?;
                    (Endpoint::Service(service), database)
                }
                "redis+cluster" => {
                    let nodes = Nodes::read(place.authority, place.path, tls)?;
                    (Endpoint::Cluster(nodes), 0)
                }
                _ => {
                    let (host, port) = read_host(place.authority, PORT)?;
                    (Endpoint::Tcp { host, port, tls }, read_database(place.path)?)
                }
            }
        };
        Ok(Self {
            endpoint,
            user: place.user,
            password: place.password,
            database,
            prefix: read_prefix(address)?,
            request_timeout: address.span("request_timeout")?.unwrap_or(REQUEST_TIMEOUT),
            on_data_loss: read_on_data_loss(address)?,
            min_replicas: address.number("min_replicas")?.unwrap_or(0),
        })
    }
}

/// Where an address points and who we are.
pub(crate) fn read_place(address: &Address) -> Result<Place<'_>> {
    let place = Place::split(address, "localhost")?;
    if place.user.is_some() && place.password.is_none() {
        return Err(invalid(
            "the URL names a user but no password; write user:password@, or :password@ for the \
             default user",
        ));
    }
    Ok(place)
}

fn read_socket(place: &Place<'_>) -> Result<PathBuf> {
    if !place.authority.is_empty() || place.path.len() < 2 {
        return Err(invalid(
            "the path of a socket is absolute, as in \"redis+unix:///run/redis.sock\"",
        ));
    }
    Ok(PathBuf::from(percent_decode(place.path)?))
}

/// A host and its port.
pub(crate) fn read_host(text: &str, default_port: u16) -> Result<(String, u16)> {
    address::read_host(text, default_port, "for example use \"redis://localhost\"")
}

/// The number of a database, the last part of a URL's path.
pub(crate) fn read_database(path: &str) -> Result<u32> {
    match path.trim_start_matches('/') {
        "" => Ok(0),
        number => digits(number).ok_or_else(|| {
            invalid(format!(
                "{} is not a database number, which is what follows the host, as in \
                 \"redis://localhost/0\"",
                quote(number)
            ))
        }),
    }
}

/// How connections are encrypted, where an option says whether they are.
pub(crate) fn read_tls_choice(address: &Address) -> Result<Option<Tls>> {
    match address.choice("tls", &[("yes", true), ("no", false)])? {
        Some(true) => Tls::read(address).map(Some),
        None | Some(false) => Tls::refuse(address).map(|()| None),
    }
}

pub(crate) fn read_prefix(address: &Address) -> Result<String> {
    let prefix = address.option("prefix").unwrap_or_default();
    let flaw = if prefix.len() > 64 {
        "it has more than 64 bytes"
    } else if prefix.chars().any(|c| matches!(c, '{' | '}') || c.is_whitespace()) {
        "braces and spaces are not allowed"
    } else if prefix.chars().any(char::is_control) {
        "it holds control characters"
    } else {
        return Ok(prefix.to_owned());
    };
    Err(Error::new(ErrorKind::InvalidConfig, format!("option prefix is {}: {flaw}", quote(prefix))))
}

fn read_on_data_loss(address: &Address) -> Result<OnDataLoss> {
    let max_ttl = address.span("max_ttl")?;
    let quarantine = OnDataLoss::Quarantine { max_ttl: max_ttl.unwrap_or(MAX_TTL) };
    let choices = [("warn", OnDataLoss::Warn), ("quarantine", quarantine)];
    let chosen = address.choice("on_data_loss", &choices)?.unwrap_or(OnDataLoss::Warn);
    if chosen == OnDataLoss::Warn && max_ttl.is_some() {
        return Err(invalid("option max_ttl is of use only with on_data_loss=quarantine"));
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Config> {
        Address::parse(url).and_then(|address| Config::read(&address))
    }

    fn tcp(host: &str, port: u16) -> Endpoint {
        Endpoint::Tcp { host: host.into(), port, tls: None }
    }

    #[test]
    fn where_the_server_is() {
        let table = [
            ("redis://h", tcp("h", 6379), 0),
            ("redis://h/", tcp("h", 6379), 0),
            ("redis://h:7000/3", tcp("h", 7000), 3),
            ("redis://[::1]", tcp("::1", 6379), 0),
            ("redis://[::1]:1/2", tcp("::1", 1), 2),
            ("redis+unix:///run/r.sock", Endpoint::Unix("/run/r.sock".into()), 0),
            ("redis+unix:///a%20b?db=4", Endpoint::Unix("/a b".into()), 4),
        ];
        for (url, endpoint, database) in table {
            let config = read(url).unwrap();
            assert_eq!((config.endpoint, config.database), (endpoint, database), "{url}");
        }
    }

    #[test]
    fn who_we_are() {
        let table = [
            ("redis://h", None, None),
            ("redis://:p@h", None, Some("p")),
            ("redis://u:p%40%3A%2F%25@h", Some("u"), Some("p@:/%")),
            ("redis+unix://u:p@/run/r.sock", Some("u"), Some("p")),
        ];
        for (url, user, password) in table {
            let config = read(url).unwrap();
            assert_eq!(config.user.as_deref(), user, "{url}");
            assert_eq!(config.password.map(|secret| secret.0).as_deref(), password, "{url}");
        }
        assert!(!format!("{:?}", read("redis://u:hunter2@h").unwrap()).contains("hunter2"));
    }

    #[test]
    fn options() {
        let config = read("redis://h?prefix=a:&request_timeout=250ms&min_replicas=2").unwrap();
        assert_eq!((config.prefix.as_str(), config.min_replicas), ("a:", 2));
        assert_eq!(config.request_timeout, Duration::from_millis(250));
        let config = read("redis://h?on_data_loss=quarantine&max_ttl=2m").unwrap();
        let max_ttl = Duration::from_secs(120);
        assert_eq!(config.on_data_loss, OnDataLoss::Quarantine { max_ttl });
        let config = read("rediss://h?ca=/ca.pem&cert=/c.pem&key=/k.pem").unwrap();
        let Endpoint::Tcp { tls: Some(tls), .. } = config.endpoint else { panic!("not encrypted") };
        assert_eq!(tls.ca, Some("/ca.pem".into()));
        assert_eq!(tls.identity, Some(("/c.pem".into(), "/k.pem".into())));
    }

    #[test]
    fn addresses_that_are_refused() {
        let table = [
            ("redis:h", "two slashes"),
            ("http://h", "they are redis:, rediss:, redis+unix:"),
            ("redis://", "no host"),
            ("redis://:6379", "no host"),
            ("redis://h:0", "port"),
            ("redis://h:65536", "port"),
            ("redis://h:abc", "port"),
            ("redis://h:+1", "port"),
            ("redis://[::1]x", "port"),
            ("redis://[::1", "does not end"),
            ("redis://h/x", "database number"),
            ("redis://user@h", "no password"),
            ("redis://u:sec@ret@h", "%40"),
            ("redis://u:sec/ret@h", "%40"),
            ("redis://u:sec:ret@h", "%3A"),
            ("redis://u:sec%ret@h", "%25"),
            ("", "empty"),
            ("redis//sec:ret@x", "scheme"),
            ("redis://h?x=1", "it knows max_ttl, min_replicas"),
            ("redis://h?ca=x", "has no option \"ca\""),
            ("rediss://h?cert=x", "go together"),
            ("rediss://h?insecure=1", "true or false"),
            ("rediss://h?insecure=true&ca=x", "contradict"),
            ("redis://h?on_data_loss=maybe", "warn or quarantine"),
            ("redis://h?max_ttl=1m", "only with on_data_loss=quarantine"),
            ("redis://h?request_timeout=5", "as 500ms, 3s or 2m"),
            ("redis://h?request_timeout=99h", "from 10ms to 24h"),
            ("redis://h?min_replicas=-1", "a whole number"),
            ("redis+unix://run/r.sock", "absolute"),
            ("redis+unix://", "absolute"),
        ];
        for (url, expected) in table {
            let error = read(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidUrl, "{url}");
            assert!(error.to_string().contains(expected), "{url}: {error}");
            assert!(!error.to_string().contains("ret"), "{error}");
        }
        for prefix in ["{a}", "a%20b", &"x".repeat(65)] {
            let error = read(&format!("redis://h?prefix={prefix}")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
        }
    }
}
