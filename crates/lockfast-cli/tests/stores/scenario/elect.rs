//! `elect`: a command that runs on exactly one machine.

use std::time::Duration;

use lockfast_core::Moment;
use rustix::process::{Pid, Signal};

use super::loss::revoke;
use super::{Group, scenario};
use crate::sandbox::{Running, eventually, is_alive};
use crate::stage::Stage;

pub(super) const GROUP: Group = Group {
    name: "elect",
    scenarios: &[
        scenario("one_of_many_leads", |stage| play(stage, one_of_many_leads)),
        scenario("a_killed_leader_is_followed", |stage| play(stage, a_killed_leader_is_followed)),
        scenario("a_deposed_leader_stops_and_stands_again", |stage| {
            play(stage, a_deposed_leader_stops);
        }),
        scenario("a_signal_hands_over_at_once", |stage| play(stage, a_signal_hands_over_at_once)),
        scenario("a_signal_ends_a_deaf_command", |stage| play(stage, a_signal_ends_a_deaf_command)),
        scenario("a_signal_ends_a_campaign", |stage| play(stage, a_signal_ends_a_campaign)),
    ],
};

/// A leader: notes itself, its term, and any other that is alive; until a file with its number is
/// there, whatever signals come if it is deaf.
const LEAD: &str = "[ -z \"$1\" ] || trap '' $1
for other in $(cat pids 2>/dev/null); do kill -0 $other 2>/dev/null && echo $other >> met; done
echo $LOCKFAST_FENCE >> terms
echo $$ >> pids
while ! [ -e end-$$ ]; do sleep 0.02; done
exit 7";

/// What a busy machine may add to a bound: processes are started.
const SLACK: Duration = Duration::from_secs(4);

/// Plays it where candidates stand in a line; elsewhere it is refused, and nothing runs.
fn play(stage: &Stage<'_>, scenario: fn(&Stage<'_>)) {
    if stage.row.has_line {
        return scenario(stage);
    }
    let refused = stage.run(["elect", &stage.lock, "--", "touch", "ran"]).expect(125);
    for words in ["no line of waiters", stage.row.advice] {
        assert!(refused.stderr.contains(words), "{words}: {}", refused.stderr);
    }
    assert!(!stage.sandbox.path("ran").exists());
}

/// Starts a candidate whose command is deaf to these signals.
fn stand(stage: &Stage<'_>, options: &[&str], deaf: &str) -> Running {
    let command = ["--", "sh", "-c", LEAD, "sh", deaf];
    stage.start(["elect", stage.lock.as_str()].iter().chain(options).chain(&command).copied())
}

/// A candidate, once it has its place in the line.
fn stand_behind(stage: &Stage<'_>, options: &[&str], place: u64) -> Running {
    let candidate = stand(stage, options, "");
    candidate.until("the candidate to queue", || stage.sandbox.waiting(&stage.lock) >= place)
}

/// The leaders so far, once there are so many.
fn leaders(stage: &Stage<'_>, count: usize) -> Vec<Pid> {
    let pids = stage.sandbox.pids("pids", count);
    assert_eq!(pids.len(), count, "somebody leads too soon");
    pids
}

fn end(stage: &Stage<'_>, leader: Pid) {
    std::fs::write(stage.sandbox.path(&format!("end-{}", leader.as_raw_pid())), "").unwrap();
}

/// Nobody met another leader, and each term was higher than the last.
fn check_terms(stage: &Stage<'_>, count: usize) {
    assert_eq!(stage.sandbox.read("met"), "", "two led at once");
    let terms = stage.sandbox.read("terms");
    let terms: Vec<u64> = terms.lines().map(|line| line.parse().unwrap()).collect();
    assert!(terms.len() == count && terms.is_sorted_by(|one, next| one < next), "{terms:?}");
}

/// When the command ends by itself, its candidate exits with its code and the next leads.
fn one_of_many_leads(stage: &Stage<'_>) {
    let candidates: Vec<_> = (0..3).map(|_| stand(stage, &[], "")).collect();
    eventually("all to stand", || stage.sandbox.waiting(&stage.lock) == 2);
    for number in 1..=3 {
        let all = leaders(stage, number);
        end(stage, all[number - 1]);
    }
    for candidate in candidates {
        let finished = candidate.finish().expect(7);
        assert!(finished.stderr.contains("elected with term"), "{}", finished.stderr);
    }
    check_terms(stage, 3);
}

fn a_killed_leader_is_followed(stage: &Stage<'_>) {
    let ttl = ["--ttl", "3s"];
    let first = stand(stage, &ttl, "");
    let leader = leaders(stage, 1)[0];
    let second = stand_behind(stage, &ttl, 1);
    let killed = Moment::now();
    first.signal(Signal::KILL);
    let next = leaders(stage, 2)[1];
    let took = Moment::now().since(killed);
    assert!(!is_alive(leader), "the first command is still there");
    assert!(took < Duration::from_secs(4) + SLACK, "{took:?}");
    end(stage, next);
    second.finish().expect(7);
    check_terms(stage, 2);
}

fn a_deposed_leader_stops(stage: &Stage<'_>) {
    let candidate = stand(stage, &["--ttl", "10s", "--grace", "200ms"], "TERM");
    let first = leaders(stage, 1)[0];
    revoke(stage);
    let second = leaders(stage, 2)[1];
    assert!(!is_alive(first), "the command of the last term is still there");
    end(stage, second);
    let finished = candidate.finish().expect(7);
    for words in ["was lost", "deposed; standing for election again"] {
        assert!(finished.stderr.contains(words), "{words}: {}", finished.stderr);
    }
    check_terms(stage, 2);
}

fn a_signal_hands_over_at_once(stage: &Stage<'_>) {
    let first = stand(stage, &[], "");
    leaders(stage, 1);
    let second = stand_behind(stage, &[], 1);
    let asked = Moment::now();
    first.signal(Signal::TERM);
    leaders(stage, 2);
    let took = Moment::now().since(asked);
    // Far less than the lease of 30 s, or the 10 s that a store keeps.
    assert!(took < Duration::from_secs(2) + SLACK, "{took:?}");
    first.finish().expect(143);
    second.signal(Signal::INT);
    second.finish().expect(130);
    check_terms(stage, 2);
}

/// The next does not wait for a command that does not want to end.
fn a_signal_ends_a_deaf_command(stage: &Stage<'_>) {
    let first = stand(stage, &["--grace", "300ms"], "TERM INT");
    let leader = leaders(stage, 1)[0];
    let second = stand_behind(stage, &[], 1);
    first.signal(Signal::TERM);
    let next = leaders(stage, 2)[1];
    assert!(!is_alive(leader), "the first command is still there");
    first.finish().expect(137);
    end(stage, next);
    second.finish().expect(7);
    check_terms(stage, 2);
}

fn a_signal_ends_a_campaign(stage: &Stage<'_>) {
    let first = stand(stage, &[], "");
    let leader = leaders(stage, 1)[0];
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let waiting = stand_behind(stage, &[], 1);
        waiting.signal(signal);
        waiting.finish().expect(code);
        assert_eq!(stage.sandbox.waiting(&stage.lock), 0);
    }
    end(stage, leader);
    first.finish().expect(7);
    check_terms(stage, 1);
}
