//! The protocol of a lease, as tables.

use super::*;
use crate::lease::policy::Options;
use lockfast_core::capability::{Expiry, FenceSurvival, Order, Reach};
use lockfast_core::{Fence, Guarantee, Profile, TtlLimits};

const MS: fn(u64) -> Duration = Duration::from_millis;

fn policy(ttl: Duration) -> Policy {
    let profile = Profile {
        backend: "memory",
        guarantee: Guarantee::Correctness,
        because: "test",
        order: Order::Fifo,
        expiry: Expiry::Ttl,
        reach: Reach::Process,
        fence: FenceSurvival::Process,
        ttl: TtlLimits::LOCKFAST,
        lacks: &[],
    };
    Policy::new(&Options::default().ttl(ttl).drift(0.0), &profile).unwrap()
}

fn granted(from: Moment) -> Grant {
    Grant::new(Fence::new(7).unwrap(), from)
}

/// A lease of 3 s granted at zero: renewed a third of its validity later, valid until 2.998 s.
fn lease() -> (LeaseState, Moment) {
    let start = Moment::now();
    (LeaseState::new(&granted(start), start, policy(MS(3000)), 0.0), start)
}

fn tick() -> Event {
    Event::Tick { slack: Duration::ZERO, jitter: 0.0 }
}

/// The renewal that a lease sends at this moment.
#[track_caller]
fn send(lease: &mut LeaseState, at: Moment) -> Renewal {
    assert_eq!(lease.step(tick(), at), Action::Renew);
    lease.send(at).unwrap()
}

fn failed(renewal: Renewal) -> Event {
    let failure = Failure { kind: ErrorKind::Unreachable, message: "no answer".into() };
    Event::RenewalFailed { renewal, failure, jitter: 0.0 }
}

#[test]
fn a_lease_is_renewed_once_when_due() {
    let (mut lease, start) = lease();
    assert_eq!(lease.step(tick(), start + MS(990)), Action::None);
    let renewal = send(&mut lease, start + MS(1000));
    assert_eq!(lease.step(tick(), start + MS(1001)), Action::None, "one at a time");
    assert_eq!(lease.result_of(renewal.number), None);
    assert_eq!(lease.step(Event::Renewed(renewal), start + MS(1010)), Action::Announce);
    assert_eq!(lease.result_of(renewal.number), Some(Ok(())));
    assert_eq!(lease.deadline, start + MS(3998), "counted from the sending");
    assert_eq!(lease.step(tick(), start + MS(2000)), Action::Renew);
}

/// B10: however long the ttl is, the margin for drift is of what the store gave, not of what was asked.
#[test]
fn a_brief_grant_is_good_until_its_own_end() {
    let now = Moment::now();
    let grant = Grant { brief: Some(MS(1500)), ..granted(now) };
    let mut long = policy(Duration::from_secs(3600));
    long.drift = 0.01;
    let mut lease = LeaseState::new(&grant, now, long, 0.0);
    assert_eq!(lease.deadline.remaining(now), MS(1483));
    let renewal = send(&mut lease, now + CONFIRM_AFTER);
    assert_eq!(lease.step(Event::Renewed(renewal), now + MS(10)), Action::Announce);
    assert!(lease.deadline.remaining(now) > MS(3_500_000));
    let short = LeaseState::new(&grant, now, policy(MS(1000)), 0.0);
    assert_eq!(short.deadline.remaining(now), MS(998), "nor longer than what was asked");
}

/// B13: a lock that was handed over for a moment is confirmed at once, sooner if its holder waits
/// for that, and not at all if it was given back before.
#[test]
fn a_brief_grant_is_confirmed_at_once() {
    let now = Moment::now();
    let grant = Grant { brief: Some(MS(1500)), ..granted(now) };
    let brief = || LeaseState::new(&grant, now, policy(MS(30_000)), 0.0);
    assert_eq!(brief().slack(), Duration::ZERO, "others do not hurry it");
    let mut lease = brief();
    assert!(!lease.is_full);
    assert_eq!(lease.next_tick(), Some(now + CONFIRM_AFTER));
    let renewal = send(&mut lease, now + CONFIRM_AFTER);
    lease.step(Event::Renewed(renewal), now + MS(8));
    assert!(lease.is_full);
    assert!(lease.deadline.remaining(now) > MS(29_000));
    let mut awaited = brief();
    assert_eq!(awaited.step(Event::Confirm, now + MS(1)), Action::None);
    assert_eq!(awaited.next_tick(), Some(now + MS(1)));
    let mut given_back = brief();
    assert_eq!(given_back.step(tick(), now + CONFIRM_AFTER), Action::Renew);
    given_back.step(Event::Released, now + CONFIRM_AFTER);
    assert_eq!(given_back.send(now + CONFIRM_AFTER), None);
    assert!(LeaseState::new(&grant, now, policy(MS(1500)), 0.0).is_full, "all that was asked");
}

#[test]
fn a_lease_with_little_time_left_is_renewed_the_sooner() {
    let now = Moment::now();
    let mut lease = LeaseState::new(&granted(now.before(MS(2000))), now, policy(MS(3000)), 0.0);
    assert_eq!(lease.deadline.remaining(now), MS(998));
    assert_eq!(lease.step(tick(), now + MS(300)), Action::None);
    assert_eq!(lease.step(tick(), now + MS(333)), Action::Renew);
}

#[test]
fn slack_lets_renewals_travel_together() {
    let (mut lease, start) = lease();
    let early = Event::Tick { slack: MS(50), jitter: 0.0 };
    assert_eq!(lease.step(early, start + MS(960)), Action::Renew);
}

#[test]
fn a_failed_renewal_is_jeopardy_until_one_succeeds() {
    let (mut lease, start) = lease();
    let first = send(&mut lease, start + MS(1000));
    assert_eq!(lease.step(failed(first), start + MS(1500)), Action::Announce);
    assert!(lease.result_of(first.number).unwrap().is_err());
    assert_eq!(lease.phase, Phase::Jeopardy { failure: "no answer".into() });
    assert_eq!(lease.deadline, start + MS(2998), "a failure moves nothing");
    let again = send(&mut lease, start + MS(1700));
    lease.step(Event::Renewed(again), start + MS(1710));
    assert_eq!(lease.phase, Phase::Held);
}

#[test]
fn the_deadline_is_the_end_whoever_notices() {
    for fails in [false, true] {
        let (mut lease, start) = lease();
        let renewal = send(&mut lease, start + MS(1000));
        let event = if fails { failed(renewal) } else { Event::Look };
        assert_eq!(lease.step(event, start + MS(2998)), Action::AnnounceLoss);
        assert!(matches!(lease.phase, Phase::Lost(LossCause::Expired { last_failure: None })));
        assert_eq!(lease.next_tick(), None);
    }
}

#[test]
fn an_expired_lease_says_what_the_last_renewal_met() {
    let (mut lease, start) = lease();
    let renewal = send(&mut lease, start + MS(1000));
    lease.step(failed(renewal), start + MS(1500));
    lease.step(tick(), start + MS(3000));
    let cause = LossCause::Expired { last_failure: Some("no answer".into()) };
    assert_eq!(lease.phase, Phase::Lost(cause));
}

#[test]
fn a_renewal_answered_after_the_deadline_is_undone() {
    let (mut lease, start) = lease();
    let renewal = send(&mut lease, start + MS(1000));
    let action = lease.step(Event::Renewed(renewal), start + MS(2998));
    assert_eq!(action, Action::AnnounceLossAndUndo);
}

#[test]
fn what_is_over_stays_over() {
    for end in [Event::Released, Event::Lost(LossCause::Forgotten)] {
        let (mut lease, start) = lease();
        let renewal = send(&mut lease, start + MS(1000));
        lease.step(end, start + MS(1010));
        let phase = lease.phase.clone();
        let late = [Event::Renewed(renewal), failed(renewal), Event::Lost(LossCause::DataLost)];
        for event in late.into_iter().chain([tick(), Event::Look, Event::Confirm]) {
            assert_eq!(lease.step(event, start + MS(1020)), Action::None);
            assert_eq!(lease.phase, phase);
        }
    }
}

#[test]
fn a_shorter_ttl_moves_the_deadline_down_at_once() {
    let (mut lease, start) = lease();
    let long = send(&mut lease, start + MS(1000));
    lease.step(Event::Extended(policy(MS(600))), start + MS(1100));
    assert_eq!(lease.deadline, start + MS(1698));
    assert_eq!(lease.step(tick(), start + MS(1101)), Action::None, "one at a time");
    // The answer to a request with the old ttl does not move it up again.
    lease.step(Event::Renewed(long), start + MS(1110));
    assert_eq!(lease.deadline, start + MS(1698));
    let short = send(&mut lease, start + MS(1110));
    assert_eq!(short.ttl, MS(600), "the store is told at once");
    lease.step(Event::Renewed(short), start + MS(1120));
    assert_eq!(lease.deadline, start + MS(1708));
}

#[test]
fn a_longer_ttl_moves_the_deadline_only_when_the_store_agreed() {
    let (mut lease, start) = lease();
    let wanted = lease.next_renewal();
    lease.step(Event::Extended(policy(MS(9000))), start + MS(100));
    assert_eq!(lease.deadline, start + MS(2998));
    let renewal = send(&mut lease, start + MS(100));
    assert_eq!(renewal.number, wanted);
    lease.step(Event::Renewed(renewal), start + MS(120));
    assert_eq!(lease.deadline, start + MS(9098));
}

/// B16, B43: a renewal without an answer may still reach the store, after any later one.
#[test]
fn nothing_is_promised_beyond_what_a_late_renewal_leaves() {
    let (mut lease, start) = lease();
    let late = send(&mut lease, start + MS(1000));
    lease.step(failed(late), start + MS(1500));
    lease.step(Event::Extended(policy(MS(60_000))), start + MS(1600));
    let long = send(&mut lease, start + MS(1600));
    lease.step(Event::Renewed(long), start + MS(1610));
    assert_eq!(lease.deadline, start + MS(4598), "the late one would leave 3 s");
    let next = lease.next_tick().unwrap();
    assert!(next.since(start) < MS(2700), "it is renewed often enough for that");
}

/// A store to which requests come late, and out of order when they were given up.
struct LateStore {
    expires: Moment,
    on_their_way: Vec<Renewal>,
}

impl LateStore {
    fn handle(&mut self, which: usize, now: Moment) -> Option<Renewal> {
        let renewal = (!self.on_their_way.is_empty())
            .then(|| self.on_their_way.remove(which % self.on_their_way.len()))?;
        if !self.expires.has_passed(now) {
            self.expires = now + renewal.ttl;
        }
        Some(renewal)
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(4_000))]

    /// B16, B43, P2: whatever is delayed, lost or extended, the holder never believes in its lease
    /// for longer than the store keeps it, also when what it gave up reaches the store in the end.
    #[test]
    fn the_holder_never_believes_longer_than_a_late_store(
        events in proptest::collection::vec((0_u8..7, 0_u64..300, 0_usize..4), 1..80)
    ) {
        let (mut lease, start) = lease();
        let mut store = LateStore { expires: start + MS(3000), on_their_way: Vec::new() };
        let (mut now, mut in_flight) = (start, None);
        for (kind, step, which) in events {
            now = now + MS(step);
            match kind {
                0 | 1 => if lease.step(tick(), now) == Action::Renew {
                    in_flight = lease.send(now);
                    store.on_their_way.extend(in_flight);
                },
                2 | 3 => {
                    let handled = store.handle(which, now);
                    if let Some(renewal) = handled.filter(|renewal| Some(*renewal) == in_flight) {
                        lease.step(Event::Renewed(renewal), now);
                        in_flight = None;
                    }
                }
                4 => if let Some(renewal) = in_flight.take() {
                    lease.step(failed(renewal), now);
                },
                5 => { store.handle(which, now); }
                _ => {
                    let ttl = MS([600, 3000, 9000, 60_000][which]);
                    lease.step(Event::Extended(policy(ttl)), now);
                }
            }
            lease.step(Event::Look, now);
            proptest::prop_assert!(
                lease.is_over() || store.expires.remaining(now) >= lease.deadline.remaining(now),
                "{lease:?}"
            );
        }
    }
}

#[test]
fn a_lease_that_is_not_renewed_by_itself_ends_unless_it_is_extended() {
    let start = Moment::now();
    let once = |ttl| {
        let mut policy = policy(ttl);
        policy.is_renewed = false;
        policy
    };
    let new = || LeaseState::new(&granted(start), start, once(MS(3000)), 0.0);
    let mut lease = new();
    assert_eq!(lease.next_tick(), Some(start + MS(2998)), "only the deadline is waited for");
    assert_eq!(lease.step(tick(), start + MS(2900)), Action::None);
    assert_eq!(lease.step(tick(), start + MS(2999)), Action::AnnounceLoss);
    let mut lease = new();
    lease.step(Event::Extended(once(MS(6000))), start + MS(1000));
    let renewal = send(&mut lease, start + MS(1000));
    assert_eq!(lease.step(failed(renewal), start + MS(1500)), Action::Announce);
    let renewal = send(&mut lease, start + MS(2500));
    assert_eq!(lease.step(Event::Renewed(renewal), start + MS(2510)), Action::Announce);
    assert_eq!(lease.deadline, start + MS(8498), "counted from the sending");
    assert_eq!(lease.next_tick(), Some(lease.deadline), "it was asked for once");
}
