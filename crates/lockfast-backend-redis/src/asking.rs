//! Locks whose slot is on its way from one node of a cluster to another.
//!
//! The node that it leaves says ASK when it has nothing of the lock (any more). Then all of the
//! lock is at the other node or nowhere, and nothing of it can come up here again while the slot
//! moves, so that the other node decides. It says TRYAGAIN while it has a part: then neither node
//! can decide, and it is asked again; but a lease that is held alone can be prolonged.

use std::sync::Weak;
use std::time::Duration;

use lockfast_core::{Moment, RenewRequest};
use tokio::sync::oneshot;

use crate::answer::Repairs;
use crate::batch::{Op, Plain, Renew, Renewal};
use crate::claim::whole_ms;
use crate::record;
use crate::slot;
use crate::store::Store;
use crate::wire::{Failure, Pipeline, Reply, failure};

/// How soon a request is repeated. A key takes less than a millisecond to move.
const PAUSE: Duration = Duration::from_millis(20);
/// How often whoever waits looks while its slot moves.
const LOOK: Duration = Duration::from_millis(100);

impl Store {
    /// Asks the node that this one has named.
    pub(crate) fn ask_there(&self, mut op: Op, place: &str, failure: &Failure) {
        let cluster = self.cluster.as_ref().and_then(Weak::upgrade);
        let there = cluster.and_then(|it| it.find_node(&self.config().endpoint, place));
        let (Some(there), Some(slot), Some(me)) = (there, self.slot_of(&op), self.me()) else {
            return self.fail_op(op, failure);
        };
        if !op.try_again() {
            return self.fail_op(op, &failure::of_disagreement());
        }
        let sent = Moment::now();
        let mut pipeline = Pipeline::asking();
        let batch = there.write_one(op, &mut pipeline);
        let (asker, answer) = oneshot::channel();
        let write = move |all: &mut Pipeline| all.append(&pipeline);
        let plain = Plain { write: Box::new(write), asker, slot: Some(slot), tries: 1 };
        there.submit_here(Op::Plain(plain));
        self.runtime.spawn(async move {
            match answer.await {
                Ok(Ok(replies)) => {
                    // Every other reply is to what came before the command.
                    let replies: Vec<Reply> = replies.into_iter().skip(1).step_by(2).collect();
                    me.distribute(batch, sent, replies);
                }
                Ok(Err(failure)) => {
                    let mut repairs = Repairs::default();
                    batch.into_ops().for_each(|op| repairs.add(op, failure.clone()));
                    me.repair(repairs);
                }
                Err(_) => {}
            }
        });
    }

    fn slot_of(&self, op: &Op) -> Option<u16> {
        let name = match op {
            Op::Take(take) => &take.claim.name,
            Op::Give(give) => &give.name,
            Op::Renew(renew) => &renew.leases.first()?.name,
            Op::Plain(plain) => return plain.slot,
        };
        slot::of_lock(&self.config().prefix, name.as_str())
    }

    /// A part of the lock is at either node.
    pub(crate) fn try_soon(&self, op: Op, failure: &Failure) {
        match op {
            Op::Take(take) if take.may_wait() => {
                self.postpone(Op::Take(take), failure, LOOK);
            }
            Op::Renew(renew) if renew.leases.len() == 1 => {
                self.prolong(renew, failure.clone());
            }
            op => self.repeat(op, failure),
        }
    }

    /// Asks again in a moment, a few times.
    fn repeat(&self, mut op: Op, failure: &Failure) {
        let cluster = self.cluster.as_ref().and_then(Weak::upgrade);
        match cluster {
            Some(cluster) if op.try_again() => {
                self.runtime.spawn(async move {
                    tokio::time::sleep(PAUSE).await;
                    cluster.route(op);
                });
            }
            _ => self.fail_op(op, failure),
        }
    }

    /// Renews a lease that is held alone, for which its lock's own key is enough.
    fn prolong(&self, renew: Renew, failure: Failure) {
        let RenewRequest { name, holder, ttl, lock_delay } = renew.leases[0].clone();
        let slot = slot::of_lock(&self.config().prefix, name.as_str());
        let (prefix, script) = (self.config().prefix.clone(), &self.scripts().prolong);
        let write = move |pipeline: &mut Pipeline| {
            script.call(pipeline, 1, 2);
            record::Keys { prefix: &prefix, name: name.as_str() }.write_lock(pipeline);
            pipeline.part(record::write_holder(holder));
            pipeline.part_number(whole_ms(ttl) + whole_ms(lock_delay));
        };
        let (asker, answer) = oneshot::channel();
        self.submit_here(Op::Plain(Plain { write: Box::new(write), asker, slot, tries: 0 }));
        let Some(me) = self.me() else { return };
        self.runtime.spawn(async move {
            let replies = answer.await.unwrap_or_else(|_| Err(failure.clone()));
            match replies.map(|replies| replies.first().and_then(Reply::as_int)) {
                Ok(Some(1)) => drop(renew.asker.send(Ok(vec![Renewal::Renewed]))),
                Ok(_) => me.repeat(Op::Renew(renew), &failure),
                Err(failure) => me.repeat(Op::Renew(renew), &failure),
            }
        });
    }
}
