//! Who follows whom, and what a failover forgets.

use lockfast_core::Finding;

use super::{Patient, settle};
use crate::failure::Failure;

/// After so long without an answer of a replica, at least, commits go on without it.
const PATIENCE_MS_MIN: f64 = 3_600_000.0;

/// Whether this server follows another one.
pub(super) async fn look_at_role(patient: &mut Patient<'_>) -> Result<Finding, Failure> {
    let follows = match patient.status.get("slave_running") {
        Some(running) => Ok(running == "ON"),
        None => patient.ask("SHOW REPLICA STATUS").await.map(|rows| !rows.is_empty()),
    };
    let is_read_only = patient.globals.get("read_only") != Some("OFF");
    let found = follows.map(|follows| judge_role(follows, is_read_only));
    settle("role", found, || patient.grant("REPLICATION CLIENT ON *.*"))
}

fn judge_role(follows: bool, is_read_only: bool) -> Finding {
    const CHECK: &str = "role";
    match (follows, is_read_only) {
        (false, _) => Finding::ok(CHECK, "the server follows no other one"),
        (true, true) => Finding::hazard(
            CHECK,
            "the server is a replica",
            "no lock can be taken here before it is promoted",
            "connect to the server that it follows",
        ),
        (true, false) => Finding::hazard(
            CHECK,
            "the server is a replica that takes writes",
            "the server that it follows grants the same locks, so that each is granted twice",
            "connect to the server that it follows, and run SET GLOBAL read_only = ON here",
        ),
    }
}

/// What is known of those that follow this server.
#[derive(Clone, Copy, Debug)]
struct Followers {
    count: f64,
    /// How many of them commits wait for.
    waited_for: f64,
    is_waiting: bool,
    patience_ms: f64,
}

/// Whether a replica that takes over can lack grants.
pub(super) async fn look_at_failover(patient: &mut Patient<'_>) -> Result<Finding, Failure> {
    const CHECK: &str = "failover";
    if !patient.globals.is_on("log_bin") {
        return Ok(Finding::ok(CHECK, "no replica can follow: the server writes no binary log"));
    }
    let counted = match patient.status.number("slaves_connected") {
        Some(count) => Ok(count),
        #[allow(clippy::cast_precision_loss, reason = "nobody has 2^52 replicas")]
        None => patient.ask("SHOW REPLICAS").await.map(|rows| rows.len() as f64),
    };
    let word = match patient.status.first(&["rpl_semi_sync_source_status"]) {
        Some(_) => "source",
        None => "master",
    };
    let status = |what: &str| format!("rpl_semi_sync_{word}_{what}");
    let found = counted.map(|count| {
        judge_followers(Followers {
            count,
            waited_for: patient.status.number(&status("clients")).unwrap_or(0.0),
            is_waiting: patient.status.is_on(&status("status")),
            patience_ms: patient.globals.number(&status("timeout")).unwrap_or(0.0),
        })
    });
    settle(CHECK, found, || patient.grant("REPLICATION SLAVE ON *.*"))
}

fn judge_followers(followers: Followers) -> Finding {
    const CHECK: &str = "failover";
    let Followers { count, waited_for, is_waiting, patience_ms } = followers;
    if count < 1.0 {
        return Finding::ok(CHECK, "no replica follows this server");
    }
    if !is_waiting || waited_for < 1.0 {
        return Finding::hazard(
            CHECK,
            format!("{count} replica(s) follow asynchronously"),
            "a replica that takes over lacks the last grants, so that a lock is granted twice",
            "set up semi-synchronous replication with a long timeout, or never promote a replica",
        );
    }
    if waited_for < count {
        return Finding::warn(
            CHECK,
            format!("commits wait for one of {waited_for} of {count} replicas"),
            "a failover to one of the others forgets the last grants, so that a lock is granted twice",
            "promote only one that has received everything, or let all be semi-synchronous",
        );
    }
    if patience_ms < PATIENCE_MS_MIN {
        return Finding::warn(
            CHECK,
            format!("commits wait for a replica, but no longer than {patience_ms} ms"),
            "after that the server goes on alone, and a failover then forgets the last grants",
            "set rpl_semi_sync_master_timeout (rpl_semi_sync_source_timeout) to hours",
        );
    }
    Finding::ok(CHECK, format!("commits wait for one of {count} replica(s)"))
}

#[cfg(test)]
mod tests {
    use lockfast_core::Severity;

    use super::*;

    #[test]
    fn roles() {
        for (follows, is_read_only, severity) in [
            (false, false, Severity::Ok),
            (false, true, Severity::Ok),
            (true, true, Severity::Unsafe),
            (true, false, Severity::Unsafe),
        ] {
            assert_eq!(judge_role(follows, is_read_only).severity, severity);
        }
    }

    #[test]
    fn followers() {
        let hours = PATIENCE_MS_MIN * 24.0;
        let table = [
            (0.0, 0.0, false, 10_000.0, Severity::Ok),
            (1.0, 0.0, false, 10_000.0, Severity::Unsafe),
            (1.0, 1.0, false, hours, Severity::Unsafe),
            (1.0, 0.0, true, hours, Severity::Unsafe),
            (1.0, 1.0, true, 10_000.0, Severity::Warn),
            (2.0, 1.0, true, hours, Severity::Warn),
            (1.0, 1.0, true, hours, Severity::Ok),
        ];
        for (count, waited_for, is_waiting, patience_ms, severity) in table {
            let followers = Followers { count, waited_for, is_waiting, patience_ms };
            assert_eq!(judge_followers(followers).severity, severity, "{followers:?}");
        }
    }
}
