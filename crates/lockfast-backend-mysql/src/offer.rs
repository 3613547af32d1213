//! What is pushed to us, in an answer or by mail: a lock that we waited for, our place at the head
//! of a queue, or that a lease was taken away.

use std::sync::Arc;
use std::time::Duration;

use lockfast_core::{Fence, Grant, HolderId, LockName, LossCause, Moment, RenewRequest};
use tokio::sync::oneshot;

use crate::answer::tell_all;
use crate::batch::{ClockPair, Give, Op, Purpose, Renew, Renewal, Take};
use crate::claim::{Answer, Claim};
use crate::lobby::Waiter;
use crate::store::Store;

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
    name: LockName,
}

impl Offer {
    fn read(fields: &[&str]) -> Option<Self> {
        let [holder, fence, at_us, lasts_us, name] = fields else { return None };
        Some(Self {
            holder: HolderId::parse(holder).ok()?,
            fence: Fence::parse(fence).ok()?,
            at_us: at_us.parse().ok()?,
            lasts: Duration::from_micros(lasts_us.parse().ok()?),
            name: LockName::new(name).ok()?,
        })
    }

    /// The grant as the engine understands it: with the ttl counted from so early that it ends
    /// with the offer, the first renewal is due at once and makes it a full lease.
    fn grant(&self, claim: &Claim, clock: Option<ClockPair>) -> Grant {
        let received = Moment::now();
        // Without a clock to compare with, the offer may be as old as its time.
        let given = match clock {
            Some(clock) => received.earlier_of(clock.locate(self.at_us)),
            None => received.before(self.lasts),
        };
        Grant { fence: self.fence, from: given.before(claim.ttl.saturating_sub(self.lasts)) }
    }
}

impl Store {
    /// Listens to one line: `G` a grant, `H` the head of a queue, `R` a revocation. It may have
    /// come with the answer to what was sent at the time that `clock` tells.
    pub(crate) fn hear(&self, line: &str, clock: Option<ClockPair>) {
        let fields: Vec<&str> = line.split('\t').collect();
        match fields.as_slice() {
            ["G", fields @ ..] => {
                let offer = Offer::read(fields);
                offer.into_iter().for_each(|offer| self.take_offer(&offer, clock));
            }
            ["H", holder, blocked_us] => {
                let blocked = blocked_us.parse().ok().map(Duration::from_micros);
                if let (Ok(holder), Some(blocked)) = (HolderId::parse(holder), blocked) {
                    self.lobby.lead(holder, blocked);
                }
            }
            ["R", holder, reason @ ..] => {
                if let Ok(holder) = HolderId::parse(holder) {
                    let reason = reason.join(" ");
                    self.losses.report(holder, LossCause::Revoked { reason });
                }
            }
            ["E", fields @ ..] => self.feeds.tell(fields),
            _ => {}
        }
    }

    fn take_offer(&self, offer: &Offer, clock: Option<ClockPair>) {
        // Mail may come twice, or after an answer that said the same: then its holder has the lock
        // and uses it, and giving it back would let another in. A claim that was given up needs
        // nothing either, because its release ends whatever it was offered.
        let Some(mut waiter) = self.lobby.take(offer.holder) else { return };
        if !waiter.is_wanted() {
            return self.decline(offer);
        }
        if waiter.claim.detached {
            // Nobody renews it, so it must be a full lease before its asker is told.
            if let Some(store) = self.me() {
                self.runtime.spawn(store.confirm(waiter, offer.fence));
            }
            return;
        }
        let grant = offer.grant(&waiter.claim, clock);
        if !tell_all(waiter.askers, || Answer::Granted(grant.clone())) {
            self.decline(offer);
        }
    }

    /// Nobody here wants it: it goes on to the next.
    fn decline(&self, offer: &Offer) {
        self.undo(&offer.name, offer.holder);
    }

    /// Makes a full lease of an offer before its asker is told.
    async fn confirm(self: Arc<Self>, waiter: Waiter, fence: Fence) {
        let claim = Arc::clone(&waiter.claim);
        let lease = RenewRequest {
            name: claim.name.clone(),
            holder: claim.holder,
            ttl: claim.ttl,
            lock_delay: claim.lock_delay,
        };
        let (asker, answer) = oneshot::channel();
        let from = Moment::now();
        self.submit(Op::Renew(Renew { leases: [lease].into(), asker, tries: 0 }));
        match answer.await {
            Ok(Ok(outcomes)) if outcomes.first() == Some(&Renewal::Renewed) => {
                if !tell_all(waiter.askers, || Answer::Granted(Grant { fence, from })) {
                    self.undo(&claim.name, claim.holder);
                }
            }
            Ok(Ok(_)) => {
                // The offer had ended by then, so it waits again.
                for asker in waiter.askers {
                    let (claim, purpose) = (Arc::clone(&claim), Purpose::First(asker));
                    self.submit(Op::Take(Take { claim, purpose, tries: 0 }));
                }
            }
            Ok(Err(failure)) => {
                for asker in waiter.askers {
                    let _ = asker.send(Err(failure.clone()));
                }
                self.undo(&claim.name, claim.holder);
            }
            Err(_) => {}
        }
    }

    /// Gives back what nobody wants, in the background.
    pub(crate) fn undo(&self, name: &LockName, holder: HolderId) {
        self.submit(Op::Give(Give { name: name.clone(), holder, asker: None, tries: 0 }));
    }
}
