//! What the server pushes to us: a lock that we waited for, our place at the head of a queue, or
//! that a lease was taken away.

use std::sync::Arc;
use std::time::Duration;

use lockfast_core::lobby::TICK;
use lockfast_core::time::ClockPair;
use lockfast_core::{Fence, Grant, LossCause, Moment};

use crate::answer::tell_all;
use crate::batch::{Op, Take, Value};
use crate::claim::{Answer, read_fence};
use crate::store::Store;
use crate::wire::{Uuid, get};

/// A lock that was given to a claim that waited. It lasts only briefly until it is renewed, so
/// that a waiter that hangs does not hold up those behind it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    pub(crate) call: i64,
    fence: Fence,
    /// When, by the server's clock.
    at_us: u64,
    /// For how long, without the lock-delay.
    lasts: Duration,
}

impl Offer {
    fn read(fields: &[&str]) -> Option<Self> {
        let [call, fence, at_us, lasts_us] = fields else { return None };
        Some(Self {
            call: call.parse().ok()?,
            fence: read_fence(fence.parse().ok()).ok()?,
            at_us: at_us.parse().ok()?,
            lasts: Duration::from_micros(lasts_us.parse().ok()?),
        })
    }

    /// The first renewal makes a full lease of it.
    fn grant(&self, clock: Option<ClockPair>) -> Grant {
        let received = Moment::now();
        // Without a clock to compare with, the offer may be as old as its time.
        let from = match clock {
            Some(clock) => received.earlier_of(clock.locate(self.at_us)),
            None => received.before(self.lasts),
        };
        Grant::new(self.fence, from).lasting(self.lasts)
    }
}

impl Store {
    /// Listens to what was pushed: `G` a grant, `H` the head of a queue, `R` a revocation.
    pub(crate) fn hear(&self, message: &str) {
        let fields: Vec<&str> = message.split(' ').collect();
        match fields.as_slice() {
            ["G", fields @ ..] => {
                let offer = Offer::read(fields);
                offer.into_iter().for_each(|offer| self.take_offer(&offer));
            }
            ["H", call, blocked_us] => {
                if let (Ok(call), Ok(us)) = (call.parse(), blocked_us.parse()) {
                    self.lobby.hasten(call, Duration::from_micros(us) + TICK);
                }
            }
            ["R"] => self.ask_for_losses(),
            _ => {}
        }
    }

    pub(crate) fn take_offer(&self, offer: &Offer) {
        // Nobody here wants it when there is no waiter, or nobody asks for it any more: whoever gave
        // up releases it, or has asked again and is told by the answer to that.
        let Some(mut waiter) = self.lobby.take_called(offer.call, *offer) else { return };
        if !waiter.is_wanted() {
            return;
        }
        // Nobody renews a detached lease, so it asks for a full one. It may have been passed over and
        // offered the lock once more since, so only the answer tells the fence.
        if waiter.claim.detached {
            for asker in waiter.askers {
                self.submit(Op::Take(Take::first(Arc::clone(&waiter.claim), asker)));
            }
            return;
        }
        let grant = offer.grant(waiter.clock);
        tell_all(waiter.askers, &Answer::Granted(grant));
    }

    /// Something was taken away: which leases is not told to everybody who listens.
    pub(crate) fn ask_for_losses(&self) {
        let Some(store) = self.me() else { return };
        self.runtime.spawn(async move {
            let statement = "SELECT holder, reason FROM {schema}.revoked($1, $2)";
            let values = vec![store.client_value(), Value::Number(store.link())];
            let Ok(rows) = store.ask(statement, values).await else { return };
            for row in &rows {
                if let (Ok(Uuid(holder)), Ok(reason)) = (get(row, 0), get(row, 1)) {
                    store.losses.report(holder, LossCause::Revoked { reason });
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_ends_when_the_server_says() {
        let sent = Moment::now().before(Duration::from_secs(10));
        let clock = ClockPair { sent, server_us: 1_000_000 };
        // Given four seconds after the pair was made.
        let offer = Offer::read(&["7", "42", "5000000", "2000000"]).unwrap();
        let grant = offer.grant(Some(clock));
        let end = grant.from + grant.lasts(Duration::from_secs(30));
        assert_eq!(end.since(sent), Duration::from_secs(6));
    }
}
