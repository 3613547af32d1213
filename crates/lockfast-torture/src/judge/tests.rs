//! Small histories, each with a twin: one that breaks a rule, and one that almost does.

use super::*;

/// Milliseconds.
const MS: u64 = 1_000_000;
/// The ttl of all of them.
const TTL: u64 = 3_000 * MS;

/// A history that is written down by hand, with times in milliseconds.
struct Story {
    events: Vec<Event>,
}

impl Story {
    fn new() -> Self {
        let start = What::Start {
            format: crate::history::FORMAT,
            seed: 1,
            store: "memory:".into(),
            guarantee: "correctness".into(),
            fair: true,
            ttl: TTL,
            lasts: 60 * SECOND,
            processes: 3,
            tasks: 1,
            locks: vec!["a".into()],
        };
        Self { events: vec![Event { at: 0, worker: None, what: start }] }
    }

    fn at(mut self, ms: u64, worker: u32, what: What) -> Self {
        self.events.push(Event { at: ms * MS, worker: Some(worker), what });
        self
    }

    fn ask(self, ms: u64, claim: u64, mode: Mode) -> Self {
        let what = What::Asked { claim, lock: "a".into(), mode, wait: None };
        self.at(ms, worker_of(claim), what)
    }

    fn grant(self, ms: u64, claim: u64, fence: u64) -> Self {
        let what = What::Granted { claim, fence, deadline: ms * MS + TTL };
        self.at(ms, worker_of(claim), what)
    }

    fn still(self, ms: u64, claim: u64) -> Self {
        self.at(ms, worker_of(claim), What::Still { claim, deadline: ms * MS + TTL })
    }

    fn release(self, ms: u64, claim: u64) -> Self {
        let ended = What::Ended {
            claim,
            how: "release".into(),
            cause: None,
            last: None,
            deadline: ms * MS + TTL,
            kept: None,
        };
        let released = What::Released { claim, how: "released".into() };
        self.at(ms, worker_of(claim), ended).at(ms, worker_of(claim), released)
    }

    /// Asked for, granted, proved and released.
    fn hold(self, from: u64, to: u64, claim: u64, fence: u64, mode: Mode) -> Self {
        self.ask(from, claim, mode).grant(from, claim, fence).release(to, claim)
    }

    fn lose(self, ms: u64, claim: u64, deadline: u64) -> Self {
        let what = What::Ended {
            claim,
            how: "lost".into(),
            cause: Some("expired: no answer".into()),
            last: None,
            deadline: deadline * MS,
            kept: None,
        };
        self.at(ms, worker_of(claim), what)
    }

    fn fault(self, ms: u64, to: u64, fault: &str, target: &str) -> Self {
        self.fault_of(ms, to, fault, target, false, false)
    }

    fn fault_of(
        mut self,
        ms: u64,
        to: u64,
        fault: &str,
        target: &str,
        outage: bool,
        beyond: bool,
    ) -> Self {
        let number = u32::try_from(ms).unwrap();
        let (fault, target) = (fault.to_owned(), target.to_owned());
        let what = What::Fault { number, fault, target, outage, beyond };
        self.events.push(Event { at: ms * MS, worker: None, what });
        self.events.push(Event { at: to * MS, worker: None, what: What::Healed { number } });
        self
    }

    fn director(mut self, ms: u64, what: What) -> Self {
        self.events.push(Event { at: ms * MS, worker: None, what });
        self
    }

    fn wrote(self, ms: u64, claim: u64, fence: u64, highest: u64, number: u64) -> Self {
        let admitted = number > 0;
        self.at(ms, worker_of(claim), What::Wrote { claim, fence, admitted, highest, number })
    }

    fn judge(mut self) -> Verdict {
        let left = What::Left { held: vec![], waited_for: vec![], processes: vec![] };
        if !self.events.iter().any(|event| matches!(event.what, What::Left { .. })) {
            self = self.director(60_000, left);
        }
        let mut events = self.director(60_000, What::End).events;
        events.sort_by_key(|event| event.at);
        let mut judge = Judge::default();
        events.iter().for_each(|event| judge.feed(event));
        judge.finish(0)
    }

    /// What is found: the kinds with how many are broken and allowed.
    fn finds(self, expected: &[(Kind, u64, u64)]) -> Verdict {
        let verdict = self.judge();
        let found: Vec<(Kind, u64, u64)> = verdict
            .found
            .iter()
            .map(|(kind, tally)| (*kind, tally.broken, tally.allowed + tally.revoked))
            .collect();
        assert_eq!(found, expected, "{:#?}", verdict.findings);
        let is_broken = expected.iter().any(|(_, broken, _)| *broken > 0);
        let outcome = if is_broken { Outcome::Broken } else { Outcome::Kept };
        assert_eq!(verdict.outcome, outcome, "{:?}", verdict.notes);
        verdict
    }
}

/// Claims 10 to 19 are of worker 1.
fn worker_of(claim: u64) -> u32 {
    u32::try_from(claim / 10).unwrap()
}

use Mode::{Exclusive, Shared};

#[test]
fn exclusive_holds_that_overlap() {
    let verdict = Story::new()
        .hold(100, 200, 10, 1, Exclusive)
        .hold(150, 180, 20, 2, Exclusive)
        .finds(&[(Kind::Overlap, 1, 0)]);
    let finding = &verdict.findings[0];
    assert_eq!((finding.from, finding.until), (150 * MS, 180 * MS));
    assert_eq!(finding.parties.iter().map(|party| party.claim).collect::<Vec<_>>(), [10, 20]);
    let text = "two held \"a\" at 0.150 s: worker 1 (claim 10, fence 1), worker 2 (claim 20, \
                fence 2)";
    assert_eq!(finding.text, text);
    Story::new().hold(100, 200, 10, 1, Exclusive).hold(200, 300, 20, 2, Exclusive).finds(&[]);
}

#[test]
fn readers_and_writers() {
    Story::new().hold(100, 200, 10, 1, Shared).hold(150, 300, 20, 2, Exclusive).finds(&[(
        Kind::ReaderBesideWriter,
        1,
        0,
    )]);
    Story::new()
        .hold(100, 200, 10, 1, Shared)
        .hold(150, 250, 20, 2, Shared)
        .hold(250, 300, 30, 3, Exclusive)
        .finds(&[]);
}

#[test]
fn permits() {
    let two = Mode::Permits(2);
    let full = || Story::new().hold(100, 200, 10, 1, two).hold(100, 210, 20, 2, two);
    full().hold(150, 170, 30, 3, two).finds(&[(Kind::PermitsExceeded, 1, 0)]);
    full().hold(200, 250, 30, 3, two).finds(&[]);
}

#[test]
fn a_paused_holder_past_its_deadline() {
    let paused = |wakes: Story| {
        wakes
            .ask(100, 10, Exclusive)
            .grant(100, 10, 1)
            .fault(200, 9_000, "pause", "worker 1")
            .hold(3_500, 8_000, 20, 2, Exclusive)
    };
    // It wakes up, has not looked yet, and gives back what it has no more.
    paused(Story::new())
        .at(
            9_001,
            1,
            What::Ended {
                claim: 10,
                how: "release".into(),
                cause: None,
                last: None,
                deadline: 3_100 * MS,
                kept: None,
            },
        )
        .finds(&[]);
    // It is told of the loss as soon as it can be.
    paused(Story::new()).lose(9_001, 10, 3_100).finds(&[]);
    // It looks and is told that all is well.
    paused(Story::new()).still(9_001, 10).finds(&[(Kind::Overlap, 1, 0)]);
}

#[test]
fn a_killed_holder() {
    let killed = |at| {
        Story::new()
            .ask(100, 10, Exclusive)
            .grant(100, 10, 1)
            .still(500, 10)
            .director(at, What::WorkerKilled { worker: 1 })
            .still(5_000, 10)
            .hold(4_000, 5_500, 20, 2, Exclusive)
    };
    // What it does after it was to be killed is not judged.
    let verdict = killed(600).finds(&[]);
    assert_eq!(verdict.take_over.unwrap().took, 0, "somebody asked, and was granted it at once");
    killed(5_001).finds(&[(Kind::Overlap, 1, 0)]);
}

#[test]
fn the_take_over_counts_from_when_somebody_waits() {
    let story = |asked| {
        Story::new()
            .ask(100, 10, Exclusive)
            .grant(100, 10, 1)
            .director(600, What::WorkerKilled { worker: 1 })
            .ask(asked, 20, Exclusive)
            .fault_of(2_000, 2_500, "server-kill", "server 1", true, false)
            .grant(4_000, 20, 2)
            .release(4_100, 20)
            .finds(&[])
            .take_over
            .unwrap()
    };
    let early = story(200);
    assert_eq!((early.took, early.took_without_outages), (3_400 * MS, 2_900 * MS));
    assert_eq!(early.after_deadline, 900 * MS as i64);
    assert_eq!(story(3_000).took, 1_000 * MS);
}

/// B211: who is stopped takes nothing over, whatever the store does.
#[test]
fn the_take_over_does_not_count_faults_of_who_waits() {
    let story = |target| {
        Story::new()
            .ask(100, 10, Exclusive)
            .grant(100, 10, 1)
            .director(600, What::WorkerKilled { worker: 1 })
            .ask(700, 20, Exclusive)
            .fault(1_000, 3_900, "pause", target)
            .grant(4_000, 20, 2)
            .release(4_100, 20)
            .finds(&[])
            .take_over
            .unwrap()
            .took_without_outages
    };
    assert_eq!([story("worker 2"), story("worker 3")], [400 * MS, 3_300 * MS]);
}

#[test]
fn fences_that_are_equal_or_fall() {
    Story::new().hold(100, 200, 10, 5, Exclusive).hold(300, 400, 20, 5, Exclusive).finds(&[(
        Kind::FenceNotRising,
        1,
        0,
    )]);
    Story::new().hold(100, 200, 10, 6, Exclusive).hold(300, 400, 20, 5, Exclusive).finds(&[(
        Kind::FenceNotRising,
        1,
        0,
    )]);
    Story::new().hold(100, 200, 10, 5, Exclusive).hold(300, 400, 20, 6, Exclusive).finds(&[]);
    // Asked for before the other, so that it could have been granted before it; but exclusively.
    let waited = |mode| Story::new().ask(50, 20, mode).hold(100, 200, 10, 6, mode);
    waited(Exclusive).grant(300, 20, 5).release(310, 20).finds(&[(Kind::FenceNotRising, 1, 0)]);
    waited(Shared).grant(300, 20, 5).release(310, 20).finds(&[]);
    // Readers, of which one asked when the other had it.
    Story::new().hold(100, 900, 10, 6, Shared).hold(200, 400, 20, 5, Shared).finds(&[(
        Kind::FenceNotRising,
        1,
        0,
    )]);
}

#[test]
fn a_grant_that_arrives_after_its_deadline_is_no_hold() {
    let late = What::Granted { claim: 10, fence: 1, deadline: 3_000 * MS };
    Story::new()
        .ask(100, 10, Exclusive)
        .hold(3_500, 5_000, 20, 2, Exclusive)
        .at(4_000, 1, late)
        .lose(4_001, 10, 3_950)
        .finds(&[]);
}

#[test]
fn a_revocation_lets_the_next_in_first() {
    let story = |how: &str| {
        Story::new()
            .ask(100, 10, Exclusive)
            .grant(100, 10, 1)
            .at(300, 3, What::Revoking { lock: "a".into() })
            .hold(310, 400, 20, 2, Exclusive)
            .still(320, 10)
            .at(330, 3, What::Revoked { lock: "a".into(), how: how.into() })
            .still(340, 10)
    };
    let verdict = story("revoked").finds(&[(Kind::Overlap, 0, 1)]);
    assert_eq!(verdict.findings[0].ruling, Ruling::Revoked);
    assert_eq!(verdict.counts.overlaps, 0);
    // The next grant is none of that revocation's, and the holder should have heard of it.
    let found = [(Kind::Overlap, 1, 1), (Kind::LossToldLate, 1, 0)];
    story("revoked").hold(9_000, 9_100, 30, 3, Exclusive).still(9_050, 10).finds(&found);
    story("not_held").hold(2_000, 2_200, 30, 3, Exclusive).still(2_100, 10).finds(&found);
}

#[test]
fn a_grant_that_was_revoked_on_its_way() {
    let story = |released: bool| {
        let story = Story::new()
            .ask(100, 10, Exclusive)
            .ask(110, 20, Exclusive)
            .at(200, 3, What::Revoking { lock: "a".into() })
            .at(210, 3, What::Revoked { lock: "a".into(), how: "revoked".into() })
            .grant(220, 20, 2)
            .grant(230, 10, 1)
            .still(240, 20);
        match released {
            true => story.release(250, 20).release(260, 10),
            false => story.release(250, 20).lose(260, 10, 3_230),
        }
    };
    story(false).finds(&[(Kind::Overlap, 0, 1), (Kind::FenceNotRising, 0, 1)]);
    // The store says that it had not lost it, so it was not revoked.
    story(true).finds(&[(Kind::Overlap, 1, 0), (Kind::FenceNotRising, 1, 0)]);
}

#[test]
fn a_revocation_that_is_not_heard_of() {
    let story = |until| {
        Story::new()
            .ask(100, 10, Exclusive)
            .grant(100, 10, 1)
            .at(300, 3, What::Revoking { lock: "a".into() })
            .at(305, 3, What::Revoked { lock: "a".into(), how: "revoked".into() })
            .hold(310, 400, 20, 2, Exclusive)
            .still(320, 10)
            .still(until, 10)
    };
    // At the next renewal: half of the ttl.
    story(1_900).finds(&[(Kind::Overlap, 0, 1)]);
    story(1_920).finds(&[(Kind::Overlap, 0, 1), (Kind::LossToldLate, 1, 0)]);
    story(1_920).fault(250, 900, "delay", "the way of worker 1").finds(&[(Kind::Overlap, 0, 1)]);
    story(1_920).fault(250, 900, "server-pause", "server 0").finds(&[(Kind::Overlap, 0, 1)]);
}

#[test]
fn whoever_is_overtaken_is_seen_unless_a_fault_explains_it() {
    let story = |from: u64| {
        Story::new()
            .fault(from, from + 100, "pause", &format!("worker {}", worker_of(20)))
            .ask(100, 10, Exclusive)
            .grant(100, 10, 1)
            .ask(200, 20, Exclusive)
            .release(300, 10)
            .hold(4_200, 4_300, 30, 2, Exclusive)
            .grant(4_400, 20, 3)
            .release(4_500, 20)
    };
    let verdict = story(50_000).judge();
    let Overtaken { count, longest, at, .. } = verdict.overtaken;
    assert_eq!((count, longest, at), (1, 4_000 * MS, 4_400 * MS));
    assert_eq!(story(500).judge().overtaken.count, 0);
}

#[test]
fn whoever_is_never_granted_it_was_not_overtaken() {
    let story = |last: What| {
        Story::new()
            .hold(100, 300, 10, 1, Exclusive)
            .ask(200, 20, Exclusive)
            .hold(4_200, 4_300, 30, 2, Exclusive)
            .hold(4_400, 4_500, 40, 3, Exclusive)
            .at(4_600, 2, last)
            .judge()
            .overtaken
    };
    let granted = story(What::Granted { claim: 20, fence: 4, deadline: 7_000 * MS });
    assert_eq!((granted.count, granted.longest), (1, 4_200 * MS), "it counts once");
    let gone = story(What::NotGranted { claim: 20, why: "cancelled".into() });
    assert_eq!((gone.count, gone.longest), (0, 0));
}

#[test]
fn a_run_is_not_overtaken() {
    // It is recorded when it is started, which is long before it asks the store.
    let run = || {
        let asked =
            What::Asked { claim: 90, lock: "a".into(), mode: Exclusive, wait: Some(6_000 * MS) };
        Story::new().director(200, asked).hold(4_200, 4_300, 30, 1, Exclusive)
    };
    let killed = run().director(5_000, What::NotGranted { claim: 90, why: "killed".into() });
    assert_eq!(killed.judge().overtaken.count, 0);
    let granted = What::Granted { claim: 90, fence: 2, deadline: 7_000 * MS };
    let started = run().director(4_400, What::RunStarted { claim: 90, pid: 7 });
    assert_eq!(started.director(4_401, granted).judge().overtaken.count, 0);
}

#[test]
fn a_fault_beyond_the_guarantee_allows_a_second_grant_and_no_lower_fence() {
    let story = |beyond, fence| {
        Story::new()
            .ask(100, 10, Exclusive)
            .grant(100, 10, 5)
            .fault_of(200, 900, "server-promote", "server 1", false, beyond)
            .hold(1_000, 1_200, 20, fence, Exclusive)
            .still(1_100, 10)
            .still(8_500, 10)
            .hold(8_000, 8_900, 30, 9, Exclusive)
    };
    let verdict = story(true, 6).finds(&[(Kind::Overlap, 1, 1)]);
    let [broken, allowed] = &verdict.findings[..] else { panic!("{verdict:?}") };
    assert_eq!(allowed.ruling, Ruling::Allowed);
    assert!(allowed.reason.contains("does not cover server-promote of server 1"));
    assert_eq!(allowed.faults.len(), 1);
    assert_eq!(broken.from, 8_000 * MS, "too long after the fault");
    story(false, 6).finds(&[(Kind::Overlap, 2, 0)]);
    // So long may a holder believe in what was forgotten: one and a half ttl.
    let later = |at: u64| {
        Story::new()
            .ask(100, 10, Exclusive)
            .grant(100, 10, 5)
            .fault_of(200, 900, "server-promote", "server 1", false, true)
            .still(at, 10)
            .hold(at, at + 200, 20, 6, Exclusive)
            .still(at + 100, 10)
    };
    later(5_390).finds(&[(Kind::Overlap, 0, 1)]);
    later(5_410).finds(&[(Kind::Overlap, 1, 0)]);
    story(true, 4).finds(&[(Kind::Overlap, 1, 1), (Kind::FenceNotRising, 1, 0)]);
}

#[test]
fn writes_through_a_gate() {
    let holds = || Story::new().hold(100, 200, 10, 1, Exclusive).hold(300, 400, 20, 2, Exclusive);
    let good = holds().wrote(150, 10, 1, 0, 1).wrote(310, 20, 2, 1, 2).wrote(320, 10, 1, 2, 0);
    let verdict = good.finds(&[]);
    let writes = Writes { tried: 3, admitted: 2, refused: 1, stale_admitted: 0 };
    assert_eq!(verdict.writes, writes);
    let stale = holds().wrote(310, 20, 2, 0, 1).wrote(320, 10, 1, 1, 2);
    assert_eq!(stale.finds(&[(Kind::StaleWrite, 1, 0)]).writes.stale_admitted, 1);
    // The one that was let through first is recorded last.
    holds().wrote(310, 20, 2, 0, 2).wrote(320, 10, 1, 0, 1).finds(&[]);
    // The gate itself says that it had seen a higher one.
    holds().wrote(320, 10, 1, 2, 7).finds(&[(Kind::StaleWrite, 1, 0)]);
}

#[test]
fn a_loss_that_is_told_late() {
    let story = || Story::new().ask(100, 10, Exclusive).grant(100, 10, 1);
    let late = story().lose(3_210, 10, 3_100).finds(&[(Kind::LossToldLate, 1, 0)]);
    assert_eq!(late.losses.shortest_before_deadline, Some(-110 * MS as i64));
    assert_eq!(late.losses.causes, BTreeMap::from([("expired".to_owned(), 1)]));
    story().lose(3_190, 10, 3_100).finds(&[]);
    // Whoever is kept from running by the machine cannot be told either.
    let kept = |by: u64| {
        let mut kept_back = story().lose(3_600, 10, 3_100);
        for event in &mut kept_back.events {
            if let What::Ended { kept, .. } = &mut event.what {
                *kept = Some(by * MS);
            }
        }
        kept_back
    };
    kept(410).finds(&[]);
    kept(390).finds(&[(Kind::LossToldLate, 1, 0)]);
    let early = story().lose(3_000, 10, 3_100).finds(&[]);
    assert_eq!(early.losses.median_before_deadline, Some(100 * MS as i64));
    // Whoever waits for the answer to a revocation looks when it has come.
    let revokes = |worker| {
        story()
            .at(3_000, worker, What::Revoking { lock: "a".into() })
            .at(3_699, worker, What::Revoked { lock: "a".into(), how: "not_held".into() })
            .lose(3_700, 10, 3_100)
    };
    revokes(1).finds(&[]);
    revokes(2).finds(&[(Kind::LossToldLate, 1, 0)]);
    // Whoever is stopped cannot be told; whoever runs again can.
    story().fault(200, 8_000, "pause", "worker 1").lose(8_090, 10, 3_100).finds(&[]);
    let slow = story().fault(200, 8_000, "pause", "worker 1").lose(8_110, 10, 3_100);
    slow.finds(&[(Kind::LossToldLate, 1, 0)]);
    story().fault(200, 8_000, "cut", "the way of worker 1").lose(8_000, 10, 3_100).finds(&[(
        Kind::LossToldLate,
        1,
        0,
    )]);
}

/// Claim 20 waits from 1 s until `granted`, while claim 10 has it until 2 s.
fn waits(granted: u64) -> Story {
    Story::new()
        .hold(100, 2_000, 10, 1, Exclusive)
        .ask(1_000, 20, Exclusive)
        .grant(granted, 20, 2)
        .release(granted + 10, 20)
}

#[test]
fn a_waiter_starves_while_the_lock_is_free() {
    let starved = waits(12_100).finds(&[(Kind::Starved, 1, 0)]);
    assert_eq!((starved.findings[0].from, starved.findings[0].until), (2_000 * MS, 12_100 * MS));
    let fed = waits(11_900).finds(&[]);
    assert_eq!(fed.free_wait.longest_counted, 9_900 * MS);
    // Those who starve together are one finding.
    let gives_up = What::NotGranted { claim: 30, why: "taken".into() };
    let both = waits(12_100).ask(1_500, 30, Exclusive).at(12_150, 3, gives_up);
    assert_eq!(both.finds(&[(Kind::Starved, 1, 0)]).findings[0].parties.len(), 2);
}

#[test]
fn outages_and_own_faults_excuse() {
    let (long, short) = ((3_000, 9_000), (3_000, 4_000));
    let cases = [
        ("server-kill", "server 1", true, long, 0),
        ("server-kill", "server 1", true, short, 1),
        ("server-kill", "server 1", false, long, 1),
        ("pause", "worker 2", false, long, 0),
        ("cut", "the way of worker 2", false, long, 0),
        ("cut", "the way of worker 2", false, short, 1),
        ("cut", "the way of worker 3", false, long, 1),
        ("partition", "the way of workers 0, 2", false, long, 0),
        ("partition", "the way of workers 2, 3", false, short, 1),
        ("partition", "the way of workers 0, 3, 12", false, long, 1),
    ];
    for (fault, target, outage, (from, to), starved) in cases {
        let story = waits(14_000).fault_of(from, to, fault, target, outage, false);
        let verdict = story.judge();
        let count = verdict.found.get(&Kind::Starved).map_or(0, |tally| tally.broken);
        assert_eq!(count, starved, "{fault} of {target} from {from} to {to}");
        assert_eq!(verdict.free_wait.longest, 12_000 * MS);
    }
}

#[test]
fn leases_that_may_live_excuse() {
    let wait = |story: Story, granted| {
        story.ask(1_000, 20, Exclusive).grant(granted, 20, 2).release(granted + 10, 20)
    };
    // Killed at 2 s, it may live for one and a half ttl, and a second.
    let killed = || {
        let story = Story::new().ask(100, 10, Exclusive).grant(100, 10, 1);
        story.director(2_000, What::WorkerKilled { worker: 1 })
    };
    wait(killed(), 17_400).finds(&[]);
    wait(killed(), 17_600).finds(&[(Kind::Starved, 1, 0)]);
    // As long after its deadline at 3.1 s, if a renewal may have been held up.
    let held_up = |fault: &str, target: &str| killed().fault(1_900, 2_001, fault, target);
    wait(held_up("stall", "the way of worker 1"), 18_600).finds(&[]);
    wait(held_up("stall", "the way of worker 1"), 18_700).finds(&[(Kind::Starved, 1, 0)]);
    wait(held_up("stall", "the way of worker 3"), 17_600).finds(&[(Kind::Starved, 1, 0)]);
    wait(held_up("cut", "the way of worker 1"), 17_600).finds(&[(Kind::Starved, 1, 0)]);
    // Cancelled while nothing could reach the store: it may have been granted.
    let cancelled = |asked, fault: &str, target: &str| {
        Story::new().ask(asked, 10, Exclusive).fault(1_500, 2_500, fault, target).at(
            2_000,
            1,
            What::NotGranted { claim: 10, why: "cancelled".into() },
        )
    };
    let own = "the way of worker 1";
    wait(cancelled(500, "cut", own), 16_400).finds(&[]);
    wait(cancelled(500, "cut", own), 16_600).finds(&[(Kind::Starved, 1, 0)]);
    // What is held up reaches the store when the fault is over.
    wait(cancelled(500, "stall", own), 16_900).finds(&[]);
    wait(cancelled(500, "stall", own), 17_100).finds(&[(Kind::Starved, 1, 0)]);
    let several = "the way of workers 0, 1";
    wait(cancelled(500, "partition", several), 16_900).finds(&[]);
    wait(cancelled(500, "partition", several), 17_100).finds(&[(Kind::Starved, 1, 0)]);
    // It was behind the waiter, or nothing kept it from the store.
    wait(cancelled(1_001, "cut", own), 12_500).finds(&[(Kind::Starved, 1, 0)]);
    let others = cancelled(500, "cut", "the way of worker 3");
    wait(others, 12_500).finds(&[(Kind::Starved, 1, 0)]);
}

#[test]
fn a_run_outlives_its_worker() {
    let run = |killed| {
        Story::new()
            .ask(100, 10, Exclusive)
            .director(killed, What::WorkerKilled { worker: 1 })
            .at(400, 1, What::RunStarted { claim: 10, pid: 7 })
            .grant(400, 10, 1)
            .still(2_000, 10)
            .ask(1_000, 20, Exclusive)
    };
    // A claim that was killed before it was heard of may have been granted, and may be offered it.
    for (killed, starves) in [(300, 18_500), (500, 12_200)] {
        let overlap = run(killed).grant(1_500, 20, 2).release(2_500, 20);
        overlap.finds(&[(Kind::Overlap, 1, 0)]);
        // Its command may go on without being heard of until its lease must have ended.
        run(killed).grant(17_400, 20, 2).release(17_500, 20).finds(&[]);
        let starved = run(killed).grant(17_600, 20, 2).release(17_700, 20);
        starved.finds(&[(Kind::Starved, 1, 0)]);
        let ended = run(killed).at(2_100, 1, What::RunEnded { claim: 10 });
        let starved = ended.grant(starves, 20, 2).release(starves + 100, 20);
        starved.finds(&[(Kind::Starved, 1, 0)]);
    }
}

#[test]
fn readers_wait_behind_a_writer_that_waits_for_readers() {
    let reads = |story: Story| {
        story
            .ask(100, 10, Shared)
            .grant(100, 10, 1)
            .ask(600, 20, Shared)
            .still(2_500, 10)
            .release(14_000, 10)
            .grant(14_001, 20, 3)
            .release(14_100, 20)
    };
    reads(Story::new()).finds(&[(Kind::Starved, 1, 0)]);
    let writer = What::NotGranted { claim: 30, why: "taken".into() };
    reads(Story::new().ask(500, 30, Exclusive).at(14_000, 3, writer)).finds(&[]);
}

#[test]
fn what_is_left_at_the_end() {
    let left =
        What::Left { held: vec!["a".into()], waited_for: vec!["a".into()], processes: vec![4711] };
    Story::new().hold(1, 2, 10, 1, Exclusive).director(50_000, left).finds(&[
        (Kind::HeldAtEnd, 1, 0),
        (Kind::WaitedForAtEnd, 1, 0),
        (Kind::ProcessLeft, 1, 0),
    ]);
}

#[test]
fn workers_that_end_by_themselves() {
    let ended = |code| {
        let story = Story::new().hold(1, 2, 10, 1, Exclusive);
        story.director(5_000, What::WorkerEnded { worker: 1, code })
    };
    ended(Some(0)).finds(&[]);
    ended(Some(101)).finds(&[(Kind::WorkerFailed, 1, 0)]);
    ended(None).finds(&[(Kind::WorkerFailed, 1, 0)]);
    ended(None).director(4_000, What::WorkerKilled { worker: 1 }).finds(&[]);
}

#[test]
fn a_history_that_breaks_off_is_incomplete() {
    let mut judge = Judge::default();
    Story::new().hold(1, 2, 10, 1, Exclusive).events.iter().for_each(|event| judge.feed(event));
    let verdict = judge.finish(3);
    assert_eq!(verdict.outcome, Outcome::Incomplete);
    assert_eq!(verdict.notes.len(), 3, "{:?}", verdict.notes);
}
