//! Who else can get at locks: on the way to the servers, and there.

use std::net::{IpAddr, ToSocketAddrs as _};

use lockfast_core::Finding;
use lockfast_core::diagnosis::Way;
use lockfast_core::error::quote;

use crate::config::Config;
pub(super) use crate::wire::Access as Entry;

/// The right to read, in an ACL.
const READ: i32 = 1;

pub(super) async fn look_at_way(config: &Config) -> Finding {
    let hosts = config.hosts.clone();
    let resolving = tokio::task::spawn_blocking(move || {
        let mut addresses = Vec::new();
        for host in &hosts {
            addresses.extend((host.name.as_str(), host.port).to_socket_addrs().ok()?);
        }
        Some(addresses.into_iter().map(|address| address.ip()).collect::<Vec<IpAddr>>())
    });
    let addresses = resolving.await.ok().flatten().unwrap_or_default();
    let is_local = !addresses.is_empty() && addresses.iter().all(IpAddr::is_loopback);
    let tls = config.tls.as_ref();
    let (is_encrypted, is_checked) = (tls.is_some(), tls.is_some_and(|tls| !tls.insecure));
    Way { is_local, is_encrypted, is_checked }.judge(
        "use zookeepers:, and add ca if the certificate is your own",
        "leave out insecure=true, and add ca if the certificate is your own",
    )
}

/// What the ACL of the node that holds the locks says.
pub(super) fn judge(entries: Option<&[Entry]>, config: &Config) -> Finding {
    const CHECK: &str = "access";
    let place = if config.chroot.is_empty() { "/" } else { config.chroot.as_str() };
    let Some(entries) = entries else {
        let reason = format!("this user may not see who may use {}", quote(place));
        return Finding::unknown(CHECK, reason, "give it the right to read the node");
    };
    let is_open = |entry: &&Entry| entry.scheme == "world" && entry.rights & !READ != 0;
    if !entries.iter().any(|entry| is_open(&entry)) {
        return Finding::ok(CHECK, format!("{} is not open to everybody", quote(place)));
    }
    Finding::warn(
        CHECK,
        format!("everybody may change {} (world:anyone)", quote(place)),
        "whoever reaches the servers can take locks away from their holders",
        "make a node for locks whose ACL names a user, and give its path and user:password@ in the \
         URL",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockfast_core::{Address, Severity};

    #[test]
    fn a_place_is_open_to_whoever_may_change_it() {
        let config = Config::read(&Address::parse("zookeeper://h/locks").unwrap()).unwrap();
        let entry = |rights, scheme: &str| Entry { rights, scheme: scheme.to_owned() };
        for (entries, severity) in [
            (None, Severity::Unknown),
            (Some(vec![entry(31, "world")]), Severity::Warn),
            (Some(vec![entry(31, "digest"), entry(4, "world")]), Severity::Warn),
            (Some(vec![entry(31, "digest"), entry(1, "world")]), Severity::Ok),
            (Some(vec![entry(15, "digest")]), Severity::Ok),
        ] {
            assert_eq!(judge(entries.as_deref(), &config).severity, severity, "{entries:?}");
        }
    }
}
