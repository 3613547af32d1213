//! Servers on which all is well.

use lockfast::Severity;

use crate::kit::rights::rights;
use crate::{Setup, check, check_all, diagnose, find, good};

/// Nothing is wrong, nothing is unseen, and nothing is written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_good_server_is_all_ok() {
    let redis = good().unix_socket().start();
    let changes = redis.info("rdb_changes_since_last_save");
    let diagnosis = diagnose(&redis.url()).await;
    check_all(&diagnosis, &[], &[], &[]);
    assert_eq!(redis.info("rdb_changes_since_last_save"), changes, "it wrote something");
    let is_said = |name: &&str| diagnosis.findings.iter().any(|finding| finding.check == *name);
    let groups = ["sentinels", "slots", "reachable"];
    let expected = lockfast_backend_redis::CHECKS.iter().filter(|name| !groups.contains(name));
    let missing: Vec<_> = expected.filter(|name| !is_said(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let version = redis.info("redis_version");
    assert!(find(&diagnosis, "version").fact.contains(&version), "{version}");
    assert!(find(&diagnosis, "latency").fact.contains("good for leases from"));

    let socket = redis.unix_socket();
    let diagnosis = diagnose(&format!("redis+unix://locks:hush-7@{}", socket.display())).await;
    check_all(&diagnosis, &[], &[], &[]);
    check(&diagnosis, "encryption", Severity::Ok, "a socket of this machine");
}

/// C51: what the store's own user may not see is not called good, and the right that is missing is
/// named.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_rights_of_the_store_much_is_unseen() {
    let user = format!("user locks on >hush-7 {}", rights("~jobs:*", &[]));
    let redis = Setup::new().append_always().password("admin").line(user).start();
    let diagnosis = diagnose(&format!("redis://locks:hush-7@{}", redis.address())).await;
    let unseen = [
        ("persistence", "+info"),
        ("saving", "+info"),
        ("eviction", "+info"),
        ("evicted-keys", "+info"),
        ("memory", "+info"),
        ("failover", "+info"),
        ("replica-lag", "+info"),
        ("split-brain", "+info"),
        ("idle-timeout", "+config|get"),
        ("tcp-keepalive", "+config|get"),
        ("max-clients", "+info"),
        ("acl-width", "+acl|whoami"),
        ("protected-mode", "+config|get"),
    ];
    check_all(&diagnosis, &unseen.map(|(name, _)| name), &[], &[]);
    for (name, right) in unseen {
        let found = find(&diagnosis, name);
        assert!(found.fact.contains("ACL does not allow it"), "{found:?}");
        assert!(found.fix.contains(right), "{found:?}");
    }
}

/// Some who run servers for others take CONFIG away altogether.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_is_not_there_leaves_things_unseen() {
    let rights = crate::rights().replace("+config|get", "");
    let redis = Setup::new()
        .append_always()
        .line("rename-command CONFIG \"\"")
        .line("user default off")
        .user("locks", "hush-7", &rights)
        .start();
    let diagnosis = diagnose(&redis.url()).await;
    let unseen = ["persistence", "idle-timeout", "tcp-keepalive", "protected-mode"];
    check_all(&diagnosis, &unseen, &[], &[]);
    check(&diagnosis, "persistence", Severity::Unknown, "unknown command");
}
