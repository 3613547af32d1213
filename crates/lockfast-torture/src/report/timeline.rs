//! What the report draws: holds, faults and waiters over time, in bounded memory.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use crate::history::{Event, Mode, What};
use crate::judge::{FaultSpan, Ruling, Verdict};

/// Everything this close to a finding is shown.
const AROUND: u64 = 2_000_000_000;
/// Steps of the count of those who wait.
const STEPS_MAX: usize = 2_000;

/// How many holds there may be.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// That are kept while the history is read. Beyond that every second one that ended as it
    /// should is dropped.
    kept: usize,
    /// That a report has.
    shown: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { kept: 300_000, shown: 60_000 }
    }
}

/// How a hold ended, as the report shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Given back, or still held when the history ends.
    GivenBack = 0,
    Lost = 1,
    /// Its worker was killed.
    Killed = 2,
}

#[derive(Clone, Copy, Debug)]
struct Hold {
    lock: usize,
    worker: u32,
    from: u64,
    to: u64,
    fence: u64,
    end: End,
    shared: bool,
}

/// Collects what the report draws, event by event in order of time.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    limits: Limits,
    began: Option<u64>,
    ended: u64,
    locks: Vec<Row>,
    names: HashMap<String, usize>,
    asked: HashMap<u64, (usize, Mode, bool)>,
    open: HashMap<u64, Hold>,
    closed: Vec<Hold>,
    /// Of how many holds that ended as they should one is kept.
    stride: u64,
    passed: u64,
    total: u64,
    faults: Vec<FaultSpan>,
}

#[derive(Debug, Default)]
struct Row {
    name: String,
    waiting: i64,
    steps: Steps,
}

/// The most that waited in each of equal spans of time, which grow so that they are not too many.
#[derive(Debug, Default)]
struct Steps {
    /// In nanoseconds; 0 while there is none.
    width: u64,
    most: Vec<u32>,
}

/// What is embedded in a report. Times are microseconds since the start.
#[derive(Debug, Serialize)]
pub(crate) struct Data {
    length: u64,
    locks: Vec<LockData>,
    faults: Vec<FaultData>,
    findings: Vec<FindingData>,
    /// Of so many holds.
    total: u64,
    shown: usize,
}

#[derive(Debug, Serialize)]
struct LockData {
    name: String,
    fence_base: u64,
    /// Start, length, worker, fence above the base, how it ended (and 4 if shared), for each hold.
    holds: Vec<u64>,
    step: u64,
    waiting: Vec<u32>,
}

#[derive(Debug, Serialize)]
struct FaultData {
    from: u64,
    to: u64,
    fault: String,
    target: String,
    outage: bool,
    beyond: bool,
}

#[derive(Debug, Serialize)]
struct FindingData {
    from: u64,
    to: u64,
    lock: Option<String>,
    ruling: Ruling,
    text: String,
    /// Start, end, worker and fence of each party that held the lock.
    parties: Vec<(u64, u64, u32, u64)>,
}

impl Timeline {
    pub(crate) fn feed(&mut self, event: &Event) {
        let at = event.at;
        let began = *self.began.get_or_insert(at);
        self.ended = self.ended.max(at);
        let worker = event.worker.unwrap_or(u32::MAX);
        match &event.what {
            What::Start { locks, .. } => {
                for name in locks {
                    self.lock(name);
                }
            }
            What::Asked { claim, lock, mode, wait } => {
                let lock = self.lock(lock);
                let waits = *wait != Some(0);
                self.asked.insert(*claim, (lock, *mode, waits));
                self.wait(lock, at - began, i64::from(waits));
            }
            What::NotGranted { claim, .. } => {
                if let Some((lock, _, waits)) = self.asked.remove(claim) {
                    self.wait(lock, at - began, -i64::from(waits));
                }
            }
            What::Granted { claim, fence, .. } => {
                let Some((lock, mode, waits)) = self.asked.remove(claim) else { return };
                self.wait(lock, at - began, -i64::from(waits));
                let shared = mode != Mode::Exclusive;
                let (from, to, fence, end) = (at, at, *fence, End::GivenBack);
                self.open.insert(*claim, Hold { lock, worker, from, to, fence, end, shared });
            }
            What::Still { claim, deadline } => self.prove(*claim, at, *deadline),
            What::Ended { claim, how, last, deadline, .. } => {
                let is_lost = how == "lost";
                if let Some(proof) = last.or((!is_lost).then_some(at)) {
                    self.prove(*claim, proof, *deadline);
                }
                self.close(*claim, if is_lost { End::Lost } else { End::GivenBack });
            }
            What::RunEnded { claim } => self.close(*claim, End::GivenBack),
            What::WorkerKilled { worker } => {
                let its = self.open.iter().filter(|(_, hold)| hold.worker == *worker);
                let its: Vec<u64> = its.map(|(claim, _)| *claim).collect();
                its.into_iter().for_each(|claim| self.close(claim, End::Killed));
            }
            other => self.feed_fault(at, other),
        }
    }

    fn feed_fault(&mut self, at: u64, what: &What) {
        match what {
            What::Fault { number, fault, target, outage, beyond } => self.faults.push(FaultSpan {
                number: *number,
                fault: fault.clone(),
                target: target.clone(),
                outage: *outage,
                beyond: *beyond,
                from: at,
                until: None,
            }),
            What::Healed { number } => {
                let mut its = self.faults.iter_mut().rev();
                if let Some(fault) = its.find(|fault| fault.number == *number) {
                    fault.until = Some(at);
                }
            }
            _ => {}
        }
    }

    fn lock(&mut self, name: &str) -> usize {
        if let Some(lock) = self.names.get(name) {
            return *lock;
        }
        self.locks.push(Row { name: name.to_owned(), ..Row::default() });
        self.names.insert(name.to_owned(), self.locks.len() - 1);
        self.locks.len() - 1
    }

    fn wait(&mut self, lock: usize, at: u64, change: i64) {
        let row = &mut self.locks[lock];
        row.steps.note(at, row.waiting);
        row.waiting += change;
        row.steps.note(at, row.waiting);
    }

    fn prove(&mut self, claim: u64, at: u64, deadline: u64) {
        if let Some(hold) = self.open.get_mut(&claim).filter(|_| at < deadline) {
            hold.to = hold.to.max(at);
        }
    }

    fn close(&mut self, claim: u64, end: End) {
        let Some(hold) = self.open.remove(&claim) else { return };
        self.total += 1;
        self.passed += 1;
        if end == End::GivenBack && !self.passed.is_multiple_of(self.stride.max(1)) {
            return;
        }
        self.closed.push(Hold { end, ..hold });
        if self.closed.len() > self.limits.kept {
            self.stride = self.stride.max(1) * 2;
            let mut number = 0_u64;
            self.closed.retain(|hold| {
                number += 1;
                hold.end != End::GivenBack || number.is_multiple_of(2)
            });
        }
    }

    /// What is drawn, with everything near a finding of the verdict.
    pub(crate) fn into_data(mut self, verdict: &Verdict) -> Data {
        let began = self.began.unwrap_or_default();
        let claims: Vec<u64> = self.open.keys().copied().collect();
        claims.into_iter().for_each(|claim| self.close(claim, End::GivenBack));
        let micros = |at: u64| at.saturating_sub(began) / 1000;
        let findings = verdict.findings.iter().map(|finding| FindingData {
            from: micros(finding.from),
            to: micros(finding.until),
            lock: finding.lock.clone(),
            ruling: finding.ruling,
            text: finding.text.clone(),
            parties: finding
                .parties
                .iter()
                .filter_map(|party| {
                    let (from, to) = (party.granted?, party.proof?);
                    let worker = party.worker.unwrap_or(u32::MAX);
                    Some((micros(from), micros(to), worker, party.fence?))
                })
                .collect(),
        });
        let faults = self.faults.iter().flat_map(|fault| {
            let ended = self.ended;
            fault.targets().into_iter().map(move |target| FaultData {
                from: micros(fault.from),
                to: micros(fault.until.unwrap_or(ended)),
                fault: fault.fault.clone(),
                target,
                outage: fault.outage,
                beyond: fault.beyond,
            })
        });
        let (findings, faults) = (findings.collect(), faults.collect());
        let shown = self.choose(verdict);
        let mut locks: Vec<LockData> =
            self.locks.into_iter().map(|row| row.into_data(self.ended - began)).collect();
        let mut bases = BTreeMap::<usize, u64>::new();
        for hold in &shown {
            let base = bases.entry(hold.lock).or_insert(hold.fence);
            *base = hold.fence.min(*base);
        }
        for hold in &shown {
            let (lock, base) = (&mut locks[hold.lock], bases[&hold.lock]);
            lock.fence_base = base;
            let from = micros(hold.from);
            let kind = hold.end as u64 + if hold.shared { 4 } else { 0 };
            let length = micros(hold.to) - from;
            lock.holds.extend([from, length, u64::from(hold.worker), hold.fence - base, kind]);
        }
        let length = micros(self.ended);
        Data { length, locks, faults, findings, total: self.total, shown: shown.len() }
    }

    /// All holds that ended badly or are near a finding, and of the others as many as there is room
    /// for, evenly.
    fn choose(&mut self, verdict: &Verdict) -> Vec<Hold> {
        let most = self.limits.shown;
        let mut holds = std::mem::take(&mut self.closed);
        holds.sort_by_key(|hold| (hold.from, hold.fence));
        if holds.len() <= most {
            return holds;
        }
        let around = verdict
            .findings
            .iter()
            .map(|finding| (finding.from.saturating_sub(AROUND), finding.until + AROUND));
        let mut around: Vec<(u64, u64)> = around.collect();
        around.sort_unstable();
        let mut spans: Vec<(u64, u64)> = Vec::new();
        for (from, to) in around {
            match spans.last_mut() {
                Some((_, end)) if from <= *end => *end = to.max(*end),
                _ => spans.push((from, to)),
            }
        }
        let is_near = |hold: &Hold| {
            let next = spans.partition_point(|(_, to)| *to < hold.from);
            spans.get(next).is_some_and(|(from, _)| *from <= hold.to)
        };
        let is_kept = |hold: &Hold| hold.end != End::GivenBack || is_near(hold);
        let kept = holds.iter().filter(|hold| is_kept(hold)).count();
        let room = most.saturating_sub(kept).max(most / 10);
        let stride = (holds.len() - kept).div_ceil(room).max(1);
        let mut passed = 0_usize;
        holds.retain(|hold| {
            passed += 1;
            is_kept(hold) || passed.is_multiple_of(stride)
        });
        holds
    }
}

impl Steps {
    fn note(&mut self, at: u64, waiting: i64) {
        if self.width == 0 {
            self.width = 10_000_000;
        }
        while at / self.width >= STEPS_MAX as u64 {
            self.width *= 2;
            let pairs = self.most.chunks(2);
            self.most = pairs.map(|pair| pair.iter().copied().max().unwrap_or(0)).collect();
        }
        let step = (at / self.width) as usize;
        let waiting = u32::try_from(waiting).unwrap_or(0);
        // Nothing has changed since the last note.
        while self.most.len() <= step {
            self.most.push(waiting);
        }
        self.most[step] = self.most[step].max(waiting);
    }
}

impl Row {
    fn into_data(mut self, length: u64) -> LockData {
        self.steps.note(length, self.waiting);
        LockData {
            name: self.name,
            fence_base: 0,
            holds: Vec::new(),
            step: self.steps.width / 1000,
            waiting: self.steps.most,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Judge;

    const MS: u64 = 1_000_000;

    /// Holds one after the other, of which the tenth is lost and the one in the middle overlaps
    /// the next.
    fn feed(count: u64, limits: Limits) -> (Timeline, Verdict) {
        let (mut timeline, mut judge) =
            (Timeline { limits, ..Timeline::default() }, Judge::default());
        let mut events = Vec::new();
        for claim in 1..=count {
            let (from, how) = (claim * 10 * MS, if claim == 10 { "lost" } else { "drop" });
            let to = from + if claim == count / 2 { 15 * MS } else { 9 * MS };
            let (deadline, fence, lock) = (to + MS, claim, "a".to_owned());
            let mode = Mode::Exclusive;
            let (how, cause, last) = (how.to_owned(), None, None);
            events.push((from, What::Asked { claim, lock, mode, wait: None }));
            events.push((from, What::Granted { claim, fence, deadline }));
            events.push((to, What::Ended { claim, how, cause, last, deadline, kept: None }));
        }
        events.sort_by_key(|(at, _)| *at);
        for (at, what) in events {
            let event = Event { at, worker: Some(1), what };
            timeline.feed(&event);
            judge.feed(&event);
        }
        (timeline, judge.finish(0))
    }

    #[test]
    fn quiet_stretches_are_thinned_and_findings_are_not() {
        let count = 10_000;
        let (timeline, verdict) = feed(count, Limits { kept: 3_000, shown: 1_000 });
        assert_eq!(verdict.findings.len(), 1);
        let data = timeline.into_data(&verdict);
        assert_eq!(data.total, count);
        let holds: Vec<&[u64]> = data.locks[0].holds.chunks(5).collect();
        assert_eq!(holds.len(), data.shown);
        assert!((500..=1_100).contains(&data.shown), "{}", data.shown);
        assert!(holds.iter().any(|hold| hold[4] == 1), "the lost one is there");
        assert!(holds.is_sorted_by_key(|hold| hold[0]));
        assert_eq!(data.findings[0].parties.len(), 2, "whose holds the finding brings along");
        let (timeline, verdict) = feed(1_000, Limits { kept: 3_000, shown: 500 });
        let data = timeline.into_data(&verdict);
        let from = verdict.findings[0].from;
        let near = data.locks[0]
            .holds
            .chunks(5)
            .filter(|hold| (hold[0] * 1000 + verdict.began).abs_diff(from) < AROUND);
        assert!(near.count() >= 398, "all within two seconds are there");
        assert!(data.shown < 600, "{}", data.shown);
    }

    #[test]
    fn a_fault_of_several_workers_is_shown_at_each() {
        let (mut timeline, verdict) = feed(20, Limits::default());
        for (number, target) in [(1, "the way of workers 0, 12"), (2, "server 0")] {
            let (fault, target) = ("partition".to_owned(), target.to_owned());
            let what = What::Fault { number, fault, target, outage: false, beyond: false };
            timeline.feed(&Event { at: 250 * MS, worker: None, what });
        }
        let data = timeline.into_data(&verdict);
        let targets: Vec<&str> = data.faults.iter().map(|fault| fault.target.as_str()).collect();
        assert_eq!(targets, ["the way of worker 0", "the way of worker 12", "server 0"]);
    }

    #[test]
    fn those_who_wait_are_counted_by_steps() {
        let mut steps = Steps::default();
        steps.note(0, 1);
        steps.note(35 * MS, 1);
        steps.note(35 * MS, 2);
        assert_eq!(steps.most, [1_u32, 1, 1, 2]);
        steps.note(40_000 * MS, 0);
        assert_eq!(steps.width, 40 * MS);
        assert_eq!(steps.most.len(), 1001);
        assert_eq!(steps.most[..3], [2_u32, 0, 0]);
    }
}
