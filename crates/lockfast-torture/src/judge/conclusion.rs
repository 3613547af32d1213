//! What it comes to: the counts while it goes on, and the verdict at its end.

use super::{Counts, FREE_WAIT_BOUND, Judge, Kind, Outcome, VERDICT_FORMAT, Verdict, seconds};

impl Judge {
    /// What has happened so far.
    pub fn counts(&self) -> Counts {
        let tallies = self.findings.tallies();
        let overlaps = [Kind::Overlap, Kind::ReaderBesideWriter, Kind::PermitsExceeded];
        let overlaps = overlaps.iter().filter_map(|kind| tallies.get(kind));
        Counts {
            seconds: seconds(self.now - self.began.unwrap_or(self.now)),
            held: self.claims.held(),
            waiting: self.claims.waiting(),
            writes: self.writes.tried,
            writes_refused: self.writes.refused,
            losses: self.losses.count,
            overlaps: overlaps.map(|tally| tally.broken + tally.allowed).sum(),
            broken: self.findings.broken(),
            ..self.counts.clone()
        }
    }

    /// Judges what there is. `unreadable` lines could not be fed.
    pub fn finish(mut self, unreadable: u64) -> Verdict {
        for lock in 0..self.locks.len() {
            let waits = self.locks[lock].queue.finish(self.now);
            self.weigh(lock, waits);
        }
        let notes = self.notes(unreadable);
        let outcome = match self.findings.broken() {
            0 if notes.is_empty() => Outcome::Kept,
            0 => Outcome::Incomplete,
            _ => Outcome::Broken,
        };
        self.told.sort_unstable();
        self.losses.shortest_before_deadline = self.told.first().copied();
        self.losses.median_before_deadline = self.told.get(self.told.len() / 2).copied();
        self.free_wait.bound = FREE_WAIT_BOUND;
        let began = self.began.unwrap_or_default();
        let counts = self.counts();
        Verdict {
            format: VERDICT_FORMAT,
            outcome,
            notes,
            run: self.run,
            began,
            seconds: seconds(self.now - began),
            counts,
            found: self.findings.tallies().clone(),
            writes: self.writes,
            losses: self.losses,
            take_over: self.take_over,
            free_wait: self.free_wait,
            overtaken: self.overtaken,
            findings: self.findings.into_detailed(),
        }
    }

    fn notes(&self, unreadable: u64) -> Vec<String> {
        let forgotten: u64 = self.locks.iter().map(|lock| lock.holds.forgotten()).sum();
        let notes = [
            (self.run.is_none(), "the history does not begin with `start`".to_owned()),
            (!self.is_over, "the history has no `end`: the run was broken off".to_owned()),
            (!self.is_searched, "what was left at the end was not looked for".to_owned()),
            (self.counts.granted == 0, "no lock was ever granted".to_owned()),
            (unreadable > 0, format!("{unreadable} lines cannot be read")),
            (forgotten > 0, format!("{forgotten} grants were too many to compare with all others")),
        ];
        notes.into_iter().filter(|(applies, _)| *applies).map(|(_, note)| note).collect()
    }
}
