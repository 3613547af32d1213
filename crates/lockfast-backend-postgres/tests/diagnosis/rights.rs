//! The schema, and rights that are too few or too many.

use lockfast::{Guarantee, Severity};

use crate::kit::{Postgres, ROLE, SCHEMA, Setup, url};
use crate::{MAKER, diagnose, expect, finding, flaws, start};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_schema() {
    let postgres = Postgres::start();
    postgres.sql(&format!("CREATE ROLE {ROLE} LOGIN"));
    let said = ["schema lockfast is missing", "lockfast migrate"];
    let diagnosis = diagnose(&url(&postgres)).await;
    expect(&diagnosis, "schema", Severity::Unsafe, &said);
    assert_eq!(diagnosis.guarantee, Guarantee::Efficiency);
    postgres.sql(&format!("GRANT CREATE ON DATABASE postgres TO {ROLE}"));
    expect(&diagnose(&url(&postgres)).await, "schema", Severity::Warn, &said);
    // To look is not to make.
    assert_eq!(postgres.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'lockfast'"), "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_that_are_too_few() {
    let postgres = start(Setup::new().durable());
    let grant = format!("GRANT USAGE ON SCHEMA {SCHEMA} TO {ROLE}");
    postgres.sql(&format!("REVOKE USAGE ON SCHEMA {SCHEMA} FROM {ROLE}"));
    let diagnosis = diagnose(&url(&postgres)).await;
    expect(&diagnosis, "schema", Severity::Unsafe, &["may not use schema", &grant]);
    postgres.sql(&grant);
    postgres.sql(&format!("REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA {SCHEMA} FROM {ROLE}"));
    postgres.sql(&format!("GRANT EXECUTE ON FUNCTION {SCHEMA}.version TO {ROLE}"));
    let diagnosis = diagnose(&url(&postgres)).await;
    expect(&diagnosis, "function-rights", Severity::Unsafe, &["may not call", &grant]);
    for (function, number, severity, said) in [
        ("version", 0, Severity::Warn, "lockfast migrate"),
        ("version", 1, Severity::Ok, "version 1"),
        ("version", 2, Severity::Unsafe, "permission denied for function serves_since"),
        ("serves_since", 1, Severity::Ok, "version 2"),
        ("serves_since", 2, Severity::Unsafe, "update the program"),
    ] {
        postgres.sql(&format!(
            "CREATE OR REPLACE FUNCTION {SCHEMA}.{function}() RETURNS integer LANGUAGE sql IMMUTABLE \
             SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'SELECT {number}'; \
             GRANT EXECUTE ON FUNCTION {SCHEMA}.{function} TO {ROLE}"
        ));
        expect(&diagnose(&url(&postgres)).await, "schema", severity, &[said]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_that_are_too_many() {
    let postgres = start(Setup::new().durable());
    let url = url(&postgres);
    // Names are told so that a statement can be copied.
    postgres.sql("CREATE ROLE other; CREATE ROLE \"an other\"");
    // Each in another check, so that one look sees them all.
    postgres.sql(&format!(
        "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {SCHEMA} TO PUBLIC; \
         GRANT SELECT ON {SCHEMA}.locks TO PUBLIC; GRANT CREATE ON SCHEMA {SCHEMA} TO other, \"an other\"; \
         ALTER FUNCTION {SCHEMA}.version() RESET search_path"
    ));
    let diagnosis = diagnose(&url).await;
    expect(&diagnosis, "function-rights", Severity::Warn, &["every role", "FROM PUBLIC"]);
    expect(&diagnosis, "table-rights", Severity::Unsafe, &["every role may read", "FROM PUBLIC"]);
    expect(
        &diagnosis,
        "schema-rights",
        Severity::Warn,
        &["besides its owner, \"an other\", other may"],
    );
    expect(&diagnosis, "definer", Severity::Unsafe, &["version", "search_path"]);
    assert_eq!(flaws(&diagnosis).len(), 4, "{diagnosis:#?}");
    postgres.sql(&format!(
        "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA {SCHEMA} FROM PUBLIC; \
         REVOKE SELECT ON {SCHEMA}.locks FROM PUBLIC; REVOKE CREATE ON SCHEMA {SCHEMA} FROM other, \"an other\"; \
         ALTER FUNCTION {SCHEMA}.version() SET search_path = pg_catalog, pg_temp; \
         GRANT SELECT ON {SCHEMA}.clients TO other; ALTER FUNCTION {SCHEMA}.version() OWNER TO other"
    ));
    let diagnosis = diagnose(&url).await;
    expect(&diagnosis, "table-rights", Severity::Warn, &["other may use the tables"]);
    expect(&diagnosis, "definer", Severity::Warn, &["maker, other"]);
    expect(&diagnosis, "schema-rights", Severity::Warn, &["its functions do not"]);
    postgres.sql(&format!(
        "REVOKE SELECT ON {SCHEMA}.clients FROM other; GRANT UPDATE ON {SCHEMA}.mail TO PUBLIC; \
         ALTER FUNCTION {SCHEMA}.version() OWNER TO {MAKER}; ALTER ROLE {MAKER} SUPERUSER"
    ));
    let diagnosis = diagnose(&postgres.url_as(MAKER, None)).await;
    expect(&diagnosis, "table-rights", Severity::Unsafe, &["every role may change"]);
    expect(&diagnosis, "definer", Severity::Warn, &["a superuser", "OWNER TO"]);
    expect(&diagnosis, "superuser", Severity::Warn, &["maker is a superuser"]);
    assert_eq!(finding(&diagnosis, "schema-rights").0, Severity::Ok);
}

/// B82: whoever is a member of a superuser's role can take it on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_that_can_become_a_superuser() {
    let postgres = start(Setup::new().durable());
    expect(&diagnose(&url(&postgres)).await, "superuser", Severity::Ok, &["cannot become one"]);
    // Also by way of a role between them, and where it is not inherited.
    postgres.sql(&format!(
        "CREATE ROLE \"the boss\" SUPERUSER; CREATE ROLE deputy NOINHERIT; GRANT \"the boss\" TO deputy; \
         GRANT deputy TO {ROLE}"
    ));
    let said = ["can become \"the boss\", a superuser"];
    expect(&diagnose(&url(&postgres)).await, "superuser", Severity::Warn, &said);
}
