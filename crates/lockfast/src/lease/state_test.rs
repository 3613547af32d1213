//! The protocol of a lease, as tables.

use super::*;
use crate::lease::policy::Options;
use lockfast_core::capability::{Expiry, FenceSurvival, Order, Reach};
use lockfast_core::{Fence, Guarantee, Profile};

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
        ttl_min: MS(100),
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

fn failed() -> Event {
    Event::RenewalFailed { failure: "no answer".into(), jitter: 0.0 }
}

fn renewed(sent: Moment) -> Event {
    Event::Renewed { sent, ttl: MS(3000) }
}

#[test]
fn a_lease_is_renewed_once_when_due() {
    let (mut lease, start) = lease();
    assert_eq!(lease.step(tick(), start + MS(990)), Action::None);
    assert_eq!(lease.step(tick(), start + MS(1000)), Action::Renew);
    assert_eq!(lease.step(tick(), start + MS(1001)), Action::None, "one at a time");
    assert_eq!(lease.step(renewed(start + MS(1000)), start + MS(1010)), Action::Announce);
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
    assert_eq!(lease.step(tick(), now + MS(500)), Action::Renew);
    let whole = Event::Renewed { sent: now + MS(500), ttl: long.ttl };
    assert_eq!(lease.step(whole, now + MS(510)), Action::Announce);
    assert!(lease.deadline.remaining(now) > MS(3_500_000));
    let short = LeaseState::new(&grant, now, policy(MS(1000)), 0.0);
    assert_eq!(short.deadline.remaining(now), MS(998), "nor longer than what was asked");
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
    lease.step(tick(), start + MS(1000));
    assert_eq!(lease.step(failed(), start + MS(1500)), Action::Announce);
    assert_eq!(lease.phase, Phase::Jeopardy { failure: "no answer".into() });
    assert_eq!(lease.deadline, start + MS(2998), "a failure moves nothing");
    assert_eq!(lease.step(tick(), start + MS(1700)), Action::Renew, "tried again soon");
    lease.step(renewed(start + MS(1700)), start + MS(1710));
    assert_eq!(lease.phase, Phase::Held);
}

#[test]
fn the_deadline_is_the_end_whoever_notices() {
    for event in [tick(), Event::Look, failed()] {
        let (mut lease, start) = lease();
        assert_eq!(lease.step(event, start + MS(2998)), Action::AnnounceLoss);
        assert!(matches!(lease.phase, Phase::Lost(LossCause::Expired { last_failure: None })));
        assert_eq!(lease.next_tick(), None);
    }
}

#[test]
fn an_expired_lease_says_what_the_last_renewal_met() {
    let (mut lease, start) = lease();
    lease.step(failed(), start + MS(1500));
    lease.step(tick(), start + MS(3000));
    let cause = LossCause::Expired { last_failure: Some("no answer".into()) };
    assert_eq!(lease.phase, Phase::Lost(cause));
}

#[test]
fn a_renewal_answered_after_the_deadline_is_undone() {
    let (mut lease, start) = lease();
    lease.step(tick(), start + MS(1000));
    let action = lease.step(renewed(start + MS(1000)), start + MS(2998));
    assert_eq!(action, Action::AnnounceLossAndUndo);
}

#[test]
fn what_is_over_stays_over() {
    for end in [Event::Released, Event::Lost(LossCause::Forgotten)] {
        let (mut lease, start) = lease();
        lease.step(end, start + MS(10));
        let phase = lease.phase.clone();
        for event in
            [tick(), renewed(start), failed(), Event::Look, Event::Lost(LossCause::DataLost)]
        {
            assert_eq!(lease.step(event, start + MS(20)), Action::None);
            assert_eq!(lease.phase, phase);
        }
    }
}

#[test]
fn a_shorter_ttl_moves_the_deadline_down_at_once() {
    let (mut lease, start) = lease();
    lease.step(Event::Extended(policy(MS(600))), start + MS(100));
    assert_eq!(lease.deadline, start + MS(698));
    assert_eq!(lease.step(tick(), start + MS(300)), Action::Renew, "a third of the new ttl");
    // The answer to a request with the old ttl does not move it up again.
    lease.step(renewed(start + MS(90)), start + MS(310));
    assert_eq!(lease.deadline, start + MS(698));
}

#[test]
fn a_longer_ttl_moves_the_deadline_only_when_the_store_agreed() {
    let (mut lease, start) = lease();
    lease.step(Event::Extended(policy(MS(9000))), start + MS(100));
    assert_eq!(lease.deadline, start + MS(2998));
    lease.step(Event::Renewed { sent: start + MS(100), ttl: MS(9000) }, start + MS(120));
    assert_eq!(lease.deadline, start + MS(9098));
}

proptest::proptest! {
    /// Whatever happens, the deadline is never later than the last confirmed sending + ttl, and
    /// a lease past it is never held.
    #[test]
    fn never_held_past_the_last_confirmed_sending(events in proptest::collection::vec((0_u8..4, 1_u64..2000), 1..40)) {
        let (mut lease, start) = lease();
        let (mut now, mut confirmed, mut sent) = (start, start, start);
        for (kind, step) in events {
            now = now + MS(step);
            match kind {
                0 => if lease.step(tick(), now) == Action::Renew { sent = now; },
                1 => { lease.step(failed(), now); }
                2 => {
                    let over = lease.is_over();
                    lease.step(renewed(sent), now);
                    if !over && !lease.is_over() { confirmed = sent; }
                }
                _ => { lease.step(Event::Look, now); }
            }
            proptest::prop_assert!(lease.deadline.remaining(confirmed) <= MS(3000));
            if now.since(confirmed) >= MS(3000) {
                lease.step(Event::Look, now);
                proptest::prop_assert!(lease.is_over());
            }
        }
    }
}
