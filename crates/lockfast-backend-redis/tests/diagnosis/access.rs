//! Encryption, users and their rights.

use lockfast::Severity;

use crate::kit::certificate::{Authority, Flaw};
use crate::{Redis, Setup, check, check_all, diagnose, good};

/// Everybody gets in, and may do everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_passwords() {
    let redis = Setup::new().append_always().start();
    let diagnosis = diagnose(&redis.url()).await;
    check_all(&diagnosis, &[], &["acl-width", "default-user"], &[]);
    check(&diagnosis, "acl-width", Severity::Warn, "user \"default\" has +@all ~*");
    redis.cli(&["CONFIG", "SET", "protected-mode", "no"]);
    let diagnosis = diagnose(&redis.url()).await;
    check(&diagnosis, "protected-mode", Severity::Warn, "nobody needs a password");
    // A password makes the door good, and the one who has it no smaller.
    redis.cli(&["CONFIG", "SET", "requirepass", "sesame"]);
    let diagnosis = diagnose(&format!("redis://:sesame@{}", redis.address())).await;
    check_all(&diagnosis, &[], &["acl-width"], &[]);
    assert!(diagnosis.findings.iter().all(|finding| !finding.fact.contains("sesame")));
}

/// Whoever comes without a password may ask for the time of day, but not for locks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_default_user_without_rights() {
    let redis = Setup::new()
        .append_always()
        .line("user default on nopass -@all +hello +time")
        .user("locks", "hush-7", &crate::rights())
        .start();
    let diagnosis = diagnose(&redis.url()).await;
    check_all(&diagnosis, &[], &[], &[]);
    check(&diagnosis, "default-user", Severity::Ok, "may not touch locks");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_with_too_many_rights() {
    // B84: FLUSHALL is also one of the commands that write, a selector is a second set of rights, and
    // who gets in with any password has none.
    for (more, words) in [
        ("+flushall", "+flushall"),
        ("+config", "+config"),
        ("~*", "~*"),
        ("%W~*", "~*"),
        ("+@write", "+@write"),
        ("(+@all ~*)", "selectors"),
        ("nopass", "nopass"),
    ] {
        let rights = format!("{} {more}", crate::rights());
        let redis = Setup::new()
            .append_always()
            .line("user default off")
            .user("locks", "hush-7", &rights)
            .start();
        let diagnosis = diagnose(&redis.url()).await;
        check_all(&diagnosis, &[], &["acl-width"], &[]);
        check(&diagnosis, "acl-width", Severity::Warn, words);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_that_are_and_are_not_checked() {
    let authority = Authority::new();
    let redis = good().tls(&authority, authority.sign_server(Flaw::None), false).start();
    let diagnosis = diagnose(&redis.url()).await;
    check_all(&diagnosis, &[], &[], &[]);
    check(&diagnosis, "encryption", Severity::Ok, "the certificate is checked");
    let diagnosis =
        diagnose(&format!("rediss://locks:hush-7@{}?insecure=true", redis.address())).await;
    check_all(&diagnosis, &[], &["encryption"], &[]);
    let plain = Redis::start();
    check(&diagnose(&plain.url()).await, "encryption", Severity::Ok, "none, to this machine");
}
