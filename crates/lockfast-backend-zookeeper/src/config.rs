//! What an address means for this store. Nothing is guessed: an option that does not exist is an
//! error. No message holds what could be a password.

use std::fmt;
use std::time::Duration;

use lockfast_core::address::{Place, Secret, invalid, percent_decode, read_host};
use lockfast_core::error::quote;
use lockfast_core::{Address, Result};
use lockfast_net::tls::Tls;

const PORT: u16 = 2181;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
const TICK_MAX: Duration = Duration::from_secs(60);
const HOSTS_MAX: usize = 32;
const CHROOT_BYTES_MAX: usize = 1024;
const HINT: &str = "for example use \"zookeeper://localhost/locks\"";

/// An address that was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) hosts: Vec<Host>,
    /// Empty, or a path that starts with a slash and does not end with one.
    pub(crate) chroot: String,
    /// User and password of the scheme `digest`.
    pub(crate) login: Option<(String, Secret)>,
    pub(crate) tls: Option<Tls>,
    /// How long a server may take to answer before the connection counts as dead.
    pub(crate) request_timeout: Duration,
    pub(crate) exclusive: Exclusive,
    /// The servers' unit of time, if it is given.
    pub(crate) tick: Option<Duration>,
}

/// A server of the ensemble.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) port: u16,
}

/// Whose names the nodes of exclusive claims have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exclusive {
    /// Those of Curator's `InterProcessMutex`.
    Mutex,
    /// Those of the writers of Curator's `InterProcessReadWriteLock`.
    Writer,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.contains(':') {
            true => write!(f, "[{}]:{}", self.name, self.port),
            false => write!(f, "{}:{}", self.name, self.port),
        }
    }
}

impl Config {
    /// Understands an address.
    pub(crate) fn read(address: &Address) -> Result<Self> {
        if !crate::SCHEMES.contains(&address.scheme()) {
            return Err(invalid(format!(
                "{} is not a scheme of the ZooKeeper store; they are zookeeper: and zookeepers:",
                quote(address.scheme())
            )));
        }
        let mut known = vec!["exclusive", "request_timeout", "tick"];
        known.extend(Tls::OPTIONS);
        address.allow_options(&known)?;
        Self::read_parts(address).map_err(|error| error.with_backend("zookeeper"))
    }

    fn read_parts(address: &Address) -> Result<Self> {
        let place = Place::split(address, "localhost/locks")?;
        let login = match (place.user, place.password) {
            (Some(user), Some(password)) => Some((user, password)),
            (None, None) => None,
            _ => {
                return Err(invalid(
                    "ZooKeeper wants both user and password; write user:password@",
                ));
            }
        };
        let tls = if address.scheme() == "zookeepers" {
            Some(Tls::read(address)?)
        } else {
            if let Some(name) = Tls::OPTIONS.iter().find(|name| address.option(name).is_some()) {
                return Err(invalid(format!("option {name} is of use only with zookeepers:")));
            }
            None
        };
        let namings = [("mutex", Exclusive::Mutex), ("writer", Exclusive::Writer)];
        Ok(Self {
            hosts: read_hosts(place.authority)?,
            chroot: read_chroot(place.path)?,
            login,
            tls,
            request_timeout: address.span("request_timeout")?.unwrap_or(REQUEST_TIMEOUT),
            exclusive: address.choice("exclusive", &namings)?.unwrap_or(Exclusive::Mutex),
            tick: read_tick(address)?,
        })
    }

    /// All servers, for people.
    pub(crate) fn endpoint(&self) -> String {
        let hosts: Vec<String> = self.hosts.iter().map(Host::to_string).collect();
        hosts.join(",")
    }
}

fn read_hosts(text: &str) -> Result<Vec<Host>> {
    let mut hosts: Vec<Host> = Vec::new();
    for part in text.split(',') {
        let (name, port) = read_host(part, PORT, HINT)?;
        let host = Host { name, port };
        if hosts.contains(&host) {
            return Err(invalid(format!("{host} is named twice")));
        }
        hosts.push(host);
    }
    match hosts.len() {
        ..=HOSTS_MAX => Ok(hosts),
        count => Err(invalid(format!("{count} servers are too many; at most {HOSTS_MAX}"))),
    }
}

fn read_tick(address: &Address) -> Result<Option<Duration>> {
    match address.span("tick")? {
        Some(tick) if tick > TICK_MAX => Err(invalid(format!(
            "a tick of {tick:?} is not possible; give the tickTime of the servers, at most \
             {TICK_MAX:?}"
        ))),
        tick => Ok(tick),
    }
}

fn read_chroot(path: &str) -> Result<String> {
    let chroot = percent_decode(path)?;
    let chroot = chroot.trim_end_matches('/');
    if chroot.is_empty() {
        return Ok(String::new());
    }
    let is_wrong = chroot[1..].split('/').any(|part| matches!(part, "" | "." | ".."))
        || !lockfast_core::error::is_printable(chroot)
        || chroot == "/zookeeper"
        || chroot.starts_with("/zookeeper/")
        || chroot.len() > CHROOT_BYTES_MAX;
    match is_wrong {
        true => Err(invalid(format!(
            "{} cannot be the node that holds the locks; give an absolute path of at most \
             {CHROOT_BYTES_MAX} bytes without empty parts, \".\" and \"..\", and not below \
             /zookeeper",
            quote(chroot)
        ))),
        false => Ok(chroot.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockfast_core::ErrorKind;

    fn read(url: &str) -> Result<Config> {
        Address::parse(url).and_then(|address| Config::read(&address))
    }

    #[test]
    fn where_the_servers_are() {
        let table = [
            ("zookeeper://h", "h:2181", ""),
            ("zookeeper://h/", "h:2181", ""),
            ("zookeeper://a:1,b,[::1]:2/locks/app/", "a:1,b:2181,[::1]:2", "/locks/app"),
            ("zookeepers://h:1/a%20b", "h:1", "/a b"),
        ];
        for (url, endpoint, chroot) in table {
            let config = read(url).unwrap();
            assert_eq!(config.endpoint(), endpoint, "{url}");
            assert_eq!(config.chroot, chroot, "{url}");
            assert_eq!(config.tls.is_some(), url.starts_with("zookeepers"), "{url}");
        }
    }

    #[test]
    fn who_we_are_and_options() {
        let config =
            read("zookeeper://u:p%40%3A@h?exclusive=writer&request_timeout=250ms&tick=500ms")
                .unwrap();
        let (user, password) = config.login.clone().unwrap();
        assert_eq!((user.as_str(), password.0.as_str()), ("u", "p@:"));
        assert_eq!(config.exclusive, Exclusive::Writer);
        assert_eq!(config.request_timeout, Duration::from_millis(250));
        assert_eq!(config.tick, Some(Duration::from_millis(500)));
        assert!(!format!("{config:?}").contains("p@:"));
        let config = read("zookeepers://h?ca=/ca&cert=/c&key=/k").unwrap();
        assert_eq!(config.tls.unwrap().ca, Some("/ca".into()));
    }

    #[test]
    fn addresses_that_are_refused() {
        let long = format!("zookeeper://h/{}", "x".repeat(2000));
        let many = format!("zookeeper://{}", ["h"; 33].map(String::from).join(","));
        let table = [
            ("zookeeper:h", "two slashes"),
            ("http://h", "they are zookeeper: and zookeepers:"),
            ("zookeeper://", "no host"),
            ("zookeeper://a,,b", "no host"),
            ("zookeeper://a,a:2181", "named twice"),
            (many.as_str(), "named twice"),
            ("zookeeper://h:0", "port"),
            ("zookeeper://u@h", "user:password@"),
            ("zookeeper://:secret@h", "user:password@"),
            ("zookeeper://u:sec@ret@h", "%40"),
            ("zookeeper://h//a", "absolute path"),
            ("zookeeper://h/a/../b", "absolute path"),
            ("zookeeper://h/zookeeper", "not below"),
            ("zookeeper://h/a%00b", "absolute path"),
            (long.as_str(), "at most 1024 bytes"),
            ("zookeeper://h?x=1", "it knows"),
            ("zookeeper://h?ca=x", "only with zookeepers:"),
            ("zookeepers://h?cert=x", "go together"),
            ("zookeeper://h?exclusive=both", "mutex or writer"),
            ("zookeeper://h?tick=2m", "tickTime of the servers, at most 60s"),
            ("zookeeper://h?tick=2", "as 500ms, 3s or 2m"),
            ("zookeeper://h?request_timeout=5", "as 500ms, 3s or 2m"),
        ];
        for (url, expected) in table {
            let error = read(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidUrl, "{url}");
            assert!(error.to_string().contains(expected), "{url}: {error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
