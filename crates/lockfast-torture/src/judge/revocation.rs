//! What a revocation excuses, and what it does not.

use super::claim::Claim;
use super::faults::FaultSpan;
use super::finding::{Kind, Ruling};
use super::rule::{Found, who};
use super::{Judge, TOLD_TOLERANCE, seconds};

impl Judge {
    /// Another had the lock after a revocation that may have been of this claim.
    pub(super) fn replace(&mut self, id: u64, at: u64) {
        if let Some(claim) = self.claims.get_mut(id) {
            claim.replaced.get_or_insert(at);
        }
    }

    /// How long after another has the lock a holder may not know that it was revoked: until the
    /// answer to its next renewal (P3, P8), of which there is one in a third of the ttl, for which it
    /// has a sixth.
    fn revocation_told(&self) -> u64 {
        self.ttl / 2 + TOLD_TOLERANCE
    }

    /// A holder that was revoked still found the lock to be its own, this long after another had it.
    pub(super) fn rule_revoked(&mut self, id: u64, replaced: u64, at: u64) {
        let Some(claim) = self.claims.find(id).cloned() else { return };
        let faults = self.faults.around(replaced, at, self.life());
        let is_excuse = |fault: &FaultSpan| {
            fault.outage || fault.concerns(claim.worker) || fault.target.starts_with("server")
        };
        if at - replaced <= self.revocation_told() || faults.iter().any(is_excuse) {
            return;
        }
        if let Some(claim) = self.claims.get_mut(id) {
            claim.replaced = None;
        }
        self.losses.late += 1;
        let text = format!(
            "{} still held \"{}\" {:.3} s after another had it, when it had been revoked, at {:.3} s",
            who(&[claim.party()], id),
            self.locks[claim.lock].name,
            seconds(at - replaced),
            self.since_start(at),
        );
        let found = Found {
            span: (replaced, at),
            parties: vec![claim.party()],
            ruling: Ruling::Broken,
            reason:
                "a holder that can be reached is told at its next renewal that its lock was revoked"
                    .into(),
        };
        self.report(Kind::LossToldLate, Some(claim.lock), text, found);
    }

    /// The store let a claim release what it was thought to have lost by a revocation, so that this
    /// is no excuse.
    pub(super) fn rule_unrevoked(&mut self, claim: &Claim) {
        for place in self.findings.excused(claim.id) {
            let at = self.findings.began(place);
            let (ruling, reason) = self.rule_unexcused(at);
            self.findings.rule_again(place, ruling, reason);
        }
    }
}
