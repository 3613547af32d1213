//! What the server pushes to us: a lock that we waited for, our place at the head of a queue, or
//! that a lease was taken away.

use std::sync::Arc;
use std::time::Duration;

use lockfast_core::lobby::{TICK, Waiter};
use lockfast_core::time::ClockPair;
use lockfast_core::{Fence, Grant, HolderId, LockName, LossCause, Moment};

use crate::answer::tell_all;
use crate::batch::{Give, Op, Take, Then};
use crate::claim::{Answer, Claim};
use crate::record;
use crate::store::Store;

/// How long an offer lasts, unless the ttl is shorter.
const OFFER: Duration = Duration::from_millis(1500);

/// A lock that was given to a claim that waited. It lasts only briefly until it is renewed, so
/// that a waiter that hangs does not hold up those behind it.
#[derive(Debug)]
struct Offer {
    holder: HolderId,
    fence: Fence,
    /// When, by the server's clock.
    at_us: u64,
    /// For how long, without the lock-delay.
    lasts: Duration,
}

impl Offer {
    fn read(holder: &str, fence: &str, at_us: &str, lasts_ms: &str) -> Option<Self> {
        Some(Self {
            holder: record::read_holder(holder)?,
            fence: Fence::parse(fence).ok()?,
            at_us: at_us.parse().ok()?,
            lasts: Duration::from_millis(lasts_ms.parse().ok()?).min(OFFER),
        })
    }

    /// The first renewal makes a full lease of it.
    fn grant(&self, clock: ClockPair) -> Grant {
        let from = Moment::now().earlier_of(clock.locate(self.at_us));
        Grant::new(self.fence, from).lasting(self.lasts)
    }
}

impl Store {
    /// Listens to what was pushed: `G` a grant, `H` the head of a queue, `R` a revocation.
    pub(crate) fn hear(&self, payload: &[u8]) {
        let Ok(payload) = std::str::from_utf8(payload) else { return };
        if let Some((holder, reason)) =
            payload.strip_prefix("R\t").and_then(|rest| rest.split_once('\t'))
        {
            if let Some(holder) = record::read_holder(holder) {
                self.forget(holder);
                let reason = record::read_text(reason);
                self.losses.report(holder, LossCause::Revoked { reason });
            }
            return;
        }
        if payload == "W" {
            // The server takes us for hung: whoever waits looks, and so registers us again.
            return self.lobby.rouse();
        }
        for line in payload.lines() {
            let fields: Vec<&str> = line.split('\t').collect();
            match fields.as_slice() {
                ["G", holder, fence, at_us, lasts_ms, key] => {
                    match Offer::read(holder, fence, at_us, lasts_ms) {
                        Some(offer) => self.take_offer(&offer, key),
                        None => tracing::warn!(key, "the server pushed an offer of another form"),
                    }
                }
                ["H", holder, blocked_ms, blocker @ ..] => {
                    let blocked = blocked_ms.parse().ok().map(Duration::from_millis);
                    if let (Some(holder), Some(blocked)) = (record::read_holder(holder), blocked) {
                        let blocker = blocker.first().and_then(|it| record::read_client(it));
                        let claim = blocker.and_then(|_| self.lobby.find(holder));
                        claim.into_iter().for_each(|claim| claim.note_blocker(blocker));
                        self.lobby.hasten(holder, blocked + TICK);
                    }
                }
                _ => {}
            }
        }
    }

    /// Tells whoever waits for it. What nobody here waits for (any more) is left alone: whoever gave
    /// it up releases it, and whoever is about to wait for it will look.
    fn take_offer(&self, offer: &Offer, key: &str) {
        let is_other = |claim: Arc<Claim>| {
            key.strip_prefix(self.config().prefix.as_str()) != Some(claim.name.as_str())
        };
        if self.lobby.find(offer.holder).is_some_and(is_other) {
            tracing::warn!(key, "the server pushed a lock that was not asked for");
            return;
        }
        let Some(mut waiter) = self.lobby.take_called(offer.holder, ()) else {
            // For cargo xtask soak --undone: shows that torture finds it.
            if cfg!(lockfast_undone = "B18") {
                self.decline(offer.holder, key);
            }
            return;
        };
        // Whoever gave up releases it, or has asked again and is told by the answer to that.
        if !waiter.is_wanted() {
            return;
        }
        // Nobody renews a detached lease, and replicas must be asked before it counts. Without a
        // clock to compare with, which is when it was pushed before the answer to the question
        // was handed out, it may be as old as its time.
        // A shorter offer than usual is a question whether we are there.
        let is_question = offer.lasts < waiter.claim.ttl.min(OFFER);
        let must_ask = waiter.claim.detached || self.config().min_replicas > 0 || is_question;
        let Some(clock) = waiter.clock.filter(|_| !must_ask) else {
            return self.ask_again(waiter);
        };
        let grant = offer.grant(clock);
        if (grant.from + offer.lasts).remaining(Moment::now()) < offer.lasts / 3 {
            // We were away for a while: it is over, or soon will be.
            return self.ask_again(waiter);
        }
        self.remember(&waiter.claim, offer.fence);
        tell_all(waiter.askers, || Answer::Granted(grant.clone()));
    }

    /// Gives back what was offered before its asker had heard that it waits.
    fn decline(&self, holder: HolderId, key: &str) {
        let name = key.strip_prefix(self.config().prefix.as_str()).map(LockName::new);
        if let Some(Ok(name)) = name {
            self.submit(Op::Give(Give::new(name, holder, Then::Nothing)));
        }
    }

    /// Asks for what was offered: it has it still and for longer, or waits again at its old place. It
    /// may have been passed over and offered the lock once more since, so only the answer tells the
    /// fence.
    fn ask_again(&self, waiter: Waiter<Claim>) {
        for asker in waiter.askers {
            self.submit(Op::Take(Take::first(Arc::clone(&waiter.claim), asker)));
        }
    }
}
