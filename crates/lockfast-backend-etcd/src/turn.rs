//! Waiting for a turn, and taking it.

use std::sync::Arc;
use std::time::Duration;

use lockfast_core::queue::Ahead;
use lockfast_core::{AcquireOutcome, AcquireRequest, Grant, HolderId, Moment, Wait};
use tokio::sync::oneshot;

use crate::acquire::fence_of;
use crate::batch::{LOOK_MAX, range};
use crate::claim::{Claim, Stage, class_of, lasting};
use crate::failure::Failure;
use crate::gate::Entering;
use crate::line::Entry;
use crate::record::State;
use crate::session::Class;
use crate::store::Store;
use crate::wire::RangeRequest;

/// How long a lock that is handed over lasts until its holder confirms it: less than it takes
/// others to give such a holder up.
const BRIEF: Duration = Duration::from_millis(1400);
/// Less than that is left of it: then it is confirmed before it is told.
const BRIEF_MIN: Duration = Duration::from_millis(600);
/// The part of a lease's time that is relied on.
const SAFE_SHARE: f64 = 0.95;
/// How often a wait looks whether it still makes sense.
const POLL: Duration = Duration::from_secs(5);

/// What ended a wait.
pub(crate) enum Waited {
    /// Something became of the claim.
    Signal,
    TimeUp,
    /// Nobody waits for the answer, or the holder asks for something else.
    GivenUp,
}

impl Store {
    /// Waits until something becomes of the claim.
    pub(crate) async fn wait_turn(
        self: &Arc<Self>,
        request: &AcquireRequest,
        entering: &Entering<'_>,
        asker: &mut oneshot::Sender<lockfast_core::Result<AcquireOutcome>>,
    ) -> Result<Waited, Failure> {
        let Some(claim) = self.claims.find(request.holder) else { return Ok(Waited::Signal) };
        if claim.stage != Stage::Waiting {
            return Ok(Waited::Signal);
        }
        if let Some(failure) = self.watches.refusal(&request.name) {
            self.withdraw(request.holder).await?;
            return Err(failure);
        }
        let left = match request.wait {
            Wait::No => Duration::ZERO,
            Wait::Until(until) => until.remaining(Moment::now()),
            Wait::Forever => POLL,
        };
        tokio::select! {
            biased;
            () = claim.signal.notified() => Ok(Waited::Signal),
            () = asker.closed() => Ok(Waited::GivenUp),
            () = entering.wanted() => Ok(Waited::GivenUp),
            () = tokio::time::sleep(left.min(POLL)) => {
                Ok(if request.wait.is_open() { Waited::Signal } else { Waited::TimeUp })
            }
        }
    }

    /// It is the claim's turn: its holder has the lock, unless the claim is gone. Nobody is told before
    /// a read that was answered after the claim was made has shown who is ahead of it: some servers lose
    /// the news of a claim, and nobody comes ahead of one later.
    pub(crate) async fn claim_turn(
        self: &Arc<Self>,
        request: &AcquireRequest,
        happened: Option<i64>,
    ) -> Result<Option<Grant>, Failure> {
        let Some(mut claim) = self.claims.find(request.holder) else { return Ok(None) };
        let fence = fence_of(claim.revision)?;
        let lasting = lasting(request.ttl, request.lock_delay);
        let mut is_proved = self.watches.is_proved(&claim.name, &claim.place());
        let can_be_brief = !request.detached && request.lock_delay.is_zero();
        let happened = happened.filter(|_| can_be_brief);
        if !is_proved && self.brief_of(&claim, happened).is_some() {
            self.look_if_crowded(&claim.name);
            if !self.is_first(&claim).await? {
                return self.wait_again(request.holder, &claim);
            }
            is_proved = true;
            let present = self.claims.find(request.holder);
            let Some(same) = present.filter(|it| it.revision == claim.revision) else {
                return Ok(None);
            };
            claim = same;
        }
        if let Some((from, until)) = self.brief_of(&claim, happened) {
            let stage = Stage::Held { until, since: Moment::now() };
            let held = self.claims.take_turn(request.holder, claim.revision, stage);
            let grant = Grant::new(fence, from).lasting(until.since(from));
            return Ok(held.map(|session| grant.in_session(session.number())));
        }
        let lease = (class_of(lasting, request.detached), None);
        let putting = self.put_under(request.holder, &claim, lease, State::Held);
        let looking = async { Ok::<_, Failure>(is_proved || self.is_first(&claim).await?) };
        let (put, is_first) = tokio::join!(putting, looking);
        let Some(session) = put? else { return Ok(None) };
        if !is_first? {
            return self.wait_again(request.holder, &claim);
        }
        let from = session.from();
        let stage = Stage::Held { until: from + lasting, since: Moment::now() };
        let held = self.claims.take_turn(request.holder, claim.revision, stage);
        Ok(held.map(|session| Grant::new(fence, from).in_session(session.number())))
    }

    /// The turn of a claim was told while others are ahead of it.
    fn wait_again(&self, holder: HolderId, claim: &Claim) -> Result<Option<Grant>, Failure> {
        tracing::warn!(lock = %claim.name, "the server did not tell who is ahead");
        self.claims.take_turn(holder, claim.revision, Stage::Waiting);
        self.watches.reopen_line(self, &claim.name);
        Ok(None)
    }

    /// Whether the cluster agrees that a claim has its turn.
    async fn is_first(&self, claim: &Claim) -> Result<bool, Failure> {
        let span = self.space.span_of(&claim.name);
        let earlier = claim.revision - 1;
        let some = RangeRequest { max_create_revision: earlier, ..range(&span, LOOK_MAX) };
        let mut found = self.link.range(some.clone()).await?;
        if found.more {
            // Shared claims, permits, or the claims of locks whose names go on with a slash.
            found = self.link.range(RangeRequest { limit: 0, ..some }).await?;
        }
        // A member that lags may not know of those who came before the claim.
        if found.header.as_ref().is_none_or(|header| header.revision < claim.revision) {
            return Ok(false);
        }
        let mut ahead = Ahead::default();
        let entries = found.kvs.iter().filter_map(|kv| Entry::read(&self.space, &claim.name, kv));
        entries.for_each(|entry| ahead.count(entry.mode));
        Ok(ahead.allows(claim.mode))
    }

    /// From when until when a claim that got its turn at a revision has the lock before that is
    /// confirmed: nobody gives its holder up before that, and its lease does not end. `None` when too
    /// little of that is left, and for a claim that hangs on the lease of its ttl already: renewals would
    /// leave its key as it is, which confirms nothing.
    fn brief_of(&self, claim: &Claim, happened: Option<i64>) -> Option<(Moment, Moment)> {
        if claim.session.class != Class::Waiting {
            return None;
        }
        let from = self.pulses.before(happened?)?;
        let lease = claim.session.from() + claim.session.ttl.mul_f64(SAFE_SHARE);
        let until = lease.earlier_of(from + BRIEF);
        (until.remaining(Moment::now()) >= BRIEF_MIN).then_some((from, until))
    }
}
