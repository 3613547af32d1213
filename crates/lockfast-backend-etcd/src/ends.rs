//! When the leases of values end, as far as the server's answers tell it. The server says how many whole
//! seconds are left. Several answers narrow down the moment at which that number changes, and where it is
//! certain what the server would say, it is not asked.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use lockfast_core::Moment;

use crate::store::lock;

/// For how long answers count. A leader that takes over prolongs leases, which is learnt after this.
const TRUSTED: Duration = Duration::from_secs(120);
/// Our clock and the server's differ by less than one part in so many.
const DRIFT: u32 = 1000;
/// Of how many leases the ends are kept in mind.
const LEASES_MAX: usize = 1024;
const SECOND: Duration = Duration::from_secs(1);

/// What is known of the ends of leases.
#[derive(Debug, Default)]
pub(crate) struct Ends(Mutex<HashMap<i64, End>>);

/// The lease ends in this span.
#[derive(Clone, Copy, Debug)]
struct End {
    earliest: Moment,
    latest: Moment,
    /// When the oldest of the answers was asked for.
    asked: Moment,
}

impl End {
    fn is_trusted(&self, now: Moment) -> bool {
        now.since(self.asked) < TRUSTED
    }

    /// The whole seconds that are left, if it is certain which number that is.
    fn left(&self, now: Moment) -> Option<Duration> {
        let drift = now.since(self.asked) / DRIFT;
        let least = self.earliest.remaining(now).saturating_sub(drift).as_secs();
        let most = (self.latest + drift).remaining(now).as_secs();
        (least == most).then_some(Duration::from_secs(least))
    }

    /// What both know; nothing when they contradict each other.
    fn and(self, other: Self) -> Option<Self> {
        let earliest = self.earliest.later_of(other.earliest);
        let latest = self.latest.earlier_of(other.latest);
        let asked = self.asked.earlier_of(other.asked);
        earliest.has_passed(latest).then_some(Self { earliest, latest, asked })
    }
}

impl Ends {
    /// The whole seconds for which the server would say that a lease lasts, if that is certain.
    pub(crate) fn left(&self, lease: i64, now: Moment) -> Option<Duration> {
        let end = *lock(&self.0).get(&lease)?;
        end.is_trusted(now).then(|| end.left(now))?
    }

    /// The server was asked at `sent` and said that so many whole seconds were left.
    pub(crate) fn learn(&self, lease: i64, sent: Moment, answered: Moment, left: Duration) {
        let said = End { earliest: sent + left, latest: answered + left + SECOND, asked: sent };
        let mut ends = lock(&self.0);
        let known = ends.get(&lease).copied().filter(|known| known.is_trusted(answered));
        let end = known.and_then(|known| known.and(said)).unwrap_or(said);
        if ends.len() >= LEASES_MAX && !ends.contains_key(&lease) {
            ends.retain(|_, end| end.is_trusted(answered) && !end.latest.has_passed(answered));
            if ends.len() >= LEASES_MAX {
                ends.clear();
            }
        }
        ends.insert(lease, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: i64 = 7;
    const TRIP: Duration = Duration::from_millis(2);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// A server whose lease ends then, which is asked half-way of a trip.
    fn ask(ends: &Ends, end: Moment, sent: Moment) -> Duration {
        let left = Duration::from_secs(end.remaining(sent + TRIP / 2).as_secs());
        ends.learn(LEASE, sent, sent + TRIP, left);
        left
    }

    /// B190: whatever is said without asking is what the server would say, and soon that is most of it.
    #[test]
    fn what_is_certain_is_what_the_server_would_say() {
        let start = Moment::now();
        for phase in (0..1000).step_by(37) {
            let (ends, end) = (Ends::default(), start + ms(90_000 + phase));
            let mut asked = 0;
            for step in 0..1000 {
                let now = start + ms(step * 83);
                let Some(left) = ends.left(LEASE, now) else {
                    asked += 1;
                    ask(&ends, end, now);
                    continue;
                };
                assert_eq!(left.as_secs(), end.remaining(now).as_secs(), "{phase} {step}");
            }
            assert!(asked < 250, "{phase}: asked {asked} times of 1000");
        }
    }

    /// Also when our clock is the slower or the faster one.
    #[test]
    fn clocks_at_other_rates_are_allowed_for() {
        let start = Moment::now();
        for (slower, faster) in [(9995, 10_000), (10_000, 9995)] {
            let (ends, end) = (Ends::default(), start + ms(100_500));
            for step in 0..1100 {
                let now = start + ms(step * 91);
                let theirs = start + ms(step * 91 * slower / faster);
                let left = Duration::from_secs(end.remaining(theirs).as_secs());
                match ends.left(LEASE, now) {
                    Some(said) => assert_eq!(said, left, "{step}"),
                    None => ends.learn(LEASE, now, now + TRIP, left),
                }
            }
        }
    }

    #[test]
    fn one_answer_tells_nothing_for_certain() {
        let (ends, now) = (Ends::default(), Moment::now());
        assert_eq!(ends.left(LEASE, now), None);
        ask(&ends, now + ms(5500), now);
        assert_eq!(ends.left(LEASE, now + ms(10)), None);
    }

    #[test]
    fn old_answers_and_contradictions_are_forgotten() {
        let (ends, now) = (Ends::default(), Moment::now());
        let end = now + TRUSTED * 3 + ms(500);
        for at in [0, 400, 600, 900] {
            ask(&ends, end, now + ms(at));
        }
        let later = now + ms(1250);
        assert!(ends.left(LEASE, later).is_some());
        assert_eq!(ends.left(LEASE, now + TRUSTED + ms(1250)), None);
        // Somebody has prolonged it.
        ask(&ends, end + ms(60_000), later);
        assert_eq!(ends.left(LEASE, later + ms(10)), None);
    }

    #[test]
    fn not_more_leases_are_kept_in_mind_than_is_said() {
        let (ends, now) = (Ends::default(), Moment::now());
        for lease in 0..3 * LEASES_MAX as i64 {
            ends.learn(lease, now, now + TRIP, ms(60_000));
            assert!(lock(&ends.0).len() <= LEASES_MAX);
        }
    }
}
