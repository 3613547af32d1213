//! The rule by examples, and by random histories against what must never happen.

use std::time::Duration;

use lockfast_core::queue::{Standing, standing};
use lockfast_core::{ErrorKind, Mode, Moment, RevokeRequest};
use proptest::prelude::*;

use super::*;
use crate::claim::Saved;

const TTL: Duration = Duration::from_nanos(100);
const SHARED: Mode = Mode::Shared;
const EXCLUSIVE: Mode = Mode::Exclusive;

fn permit(limit: u32) -> Mode {
    Mode::permit(limit).unwrap()
}

fn holder(number: u8) -> HolderId {
    HolderId::from_bytes([number; 16])
}

fn client(number: u8) -> ClientId {
    ClientId::from_bytes([number; 6])
}

fn request(number: u8, mode: Mode, wait: Wait) -> AcquireRequest {
    AcquireRequest {
        name: LockName::new("x").unwrap(),
        mode,
        holder: holder(number),
        ttl: TTL,
        lock_delay: Duration::ZERO,
        wait,
        detached: false,
        floor: None,
    }
}

/// A queue with everything that its methods want; holder N asks through client N.
struct Bench {
    queue: Queue,
    fences: FenceCounter,
    effects: Vec<Effect>,
    now_ns: u64,
}

impl Bench {
    fn new() -> Self {
        Self {
            queue: Queue::default(),
            fences: FenceCounter::after(0),
            effects: Vec::new(),
            now_ns: 1_000,
        }
    }

    fn clock(&self) -> Clock {
        Clock { now_ns: self.now_ns, wall_us: 0 }
    }

    fn ask(&mut self, request: &AcquireRequest) -> Result<Admission> {
        let clock = self.clock();
        self.queue.expire(clock, &mut self.fences, &mut self.effects);
        let client = request.holder.client();
        self.queue.acquire(client, request, clock, &mut self.fences, &mut self.effects)
    }

    fn acquire(&mut self, number: u8, mode: Mode) -> Admission {
        self.ask(&request(number, mode, Wait::Forever)).unwrap()
    }

    fn attempt(&mut self, number: u8, mode: Mode) -> Result<Admission> {
        self.ask(&request(number, mode, Wait::No))
    }

    fn release(&mut self, number: u8) -> ReleaseOutcome {
        let clock = self.clock();
        self.queue.expire(clock, &mut self.fences, &mut self.effects);
        self.queue.release(holder(number), clock, &mut self.fences, &mut self.effects)
    }

    fn renew(&mut self, number: u8) -> Upkeep {
        let clock = self.clock();
        self.queue.expire(clock, &mut self.fences, &mut self.effects);
        let request = RenewRequest {
            name: LockName::new("x").unwrap(),
            holder: holder(number),
            ttl: TTL,
            lock_delay: Duration::ZERO,
        };
        self.queue.renew(&request, clock.now_ns)
    }

    fn downgrade(&mut self, number: u8) -> Result<Upkeep> {
        let clock = self.clock();
        self.queue.expire(clock, &mut self.fences, &mut self.effects);
        self.queue.downgrade(holder(number), clock, &mut self.fences, &mut self.effects)
    }

    fn revoke(&mut self, expect_fence: Option<Fence>) -> Revocation {
        let clock = self.clock();
        self.queue.expire(clock, &mut self.fences, &mut self.effects);
        let request = RevokeRequest {
            name: LockName::new("x").unwrap(),
            expect_fence,
            reason: "because".into(),
        };
        self.queue.revoke(&request, clock, &mut self.fences, &mut self.effects)
    }

    fn bury(&mut self, dead: u8) {
        let clock = self.clock();
        let dead = client(dead);
        self.queue.bury(|other| *other == dead, clock, &mut self.fences, &mut self.effects);
    }

    /// The numbers of those who have the lock.
    fn holders(&self) -> Vec<u8> {
        let held = self.queue.claims().iter().filter(|claim| claim.hold().is_some());
        held.map(|claim| claim.holder.as_bytes()[0]).collect()
    }

    fn waiting(&self) -> Vec<u8> {
        let waiting = self.queue.claims().iter().filter(|claim| claim.is_waiting());
        waiting.map(|claim| claim.holder.as_bytes()[0]).collect()
    }

    fn fence_of(&self, number: u8) -> Option<Fence> {
        self.queue.find(holder(number)).and_then(Claim::fence)
    }

    fn happened(&mut self) -> Vec<(Happening, u8)> {
        let effects = self.effects.drain(..);
        effects.map(|effect| (effect.what, effect.claim.holder.as_bytes()[0])).collect()
    }
}

#[test]
fn who_is_let_in_next_to_whom() {
    // The modes that ask one after the other, and how many of them have the lock then.
    let table: &[(&[Mode], usize)] = &[
        (&[EXCLUSIVE], 1),
        (&[EXCLUSIVE, EXCLUSIVE], 1),
        (&[EXCLUSIVE, SHARED], 1),
        (&[SHARED, SHARED, SHARED], 3),
        (&[SHARED, EXCLUSIVE], 1),
        // The reader behind the writer waits, or writers would starve.
        (&[SHARED, EXCLUSIVE, SHARED], 1),
        (&[permit(2), permit(2)], 2),
        (&[permit(2), permit(2), permit(2)], 2),
        (&[permit(1), permit(1)], 1),
        (&[permit(2), EXCLUSIVE, permit(2)], 1),
        (&[EXCLUSIVE, permit(2), permit(2)], 1),
    ];
    for (modes, expected) in table {
        let mut bench = Bench::new();
        for (number, mode) in (1..).zip(*modes) {
            bench.acquire(number, *mode);
        }
        assert_eq!(bench.holders().len(), *expected, "{modes:?}");
    }
}

#[test]
fn a_release_lets_in_the_next_and_only_those() {
    let mut bench = Bench::new();
    for (number, mode) in
        (1..).zip([EXCLUSIVE, SHARED, SHARED, EXCLUSIVE, SHARED, EXCLUSIVE, EXCLUSIVE])
    {
        bench.acquire(number, mode);
    }
    for (released, expected) in
        [(1, vec![2, 3]), (3, vec![2]), (2, vec![4]), (4, vec![5]), (5, vec![6]), (6, vec![7])]
    {
        assert_eq!(bench.release(released), ReleaseOutcome::Released);
        assert_eq!(bench.holders(), expected);
    }
}

#[test]
fn different_uses_of_one_name_are_refused() {
    let table: &[(Mode, Mode, Option<&str>)] = &[
        (permit(3), permit(5), Some("limit 5, stored 3")),
        (permit(3), SHARED, Some("asked for shared, in use as one of 3 permits")),
        (SHARED, permit(3), Some("asked for one of 3 permits, in use as shared")),
        (permit(3), permit(3), None),
        (permit(3), EXCLUSIVE, None),
        (SHARED, EXCLUSIVE, None),
        (EXCLUSIVE, permit(5), None),
    ];
    for (stored, asked, expected) in table {
        let mut bench = Bench::new();
        bench.acquire(1, *stored);
        match (bench.attempt(2, *asked), expected) {
            (Ok(_), None) => {}
            (Err(error), Some(text)) => {
                assert_eq!(error.kind(), ErrorKind::Conflict);
                assert!(error.to_string().contains(text), "{error}");
            }
            (result, _) => panic!("{stored} then {asked}: {result:?}"),
        }
    }
    // A waiting claim counts as well: both callers cannot be right.
    let mut bench = Bench::new();
    bench.acquire(1, EXCLUSIVE);
    bench.acquire(2, permit(3));
    assert_eq!(bench.attempt(3, SHARED).unwrap_err().kind(), ErrorKind::Conflict);
}

#[test]
fn the_same_holder_again() {
    let mut bench = Bench::new();
    let Admission::Granted(fence) = bench.acquire(1, EXCLUSIVE) else { panic!("it was free") };
    bench.acquire(2, EXCLUSIVE);
    bench.acquire(3, EXCLUSIVE);
    bench.now_ns += 60;
    assert_eq!(bench.acquire(1, EXCLUSIVE), Admission::Granted(fence));
    bench.now_ns += 60;
    assert_eq!(bench.holders(), [1], "its ttl began again");
    assert_eq!(bench.acquire(2, EXCLUSIVE), Admission::Waiting);
    assert_eq!(bench.waiting(), [2, 3], "it keeps its place");
    for waiting_or_not in [1, 2] {
        let error = bench.attempt(waiting_or_not, SHARED).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyHeld);
    }
    // A waiting claim that may not wait any more is given up.
    assert_eq!(bench.attempt(2, EXCLUSIVE).unwrap(), Admission::Taken);
    assert_eq!(bench.waiting(), [3]);
}

#[test]
fn who_may_not_wait_leaves_nothing() {
    let mut bench = Bench::new();
    bench.acquire(1, EXCLUSIVE);
    bench.happened();
    assert_eq!(bench.attempt(2, EXCLUSIVE).unwrap(), Admission::Taken);
    let past = Wait::Until(Moment::from_host_ns(bench.now_ns));
    assert_eq!(bench.ask(&request(3, EXCLUSIVE, past)).unwrap(), Admission::Taken);
    assert_eq!(bench.queue.claims().len(), 1);
    assert!(bench.happened().is_empty());
}

#[test]
fn what_ends_by_itself() {
    let mut bench = Bench::new();
    let delayed =
        AcquireRequest { lock_delay: Duration::from_nanos(50), ..request(1, EXCLUSIVE, Wait::No) };
    bench.ask(&delayed).unwrap();
    let until = Wait::Until(Moment::from_host_ns(bench.now_ns + 120));
    bench.ask(&request(2, EXCLUSIVE, until)).unwrap();
    bench.acquire(3, EXCLUSIVE);
    bench.now_ns += 149;
    assert_eq!(bench.attempt(4, EXCLUSIVE).unwrap(), Admission::Taken, "the delay is not over");
    assert_eq!(bench.waiting(), [3], "the wait of 2 is");
    bench.now_ns += 1;
    assert_eq!(bench.renew(1), Upkeep::Unknown { by: Some(client(3)) });
    assert_eq!(bench.holders(), [3]);
    use Happening::{Abandoned, Expired, Granted, Queued};
    let expected =
        [(Granted, 1), (Queued, 2), (Queued, 3), (Abandoned, 2), (Expired, 1), (Granted, 3)];
    assert_eq!(bench.happened(), expected);
}

#[test]
fn renewing_never_creates() {
    let mut bench = Bench::new();
    assert_eq!(bench.renew(1), Upkeep::Unknown { by: None });
    assert!(bench.queue.is_empty());
    bench.acquire(1, EXCLUSIVE);
    let fence = bench.fence_of(1);
    bench.now_ns += 99;
    assert_eq!(bench.renew(1), Upkeep::Done);
    bench.now_ns += 99;
    assert_eq!(bench.renew(1), Upkeep::Done);
    assert_eq!(bench.fence_of(1), fence);
    bench.acquire(2, EXCLUSIVE);
    assert_eq!(bench.renew(2), Upkeep::Unknown { by: Some(client(1)) }, "it only waits");
    bench.now_ns += 100;
    assert_eq!(bench.renew(1), Upkeep::Unknown { by: Some(client(2)) });
}

#[test]
fn an_operator_takes_it_away() {
    let mut bench = Bench::new();
    assert_eq!(bench.revoke(None), Revocation::NotHeld);
    bench.acquire(1, SHARED);
    bench.acquire(2, SHARED);
    bench.acquire(3, EXCLUSIVE);
    let fence = bench.fence_of(2);
    assert_eq!(bench.revoke(Fence::new(999).ok()), Revocation::OtherFence);
    assert_eq!(bench.holders(), [1, 2]);
    assert_eq!(bench.revoke(fence), Revocation::Done);
    assert_eq!(bench.holders(), [3], "the next has it at once");
    let cause = LossCause::Revoked { reason: "because".into() };
    assert_eq!(bench.renew(1), Upkeep::Revoked(cause.clone()));
    let error = bench.attempt(2, SHARED).unwrap_err();
    assert_eq!(error.loss(), Some(&cause), "what is lost stays lost");
    assert_eq!(bench.release(1), ReleaseOutcome::NotHeld);
    bench.now_ns += 100;
    assert_eq!(bench.renew(2), Upkeep::Unknown { by: None }, "then it is forgotten");
}

#[test]
fn the_dead_are_buried() {
    let mut bench = Bench::new();
    let delayed =
        AcquireRequest { lock_delay: Duration::from_nanos(30), ..request(1, SHARED, Wait::No) };
    bench.ask(&delayed).unwrap();
    let detached = AcquireRequest { detached: true, ..request(2, SHARED, Wait::No) };
    bench.ask(&detached).unwrap();
    bench.acquire(3, SHARED);
    bench.acquire(4, EXCLUSIVE);
    bench.acquire(5, EXCLUSIVE);
    for dead in [1, 2, 3, 4] {
        bench.bury(dead);
    }
    assert_eq!(bench.holders(), [1, 2], "one has its delay, one is detached");
    assert_eq!(bench.waiting(), [5]);
    bench.now_ns += 30;
    bench.bury(9);
    assert_eq!(bench.holders(), [2]);
    bench.now_ns += 70;
    bench.bury(9);
    assert_eq!(bench.holders(), [5]);
}

#[test]
fn an_exhausted_fence_grants_nothing() {
    let mut bench = Bench::new();
    bench.acquire(1, EXCLUSIVE);
    bench.acquire(2, EXCLUSIVE);
    bench.fences = FenceCounter::after(Fence::LIMIT - 1);
    assert_eq!(bench.release(1), ReleaseOutcome::Released);
    assert!(bench.holders().is_empty());
    let error = bench.attempt(3, EXCLUSIVE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TokenExhausted);
    assert_eq!(bench.waiting(), [2], "nothing of the refused is left");
}

#[test]
fn a_floor_is_overcome() {
    let mut bench = Bench::new();
    let floor = AcquireRequest { floor: Fence::new(500).ok(), ..request(1, EXCLUSIVE, Wait::No) };
    assert_eq!(bench.ask(&floor).unwrap(), Admission::Granted(Fence::new(501).unwrap()));
    let far = AcquireRequest {
        floor: Fence::new(100_000_000).ok(),
        ..request(2, EXCLUSIVE, Wait::Forever)
    };
    assert_eq!(bench.ask(&far).unwrap_err().kind(), ErrorKind::InvalidToken);
    assert_eq!(bench.queue.claims().len(), 1);
}

/// Who has the lock by the bare line, as a client of a server reads it that grants nothing itself.
fn granted_by_the_line(bench: &Bench) -> Vec<u8> {
    let live: Vec<_> = bench.queue.claims().iter().filter(|claim| claim.is_live()).collect();
    let modes: Vec<Mode> = live.iter().map(|claim| claim.mode).collect();
    let is_granted = |at: &usize| standing(&modes[..*at], modes[*at]) == Standing::Granted;
    (0..live.len()).filter(is_granted).map(|at| live[at].holder.as_bytes()[0]).collect()
}

/// Every history of a few arrivals and departures, of holders and of waiters: the walk, which
/// remembers whom it has granted, and the standing in the bare line agree.
#[test]
fn the_walk_agrees_with_the_standing() {
    const STEPS: usize = 6;
    for mode in [SHARED, permit(1), permit(2), permit(3)] {
        let mut histories: Vec<Vec<usize>> = vec![Vec::new()];
        for _ in 0..STEPS {
            // 0 and 1 are arrivals, the others the departure of whoever is at that place.
            let steps = |history: &Vec<usize>| {
                let history = history.clone();
                let steps = 0..2 + history.len();
                steps.map(move |step| [&history[..], &[step]].concat())
            };
            histories = histories.iter().flat_map(steps).collect();
        }
        for history in histories {
            let mut bench = Bench::new();
            for (number, step) in (1..).zip(&history) {
                let at = step.saturating_sub(2);
                let leaving = bench.queue.claims().get(at).map(|claim| claim.holder.as_bytes()[0]);
                match (step, leaving) {
                    (0, _) => drop(bench.ask(&request(number, EXCLUSIVE, Wait::Forever))),
                    (1, _) => drop(bench.ask(&request(number, mode, Wait::Forever))),
                    (_, Some(leaving)) => drop(bench.release(leaving)),
                    (_, None) => {}
                }
                assert_eq!(bench.holders(), granted_by_the_line(&bench), "{mode}: {history:?}");
            }
        }
    }
}

#[test]
fn a_downgrade_changes_the_mode_and_nothing_else() {
    let mut bench = Bench::new();
    bench.acquire(1, EXCLUSIVE);
    for (number, mode) in [(2, SHARED), (3, SHARED), (4, EXCLUSIVE), (5, SHARED)] {
        assert_eq!(bench.acquire(number, mode), Admission::Waiting);
    }
    let before = bench.queue.find(holder(1)).unwrap().clone();
    bench.effects.clear();
    bench.now_ns += 10;
    assert_eq!(bench.downgrade(1).unwrap(), Upkeep::Done);
    let after = bench.queue.find(holder(1)).unwrap();
    assert_eq!(*after, Claim { mode: SHARED, ..before });
    let granted: Vec<_> = bench.effects.iter().map(|it| (it.what, it.claim.holder)).collect();
    assert_eq!(granted, [(Happening::Granted, holder(2)), (Happening::Granted, holder(3))]);
    bench.effects.clear();
    assert_eq!(bench.downgrade(1).unwrap(), Upkeep::Done);
    assert!(bench.effects.is_empty(), "a repetition is none");
    assert!(matches!(bench.downgrade(4).unwrap(), Upkeep::Unknown { by: Some(_) }));
    bench.revoke(None);
    assert!(matches!(bench.downgrade(1).unwrap(), Upkeep::Revoked(_)));
}

#[test]
fn a_downgrade_does_not_go_with_permits() {
    let mut bench = Bench::new();
    bench.acquire(1, EXCLUSIVE);
    bench.acquire(2, EXCLUSIVE);
    bench.acquire(3, permit(2));
    assert_eq!(bench.downgrade(1).unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(bench.queue.find(holder(1)).unwrap().mode, EXCLUSIVE);
    bench.release(1);
    bench.release(2);
    assert_eq!(bench.downgrade(3).unwrap_err().kind(), ErrorKind::Conflict);
}

/// One step of a random history.
#[derive(Clone, Debug)]
enum Step {
    Acquire(u8, Mode, bool),
    Renew(u8),
    Downgrade(u8),
    Release(u8),
    Revoke,
    Bury(u8),
    Discard(u8),
    Pass(u64),
}

fn steps(shared_or_permits: Mode) -> impl Strategy<Value = Vec<Step>> {
    let mode = prop_oneof![Just(EXCLUSIVE), Just(shared_or_permits)];
    let who = 1..7_u8;
    let step = prop_oneof![
        6 => (who.clone(), mode, any::<bool>()).prop_map(|(n, m, waits)| Step::Acquire(n, m, waits)),
        2 => who.clone().prop_map(Step::Renew),
        3 => who.clone().prop_map(Step::Downgrade),
        4 => who.clone().prop_map(Step::Release),
        1 => Just(Step::Revoke),
        1 => who.clone().prop_map(Step::Bury),
        1 => who.prop_map(Step::Discard),
        2 => (1..60_u64).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..60)
}

/// Does one step, as a store on disk would: afterwards everything is saved.
fn take(bench: &mut Bench, step: &Step) {
    match step {
        Step::Acquire(number, mode, true) => {
            drop(bench.ask(&request(*number, *mode, Wait::Forever)));
        }
        Step::Acquire(number, mode, false) => drop(bench.attempt(*number, *mode)),
        Step::Renew(number) => drop(bench.renew(*number)),
        Step::Downgrade(number) => drop(bench.downgrade(*number)),
        Step::Release(number) => drop(bench.release(*number)),
        Step::Revoke => drop(bench.revoke(None)),
        Step::Bury(number) => bench.bury(*number),
        Step::Discard(number) => {
            let clock = bench.clock();
            let (fences, effects) = (&mut bench.fences, &mut bench.effects);
            bench.queue.discard(holder(*number), clock, fences, effects);
        }
        Step::Pass(span) => {
            bench.now_ns += span;
            bench.bury(0);
        }
    }
}

/// What must hold at every moment.
fn check(bench: &Bench, limit: usize) {
    let live: Vec<_> = bench.queue.claims().iter().filter(|claim| claim.is_live()).collect();
    assert!(live.iter().is_sorted_by(|a, b| a.ticket < b.ticket), "tickets are in order");
    let held: Vec<_> = live.iter().filter(|claim| claim.hold().is_some()).collect();
    let exclusive = held.iter().any(|claim| claim.mode == EXCLUSIVE);
    assert!(held.len() <= if exclusive { 1 } else { limit }, "too many hold: {held:?}");
    let mut ahead = Ahead::default();
    for claim in &live {
        let allowed = ahead.allows(claim.mode);
        assert_eq!(claim.hold().is_some(), allowed, "the rule decides: {claim:?}");
        ahead.count(claim.mode);
    }
    assert!(live.iter().all(|claim| claim.ends_ns > bench.now_ns), "nothing outlives its end");
}

proptest! {
    #[test]
    fn random_histories_keep_the_rule(
        (limit, steps) in prop_oneof![
            steps(SHARED).prop_map(|steps| (usize::MAX, steps)),
            steps(permit(2)).prop_map(|steps| (2, steps)),
        ]
    ) {
        let mut bench = Bench::new();
        let mut last = 0;
        // What a store on disk would have, from the effects alone.
        let mut disk: Vec<Claim> = Vec::new();
        for step in &steps {
            take(&mut bench, step);
            check(&bench, limit);
            for Effect { what, claim } in bench.effects.drain(..) {
                if what == Happening::Granted {
                    let fence = claim.fence().unwrap().get();
                    prop_assert!(fence > last, "each grant's fence is higher");
                    last = fence;
                }
                if what.is_end() && claim.saved != Saved::No {
                    disk.retain(|stored| stored.ticket != claim.ticket);
                }
            }
            for claim in bench.queue.claims_mut() {
                match claim.saved {
                    Saved::Yes => continue,
                    Saved::No => disk.push(claim.clone()),
                    Saved::Stale => {
                        let stored = disk.iter_mut().find(|stored| stored.ticket == claim.ticket);
                        *stored.unwrap() = claim.clone();
                    }
                }
                claim.saved = Saved::Yes;
            }
            disk.iter_mut().for_each(|claim| claim.saved = Saved::Yes);
            disk.sort_by_key(|claim| claim.ticket);
            prop_assert_eq!(&disk[..], bench.queue.claims(), "what is saved is what there is");
        }
    }
}
