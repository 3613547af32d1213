//! Whether the server gets rid of what locks leave behind. Each cycle of a lock leaves an old version
//! of its row, which stays for as long as anybody might still want to see it.

use lockfast_core::Finding;

use super::{Patient, only};
use crate::failure::Failure;
use crate::wire::get;

/// From so many transactions on, a busy lock has become slower.
const AGE_MAX: i64 = 10_000;
const DEAD_ROWS_MAX: i64 = 10_000;
/// How full the queue of all notifications of the server may be.
const QUEUE_MAX: f64 = 0.1;

pub(super) async fn look(patient: &Patient) -> Result<Vec<Finding>, Failure> {
    if patient.is_standby {
        return Ok(Vec::new());
    }
    Ok(vec![
        patient.settle("old-snapshots", look_at_snapshots(patient).await)?,
        patient.settle("dead-rows", look_at_tables(patient).await)?,
        patient.settle("notify-queue", look_at_queue(patient).await)?,
    ])
}

/// Who has the oldest view of the database, in transactions of all since then: an old one that nothing
/// happened after does no harm. What only reads counts in its own database only.
async fn look_at_snapshots(patient: &Patient) -> Result<Finding, Failure> {
    const CHECK: &str = "old-snapshots";
    const QUESTION: &str = "SELECT who, age::bigint FROM ( \
        SELECT 'the session ' || a.pid || coalesce(' of ' || a.usename, '') || \
          coalesce(' (' || a.state || ')', '') AS who, \
          greatest(age(a.backend_xid), CASE WHEN a.datname IS NULL OR a.datname = \
          current_database() THEN age(a.backend_xmin) END) AS age \
        FROM pg_stat_activity a WHERE a.pid <> pg_backend_pid() \
          AND a.backend_type IS DISTINCT FROM 'autovacuum worker' \
          AND NOT EXISTS (SELECT FROM pg_stat_progress_vacuum v WHERE v.pid = a.pid) \
        UNION ALL SELECT 'the prepared transaction ' || p.gid, age(p.transaction) \
          FROM pg_prepared_xacts p \
        UNION ALL SELECT 'the replication slot ' || s.slot_name, age(s.xmin) \
          FROM pg_replication_slots s) held \
        WHERE age IS NOT NULL ORDER BY age DESC LIMIT 1";
    let rows = patient.ask(QUESTION).await?;
    let Some(row) = rows.first() else { return Ok(Finding::ok(CHECK, "there is none")) };
    let (who, age): (String, i64) = (get(row, 0)?, get(row, 1)?);
    if age < AGE_MAX {
        return Ok(Finding::ok(CHECK, format!("the oldest is {age} transactions old")));
    }
    Ok(Finding::warn(
        CHECK,
        format!("{who} sees the database as it was {age} transactions ago"),
        "until it ends, a lock that is taken and given back all the time becomes slower with each \
         cycle",
        "end it, and set idle_in_transaction_session_timeout",
    ))
}

async fn look_at_tables(patient: &Patient) -> Result<Finding, Failure> {
    const CHECK: &str = "dead-rows";
    const QUESTION: &str = "SELECT coalesce(sum(t.n_live_tup), 0)::bigint, \
        coalesce(sum(t.n_dead_tup), 0)::bigint, \
        coalesce(sum(pg_total_relation_size(t.relid)), 0)::bigint / 1024 \
        FROM pg_stat_all_tables t WHERE t.schemaname = '{schema}'";
    let rows = patient.ask(QUESTION).await?;
    let row = only(&rows)?;
    let (live, dead, size): (i64, i64, i64) = (get(row, 0)?, get(row, 1)?, get(row, 2)?);
    let fact = format!("the tables have {live} rows and {dead} old versions of rows in {size} kB");
    if patient.settings.get("autovacuum") == Some("off") {
        return Ok(Finding::warn(
            CHECK,
            format!("{fact}, and autovacuum is off"),
            "old versions of rows stay, and locks become slower with time",
            patient.settings.remedy("autovacuum", "on", &patient.role),
        ));
    }
    if dead >= DEAD_ROWS_MAX && dead / 2 > live {
        return Ok(Finding::warn(
            CHECK,
            fact,
            "every look at a lock passes its old versions, so that locks are slower than they could be",
            format!(
                "see old-snapshots, then run VACUUM on the tables of schema {}",
                patient.config.schema
            ),
        ));
    }
    Ok(Finding::ok(CHECK, fact))
}

async fn look_at_queue(patient: &Patient) -> Result<Finding, Failure> {
    let rows = patient.ask("SELECT pg_notification_queue_usage()").await?;
    Ok(judge_queue(get(only(&rows)?, 0)?))
}

fn judge_queue(usage: f64) -> Finding {
    const CHECK: &str = "notify-queue";
    let fact = format!("the server's queue of notifications is {:.1} % full", usage * 100.0);
    if usage < QUEUE_MAX {
        return Finding::ok(CHECK, fact);
    }
    Finding::warn(
        CHECK,
        fact,
        "somebody listens but does not read; when the queue is full nobody can be told of a lock",
        "find the session that has a transaction open since it began to listen, and end it",
    )
}

#[cfg(test)]
mod tests {
    use lockfast_core::Severity;

    use super::*;

    #[test]
    fn queues() {
        for (usage, severity) in [(0.0, Severity::Ok), (0.1, Severity::Warn), (1.0, Severity::Warn)]
        {
            assert_eq!(judge_queue(usage).severity, severity, "{usage}");
        }
    }
}
