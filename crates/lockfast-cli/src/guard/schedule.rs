//! When to ask the command to stop, and when to kill it: pure, so that it can be tested by tables.

use std::time::Duration;

use lockfast::Moment;

use super::LeaseTerms;
use crate::args::OnLost;

/// How long a command may take to stop when its wrapper was killed: the next holder waits.
const ABANDONED_GRACE: Duration = Duration::from_millis(300);

/// How long what a command leaves behind may take to end by itself, as the end of a pipe does.
const LEFTOVER_PATIENCE: Duration = Duration::from_millis(250);

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Send TERM: to the command's group, or to everything below the guard.
    Term {
        /// Everything.
        everything: bool,
    },
    /// Kill everything, again and again until nothing is left.
    Kill,
}

/// The times at which the command is stopped.
pub(super) struct Schedule {
    terms: LeaseTerms,
    term_at: Option<Moment>,
    kill_at: Option<Moment>,
    everything: bool,
    for_lease: bool,
}

impl Schedule {
    pub(super) fn new(terms: LeaseTerms) -> Self {
        Self { terms, term_at: None, kill_at: None, everything: false, for_lease: false }
    }

    /// The lease was renewed.
    pub(super) fn renewed(&mut self, deadline_ns: u64) {
        self.terms.deadline_ns = deadline_ns;
    }

    /// The lease is lost.
    pub(super) fn lost(&mut self, now: Moment) {
        self.end_lease(now);
    }

    /// Somebody wants the command to end.
    pub(super) fn asked(&mut self, now: Moment) {
        self.kill_at = earlier(self.kill_at, now + self.terms.grace);
    }

    /// The wrapper is gone, and with it whoever renews the lease.
    pub(super) fn abandoned(&mut self, now: Moment) {
        self.stop(now, ABANDONED_GRACE.min(self.terms.grace));
        self.everything = true;
    }

    /// The command has ended, but what it started has not.
    pub(super) fn left_over(&mut self, now: Moment) {
        self.stop(now + LEFTOVER_PATIENCE, self.terms.grace);
        self.everything = true;
    }

    /// Whether the command was stopped because the lease was ending.
    pub(super) fn is_for_lease(&self) -> bool {
        self.for_lease
    }

    /// What is due; each TERM is answered once, a kill every time.
    pub(super) fn due(&mut self, now: Moment) -> Option<Step> {
        if self.jeopardy_at().is_some_and(|at| at.has_passed(now)) && !self.for_lease {
            self.end_lease(now);
        }
        if self.kill_time().is_some_and(|at| at.has_passed(now)) {
            return Some(Step::Kill);
        }
        if self.term_at.is_some_and(|at| at.has_passed(now)) {
            self.term_at = None;
            return Some(Step::Term { everything: self.everything });
        }
        None
    }

    /// When to look again.
    pub(super) fn alarm(&self) -> Option<Moment> {
        let jeopardy = if self.for_lease { None } else { self.jeopardy_at() };
        [self.term_at, self.kill_time(), jeopardy].into_iter().flatten().reduce(Moment::earlier_of)
    }

    fn end_lease(&mut self, now: Moment) {
        self.for_lease |= self.terms.on_lost != OnLost::Warn;
        match self.terms.on_lost {
            OnLost::Kill => self.stop(now, self.terms.grace),
            OnLost::Term => self.term_at = earlier(self.term_at, now),
            OnLost::Warn => {}
        }
    }

    fn stop(&mut self, from: Moment, grace: Duration) {
        self.term_at = earlier(self.term_at, from);
        self.kill_at = earlier(self.kill_at, from + grace);
    }

    /// From when on the command must be on its way out if nothing renews the lease.
    fn jeopardy_at(&self) -> Option<Moment> {
        let notice = self.terms.grace.min(self.terms.ttl / 3);
        let before = self.terms.deadline().before(self.terms.margin() + notice);
        (self.terms.on_lost != OnLost::Warn).then_some(before)
    }

    fn kill_time(&self) -> Option<Moment> {
        let last = self.terms.deadline().before(self.terms.margin());
        match self.terms.on_lost {
            OnLost::Kill => earlier(self.kill_at, last),
            OnLost::Term | OnLost::Warn => self.kill_at,
        }
    }
}

fn earlier(known: Option<Moment>, new: Moment) -> Option<Moment> {
    Some(known.map_or(new, |known| known.earlier_of(new)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERM: Option<Step> = Some(Step::Term { everything: false });
    const TERM_ALL: Option<Step> = Some(Step::Term { everything: true });
    const KILL: Option<Step> = Some(Step::Kill);

    fn schedule(start: Moment, on_lost: OnLost) -> Schedule {
        Schedule::new(LeaseTerms {
            deadline_ns: (start + Duration::from_secs(30)).host_ns(),
            ttl: Duration::from_secs(30),
            grace: Duration::from_secs(5),
            on_lost,
        })
    }

    /// Asks at each time, in milliseconds from the start.
    fn check(schedule: &mut Schedule, start: Moment, table: &[(u64, Option<Step>)]) {
        for (at, expected) in table {
            let due = schedule.due(start + Duration::from_millis(*at));
            assert_eq!(due, *expected, "at {at} ms");
        }
    }

    #[test]
    fn nothing_renews_the_lease() {
        let start = Moment::now();
        let mut kill = schedule(start, OnLost::Kill);
        check(&mut kill, start, &[(24_000, None), (24_600, TERM), (29_400, None), (29_600, KILL)]);
        assert!(kill.is_for_lease());
        let mut term = schedule(start, OnLost::Term);
        check(&mut term, start, &[(24_000, None), (24_600, TERM), (60_000, None)]);
        let mut warn = schedule(start, OnLost::Warn);
        check(&mut warn, start, &[(60_000, None)]);
        assert!(!warn.is_for_lease() && warn.alarm().is_none());
    }

    #[test]
    fn a_long_grace_ends_with_the_lease() {
        let start = Moment::now();
        let mut schedule = schedule(start, OnLost::Kill);
        schedule.terms.grace = Duration::from_secs(3600);
        check(&mut schedule, start, &[(19_000, None), (19_600, TERM), (29_400, None)]);
        check(&mut schedule, start, &[(29_600, KILL)]);
    }

    #[test]
    fn renewals_move_everything() {
        let start = Moment::now();
        let mut schedule = schedule(start, OnLost::Kill);
        schedule.renewed((start + Duration::from_secs(40)).host_ns());
        check(&mut schedule, start, &[(29_900, None), (34_600, TERM), (39_600, KILL)]);
    }

    #[test]
    fn a_stop_that_began_is_carried_through() {
        let start = Moment::now();
        let mut schedule = schedule(start, OnLost::Kill);
        check(&mut schedule, start, &[(24_600, TERM)]);
        schedule.renewed((start + Duration::from_secs(60)).host_ns());
        check(&mut schedule, start, &[(29_400, None), (29_700, KILL)]);
    }

    #[test]
    fn a_loss_ends_it_before_the_deadline() {
        let start = Moment::now();
        let mut early = schedule(start, OnLost::Kill);
        early.lost(start);
        check(&mut early, start, &[(0, TERM), (4_900, None), (5_000, KILL), (5_100, KILL)]);
        let mut late = schedule(start, OnLost::Kill);
        late.lost(start + Duration::from_secs(31));
        check(&mut late, start, &[(31_000, KILL)]);
    }

    #[test]
    fn an_abandoned_command_has_little_time() {
        let start = Moment::now();
        for on_lost in [OnLost::Kill, OnLost::Term, OnLost::Warn] {
            let mut schedule = schedule(start, on_lost);
            schedule.abandoned(start);
            check(&mut schedule, start, &[(0, TERM_ALL), (290, None), (310, KILL)]);
        }
    }

    #[test]
    fn a_command_that_was_asked_to_end_has_its_grace() {
        let start = Moment::now();
        for on_lost in [OnLost::Kill, OnLost::Term, OnLost::Warn] {
            let mut schedule = schedule(start, on_lost);
            schedule.asked(start);
            schedule.asked(start + Duration::from_secs(1));
            check(&mut schedule, start, &[(0, None), (4_900, None), (5_100, KILL)]);
            assert!(!schedule.is_for_lease());
        }
    }

    #[test]
    fn leftovers_get_a_moment_and_the_grace() {
        let start = Moment::now();
        let mut schedule = schedule(start, OnLost::Kill);
        schedule.left_over(start);
        check(&mut schedule, start, &[(0, None), (260, TERM_ALL), (5_200, None), (5_300, KILL)]);
        assert!(!schedule.is_for_lease());
    }

    #[test]
    fn the_pages_tell_how_long_an_abandoned_job_has() {
        let told = format!("KILL {} ms later", ABANDONED_GRACE.as_millis());
        let guide = include_str!("../../../../docs/guides/run.md");
        for page in [guide, include_str!("../../README.md")] {
            assert_eq!(page.matches(&told).count(), 1, "{told}");
        }
    }
}
