//! From a URL's scheme to the store that understands it; the only place that knows which stores
//! were compiled in.

use std::sync::Arc;

use lockfast_core::error::quote;
use lockfast_core::{
    Address, Backend, BoxFuture, ConnectContext, Diagnosis, Error, ErrorKind, GateAnswer,
    GateStatement, Migration, Profile, Result,
};
use lockfast_fence::sql::Dialect;

type Connect = fn(Address, ConnectContext) -> BoxFuture<'static, Result<Arc<dyn Backend>>>;
type Diagnose = fn(Address) -> BoxFuture<'static, Result<Diagnosis>>;
type Migrate = fn(Address) -> BoxFuture<'static, Result<Migration>>;
type Raise = fn(Address, GateStatement) -> BoxFuture<'static, Result<GateAnswer>>;

/// A store that was compiled in.
pub(crate) struct Entry {
    schemes: &'static [&'static str],
    /// How to connect to it.
    pub(crate) connect: Connect,
    /// How its schema is brought up to date, if it has one that is not made by itself.
    pub(crate) migrate: Option<Migrate>,
    /// How its servers are looked at.
    pub(crate) diagnose: Diagnose,
    /// What is looked at there.
    checks: &'static [&'static str],
    /// What it promises.
    profiles: fn() -> Vec<(&'static str, Profile)>,
    /// How fences are checked in the databases that it can reach, if they speak SQL.
    gates: Option<Gates>,
}

/// Databases in which fences can be checked.
#[derive(Debug)]
pub(crate) struct Gates {
    schemes: &'static [&'static str],
    /// How they speak.
    pub(crate) dialect: Dialect,
    /// How a gate's statement is run there.
    pub(crate) raise: Raise,
}

const BACKENDS: &[Entry] = &[
    #[cfg(feature = "embedded")]
    Entry {
        schemes: lockfast_backend_embedded::SCHEMES,
        connect: lockfast_backend_embedded::connect,
        migrate: None,
        diagnose: lockfast_backend_embedded::diagnose,
        checks: lockfast_backend_embedded::CHECKS,
        profiles: lockfast_backend_embedded::profiles,
        gates: Some(Gates {
            schemes: lockfast_backend_embedded::GATE_SCHEMES,
            dialect: Dialect::Sqlite,
            raise: lockfast_backend_embedded::raise,
        }),
    },
    #[cfg(feature = "etcd")]
    Entry {
        schemes: lockfast_backend_etcd::SCHEMES,
        connect: lockfast_backend_etcd::connect,
        migrate: None,
        diagnose: lockfast_backend_etcd::diagnose,
        checks: lockfast_backend_etcd::CHECKS,
        profiles: lockfast_backend_etcd::profiles,
        gates: None,
    },
    #[cfg(feature = "mysql")]
    Entry {
        schemes: lockfast_backend_mysql::SCHEMES,
        connect: lockfast_backend_mysql::connect,
        migrate: Some(lockfast_backend_mysql::migrate),
        diagnose: lockfast_backend_mysql::diagnose,
        checks: lockfast_backend_mysql::CHECKS,
        profiles: lockfast_backend_mysql::profiles,
        gates: Some(Gates {
            schemes: lockfast_backend_mysql::SCHEMES,
            dialect: Dialect::MySql,
            raise: lockfast_backend_mysql::raise,
        }),
    },
    #[cfg(feature = "redis")]
    Entry {
        schemes: lockfast_backend_redis::SCHEMES,
        connect: lockfast_backend_redis::connect,
        migrate: None,
        diagnose: lockfast_backend_redis::diagnose,
        checks: lockfast_backend_redis::CHECKS,
        profiles: lockfast_backend_redis::profiles,
        gates: None,
    },
    #[cfg(feature = "redlock")]
    Entry {
        schemes: lockfast_backend_redlock::SCHEMES,
        connect: lockfast_backend_redlock::connect,
        migrate: None,
        diagnose: lockfast_backend_redlock::diagnose,
        checks: lockfast_backend_redlock::CHECKS,
        profiles: lockfast_backend_redlock::profiles,
        gates: None,
    },
    #[cfg(feature = "postgres")]
    Entry {
        schemes: lockfast_backend_postgres::SCHEMES,
        connect: lockfast_backend_postgres::connect,
        migrate: Some(lockfast_backend_postgres::migrate),
        diagnose: lockfast_backend_postgres::diagnose,
        checks: lockfast_backend_postgres::CHECKS,
        profiles: lockfast_backend_postgres::profiles,
        gates: Some(Gates {
            schemes: lockfast_backend_postgres::SCHEMES,
            dialect: Dialect::Postgres,
            raise: lockfast_backend_postgres::raise,
        }),
    },
    #[cfg(feature = "zookeeper")]
    Entry {
        schemes: lockfast_backend_zookeeper::SCHEMES,
        connect: lockfast_backend_zookeeper::connect,
        migrate: None,
        diagnose: lockfast_backend_zookeeper::diagnose,
        checks: lockfast_backend_zookeeper::CHECKS,
        profiles: lockfast_backend_zookeeper::profiles,
        gates: None,
    },
];

/// The feature of each store, also of those that were not compiled in, with its schemes.
const FEATURES: &[(&str, &[&str])] = &[
    ("embedded", &["memory", "embedded"]),
    ("etcd", &["etcd", "etcds"]),
    ("mysql", &["mysql", "mariadb"]),
    ("redis", &["redis", "rediss", "redis+unix", "redis+sentinel", "redis+cluster"]),
    ("redlock", &["redlock"]),
    ("postgres", &["postgres", "postgresql"]),
    ("zookeeper", &["zookeeper", "zookeepers"]),
];

/// The feature that a store of this scheme needs.
fn feature_of(scheme: &str) -> Option<&'static str> {
    let has = |(_, schemes): &&(_, &[&str])| schemes.contains(&scheme);
    FEATURES.iter().find(has).map(|(feature, _)| *feature)
}

/// The store that `url` names, found before anything is touched.
pub(crate) fn resolve(url: &str) -> Result<(Address, &'static Entry)> {
    let address = Address::parse(url)?;
    let found = BACKENDS.iter().find(|entry| entry.schemes.contains(&address.scheme()));
    let Some(entry) = found else {
        let (scheme, known) = (address.scheme(), known_schemes().join(", "));
        let message = match feature_of(scheme) {
            Some(feature) => format!(
                "the store {} was not compiled in, only {known}; enable feature {} of the crate \
                 lockfast (cargo add lockfast --features {feature})",
                quote(scheme),
                quote(feature)
            ),
            None => format!("no store is called {}; there is {known}", quote(scheme)),
        };
        return Err(Error::new(ErrorKind::InvalidUrl, message));
    };
    Ok((address, entry))
}

/// The database with gates that `url` names, found before anything is touched.
pub(crate) fn resolve_gates(url: &str) -> Result<(Address, &'static Gates)> {
    let known = || BACKENDS.iter().filter_map(|entry| entry.gates.as_ref());
    let scheme = url.split_once(':').map(|(scheme, _)| scheme);
    let is_meant = |gates: &&Gates| scheme.is_some_and(|scheme| gates.schemes.contains(&scheme));
    if let Some(gates) = known().find(is_meant) {
        return Ok((Address::parse(url)?, gates));
    }
    let schemes: Vec<String> = known()
        .flat_map(|gates| gates.schemes)
        .map(|scheme| match *scheme {
            "sqlite" => "sqlite:PATH".to_owned(),
            server => format!("{server}://HOST/DATABASE"),
        })
        .collect();
    // What has no colon may be anything.
    let said = scheme.map_or_else(|| "that".to_owned(), quote);
    let message =
        format!("no database for gates is called {said}; there is {}", schemes.join(", "));
    Err(Error::new(ErrorKind::InvalidUrl, message))
}

/// The schemes of all stores that were compiled in, each with its colon.
pub(crate) fn known_schemes() -> Vec<String> {
    let schemes = BACKENDS.iter().flat_map(|entry| entry.schemes);
    schemes.map(|scheme| format!("{scheme}:")).collect()
}

/// The checks of all stores that were compiled in, each with the first scheme of its store.
pub(crate) fn known_checks() -> Vec<(&'static str, &'static str)> {
    let checks = BACKENDS
        .iter()
        .flat_map(|entry| entry.checks.iter().map(|check| (entry.schemes[0], *check)));
    checks.collect()
}

/// What all stores that were compiled in promise, each with what its URL starts with.
pub(crate) fn known_profiles() -> Vec<(&'static str, Profile)> {
    BACKENDS.iter().flat_map(|entry| (entry.profiles)()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_scheme_lists_the_known_ones() {
        let error = resolve("foo://user:secret@x").map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidUrl);
        for scheme in known_schemes() {
            assert!(error.to_string().contains(&scheme));
        }
        assert!(!error.to_string().contains("secret"));
    }

    /// B227
    #[test]
    fn a_store_that_was_not_compiled_in_names_its_feature() {
        for (feature, schemes) in FEATURES {
            for scheme in *schemes {
                let known = known_schemes().contains(&format!("{scheme}:"));
                let Err(error) = resolve(&format!("{scheme}://user:secret@host/x")) else {
                    assert!(known, "{scheme}");
                    continue;
                };
                assert!(!known, "{scheme}: {error}");
                let (said, expected) = (error.to_string(), format!("enable feature \"{feature}\""));
                assert!(said.contains(&expected) && !said.contains("secret"), "{said}");
                assert_eq!(error.kind(), ErrorKind::InvalidUrl);
            }
        }
        for entry in BACKENDS {
            let feature = FEATURES.iter().find(|(_, schemes)| *schemes == entry.schemes);
            assert!(feature.is_some(), "{:?} has no row", entry.schemes);
        }
    }

    #[test]
    fn every_store_says_what_it_promises() {
        for (url, profile) in known_profiles() {
            assert!(url.starts_with(&format!("{}:", profile.backend)), "{url}");
        }
        let has_profile = |entry: &&Entry| !(entry.profiles)().is_empty();
        assert_eq!(BACKENDS.iter().filter(has_profile).count(), BACKENDS.len());
    }
}
