//! Which faults there were when, and whom they excuse.

use serde::{Deserialize, Serialize};

/// A fault and how long it lasted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FaultSpan {
    /// Its number in the schedule.
    pub number: u32,
    /// What kind, as in `--faults`.
    pub fault: String,
    /// To whom or what.
    pub target: String,
    /// Whether no lock could be granted to anybody while it lasted.
    pub outage: bool,
    /// Whether the store's guarantee does not cover it.
    pub beyond: bool,
    /// When it began.
    pub from: u64,
    /// When it was over; none if that is not recorded.
    pub until: Option<u64>,
}

impl FaultSpan {
    /// To whom or what, one by one: those of `the way of workers 0, 2` are `the way of worker 0`
    /// and `the way of worker 2`.
    pub(crate) fn targets(&self) -> Vec<String> {
        let Some((before, numbers)) = self.target.rsplit_once("workers ") else {
            return vec![self.target.clone()];
        };
        numbers.split(", ").map(|number| format!("{before}worker {number}")).collect()
    }

    /// Whether it concerns this worker's process or its way to the store.
    pub(super) fn concerns(&self, worker: Option<u32>) -> bool {
        let Some(worker) = worker else { return false };
        let lists = ["worker ", "workers "].map(|word| self.target.rsplit_once(word));
        let numbers = lists.into_iter().flatten().flat_map(|(_, numbers)| numbers.split(", "));
        numbers.into_iter().any(|number| number.parse() == Ok(worker))
    }

    /// Whether the worker's process does not run meanwhile.
    pub(super) fn stops(&self, worker: Option<u32>) -> bool {
        self.concerns(worker) && self.fault == "pause"
    }

    /// Whether a store's clock is wrong meanwhile, so that leases last longer than they should.
    pub(super) fn is_clock_of_server(&self) -> bool {
        self.fault.starts_with("server-clock")
    }

    /// Whether what is sent meanwhile arrives when it is over.
    fn holds_up(&self) -> bool {
        ["stall", "partition"].contains(&self.fault.as_str())
    }

    fn part_within(&self, from: u64, to: u64) -> Option<(u64, u64)> {
        let part = (self.from.max(from), self.until.unwrap_or(u64::MAX).min(to));
        (part.0 < part.1).then_some(part)
    }
}

/// All faults so far.
#[derive(Debug, Default)]
pub(super) struct Faults {
    all: Vec<FaultSpan>,
    active: Vec<usize>,
}

impl Faults {
    pub(super) fn begin(&mut self, span: FaultSpan) {
        self.active.push(self.all.len());
        self.all.push(span);
    }

    pub(super) fn heal(&mut self, number: u32, at: u64) {
        let all = &mut self.all;
        self.active.retain(|place| {
            let span = &mut all[*place];
            if span.number == number {
                span.until = Some(at);
            }
            span.number != number
        });
    }

    /// Whether the worker may be unable to reach the store, or to run, at present.
    pub(super) fn trouble(&self, worker: Option<u32>) -> bool {
        let active = self.active.iter().map(|place| &self.all[*place]);
        active.into_iter().any(|span| span.outage || span.concerns(worker))
    }

    /// Whether what the worker has sent may be held up on its way at present. Which worker's way a
    /// `run` has is not known.
    pub(super) fn hold_up(&self, worker: Option<u32>) -> bool {
        let mut active = self.active.iter().map(|place| &self.all[*place]);
        let its = |span: &FaultSpan| worker.is_none() || span.concerns(worker);
        active.any(|span| span.outage || (span.holds_up() && its(span)))
    }

    /// For how long there was at least one such fault, or one of the other excuses.
    pub(super) fn time_within(
        &self,
        from: u64,
        to: u64,
        is_such: impl Fn(&FaultSpan) -> bool,
        others: impl Iterator<Item = (u64, u64)>,
    ) -> u64 {
        let such = self.all.iter().filter(|span| is_such(span));
        let such = such.map(|span| (span.from, span.until.unwrap_or(u64::MAX)));
        let parts = such.chain(others).map(|(begin, end)| (begin.max(from), end.min(to)));
        let mut parts: Vec<(u64, u64)> = parts.filter(|(begin, end)| begin < end).collect();
        parts.sort_unstable();
        let (mut sum, mut counted_to) = (0, from);
        for (begin, end) in parts {
            sum += end.saturating_sub(begin.max(counted_to));
            counted_to = counted_to.max(end);
        }
        sum
    }

    /// When what the worker had sent by then has certainly reached the store or never will: what is
    /// held up on its way arrives when the fault is over.
    pub(super) fn arrival(&self, worker: Option<u32>, at: u64) -> u64 {
        let stalls = self.all.iter().filter(|span| span.holds_up() && span.concerns(worker));
        let then = stalls.filter(|span| span.part_within(at, at + 1).is_some());
        then.map(|span| span.until.unwrap_or(u64::MAX)).fold(at, u64::max)
    }

    /// Whether a fault concerned the worker at some time between.
    pub(super) fn troubled_within(&self, from: u64, to: u64, worker: Option<u32>) -> bool {
        let mut own = self.all.iter().filter(|span| span.concerns(worker));
        own.any(|span| span.part_within(from, to).is_some())
    }

    /// The last fault that the guarantee does not cover and whose effect may have lasted until
    /// then.
    pub(super) fn beyond(&self, at: u64, effect: u64) -> Option<&FaultSpan> {
        let ends = |span: &FaultSpan| span.until.map_or(u64::MAX, |until| until + effect);
        let mut latest = self.all.iter().rev();
        latest.find(|span| span.beyond && span.from <= at && at <= ends(span))
    }

    /// Those that may have to do with what happened between.
    pub(super) fn around(&self, from: u64, to: u64, effect: u64) -> Vec<FaultSpan> {
        let from = from.saturating_sub(effect);
        let near = self.all.iter().filter(|span| span.part_within(from, to + 1).is_some());
        near.cloned().collect()
    }
}
