//! What one server is like.

use std::time::Duration;

use lockfast_core::Finding;
use lockfast_core::error::quote;
use lockfast_core::view::exact;

use super::words::Answer;
use super::{Patient, untold};

/// Versions that the suite runs on.
const TESTED: &[(u32, u32)] = &[(3, 8), (3, 9)];
/// The oldest that has all requests: watches of whole trees.
const OLDEST: (u32, u32) = (3, 6);
/// What is there does not outlive a restart of the machine.
const FLEETING: &[&str] = &["/tmp/", "/dev/shm/", "/run/", "/var/run/"];
/// A process has a connection for each length of lease, and one to wait.
const CONNECTIONS_MIN: u32 = 20;

pub(super) fn judge_reach(patient: &Patient<'_>) -> Finding {
    const CHECK: &str = "reachable";
    let meaning = "its clients have to use the others, and one less may fail";
    let fix = "start it, or see what keeps it from the others";
    let finding = match &patient.words.srvr {
        Answer::Failed(reason) => Finding::warn(CHECK, reason, meaning, fix),
        _ if patient.words.is_serving() => Finding::ok(CHECK, "it answers"),
        _ => Finding::warn(CHECK, "it answers and serves nobody: it has no quorum", meaning, fix),
    };
    finding.at(patient.host.to_string())
}

pub(super) fn judge_version(patient: &Patient<'_>) -> Finding {
    const CHECK: &str = "version";
    let answer = &patient.words.srvr;
    let Some(version) = answer.value("Zookeeper version", ": ").and_then(read_version) else {
        return untold(CHECK, patient, "srvr", answer);
    };
    let (text, numbers) = version;
    let fact = format!("ZooKeeper {text}");
    let finding = if TESTED.contains(&numbers) {
        Finding::ok(CHECK, fact)
    } else if numbers < OLDEST {
        let meaning = "streams of events do not work, and before 3.5.3 nothing does";
        Finding::warn(CHECK, fact, meaning, "use 3.8 or 3.9")
    } else {
        Finding::warn(CHECK, fact, "Lockfast is not tested with it", "use 3.8 or 3.9")
    };
    finding.at(patient.host.to_string())
}

/// `3.8.0` and what to compare, of `3.8.0-5a02a05, built on …`.
fn read_version(said: &str) -> Option<(&str, (u32, u32))> {
    let end = said.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(said.len());
    let text = said[..end].trim_end_matches('.');
    let mut parts = text.split('.').map(|part| part.parse().ok());
    Some((text, (parts.next()??, parts.next()??)))
}

pub(super) fn judge_role(patient: &Patient<'_>) -> Finding {
    const CHECK: &str = "role";
    let answer = &patient.words.srvr;
    let finding = match answer.value("Mode", ": ") {
        None => return untold(CHECK, patient, "srvr", answer),
        Some(role @ ("leader" | "follower" | "observer" | "standalone")) => {
            Finding::ok(CHECK, role)
        }
        Some(role) => Finding::warn(
            CHECK,
            format!("its role is {}", quote(role)),
            "it takes no locks while it reaches too few others",
            "see what keeps it from the others",
        ),
    };
    finding.at(patient.host.to_string())
}

/// A session outlasts its leases by three quarters of a tick, because followers tell the leader late
/// whom they have heard.
pub(super) fn judge_tick(patient: &Patient<'_>, assumed: Duration) -> Finding {
    const CHECK: &str = "tick";
    let Some(tick) = patient.tick() else {
        return untold(CHECK, patient, "conf", &patient.words.conf);
    };
    let fact = format!("tickTime is {}, and {} is assumed", exact(tick), exact(assumed));
    let finding = match tick <= assumed {
        true => Finding::ok(CHECK, fact),
        false => Finding::hazard(
            CHECK,
            fact,
            "the servers may end a session before the deadlines of its leases, so that two hold a lock",
            format!("add tick={} to the URL", exact(tick)),
        ),
    };
    finding.at(patient.host.to_string())
}

/// A server counts how often it has waited for its disk, and our own session made it write.
pub(super) fn judge_durability(patient: &Patient<'_>) -> Finding {
    const CHECK: &str = "durability";
    let answer = &patient.words.mntr;
    let finding = match answer.count("zk_cnt_fsynctime") {
        None => return untold(CHECK, patient, "mntr", answer),
        Some(count) if count > 0.0 => {
            Finding::ok(CHECK, "changes are on disk before they are answered")
        }
        Some(_) => Finding::hazard(
            CHECK,
            "changes are answered before they are on disk (forceSync=no)",
            "a crash of the machine forgets the last claims, so that a lock is granted twice",
            "start it without -Dzookeeper.forceSync=no, and without forceSync=no in zoo.cfg",
        ),
    };
    finding.at(patient.host.to_string())
}

pub(super) fn judge_directories(patient: &Patient<'_>) -> Finding {
    const CHECK: &str = "directories";
    let answer = &patient.words.conf;
    let Some(data) = answer.value("dataDir", "=") else {
        return untold(CHECK, patient, "conf", answer);
    };
    let log = answer.value("dataLogDir", "=").unwrap_or(data);
    let is_fleeting = |path: &&str| FLEETING.iter().any(|folder| path.starts_with(folder));
    let finding = match [data, log].iter().find(|path| is_fleeting(path)) {
        Some(path) => Finding::warn(
            CHECK,
            format!("it keeps data in {}", quote(path)),
            "what is there may be removed, also while the server runs; without it a server knows \
             of no claim, and its fences begin anew",
            "set dataDir and dataLogDir to directories of their own on a disk",
        ),
        None if data == log => Finding::ok(CHECK, format!("all in {}", quote(data))),
        None => Finding::ok(CHECK, format!("data in {}, log in {}", quote(data), quote(log))),
    };
    finding.at(patient.host.to_string())
}

pub(super) fn judge_connections(patient: &Patient<'_>) -> Finding {
    const CHECK: &str = "connections";
    let answer = &patient.words.conf;
    let most = answer.value("maxClientCnxns", "=").and_then(|most| most.parse::<u32>().ok());
    let finding = match most {
        None => return untold(CHECK, patient, "conf", answer),
        Some(0) => Finding::ok(CHECK, "any number from one machine"),
        Some(most) if most >= CONNECTIONS_MIN => {
            Finding::ok(CHECK, format!("at most {most} from one machine"))
        }
        Some(most) => Finding::warn(
            CHECK,
            format!("at most {most} from one machine"),
            "a process has one for each length of lease and one to wait; the next that connects is \
             refused",
            "raise maxClientCnxns",
        ),
    };
    finding.at(patient.host.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        for (said, expected) in [
            ("3.8.0-5a02a05eddb5, built on 2022-02-25 08:49 UTC", Some(("3.8.0", (3, 8)))),
            ("3.10.1-, built on x", Some(("3.10.1", (3, 10)))),
            ("3.4.14", Some(("3.4.14", (3, 4)))),
            ("new", None),
            ("", None),
        ] {
            assert_eq!(read_version(said), expected, "{said:?}");
        }
    }
}
