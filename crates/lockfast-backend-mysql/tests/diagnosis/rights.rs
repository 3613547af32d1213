//! The schema, and rights that are too few or too many.

use lockfast::Severity;
use lockfast_core::Address;

use super::look::{diagnose, expect, let_see};
use crate::kit::{prepare, start_server};

/// B265: also what to run is right.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_and_versions() {
    let server = start_server();
    let url = prepare(&server).await;
    let_see(&server);
    server.sql(
        "REVOKE EXECUTE ON PROCEDURE lockfast_take FROM locks; \
         REVOKE EXECUTE ON PROCEDURE lockfast_revoke FROM locks; \
         GRANT SELECT ON lockfast.lockfast_clients TO locks; \
         UPDATE lockfast_store SET version = 9, serves = 9",
    );
    server.sql("GRANT ALL ON *.* TO maker");
    let diagnosis = diagnose(&url).await;
    let said = ["may not call", "lockfast_take", "GRANT EXECUTE"];
    expect(&diagnosis, "procedure-rights", Severity::Unsafe, &said);
    expect(&diagnosis, "rights", Severity::Warn, &["SELECT on `lockfast`.`lockfast_clients`"]);
    expect(&diagnosis, "schema", Severity::Unsafe, &["version 9", "newer Lockfast"]);
    expect(&diagnosis, "definer", Severity::Warn, &["maker@%, who may do everything"]);

    // Whoever may call all of them may call the inner ones, which then do nothing.
    server.sql(
        "GRANT EXECUTE ON lockfast.* TO locks; UPDATE lockfast_store SET version = 2, serves = 1",
    );
    let diagnosis = diagnose(&url).await;
    expect(&diagnosis, "procedure-rights", Severity::Ok, &[]);
    expect(&diagnosis, "schema", Severity::Ok, &["version 2"]);
    server.sql("ALTER PROCEDURE lockfast_open SQL SECURITY DEFINER");
    let diagnosis = diagnose(&url).await;
    expect(&diagnosis, "procedure-rights", Severity::Unsafe, &["lockfast_open", "secrets"]);
    server.sql("UPDATE lockfast_store SET version = 1");
    let migrate = async |url: String| {
        lockfast_backend_mysql::migrate(Address::parse(&url).unwrap()).await.unwrap()
    };
    migrate(server.url_as("maker", Some("word"))).await;
    expect(&diagnose(&url).await, "procedure-rights", Severity::Ok, &[]);

    // The user who made the schema must stay.
    server.sql("DROP USER maker");
    let diagnosis = diagnose(&url).await;
    expect(&diagnosis, "definer", Severity::Unsafe, &["not there any more"]);
    expect(&diagnosis, "schema", Severity::Unsafe, &["maker", "no lock can be taken"]);
    server.sql("DROP PROCEDURE lockfast_open");
    migrate(server.url()).await;
    expect(&diagnose(&url).await, "definer", Severity::Warn, &["each of these users"]);
    assert_eq!(server.sql("SELECT COUNT(*) FROM lockfast_clients"), "0", "something was written");
}

/// B80: rights that are given by a pattern, or by way of a role, are not overlooked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_by_roles_and_patterns() {
    let server = start_server();
    let url = prepare(&server).await;
    expect(&diagnose(&url).await, "rights", Severity::Ok, &[]);
    server.sql("CREATE ROLE clerk; GRANT SELECT ON lockfast.* TO clerk; GRANT clerk TO locks");
    expect(&diagnose(&url).await, "rights", Severity::Unknown, &["these roles have: `clerk`"]);
    let word = if crate::FLAVOR == crate::kit::Flavor::MySql { "TO" } else { "FOR" };
    server.sql(&format!("SET DEFAULT ROLE clerk {word} locks"));
    let diagnosis = diagnose(&url).await;
    let found = diagnosis.findings.iter().find(|finding| finding.check == "rights").unwrap();
    assert_ne!(found.severity, Severity::Ok, "{found:?}");
    server.sql("GRANT SELECT ON `lock%`.* TO locks");
    expect(&diagnose(&url).await, "rights", Severity::Warn, &["SELECT on `lock%`.*"]);
}
