//! Who can get at the locks: encryption, users and their rights.

use lockfast_core::Finding;
use lockfast_core::error::quote;
use lockfast_net::tls::Tls;

use super::data::settle;
use super::facts::{Facts, Seen, Stranger, User};
use crate::config::Endpoint;

pub(super) const ENCRYPTION: &str = "encryption";
pub(super) const WIDTH: &str = "acl-width";
pub(super) const DEFAULT_USER: &str = "default-user";
pub(super) const PROTECTED: &str = "protected-mode";

/// Rights with which a user could take locks away from everybody.
const DANGEROUS: &[&str] = &[
    "+@admin",
    "+@dangerous",
    "+@keyspace",
    "+@slow",
    "+@write",
    "+acl",
    "+acl|setuser",
    "+config",
    "+config|set",
    "+debug",
    "+flushall",
    "+flushdb",
    "+module",
    "+replicaof",
    "+shutdown",
    "+slaveof",
    "+swapdb",
];

pub(super) fn encryption(facts: &Facts) -> Finding {
    let is_local = facts.peer.is_none_or(|peer| peer.to_canonical().is_loopback());
    match &facts.endpoint {
        Endpoint::Tcp { tls, .. } => of_tcp(tls.as_ref(), is_local),
        _ => Finding::ok(ENCRYPTION, "a socket of this machine"),
    }
}

fn of_tcp(tls: Option<&Tls>, is_local: bool) -> Finding {
    match tls {
        Some(tls) if tls.insecure => Finding::warn(
            ENCRYPTION,
            "encrypted, but any certificate is accepted (insecure=true)",
            "whoever is on the way can pass for the server, read the password and grant anything",
            "leave insecure out, and name the authority with ca",
        ),
        Some(_) => Finding::ok(ENCRYPTION, "encrypted, and the certificate is checked"),
        None if is_local => Finding::ok(ENCRYPTION, "none, to this machine"),
        None => Finding::warn(
            ENCRYPTION,
            "none, to another machine",
            "whoever is on the way reads the password and the holder ids, and can grant anything",
            "use rediss:, or tls=yes",
        ),
    }
}

pub(super) fn acl_width(facts: &Facts) -> Finding {
    settle(WIDTH, facts.user.as_ref().map(of_user).map_err(Clone::clone))
}

fn of_user(user: &User) -> Finding {
    let words: Vec<&str> = user.commands.split_whitespace().collect();
    let has = |word: &str| words.contains(&word);
    let mut wide: Vec<&str> = DANGEROUS.iter().copied().filter(|right| has(right)).collect();
    if has("-@dangerous") {
        // What these hold besides is needed.
        wide.retain(|right| !["+@keyspace", "+@slow", "+@write"].contains(right));
    } else if has("+@all") {
        wide.push("+@all");
    }
    // Before Redis 7.0 a pattern of keys has no mark; from then on it may be for writing only.
    let all = ["~*", "*", "allkeys", "%RW~*", "%W~*"];
    if user.keys.split_whitespace().any(|keys| all.contains(&keys)) {
        wide.push("~*");
    }
    if user.has_more {
        wide.push("further rights in selectors");
    }
    if user.is_open && user.name != "default" {
        wide.push("nopass, so that any password is right");
    }
    let name = quote(&user.name);
    if wide.is_empty() {
        return Finding::ok(WIDTH, format!("user {name} may do little more than lock"));
    }
    Finding::warn(
        WIDTH,
        format!("user {name} has {}", wide.join(" ")),
        "whoever learns the password can take every lock away, and change what is not a lock",
        "give it the rights on the store's page and no others, with a prefix for the locks' names",
    )
}

pub(super) fn default_user(facts: &Facts) -> Finding {
    let look = || -> Seen<Finding> {
        Ok(match facts.stranger.clone()? {
            Stranger::Refused => Finding::ok(DEFAULT_USER, "nobody gets in without a password"),
            Stranger::Powerless => {
                Finding::ok(DEFAULT_USER, "gets in without a password, but may not touch locks")
            }
            Stranger::Admitted => Finding::warn(
                DEFAULT_USER,
                "gets in without a password and may touch locks",
                "whoever reaches the server can take every lock away",
                "set requirepass, or turn the user default off (ACL SETUSER default off)",
            ),
        })
    };
    settle(DEFAULT_USER, look())
}

pub(super) fn protected_mode(facts: &Facts) -> Finding {
    let look = || -> Seen<Finding> {
        let is_on = facts.setting("protected-mode")? == "yes";
        let fact = if is_on { "on" } else { "off" };
        Ok(match facts.stranger.clone()? {
            Stranger::Admitted if !is_on => Finding::warn(
                PROTECTED,
                "off, and nobody needs a password",
                "every machine that reaches the port can take every lock away",
                "set protected-mode yes, or better requirepass",
            ),
            _ => Finding::ok(PROTECTED, fact),
        })
    };
    settle(PROTECTED, look())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockfast_core::Severity;

    /// A test has no other machine.
    #[test]
    fn plain_text_stays_on_the_machine() {
        let tls = |insecure| Tls { insecure, ..Tls::default() };
        for (tls, is_local, severity) in [
            (None, true, Severity::Ok),
            (None, false, Severity::Warn),
            (Some(tls(false)), false, Severity::Ok),
            (Some(tls(true)), true, Severity::Warn),
        ] {
            assert_eq!(of_tcp(tls.as_ref(), is_local).severity, severity, "{tls:?} {is_local}");
        }
    }

    #[test]
    fn rights_that_are_too_wide() {
        let user = |commands: &str, keys: &str| User {
            name: "u".into(),
            commands: commands.into(),
            keys: keys.into(),
            ..User::default()
        };
        let table = [
            ("-@all +hello +get", "~lockfast:* ~jobs*", None),
            ("-@all +config|get +info", "lockfast:* jobs*", None),
            ("+@all", "~lockfast:*", Some("+@all")),
            ("+@all -@dangerous", "~jobs*", None),
            ("-@all +get", "~*", Some("~*")),
            ("-@all +get", "*", Some("~*")),
            ("-@all +set", "%W~*", Some("~*")),
            ("-@all +@write", "~a", Some("+@write")),
            ("-@all +@write -@dangerous", "~a", None),
            ("-@all +config", "~a", Some("+config")),
            ("-@all +flushall +debug", "~a", Some("+debug +flushall")),
        ];
        for (commands, keys, wide) in table {
            let found = of_user(&user(commands, keys));
            assert_eq!(found.severity == Severity::Warn, wide.is_some(), "{found:?}");
            assert!(found.fact.contains(wide.unwrap_or_default()), "{found:?}");
        }
    }
}
