//! Standbys that follow, in step or not.

use lockfast::{Guarantee, Severity};
use lockfast_faults::postgres::Postgres;
use lockfast_faults::server::Server as _;

use crate::kit::{ROLE, Setup, TIME_MAX, eventually, url};
use crate::{diagnose, expect, finding, set, start};

const NAMES: &str = "synchronous_standby_names";

fn state(postgres: &Postgres) -> String {
    postgres.sql("SELECT coalesce(string_agg(sync_state, ','), '') FROM pg_stat_replication")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standbys() {
    let primary = start(Setup::new().durable());
    let mut standby = primary.start_standby();
    let url = url(&primary);
    let diagnosis = diagnose(&url).await;
    let said = ["walreceiver", "asynchronously", "granted twice", NAMES];
    expect(&diagnosis, "failover", Severity::Unsafe, &said);
    assert_eq!(diagnosis.guarantee, Guarantee::Efficiency);
    expect(&diagnosis, "timeline", Severity::Ok, &["1: no standby"]);
    let there = diagnose(&crate::kit::url(&standby)).await;
    expect(&there, "role", Severity::Unsafe, &["standby", "primary"]);
    assert_eq!(there.guarantee, Guarantee::Efficiency);

    set(&primary, &[(NAMES, "walreceiver")]).await;
    eventually("it is in step", TIME_MAX, async || state(&primary) == "sync").await;
    let said = ["without the rights of pg_monitor", "GRANT pg_monitor TO app"];
    expect(&diagnose(&url).await, "failover", Severity::Unknown, &said);
    primary.sql(&format!("GRANT pg_monitor TO {ROLE}"));
    let diagnosis = diagnose(&url).await;
    expect(&diagnosis, "failover", Severity::Ok, &["waits for walreceiver"]);
    assert_eq!(diagnosis.guarantee, Guarantee::Correctness);
    primary.sql(&format!("ALTER ROLE {ROLE} SET synchronous_commit = local"));
    let said = ["set for the role", "before a standby has it", "ALTER ROLE app"];
    expect(&diagnose(&url).await, "synchronous-commit", Severity::Unsafe, &said);
    primary.sql(&format!("ALTER ROLE {ROLE} RESET synchronous_commit"));

    standby.kill();
    eventually("it is gone", TIME_MAX, async || state(&primary).is_empty()).await;
    let diagnosis = diagnose(&format!("{url}?request_timeout=2s")).await;
    expect(&diagnosis, "failover", Severity::Unsafe, &["none of these is connected"]);
    expect(&diagnosis, "commits", Severity::Unsafe, &["did not return within 2s"]);
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    eventually("nothing of ours is left waiting", TIME_MAX, async || primary.sql(waiting) == "0")
        .await;
    standby.restart();
    standby.promote();
    let diagnosis = diagnose(&crate::kit::url(&standby)).await;
    expect(&diagnosis, "timeline", Severity::Ok, &["was promoted"]);
    assert_eq!(finding(&diagnosis, "role").0, Severity::Ok);
}
