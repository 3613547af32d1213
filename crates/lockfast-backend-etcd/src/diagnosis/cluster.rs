//! The members: whether they answer, belong together, have a leader and space.

use std::collections::BTreeSet;

use lockfast_core::{ErrorKind, Finding};

use super::{Named, TELL_ROOT, unseen};
use crate::failure::Failure;
use crate::wire::{Alarm, AlarmMember, Connection, Dialer, Member};

/// What a member may store unless it was told otherwise, in bytes.
const QUOTA_USUAL: i64 = 2 << 30;
/// From so much of it on people should know.
const FULL: f64 = 0.8;

pub(super) fn judge_reachable(named: &Named<'_>) -> Finding {
    const CHECK: &str = "reachable";
    let finding = match &named.status {
        Ok(status) if status.is_learner => Finding::warn(
            CHECK,
            "it is a learner, which does not serve yet",
            "it is of no use when another member fails",
            "promote it with etcdctl member promote, or leave it out of the URL",
        ),
        Ok(_) => Finding::ok(CHECK, "it answers"),
        Err(_) if named.is_reserved() => Finding::ok(CHECK, "it answers"),
        Err(failure) => Finding::warn(
            CHECK,
            failure.message(),
            "one member fewer is left to turn to when another fails",
            "start it, or leave it out of the URL",
        ),
    };
    finding.at(named.endpoint.to_string())
}

/// Members of different clusters decide for themselves.
pub(super) fn judge_identity(named: &[Named<'_>]) -> Finding {
    const CHECK: &str = "cluster";
    let ids: BTreeSet<u64> = named.iter().filter_map(|it| it.cluster).collect();
    if ids.len() > 1 {
        return Finding::hazard(
            CHECK,
            format!("the URL names members of {} clusters", ids.len()),
            "each cluster grants every lock for itself, so that a lock is granted twice",
            "name the members of one cluster only",
        );
    }
    let id = ids.first().copied().unwrap_or_default();
    Finding::ok(CHECK, format!("all that answer are of the cluster {id:x}"))
}

/// Nobody leads.
pub(super) fn without_leader(failure: &Failure) -> Finding {
    Finding::hazard(
        "leader",
        failure.message(),
        "no lock can be taken, and those that are held end by their deadlines",
        "start members until most of them can reach each other",
    )
}

/// Whether it changes while it is looked at. Every election raises the term.
pub(super) async fn look_at_leader(
    dialer: &Dialer,
    serving: &Connection,
    named: &[Named<'_>],
) -> Finding {
    const CHECK: &str = "leader";
    let first = named.iter().filter_map(|it| it.status.as_ref().ok()).map(|it| it.raft_term).max();
    let now = match serving.status().await {
        Ok(status) => status,
        // Whoever let us in knows one.
        Err(failure) if failure.kind() == ErrorKind::Permission => {
            return Finding::ok(CHECK, "there is one");
        }
        Err(failure) => return without_leader(&failure),
    };
    let terms = now.raft_term.saturating_sub(first.unwrap_or(now.raft_term));
    let fact = format!("there is one, in term {} of the cluster", now.raft_term);
    if terms == 0 {
        return Finding::ok(CHECK, fact);
    }
    Finding::warn(
        CHECK,
        format!("{fact}; there was an election while {} was looked at", dialer.config().shown()),
        "nothing is granted or renewed during an election, and a new leader lets all leases begin again, so \
         that locks of dead holders are free late",
        "see that the members are not too busy, their disks not too slow and the network between them not \
         worse than --heartbeat-interval and --election-timeout allow",
    )
}

pub(super) fn judge_members(members: &Result<Vec<Member>, Failure>) -> Finding {
    const CHECK: &str = "members";
    let members = match members {
        Ok(members) => members,
        Err(failure) => return unseen(CHECK, failure),
    };
    let voters = members.iter().filter(|member| !member.is_learner).count();
    let down: Vec<&str> =
        members.iter().filter(|it| it.client_urls.is_empty()).map(|it| it.name.as_str()).collect();
    let fact = format!("{voters} members decide");
    if !down.is_empty() {
        return Finding::warn(
            CHECK,
            format!("{fact}, of which {} never started", down.len()),
            "they count for the majority, but do not help to reach it",
            "start them, or remove them with etcdctl member remove",
        );
    }
    match voters {
        1 => Finding::warn(
            CHECK,
            "one member decides alone",
            "while it is down nothing is granted or renewed, and with its disk all locks are lost",
            "run three members",
        ),
        voters if voters % 2 == 0 => Finding::warn(
            CHECK,
            fact,
            "an even number tolerates no more failures than one member fewer, and more can fail",
            "run one member more or fewer",
        ),
        _ => Finding::ok(CHECK, fact),
    }
}

pub(super) fn judge_alarms(alarms: Result<Vec<AlarmMember>, Failure>) -> Finding {
    const CHECK: &str = "alarms";
    let alarms = match alarms {
        Ok(alarms) => alarms,
        Err(failure) => return unseen(CHECK, &failure),
    };
    if alarms.iter().any(|it| it.alarm() == Alarm::Corrupt) {
        return Finding::hazard(
            CHECK,
            "a member found that its data differs from that of the others (CORRUPT)",
            "members answer differently about who has a lock",
            "replace the member that is named by etcdctl alarm list, and then etcdctl alarm disarm",
        );
    }
    if alarms.iter().any(|it| it.alarm() == Alarm::NoSpace) {
        return Finding::warn(
            CHECK,
            "a member has no space left (NOSPACE)",
            "no lock can be taken; those that are held can be renewed and given back",
            "compact and defragment it, and then etcdctl alarm disarm",
        );
    }
    Finding::ok(CHECK, "there is none")
}

/// How much is stored, of what is allowed.
#[allow(clippy::cast_precision_loss, reason = "no database has 2^52 bytes")]
pub(super) fn judge_space(named: &[Named<'_>]) -> Finding {
    const CHECK: &str = "space";
    let statuses = named.iter().filter_map(|it| it.status.as_ref().ok());
    let fullest = statuses.max_by_key(|status| status.db_size);
    let Some(status) = fullest else {
        return Finding::unknown(CHECK, "no member tells this user", TELL_ROOT);
    };
    let (quota, whose) = match status.db_size_quota {
        0 => (QUOTA_USUAL, "unless it was told otherwise"),
        told => (told, "as it says"),
    };
    let fact = format!(
        "a member stores {:.1} MiB, of {:.0} MiB that it may, {whose}",
        status.db_size as f64 / f64::from(1 << 20),
        quota as f64 / f64::from(1 << 20),
    );
    if (status.db_size as f64) < quota as f64 * FULL {
        return Finding::ok(CHECK, fact);
    }
    Finding::warn(
        CHECK,
        fact,
        "when it is full no lock can be taken",
        "compact and defragment it, let it compact by itself (--auto-compaction-retention), or raise \
         --quota-backend-bytes",
    )
}

#[cfg(test)]
mod tests {
    use lockfast_core::Severity;

    use super::*;
    use crate::config::Endpoint;
    use crate::wire::StatusResponse;

    static PLACE: Endpoint = Endpoint { host: String::new(), port: 1 };

    fn member(status: StatusResponse) -> Named<'static> {
        Named { endpoint: &PLACE, status: Ok(status), cluster: Some(1) }
    }

    /// What no server of a test can be brought to.
    #[test]
    fn learners_and_full_members() {
        let learner = StatusResponse { is_learner: true, ..StatusResponse::default() };
        let found = judge_reachable(&member(learner));
        assert_eq!(found.severity, Severity::Warn);
        assert!(found.fix.contains("member promote"), "{found:?}");
        for (size, quota, severity, whose) in [
            (700, 1000, Severity::Ok, "as it says"),
            (900, 1000, Severity::Warn, "as it says"),
            (1 << 30, 0, Severity::Ok, "unless it was told otherwise"),
            (7 << 28, 0, Severity::Warn, "unless it was told otherwise"),
        ] {
            let status =
                StatusResponse { db_size: size, db_size_quota: quota, ..StatusResponse::default() };
            let found = judge_space(&[member(StatusResponse::default()), member(status)]);
            assert_eq!(found.severity, severity, "{found:?}");
            assert!(found.fact.contains(whose), "{found:?}");
        }
    }
}
