//! The claims of a lock in one line, free of I/O: what each operation does to them. Who is granted
//! is decided by the rule in [`lockfast_core::queue`].

use std::sync::Arc;

use lockfast_core::queue::{Ahead, check_use};
use lockfast_core::{
    AcquireRequest, ClientId, Error, Fence, HolderId, HolderView, Label, LockName, LockView,
    LossCause, Mode, ReleaseOutcome, RenewRequest, Result, RevokeRequest, Wait,
};

use crate::claim::{Claim, Clock, Effect, Happening, Hold, Stage};
use crate::counter::FenceCounter;

/// The claims of one lock, in the order of their tickets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue(Vec<Claim>);

/// What became of an acquisition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It has the lock.
    Granted(Fence),
    /// It waits.
    Waiting,
    /// It may not wait, and nothing of it is left.
    Taken,
}

/// What became of a request that changes a lease: of a renewal, of a downgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Upkeep {
    /// The lease is as it was asked to be.
    Done,
    /// It was taken away.
    Revoked(LossCause),
    /// There is no such lease; perhaps somebody else has the lock.
    Unknown { by: Option<ClientId> },
}

impl Upkeep {
    /// Why its holder does not have the lease, if it does not.
    pub(crate) fn loss(self, label: impl Fn(&ClientId) -> Option<Label>) -> Option<LossCause> {
        match self {
            Self::Done => None,
            Self::Revoked(cause) => Some(cause),
            Self::Unknown { by: None } => Some(LossCause::Forgotten),
            Self::Unknown { by: Some(client) } => {
                let by = label(&client).map(|label| label.to_string());
                Some(LossCause::Taken { by })
            }
        }
    }
}

/// What became of an operator's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Revocation {
    /// The effects say from whom.
    Done,
    /// Nobody has it.
    NotHeld,
    /// Somebody has it, but not with the expected fence.
    OtherFence,
}

impl Queue {
    /// A queue as it was stored.
    pub(crate) fn of(claims: Vec<Claim>) -> Self {
        Self(claims)
    }

    pub(crate) fn claims(&self) -> &[Claim] {
        &self.0
    }

    pub(crate) fn claims_mut(&mut self) -> &mut [Claim] {
        &mut self.0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The claim of a holder.
    pub(crate) fn find(&self, holder: HolderId) -> Option<&Claim> {
        self.0.iter().find(|claim| claim.holder == holder)
    }

    /// Enters a claim, or repeats one, and grants what can be granted. The queue must have been
    /// [expired](Queue::expire) at the same moment.
    pub(crate) fn acquire(
        &mut self,
        client: ClientId,
        request: &AcquireRequest,
        clock: Clock,
        fences: &mut FenceCounter,
        effects: &mut Vec<Effect>,
    ) -> Result<Admission> {
        let known = self.0.iter().position(|c| c.holder == request.holder);
        match known {
            Some(at) => {
                if let Some(fence) = self.repeat(at, client, request, clock.now_ns)? {
                    return Ok(Admission::Granted(fence));
                }
            }
            None => {
                let live = self.0.iter().filter(|claim| claim.is_live());
                check_use(live.map(|claim| claim.mode), request.mode)?;
                let floor = request.floor.map_or(0, Fence::get);
                fences.check_floor(clock.wall_us, floor)?;
                let ticket = self.0.last().map_or(1, |last| last.ticket + 1);
                self.0.push(Claim::new(ticket, client, request));
            }
        }
        let settled = self.settle(clock, fences, effects);
        let at = known.unwrap_or(self.0.len() - 1);
        if let Some(hold) = self.0[at].hold() {
            return Ok(Admission::Granted(hold.fence));
        }
        let may_wait = match request.wait {
            Wait::No => false,
            Wait::Until(until) => until.host_ns() > clock.now_ns,
            Wait::Forever => true,
        };
        if settled.is_ok() && may_wait {
            if known.is_none() {
                effects.push(Effect::new(Happening::Queued, &self.0[at]));
            }
            return Ok(Admission::Waiting);
        }
        let claim = self.0.remove(at);
        if known.is_some() {
            effects.push(Effect::new(Happening::Abandoned, &claim));
            let _ = self.settle(clock, fences, effects);
        }
        settled.map(|()| Admission::Taken)
    }

    /// The same holder asks again: it keeps its place, and its ttl and wait are those of the new
    /// request.
    fn repeat(
        &mut self,
        at: usize,
        client: ClientId,
        request: &AcquireRequest,
        now_ns: u64,
    ) -> Result<Option<Fence>> {
        let claim = &mut self.0[at];
        if let Stage::Revoked { reason, .. } = &claim.stage {
            let reason = reason.to_string();
            return Err(Error::lost(&request.name, LossCause::Revoked { reason }));
        }
        if claim.mode != request.mode {
            return Err(Error::already_held(request.mode, claim.mode));
        }
        let renewed = Claim::new(claim.ticket, client, request);
        let (hold, saved) = (claim.hold(), claim.saved);
        *claim = Claim { saved, ..renewed };
        claim.touch();
        Ok(hold.map(|hold| {
            claim.stage = Stage::Granted(Hold { from_ns: now_ns, ..hold });
            claim.ends_ns = claim.lease_end_ns(now_ns);
            hold.fence
        }))
    }

    /// Grants every claim whose rule holds, in order.
    ///
    /// The first claim that has to wait ends the walk: whatever it waits for is ahead of those
    /// behind it too, and they may not overtake it.
    pub(crate) fn settle(
        &mut self,
        clock: Clock,
        fences: &mut FenceCounter,
        effects: &mut Vec<Effect>,
    ) -> Result<()> {
        let mut ahead = Ahead::default();
        for claim in self.0.iter_mut().filter(|claim| claim.is_live()) {
            if claim.is_waiting() {
                if !ahead.allows(claim.mode) {
                    break;
                }
                claim.stage = Stage::Granted(Hold {
                    fence: fences.next(clock.wall_us, claim.floor)?,
                    from_ns: clock.now_ns,
                    since_us: clock.wall_us,
                });
                claim.ends_ns = claim.lease_end_ns(clock.now_ns);
                claim.touch();
                effects.push(Effect::new(Happening::Granted, claim));
            }
            ahead.count(claim.mode);
        }
        Ok(())
    }

    /// Removes what has ended and grants what that lets in.
    pub(crate) fn expire(
        &mut self,
        clock: Clock,
        fences: &mut FenceCounter,
        effects: &mut Vec<Effect>,
    ) {
        let ended = |claim: &Claim| claim.ends_ns <= clock.now_ns;
        if !self.0.iter().any(ended) {
            return;
        }
        self.0.retain(|claim| {
            if ended(claim) {
                let what = match claim.stage {
                    Stage::Waiting => Happening::Abandoned,
                    Stage::Granted(_) => Happening::Expired,
                    Stage::Revoked { .. } => Happening::Forgotten,
                };
                effects.push(Effect::new(what, claim));
            }
            !ended(claim)
        });
        // An exhausted fence keeps the next one waiting.
        let _ = self.settle(clock, fences, effects);
    }

    /// These clients are gone: what they waited for is dropped, and what they have ends after its
    /// lock-delay at the latest.
    pub(crate) fn bury(
        &mut self,
        is_dead: impl Fn(&ClientId) -> bool,
        clock: Clock,
        fences: &mut FenceCounter,
        effects: &mut Vec<Effect>,
    ) {
        for claim in self.0.iter_mut().filter(|claim| is_dead(&claim.client)) {
            let latest_ns = match claim.stage {
                Stage::Waiting => clock.now_ns,
                _ if claim.detached => continue,
                _ => clock.now_ns.saturating_add(claim.delay_ns),
            };
            if claim.ends_ns > latest_ns {
                claim.ends_ns = latest_ns;
                claim.touch();
            }
        }
        self.expire(clock, fences, effects);
    }

    /// Lets a lease last longer (or shorter). Never creates one.
    pub(crate) fn renew(&mut self, request: &RenewRequest, now_ns: u64) -> Upkeep {
        match self.held_by(request.holder) {
            Ok(claim) => {
                claim.begin_ttl(request.ttl, request.lock_delay, now_ns);
                Upkeep::Done
            }
            Err(missing) => missing,
        }
    }

    /// Lets a writer go on as a reader and grants what that lets in. Nothing else of its claim
    /// changes.
    pub(crate) fn downgrade(
        &mut self,
        holder: HolderId,
        clock: Clock,
        fences: &mut FenceCounter,
        effects: &mut Vec<Effect>,
    ) -> Result<Upkeep> {
        if let Err(missing) = self.held_by(holder) {
            return Ok(missing);
        }
        let live = self.0.iter().filter(|claim| claim.is_live());
        check_use(live.map(|claim| claim.mode), Mode::Shared)?;
        if let Ok(claim) = self.held_by(holder)
            && claim.mode != Mode::Shared
        {
            claim.mode = Mode::Shared;
            claim.touch();
            // An exhausted fence keeps the next one waiting; it does not undo this downgrade.
            let _ = self.settle(clock, fences, effects);
        }
        Ok(Upkeep::Done)
    }

    /// The claim of a holder that has the lock, or why it does not.
    fn held_by(&mut self, holder: HolderId) -> Result<&mut Claim, Upkeep> {
        let at = self.0.iter().position(|claim| claim.holder == holder);
        match at.map(|at| (at, &self.0[at].stage)) {
            Some((at, Stage::Granted(_))) => Ok(&mut self.0[at]),
            Some((_, Stage::Revoked { reason, .. })) => {
                Err(Upkeep::Revoked(LossCause::Revoked { reason: reason.to_string() }))
            }
            _ => {
                let by = self.0.iter().find(|claim| claim.hold().is_some());
                Err(Upkeep::Unknown { by: by.map(|claim| claim.client) })
            }
        }
    }

    /// Removes a holder's claim and grants what that lets in.
    pub(crate) fn release(
        &mut self,
        holder: HolderId,
        clock: Clock,
        fences: &mut FenceCounter,
        effects: &mut Vec<Effect>,
    ) -> ReleaseOutcome {
        let Some(at) = self.0.iter().position(|claim| claim.holder == holder) else {
            return ReleaseOutcome::NotHeld;
        };
        let claim = self.0.remove(at);
        let (what, outcome) = match claim.stage {
            Stage::Granted(_) => (Happening::Released, ReleaseOutcome::Released),
            Stage::Waiting => (Happening::Abandoned, ReleaseOutcome::NotHeld),
            Stage::Revoked { .. } => (Happening::Forgotten, ReleaseOutcome::NotHeld),
        };
        effects.push(Effect { what, claim });
        // An exhausted fence keeps the next one waiting; it does not undo this release.
        let _ = self.settle(clock, fences, effects);
        outcome
    }

    /// Ends a claim whose holder cannot be told that it has the lock, and grants the next.
    pub(crate) fn discard(
        &mut self,
        holder: HolderId,
        clock: Clock,
        fences: &mut FenceCounter,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(claim) = self.0.iter_mut().find(|claim| claim.holder == holder) {
            claim.ends_ns = clock.now_ns;
        }
        self.expire(clock, fences, effects);
    }

    /// Takes the lock from all who have it and grants the next.
    pub(crate) fn revoke(
        &mut self,
        request: &RevokeRequest,
        clock: Clock,
        fences: &mut FenceCounter,
        effects: &mut Vec<Effect>,
    ) -> Revocation {
        let mut held = self.0.iter().filter_map(Claim::hold).peekable();
        if held.peek().is_none() {
            return Revocation::NotHeld;
        }
        if let Some(expected) = request.expect_fence
            && !held.any(|hold| hold.fence == expected)
        {
            return Revocation::OtherFence;
        }
        let reason: Arc<str> = Arc::from(request.reason.as_str());
        for claim in self.0.iter_mut() {
            if let Some(hold) = claim.hold() {
                claim.stage = Stage::Revoked { fence: hold.fence, reason: Arc::clone(&reason) };
                claim.touch();
                effects.push(Effect::new(Happening::Revoked, claim));
            }
        }
        let _ = self.settle(clock, fences, effects);
        Revocation::Done
    }

    /// When the first of its claims ends by itself.
    pub(crate) fn next_end_ns(&self) -> Option<u64> {
        let live = self.0.iter().filter(|claim| claim.is_live());
        live.map(|claim| claim.ends_ns).min()
    }

    /// Who has the lock.
    pub(crate) fn holders(
        &self,
        now_ns: u64,
        label: impl Fn(&ClientId) -> Option<Label>,
    ) -> Vec<HolderView> {
        (self.0.iter())
            .filter(|claim| claim.ends_ns > now_ns)
            .filter_map(|claim| claim.view(now_ns, label(&claim.client)))
            .collect()
    }

    /// The lock as people may see it.
    pub(crate) fn view(
        &self,
        name: &LockName,
        now_ns: u64,
        label: impl Fn(&ClientId) -> Option<Label>,
    ) -> LockView {
        let waiting =
            (self.0.iter()).filter(|claim| claim.is_waiting() && claim.ends_ns > now_ns).count();
        LockView::new(name.clone(), self.holders(now_ns, label), waiting)
    }
}

#[cfg(test)]
#[path = "queue_test.rs"]
mod tests;
