//! Servers that belong together, of which one is found by asking others.

use lockfast_core::address::{Secret, invalid, percent_decode};
use lockfast_core::{Address, Result};
use lockfast_net::tls::Tls;

use crate::config::{
    Config, Endpoint, OnDataLoss, PORT, REQUEST_TIMEOUT, read_database, read_host, read_place,
    read_prefix, read_tls_choice,
};

const SENTINEL_PORT: u16 = 26379;

/// A master and its replicas, as sentinels know them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    pub(crate) name: String,
    /// In the order in which they are asked.
    pub(crate) sentinels: Vec<Endpoint>,
    /// Who we are to the sentinels, which need not be who we are to the master.
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
    /// Holds for the sentinels and for the master.
    pub(crate) tls: Option<Tls>,
}

impl Service {
    /// Understands `h1:p1,h2:p2/service/database`.
    pub(crate) fn read(
        address: &Address,
        hosts: &str,
        path: &str,
        tls: Option<Tls>,
    ) -> Result<(Self, u32)> {
        let mut sentinels = Vec::new();
        for host in hosts.split(',') {
            let (host, port) = read_host(host, SENTINEL_PORT)?;
            sentinels.push(Endpoint::Tcp { host, port, tls: tls.clone() });
        }
        let path = path.strip_prefix('/').unwrap_or(path);
        let (name, database) = path.split_once('/').unwrap_or((path, ""));
        if name.is_empty() {
            return Err(invalid(
                "the URL does not say which service the sentinels are to be asked for; write its \
                 name after the hosts, as in \"redis+sentinel://h1,h2,h3/mymaster\"",
            ));
        }
        let option = |name| address.option(name).map(str::to_owned);
        let (user, password) = (option("sentinel_user"), option("sentinel_password").map(Secret));
        if user.is_some() && password.is_none() {
            return Err(invalid("option sentinel_user needs sentinel_password too"));
        }
        let name = percent_decode(name)?;
        Ok((Self { name, sentinels, user, password, tls }, read_database(database)?))
    }
}

/// Some nodes of a cluster, which know the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nodes {
    pub(crate) seeds: Vec<Endpoint>,
    pub(crate) tls: Option<Tls>,
}

impl Nodes {
    /// Understands `h1:p1,h2:p2`.
    pub(crate) fn read(hosts: &str, path: &str, tls: Option<Tls>) -> Result<Self> {
        let mut seeds = Vec::new();
        for host in hosts.split(',') {
            let (host, port) = read_host(host, PORT)?;
            seeds.push(Endpoint::Tcp { host, port, tls: tls.clone() });
        }
        if read_database(path)? != 0 {
            return Err(invalid("a cluster has only database 0; leave the number out"));
        }
        Ok(Self { seeds, tls })
    }
}

impl Config {
    /// Understands an address of several servers that do not know each other: each is configured
    /// alike. `options` are those of whoever asks, beside the ones of every connection.
    pub fn read_several(address: &Address, options: &[&str]) -> Result<Vec<Self>> {
        const OPTIONS: &[&str] = &["ca", "cert", "insecure", "key", "prefix", "tls"];
        address.allow_options(&[options, OPTIONS].concat())?;
        let place = read_place(address)?;
        let tls = read_tls_choice(address)?;
        let (database, prefix) = (read_database(place.path)?, read_prefix(address)?);
        let hosts = place.authority.split(',').filter(|_| !place.authority.is_empty());
        let servers = hosts.map(|host| {
            let (host, port) = read_host(host, PORT)?;
            Ok(Self {
                endpoint: Endpoint::Tcp { host, port, tls: tls.clone() },
                user: place.user.clone(),
                password: place.password.clone(),
                database,
                prefix: prefix.clone(),
                request_timeout: REQUEST_TIMEOUT,
                on_data_loss: OnDataLoss::Warn,
                min_replicas: 0,
            })
        });
        servers.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Config> {
        Address::parse(url).and_then(|address| Config::read(&address))
    }

    #[test]
    fn which_service() {
        let url =
            "redis+sentinel://u:p@a:1,b,[::1]:2/my%20main/3?sentinel_user=s&sentinel_password=q";
        let config = read(url).unwrap();
        assert_eq!((config.user.as_deref(), config.database), (Some("u"), 3));
        assert!(!format!("{config:?}").contains("\"q\""));
        let Endpoint::Service(service) = config.endpoint else { panic!("no service") };
        let sentinels: Vec<String> = service.sentinels.iter().map(ToString::to_string).collect();
        assert_eq!(sentinels, ["a:1", "b:26379", "[::1]:2"]);
        assert_eq!(service.name, "my main");
        assert_eq!(service.user.as_deref(), Some("s"));
        assert_eq!(service.password, Some(Secret("q".into())));
        assert_eq!(service.tls, None);
        let encrypted = read("redis+sentinel://a/main?tls=yes&insecure=true").unwrap();
        let Endpoint::Service(service) = encrypted.endpoint else { panic!("no service") };
        assert!(service.tls.is_some_and(|tls| tls.insecure));
    }

    #[test]
    fn what_cannot_be_understood_is_refused() {
        let table = [
            ("redis+sentinel://a,b", "which service"),
            ("redis+sentinel://a,b/", "which service"),
            ("redis+sentinel://a,,b/main", "no host"),
            ("redis+sentinel://a:x/main", "port"),
            ("redis+sentinel://a/main/x", "database number"),
            ("redis+sentinel://a/main?tls=maybe", "yes or no"),
            ("redis+sentinel://a/main?ca=x", "only with tls=yes"),
            ("redis+sentinel://a/main?sentinel_user=s", "sentinel_password too"),
            ("redis+sentinel://a/main?x=1", "has no option"),
        ];
        for (url, expected) in table {
            let error = read(url).unwrap_err();
            assert_eq!(error.kind(), lockfast_core::ErrorKind::InvalidUrl, "{url}");
            assert!(error.to_string().contains(expected), "{url}: {error}");
        }
    }
}
