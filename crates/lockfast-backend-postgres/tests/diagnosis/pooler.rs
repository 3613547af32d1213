//! PgBouncer before the server.

use lockfast::{Guarantee, Severity};

use crate::kit::{PgBouncer, ROLE, Setup, encode, url};
use crate::{diagnose, expect, flaws, start};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler() {
    let postgres = start(Setup::new().durable());
    postgres.create_database("other");
    let pooler = PgBouncer::start(&postgres, 4);
    let through = pooler.url_as(ROLE, "postgres");
    let listening = |listen: &str| format!("{through}?listen={}", encode(listen));

    let diagnosis = diagnose(&through).await;
    assert_eq!(flaws(&diagnosis), [("pooler", Severity::Warn)], "{diagnosis:#?}");
    expect(&diagnosis, "pooler", Severity::Warn, &["option listen is not given", "pushed"]);
    assert_eq!(diagnosis.guarantee, Guarantee::Correctness);
    let diagnosis = diagnose(&listening(&url(&postgres))).await;
    assert_eq!(flaws(&diagnosis), [], "{diagnosis:#?}");
    expect(&diagnosis, "pooler", Severity::Ok, &["leads past it"]);

    let elsewhere = url(&postgres).replace("/postgres", "/other");
    let table = [
        (listening(&through), "leads to a pooler"),
        (listening(&elsewhere), "another database"),
        (listening(&url(&postgres).replace(ROLE, "nobody")), "leads nowhere"),
        (format!("{through}?mode=advisory"), "mode=advisory is refused"),
    ];
    for (url, said) in table {
        expect(&diagnose(&url).await, "pooler", Severity::Unsafe, &[said]);
    }
}

/// What our own connections set for themselves a pooler's cannot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_behind_a_pooler() {
    let postgres = start(Setup::new().durable());
    postgres.sql(&format!(
        "ALTER ROLE {ROLE} SET statement_timeout = '1s'; \
         ALTER ROLE {ROLE} SET synchronous_commit = off; \
         ALTER ROLE {ROLE} SET default_transaction_isolation = 'serializable'"
    ));
    let pooler = PgBouncer::start(&postgres, 4);
    let diagnosis = diagnose(&pooler.url_as(ROLE, "postgres")).await;
    let said = ["set for the role", "ALTER ROLE app SET"];
    expect(&diagnosis, "timeouts", Severity::Warn, &said);
    expect(&diagnosis, "synchronous-commit", Severity::Unsafe, &said);
    expect(&diagnosis, "isolation", Severity::Unsafe, &said);
    assert_eq!(diagnosis.guarantee, Guarantee::Efficiency);
}
