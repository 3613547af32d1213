//! The way from a worker to the store, and how it is led through proxies of the worker's own.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use lockfast_core::Address;
use lockfast_core::address::{Place, read_host};
use lockfast_faults::proxy::{Link, Proxy};
use lockfast_faults::seed::{Dice, Seed};

use crate::fault::Fault;

/// The schemes of stores that are reached by TCP at the addresses in their URL alone, with the port
/// that each has unless it is said.
const PORTS: [(&str, u16); 8] = [
    ("redis", 6379),
    ("redlock", 6379),
    ("postgres", 5432),
    ("postgresql", 5432),
    ("mysql", 3306),
    ("mariadb", 3306),
    ("etcd", 2379),
    ("zookeeper", 2181),
];

/// Options of URLs by which a server's certificate is checked, which names its own address.
const CERTIFICATE_OPTIONS: [&str; 3] = ["ca", "cert", "tls"];

/// A store's URL in which the addresses can be exchanged.
#[derive(Clone, PartialEq, Eq)]
pub struct Route {
    before: String,
    hosts: Vec<(String, u16)>,
    after: String,
}

impl Route {
    /// Takes a URL apart.
    ///
    /// # Errors
    /// One sentence, why workers cannot reach this store through proxies.
    pub fn of(url: &str) -> Result<Self, &'static str> {
        let address = Address::parse(url).map_err(|_| "its URL cannot be read")?;
        let port = PORTS.iter().find(|(scheme, _)| *scheme == address.scheme());
        let Some((_, port)) = port else {
            return Err(match address.scheme() {
                "redis+sentinel" | "redis+cluster" => {
                    "the servers of this store tell clients each other's addresses, so no proxy \
                     can stand between"
                }
                "rediss" | "etcds" | "zookeepers" => {
                    "a proxy cannot stand in an encrypted connection"
                }
                _ => "this store is not reached by TCP",
            });
        };
        let is_checked = CERTIFICATE_OPTIONS.iter().any(|name| address.option(name).is_some())
            || address.option("sslmode").is_some_and(|mode| mode.starts_with("verify"));
        if is_checked {
            return Err("a proxy cannot stand in an encrypted connection");
        }
        let place = Place::split(&address, "localhost").map_err(|_| "its URL cannot be read")?;
        let hosts: lockfast_core::Result<Vec<_>> =
            place.authority.split(',').map(|host| read_host(host, *port, "")).collect();
        let hosts = hosts.map_err(|_| "its URL names no host")?;
        if hosts.iter().any(|(host, _)| host.starts_with('/')) {
            return Err("this store is not reached by TCP");
        }
        // The authority ends where the path, the options or the URL do, and is nowhere before.
        let rest = place.path.len() + url.split_once('?').map_or(0, |(_, query)| query.len() + 1);
        let end = url.len() - rest;
        let start = end - place.authority.len();
        Ok(Self { before: url[..start].to_owned(), hosts, after: url[end..].to_owned() })
    }

    /// The URL with other addresses, as many as it has.
    pub fn through(&self, addresses: &[SocketAddr]) -> String {
        let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        format!("{}{}{}", self.before, addresses.join(","), self.after)
    }

    /// Where its hosts are.
    async fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        let mut addresses = Vec::new();
        for (host, port) in &self.hosts {
            let mut found = tokio::net::lookup_host((host.as_str(), *port)).await?;
            let none = || io::Error::new(io::ErrorKind::NotFound, format!("{host} has no address"));
            addresses.push(found.next().ok_or_else(none)?);
        }
        Ok(addresses)
    }
}

/// The proxies of one worker, one for each server of the store.
#[derive(Debug)]
pub struct Way {
    proxies: Vec<Proxy>,
    url: String,
}

impl Way {
    /// Starts them.
    ///
    /// # Errors
    /// When a host has no address, or no port can be had.
    ///
    /// # Cancel safety
    /// Safe: what was started is ended.
    pub async fn open(route: &Route) -> io::Result<Self> {
        let mut proxies = Vec::new();
        for server in route.resolve().await? {
            proxies.push(Proxy::start(server).await?);
        }
        let addresses: Vec<SocketAddr> = proxies.iter().map(Proxy::address).collect();
        Ok(Self { url: route.through(&addresses), proxies })
    }

    /// The store's URL, through them.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Begins a fault of the link: on all of them, or on one where there are several. A partition
    /// is on all.
    pub fn begin(&self, fault: Fault, ttl: Duration, chance: u64) {
        let mut dice = Seed(chance).dice();
        let Some(link) = link_of(fault, ttl, &mut dice) else { return };
        // Some let new connections overtake what is held on the old ones.
        let only_open = dice.one_in(3) && fault != Fault::Partition;
        for proxy in self.touched(fault, chance) {
            if only_open {
                proxy.set_open(link);
            } else {
                proxy.set(link);
            }
        }
    }

    /// Ends it.
    pub fn heal(&self, fault: Fault, ttl: Duration, chance: u64) {
        let link = link_of(fault, ttl, &mut Seed(chance).dice());
        for proxy in self.touched(fault, chance) {
            if matches!(link, Some(Link::HalfOpen | Link::SwallowReplies)) {
                proxy.reset_open();
            }
            proxy.set(Link::Pass);
        }
    }

    fn touched(&self, fault: Fault, chance: u64) -> impl Iterator<Item = &Proxy> {
        let choice = match fault {
            Fault::Partition => 0,
            _ => Seed(chance).of("servers").dice().below(self.proxies.len() as u64 + 1),
        };
        let is_touched = move |place: usize| choice == 0 || choice as usize == place + 1;
        self.proxies
            .iter()
            .enumerate()
            .filter(move |(at, _)| is_touched(*at))
            .map(|(_, proxy)| proxy)
    }
}

/// What a fault does to a connection. A partition is over before a connection notices, and then what
/// was sent arrives late, or it is not, and then it is lost.
fn link_of(fault: Fault, ttl: Duration, dice: &mut Dice) -> Option<Link> {
    Some(match fault {
        Fault::Cut if dice.one_in(2) => Link::Close,
        Fault::Cut => Link::Reset,
        Fault::Stall if dice.one_in(2) => Link::HoldRequests,
        Fault::Stall => Link::Stall,
        Fault::Delay => Link::Delay(dice.time_between(Duration::from_millis(1), ttl / 4)),
        Fault::LostReplies if dice.one_in(3) => Link::HalfOpen,
        Fault::LostReplies => Link::SwallowReplies,
        Fault::Partition if dice.one_in(2) => Link::Stall,
        Fault::Partition => Link::HalfOpen,
        Fault::Kill | Fault::Pause | Fault::Clock | Fault::Server(_) => return None,
    })
}

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Route").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    const TTL: Duration = Duration::from_secs(2);
    const PATIENCE: Duration = Duration::from_secs(20);

    /// A server that sends back what it is sent.
    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    tokio::io::copy(&mut from, &mut to).await
                });
            }
        });
        address
    }

    /// Sends a byte, and says how the answer is within so much time: one, the end, or none.
    async fn ask(stream: &mut TcpStream, within: Duration) -> Option<usize> {
        // If it cannot be sent, the answer tells.
        let _ = stream.write_all(b"x").await;
        let read = tokio::time::timeout(within, stream.read(&mut [0; 1])).await;
        Some(read.ok()?.unwrap_or(0))
    }

    async fn connect(way: &Way) -> Vec<TcpStream> {
        let mut streams = Vec::new();
        for proxy in &way.proxies {
            streams.push(TcpStream::connect(proxy.address()).await.unwrap());
        }
        streams
    }

    #[tokio::test]
    async fn a_partition_lets_nothing_through_until_it_is_over() {
        let server = echo().await;
        let route = Route::of(&format!("redlock://{server},{server}")).unwrap();
        let (way, others) = (Way::open(&route).await.unwrap(), Way::open(&route).await.unwrap());
        let mut kinds = Vec::new();
        for chance in 0..6 {
            let link = link_of(Fault::Partition, TTL, &mut Seed(chance).dice()).unwrap();
            kinds.push(link);
            let mut streams = connect(&way).await;
            for stream in &mut streams {
                assert_eq!(ask(stream, PATIENCE).await, Some(1));
            }
            way.begin(Fault::Partition, TTL, chance);
            let mut new = connect(&way).await;
            for stream in streams.iter_mut().chain(&mut new) {
                assert_eq!(ask(stream, Duration::from_millis(30)).await, None, "{link:?}");
            }
            for stream in &mut connect(&others).await {
                assert_eq!(ask(stream, PATIENCE).await, Some(1), "the way of another");
            }
            way.heal(Fault::Partition, TTL, chance);
            // What was held up comes, and what was lost is the end of its connection.
            let late = usize::from(link == Link::Stall);
            for stream in streams.iter_mut().chain(&mut new) {
                let read = tokio::time::timeout(PATIENCE, stream.read(&mut [0; 1])).await;
                assert_eq!(read.unwrap().unwrap_or(0), late, "{link:?}");
            }
            for stream in &mut connect(&way).await {
                assert_eq!(ask(stream, PATIENCE).await, Some(1), "{link:?}");
            }
        }
        assert!(kinds.contains(&Link::Stall) && kinds.contains(&Link::HalfOpen), "{kinds:?}");
    }

    #[test]
    fn addresses_are_exchanged_and_nothing_else() {
        let (one, two) = ("127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap());
        let table = [
            ("redis://h", "redis://127.0.0.1:1"),
            ("redis://:p%40@h:7/3?prefix=a/b", "redis://:p%40@127.0.0.1:1/3?prefix=a/b"),
            ("postgres://u:p@h/db?sslmode=prefer", "postgres://u:p@127.0.0.1:1/db?sslmode=prefer"),
            ("mysql://u:p@[::1]:3/db", "mysql://u:p@127.0.0.1:1/db"),
            ("zookeeper://u:p@h/app/locks", "zookeeper://u:p@127.0.0.1:1/app/locks"),
        ];
        for (url, expected) in table {
            assert_eq!(Route::of(url).unwrap().through(&[one]), expected);
        }
        let route = Route::of("redlock://a:1,b?quorum=2").unwrap();
        assert_eq!(route.hosts, [("a".to_owned(), 1), ("b".to_owned(), 6379)]);
        assert_eq!(route.through(&[one, two]), "redlock://127.0.0.1:1,127.0.0.1:2?quorum=2");
        assert!(!format!("{:?}", Route::of("redis://:secret@h").unwrap()).contains("secret"));
    }

    #[test]
    fn stores_that_no_proxy_can_stand_before_say_why() {
        for (url, why) in [
            ("embedded:", "not reached by TCP"),
            ("redis+unix:///run/redis.sock", "not reached by TCP"),
            ("postgres://%2Frun%2Fpostgresql/db", "not reached by TCP"),
            ("rediss://h", "encrypted"),
            ("zookeepers://h", "encrypted"),
            ("mysql://u@h/db?tls=true", "encrypted"),
            ("postgres://h/db?sslmode=verify-full", "encrypted"),
            ("redis+cluster://h", "each other's addresses"),
        ] {
            let refusal = Route::of(url).unwrap_err();
            assert!(refusal.contains(why), "{url}: {refusal}");
        }
    }
}
