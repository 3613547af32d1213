//! How late the machine itself is: a thread that wants to run every millisecond writes down by how
//! much it was kept waiting. What a test measures beside it was kept waiting as well, so that much is
//! no fault of what is tested.
//!
//! ```
//! use std::time::Duration;
//! use lockfast_core::Moment;
//! use lockfast_faults::lateness::Lateness;
//!
//! let machine = Lateness::watch();
//! let start = Moment::now();
//! // … what must not take longer than a second …
//! machine.check("it", Duration::from_secs(1), start, Moment::now());
//! ```

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use lockfast_core::Moment;

/// How often the thread wants to run.
const TICK: Duration = Duration::from_millis(1);
/// By how much timers are late on a machine that has nothing else to do.
const USUAL: Duration = Duration::from_micros(200);
/// How often it may have been late and that is remembered: at least the last two minutes.
const STALLS_MAX: usize = 100_000;

/// A watch over the machine, until it is dropped.
#[derive(Debug)]
pub struct Lateness(Arc<Mutex<Log>>);

#[derive(Debug)]
struct Log {
    /// When the thread ran late, and by how much.
    stalls: VecDeque<(Moment, Duration)>,
    /// When it last ran.
    seen: Moment,
}

impl Lateness {
    /// Begins to watch.
    pub fn watch() -> Self {
        let log = Arc::new(Mutex::new(Log { stalls: VecDeque::new(), seen: Moment::now() }));
        let watched = Arc::downgrade(&log);
        thread::spawn(move || {
            loop {
                thread::sleep(TICK);
                let Some(log) = watched.upgrade() else { return };
                lock(&log).note(Moment::now());
            }
        });
        Self(log)
    }

    /// For how long of that span the machine kept a thread waiting that could have run.
    pub fn between(&self, from: Moment, to: Moment) -> Duration {
        while !to.has_passed(lock(&self.0).seen) {
            thread::sleep(TICK);
        }
        lock(&self.0).sum(from, to)
    }

    /// Checks that something took less than `limit`, not counting the time that the machine took from
    /// it.
    ///
    /// # Panics
    /// When it took longer.
    #[track_caller]
    pub fn check(&self, what: &str, limit: Duration, from: Moment, to: Moment) {
        let (took, late) = (to.since(from), self.between(from, to));
        assert!(
            took < limit + late,
            "{what} took {took:?}, of which the machine was late for {late:?}; {limit:?} is the limit"
        );
    }
}

impl Log {
    fn note(&mut self, now: Moment) {
        let late = now.since(self.seen).saturating_sub(TICK + USUAL);
        if !late.is_zero() {
            if self.stalls.len() == STALLS_MAX {
                self.stalls.pop_front();
            }
            self.stalls.push_back((now, late));
        }
        self.seen = now;
    }

    /// A stall counts as far as it is within the span.
    fn sum(&self, from: Moment, to: Moment) -> Duration {
        let within = |&(end, late): &(Moment, Duration)| {
            let after_start = end.since(from);
            let after_end = end.since(to);
            late.min(after_start).saturating_sub(after_end)
        };
        let since = self.stalls.partition_point(|(end, _)| end.has_passed(from));
        self.stalls.range(since..).map(within).sum()
    }
}

fn lock(log: &Mutex<Log>) -> MutexGuard<'_, Log> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn only_what_is_within_the_span_counts() {
        let start = Moment::now();
        let mut log = Log { stalls: VecDeque::new(), seen: start };
        let mut at = start;
        for span in [MS(1), MS(101), MS(1), MS(51)] {
            at = at + span + USUAL;
            log.note(at);
        }
        let usual = |count: u32| USUAL * count;
        assert_eq!(log.sum(start, at), MS(150));
        assert_eq!(log.sum(at, at + MS(9)), Duration::ZERO);
        // From the middle of the first stall to the middle of the second.
        let (from, to) = (start + MS(52) + usual(2), at.before(MS(25)));
        assert_eq!(log.sum(from, to), MS(50) + MS(25));
    }

    #[test]
    fn what_is_long_ago_is_forgotten() {
        let start = Moment::now();
        let mut log = Log { stalls: VecDeque::new(), seen: start };
        let mut at = start;
        for _ in 0..STALLS_MAX + 7 {
            at = at + MS(2) + USUAL;
            log.note(at);
        }
        assert_eq!(log.stalls.len(), STALLS_MAX);
        assert_eq!(log.sum(start, at), MS(STALLS_MAX as u64));
    }

    #[test]
    fn what_is_seen_lasts_no_longer_than_the_span() {
        let machine = Lateness::watch();
        let start = Moment::now();
        thread::sleep(MS(20));
        let end = Moment::now();
        assert!(machine.between(start, end) <= end.since(start));
    }

    #[test]
    #[should_panic(expected = "it took")]
    fn too_long_is_told() {
        let machine = Lateness::watch();
        let start = Moment::now();
        thread::sleep(MS(20));
        machine.check("it", Duration::ZERO, start, start + TICK / 2);
    }
}
