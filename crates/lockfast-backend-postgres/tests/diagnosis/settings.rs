//! Settings of the server, the role and the database.

use std::time::Duration;

use lockfast::{Guarantee, Severity};
use lockfast_faults::certificate::{Authority, Flaw};
use lockfast_faults::proxy::{Link, Proxy};

use crate::kit::{ROLE, SCHEMA, Setup, TIME_MAX, encode, eventually, session, url, url_at};
use crate::{diagnose, expect, flaws, set, start};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_that_hurt_and_settings_that_do_not() {
    let postgres = start(Setup::new());
    let url = url(&postgres);
    set(&postgres, &[("full_page_writes", "off"), ("autovacuum", "off")]).await;
    postgres.sql(&format!(
        "ALTER ROLE {ROLE} SET idle_session_timeout = '1min'; \
         ALTER ROLE {ROLE} SET statement_timeout = '1s'; \
         ALTER ROLE {ROLE} SET synchronous_commit = off; \
         ALTER ROLE {ROLE} SET default_transaction_isolation = 'serializable'; \
         ALTER ROLE {ROLE} CONNECTION LIMIT 3"
    ));
    let diagnosis = diagnose(&url).await;
    expect(&diagnosis, "fsync", Severity::Unsafe, &["fsync is off", "granted twice"]);
    expect(&diagnosis, "full-page-writes", Severity::Unsafe, &["is off", "ALTER SYSTEM"]);
    expect(&diagnosis, "dead-rows", Severity::Warn, &["autovacuum is off"]);
    expect(&diagnosis, "connections", Severity::Warn, &["of 3 that the role", "two connections"]);
    // What a connection of ours sets for itself does no harm.
    for check in ["timeouts", "synchronous-commit", "isolation"] {
        expect(&diagnosis, check, Severity::Ok, &["Lockfast", "own connections"]);
    }
    assert_eq!(flaws(&diagnosis).len(), 4, "{diagnosis:#?}");
    assert_eq!(diagnosis.guarantee, Guarantee::Efficiency);
    assert!(diagnosis.because.contains("fsync"), "{}", diagnosis.because);
    postgres.sql(&format!(
        "ALTER ROLE {ROLE} RESET ALL; ALTER ROLE {ROLE} CONNECTION LIMIT -1; \
         ALTER DATABASE postgres SET default_transaction_read_only = on"
    ));
    let diagnosis = diagnose(&url).await;
    let said = ["set for the database", "no lock can be taken", "ALTER DATABASE"];
    expect(&diagnosis, "read-only", Severity::Unsafe, &said);
    expect(&diagnosis, "connections", Severity::Ok, &["of 97 that the server"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_snapshot_and_what_it_leaves() {
    let postgres = start(Setup::new().set("max_prepared_transactions", "1"));
    let url = url(&postgres);
    let other = session(postgres.address(), "postgres").await;
    other.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").await.unwrap();
    postgres.sql(&format!(
        "INSERT INTO {SCHEMA}.locks (name, fence, until_us, since_us) \
         SELECT n::text, 0, 0, 0 FROM generate_series(1, 20000) n"
    ));
    postgres.sql(&format!("DELETE FROM {SCHEMA}.locks"));
    let burn = "DO $$ BEGIN FOR i IN 1..12000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; \
        END $$";
    postgres.sql(burn);
    let diagnosis = diagnose(&url).await;
    let said = ["the session", "of postgres", "becomes slower"];
    expect(&diagnosis, "old-snapshots", Severity::Warn, &said);
    eventually("the old versions are counted", TIME_MAX, async || {
        crate::finding(&diagnose(&url).await, "dead-rows").0 == Severity::Warn
    })
    .await;
    other.batch_execute("COMMIT").await.unwrap();
    postgres.sql(&format!("VACUUM {SCHEMA}.locks"));
    let diagnosis = diagnose(&url).await;
    expect(&diagnosis, "old-snapshots", Severity::Ok, &[]);
    expect(&diagnosis, "dead-rows", Severity::Ok, &[]);
    postgres.sql("BEGIN; SELECT pg_current_xact_id(); PREPARE TRANSACTION 'forgotten'");
    postgres.sql(burn);
    let diagnosis = diagnose(&url).await;
    expect(&diagnosis, "old-snapshots", Severity::Warn, &["prepared transaction forgotten"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_commits_and_slow_answers() {
    let postgres = start(Setup::new().durable());
    set(&postgres, &[("commit_delay", "100000"), ("commit_siblings", "0")]).await;
    let diagnosis = diagnose(&url(&postgres)).await;
    expect(&diagnosis, "commits", Severity::Warn, &["times a second", "NOTIFY"]);
    assert_eq!(diagnosis.guarantee, Guarantee::Correctness);
    let proxy = Proxy::start(postgres.address()).await.unwrap();
    proxy.set(Link::Delay(Duration::from_millis(155)));
    let diagnosis = diagnose(&format!("{}?request_timeout=20s", url_at(proxy.address()))).await;
    expect(&diagnosis, "latency", Severity::Warn, &["longer leases"]);
}

/// What goes over the network is unit-tested; a machine need not have one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn encryption() {
    let authority = Authority::new();
    let postgres = start(Setup::new().tls(authority.sign_server(Flaw::None)));
    let ca = encode(&authority.certificate().display().to_string());
    let table = [
        ("sslmode=disable".to_owned(), "not encrypted, and the server is on this machine"),
        ("sslmode=prefer".to_owned(), "encrypted, and the server is on this machine"),
        (format!("sslmode=verify-full&ca={ca}"), "encrypted, and the certificate is checked"),
    ];
    for (option, said) in table {
        let diagnosis = diagnose(&format!("{}?{option}", url(&postgres))).await;
        let found = diagnosis.findings.iter().find(|finding| finding.check == "encryption");
        assert_eq!(found.unwrap().fact, said, "{option}");
    }
}
