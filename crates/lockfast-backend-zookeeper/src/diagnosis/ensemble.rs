//! How many servers decide, and how many of them are named and follow.

use lockfast_core::Finding;

use super::words::Answer;
use super::{Patient, untold};

/// The servers of an ensemble, as they know each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Members {
    voters: usize,
    observers: usize,
}

/// Why they are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Untold {
    /// The user may not read the node.
    Forbidden,
    /// A server that was alone before leaves the node empty until it is started once more.
    Empty,
}

impl Members {
    /// Reads the node `/zookeeper/config`, which a server that is alone leaves empty.
    pub(super) fn read(text: &str, is_alone: bool) -> Result<Self, Untold> {
        let servers = text.lines().filter(|line| line.starts_with("server."));
        // What follows a semicolon is for clients.
        let roles = servers.map(|line| line.split(';').next().unwrap_or_default());
        let (observers, voters) =
            roles.partition::<Vec<&str>, _>(|line| line.ends_with(":observer"));
        let members = Self { voters: voters.len(), observers: observers.len() };
        if members.voters == 0 && !is_alone { Err(Untold::Empty) } else { Ok(members) }
    }

    /// Whether a single server decides.
    pub(super) fn is_alone(&self) -> bool {
        self.voters <= 1
    }
}

pub(super) fn judge(
    members: &Result<Members, Untold>,
    named: usize,
    serving: &[&Patient<'_>],
) -> Vec<Finding> {
    let members = match members {
        Ok(members) => members,
        Err(untold) => {
            let (reason, fix) = match untold {
                Untold::Forbidden => (
                    "this user may not read /zookeeper/config",
                    "give the URL's user the right to read it",
                ),
                Untold::Empty => (
                    "/zookeeper/config is empty, although servers decide together or have done so",
                    "start the servers again, one after the other",
                ),
            };
            return vec![Finding::unknown("members", reason, fix)];
        }
    };
    let mut findings = vec![judge_members(members)];
    if !members.is_alone() {
        findings.push(judge_addresses(members, named));
        findings.push(judge_followers(members, serving));
    }
    findings
}

fn judge_members(members: &Members) -> Finding {
    const CHECK: &str = "members";
    let Members { voters, observers } = *members;
    if members.is_alone() {
        return Finding::warn(
            CHECK,
            "one server decides alone",
            "while it is out of reach no lock is granted or renewed, and with its disk all locks and \
             fences are lost",
            "use an ensemble of three servers",
        );
    }
    let bears = (voters - 1) / 2;
    let mut fact = format!("{voters} servers vote, of which {bears} may fail");
    if observers > 0 {
        fact += &format!("; {observers} more observe");
    }
    if voters % 2 == 1 {
        return Finding::ok(CHECK, fact);
    }
    Finding::warn(
        CHECK,
        fact,
        format!(
            "no more may fail than of {} servers, and each can be the one that fails",
            voters - 1
        ),
        "add a server that votes, or take one away",
    )
}

fn judge_addresses(members: &Members, named: usize) -> Finding {
    const CHECK: &str = "addresses";
    let all = members.voters + members.observers;
    let fact = format!("the URL names {named} of {all} servers");
    if named > 1 {
        return Finding::ok(CHECK, fact);
    }
    Finding::warn(
        CHECK,
        fact,
        "while that one is out of reach no lock is granted or renewed here, although the others serve",
        "name them all in the URL, with commas",
    )
}

/// The leader knows who is with it.
fn judge_followers(members: &Members, serving: &[&Patient<'_>]) -> Finding {
    const CHECK: &str = "followers";
    let leads = |patient: &&&Patient<'_>| patient.words.srvr.value("Mode", ": ") == Some("leader");
    let Some(leader) = serving.iter().find(leads) else {
        let reason = "the URL does not name the leader, or no server says who it is";
        let fix = "name all servers in the URL, and allow srvr and mntr in 4lw.commands.whitelist";
        return Finding::unknown(CHECK, reason, fix);
    };
    let answer: &Answer = &leader.words.mntr;
    let Some(synced) = answer.count("zk_synced_followers") else {
        return untold(CHECK, leader, "mntr", answer);
    };
    let expected = members.voters - 1;
    let fact = format!("{synced} of {expected} servers follow the leader");
    if synced >= expected as f64 {
        return Finding::ok(CHECK, fact);
    }
    Finding::warn(
        CHECK,
        fact,
        "fewer failures are left than the number of servers promises",
        "start those that are missing, or see what keeps them from the leader",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockfast_core::Severity;

    #[test]
    fn members_are_counted_by_their_roles() {
        let text = "server.1=a:1:2:participant;0.0.0.0:2181\nserver.2=b:1:2:participant\n\
                    server.3=c:1:2:observer;2181\nversion=0\n";
        assert_eq!(Members::read(text, false), Ok(Members { voters: 2, observers: 1 }));
        assert!(Members::read("", true).is_ok_and(|members| members.is_alone()));
        assert_eq!(Members::read("", false), Err(Untold::Empty));
        let severity = |voters| judge_members(&Members { voters, observers: 0 }).severity;
        let (ok, warn) = (Severity::Ok, Severity::Warn);
        assert_eq!([0, 1, 2, 3, 4, 5].map(severity), [warn, warn, warn, ok, warn, ok]);
    }
}
