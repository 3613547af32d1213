//! What was found, so that a person can follow it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::faults::FaultSpan;
use crate::history::Mode;

/// Findings of one kind that are kept with their details. All are counted.
const DETAILED_MAX: usize = 200;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Two held an exclusive lock at once.
    Overlap,
    /// One read while another wrote.
    ReaderBesideWriter,
    /// More held it than there are permits.
    PermitsExceeded,
    /// A later grant has not the higher fence.
    FenceNotRising,
    /// A write was let through after one with a higher fence.
    StaleWrite,
    /// A holder was told of its loss after its deadline.
    LossToldLate,
    /// A waiter waited though the lock was free.
    Starved,
    /// A lock was held when all workers and leases had ended.
    HeldAtEnd,
    /// A lock was waited for when all workers had ended.
    WaitedForAtEnd,
    /// A process that `run` had started outlived it.
    ProcessLeft,
    /// A worker ended by itself.
    WorkerFailed,
}

/// Whether what was found was promised never to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ruling {
    /// A promise was broken.
    Broken,
    /// The store does not promise otherwise.
    Allowed,
    /// No store can promise otherwise: the lock was taken away by force.
    Revoked,
}

/// A claim that took part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Party {
    /// Which acquisition.
    pub claim: u64,
    /// Whose; none if nobody of the fleet.
    pub worker: Option<u32>,
    /// In which mode.
    pub mode: Mode,
    /// Its fence, if it was granted.
    pub fence: Option<u64>,
    /// When it was asked for.
    pub asked: u64,
    /// When the grant had arrived.
    pub granted: Option<u64>,
    /// When its holder last found it to be its own.
    pub proof: Option<u64>,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// What.
    pub kind: Kind,
    /// Whether it breaks a promise.
    pub ruling: Ruling,
    /// What happened, for people.
    pub text: String,
    /// Why it is ruled so.
    pub reason: String,
    /// Of which lock.
    pub lock: Option<String>,
    /// When it began, in nanoseconds of the machine's clock.
    pub from: u64,
    /// When it is known to have ended.
    pub until: u64,
    /// The claims that took part.
    pub parties: Vec<Party>,
    /// The faults around it.
    pub faults: Vec<FaultSpan>,
}

/// How many findings of one kind there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// That break a promise.
    pub broken: u64,
    /// That the store allows.
    pub allowed: u64,
    /// That follow from a revocation.
    pub revoked: u64,
}

impl Tally {
    fn of(&mut self, ruling: Ruling) -> &mut u64 {
        match ruling {
            Ruling::Broken => &mut self.broken,
            Ruling::Allowed => &mut self.allowed,
            Ruling::Revoked => &mut self.revoked,
        }
    }
}

/// All findings: counted, and the first of each kind and ruling with their details.
#[derive(Debug, Default)]
pub(super) struct Findings {
    tallies: BTreeMap<Kind, Tally>,
    detailed: Vec<Finding>,
    /// Claims in detailed findings whose proofs are still followed, and by which findings.
    followed: BTreeMap<u64, Vec<usize>>,
}

impl Findings {
    pub(super) fn add(&mut self, finding: Finding) {
        let tally = self.tallies.entry(finding.kind).or_default();
        let count = tally.of(finding.ruling);
        *count += 1;
        if *count <= DETAILED_MAX as u64 {
            for party in &finding.parties {
                self.followed.entry(party.claim).or_default().push(self.detailed.len());
            }
            self.detailed.push(finding);
        }
    }

    /// A claim that may be part of a finding was held at this moment, too.
    pub(super) fn prolong(&mut self, claim: u64, proof: u64) {
        for place in self.followed.get(&claim).into_iter().flatten() {
            let finding = &mut self.detailed[*place];
            for party in finding.parties.iter_mut().filter(|party| party.claim == claim) {
                party.proof = Some(proof);
            }
            if matches!(finding.kind, Kind::Overlap | Kind::ReaderBesideWriter) {
                let ends = finding.parties.iter().filter_map(|party| party.proof);
                finding.until = ends.min().unwrap_or(finding.from).max(finding.from);
            }
        }
    }

    /// The last findings in which this claim is thought to have been revoked: it has the lower
    /// fence there.
    pub(super) fn excused(&self, claim: u64) -> Vec<usize> {
        let is_it = |finding: &Finding| {
            let loser = finding.parties.iter().min_by_key(|party| party.fence);
            finding.ruling == Ruling::Revoked
                && finding.kind != Kind::PermitsExceeded
                && loser.is_some_and(|loser| loser.claim == claim)
        };
        let last = self.detailed.len().saturating_sub(DETAILED_MAX);
        (last..self.detailed.len()).filter(|place| is_it(&self.detailed[*place])).collect()
    }

    pub(super) fn began(&self, place: usize) -> u64 {
        self.detailed[place].from
    }

    pub(super) fn rule_again(&mut self, place: usize, ruling: Ruling, reason: String) {
        let finding = &mut self.detailed[place];
        let tally = self.tallies.entry(finding.kind).or_default();
        *tally.of(finding.ruling) -= 1;
        *tally.of(ruling) += 1;
        finding.ruling = ruling;
        finding.reason = reason;
    }

    /// No further proof of the claim will come.
    pub(super) fn forget(&mut self, claim: u64) {
        self.followed.remove(&claim);
    }

    /// The last finding with details, to be joined with one that continues it.
    pub(super) fn last_mut(&mut self, kind: Kind, lock: &str) -> Option<&mut Finding> {
        let is_it =
            |found: &&mut Finding| found.kind == kind && found.lock.as_deref() == Some(lock);
        self.detailed.iter_mut().rev().find(is_it)
    }

    pub(super) fn tallies(&self) -> &BTreeMap<Kind, Tally> {
        &self.tallies
    }

    pub(super) fn broken(&self) -> u64 {
        self.tallies.values().map(|tally| tally.broken).sum()
    }

    /// What breaks a promise first, and each by time.
    pub(super) fn into_detailed(mut self) -> Vec<Finding> {
        self.detailed.sort_by_key(|found| (found.ruling, found.from));
        self.detailed
    }
}
