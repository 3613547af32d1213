//! The scripts for what most requests are: one lock to be held alone, that is free or that
//! somebody else holds alone, given back or prolonged by who has it. They name few keys and make
//! few calls. Whatever they do not serve is asked once more, of the scripts that serve everything.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lockfast_core::lobby::Purpose;
use lockfast_core::{ErrorKind, HolderId, Mode, Moment, ReleaseOutcome};

use crate::answer::Repairs;
use crate::batch::{Batch, Give, Op, Renew, Renewal, Take};
use crate::claim::{Admission, whole_ms};
use crate::record::{self, HOLDER_CHARS};
use crate::store::{Store, lock};
use crate::wire::failure::Remedy;
use crate::wire::{Failure, Pipeline, Reply, failure};

/// How long all is asked of the other scripts when nothing was simple.
const PAUSE: Duration = Duration::from_secs(1);
/// So many that share a lock are remembered; of the others a release is asked twice.
const SHARERS_MAX: usize = 10_000;

/// What is known of what is not simple.
#[derive(Default)]
pub(crate) struct Simplicity {
    /// Whether the configuration wants more than these scripts do.
    is_out: AtomicBool,
    /// Whether the server does not know what prolongs leases simply, being older than Redis 7.0.
    is_old: AtomicBool,
    out_until_ns: AtomicU64,
    /// Who shares a lock, so that its release is not asked for in vain.
    sharers: Mutex<HashSet<HolderId>>,
    has_sharers: AtomicBool,
}

impl Simplicity {
    pub(crate) fn new(is_possible: bool) -> Self {
        Self { is_out: AtomicBool::new(!is_possible), ..Self::default() }
    }

    fn is_given(&self) -> bool {
        if self.is_out.load(Ordering::Relaxed) {
            return false;
        }
        let until_ns = self.out_until_ns.load(Ordering::Relaxed);
        until_ns == 0 || until_ns <= Moment::now().host_ns()
    }

    /// Another server may be there now.
    pub(crate) fn meet_server(&self) {
        self.is_old.store(false, Ordering::Relaxed);
    }

    pub(crate) fn note_grant(&self, holder: HolderId, mode: Mode) {
        if mode != Mode::Exclusive {
            let mut sharers = lock(&self.sharers);
            if sharers.len() < SHARERS_MAX {
                sharers.insert(holder);
                self.has_sharers.store(true, Ordering::Release);
            }
        }
    }

    pub(crate) fn note_end(&self, holder: HolderId) {
        if self.has_sharers.load(Ordering::Acquire) {
            let mut sharers = lock(&self.sharers);
            sharers.remove(&holder);
            self.has_sharers.store(!sharers.is_empty(), Ordering::Release);
        }
    }

    fn is_sharer(&self, holder: HolderId) -> bool {
        self.has_sharers.load(Ordering::Acquire) && lock(&self.sharers).contains(&holder)
    }
}

/// The requests of a batch that are simple.
#[derive(Default)]
pub(crate) struct SimpleBatch {
    pub(crate) renews: Vec<Renew>,
    pub(crate) takes: Vec<Take>,
    pub(crate) gives: Vec<Give>,
}

impl SimpleBatch {
    pub(crate) fn into_ops(self) -> impl Iterator<Item = Op> {
        let renews = self.renews.into_iter().map(Op::Renew);
        let takes = self.takes.into_iter().map(Op::Take);
        renews.chain(takes).chain(self.gives.into_iter().map(Op::Give))
    }
}

impl Store {
    /// Adds a request to a batch, among the simple ones if it is.
    pub(crate) fn sort_into(&self, batch: &mut Batch, op: Op) {
        match op {
            Op::Take(take) if self.is_simple_take(&take) => {
                batch.simple.takes.push(take);
            }
            Op::Give(give) => match batch.absorb(give) {
                Some(give) if self.is_simple_give(&give) => batch.simple.gives.push(give),
                Some(give) => batch.gives.push(give),
                None => {}
            },
            Op::Renew(renew)
                if renew.tries == 0
                    && !self.simplicity.is_old.load(Ordering::Relaxed)
                    && self.simplicity.is_given() =>
            {
                batch.simple.renews.push(renew);
            }
            op => batch.add(op),
        }
    }

    fn is_simple_take(&self, take: &Take) -> bool {
        // Who asked before may have lost the lock to an operator, and must hear of it.
        take.tries == 0
            && matches!(take.purpose, Purpose::First(_))
            && take.claim.mode == Mode::Exclusive
            && !take.claim.has_floor
            && !take.claim.has_waited()
            && self.unsettled.find(take.claim.holder).is_none()
            && self.simplicity.is_given()
    }

    fn is_simple_give(&self, give: &Give) -> bool {
        // Who may be in the queue is not looked for there by the simple script.
        give.tries == 0
            && give.claim.is_none()
            && !self.simplicity.is_sharer(give.holder)
            && self.simplicity.is_given()
    }

    /// Writes those that renew and take, which come first.
    pub(crate) fn write_simple(&self, pipeline: &mut Pipeline, simple: &SimpleBatch) {
        for renew in &simple.renews {
            let count = renew.leases.len();
            self.scripts().keep.call(pipeline, count, 2 * count);
            renew.leases.iter().for_each(|it| self.keys(&it.name).write_lock(pipeline));
            for lease in renew.leases.iter() {
                pipeline.part_of(&[&record::write_holder(lease.holder), "."]);
                pipeline.part_number(whole_ms(lease.ttl) + whole_ms(lease.lock_delay));
            }
        }
        if simple.takes.is_empty() {
            return;
        }
        let count = simple.takes.len();
        self.scripts().take.call(pipeline, 4 + 2 * count, 1 + 2 * count);
        pipeline.part(record::FENCE_KEY);
        self.write_client_key(pipeline);
        pipeline.part(record::WATCH_KEY);
        pipeline.part(record::CROWD_KEY);
        for take in &simple.takes {
            let keys = self.keys(&take.claim.name);
            keys.write_lock(pipeline);
            keys.write_aside(pipeline, "queue");
        }
        self.write_link(pipeline);
        for take in &simple.takes {
            let claim = &take.claim;
            let text = claim.text.as_str();
            let waits = take.may_wait();
            pipeline.part(if waits { text } else { &text[..=HOLDER_CHARS] });
            pipeline.part_number(claim.lease_ms());
        }
    }

    /// Writes those that give back, which come last.
    pub(crate) fn write_simple_gives(&self, pipeline: &mut Pipeline, gives: &[Give]) {
        if gives.is_empty() {
            return;
        }
        self.scripts().give.call(pipeline, 3 + 2 * gives.len(), gives.len());
        pipeline.part(record::FENCE_KEY);
        pipeline.part(record::WATCH_KEY);
        pipeline.part(record::CROWD_KEY);
        for give in gives {
            let keys = self.keys(&give.name);
            keys.write_lock(pipeline);
            keys.write_aside(pipeline, "queue");
        }
        for give in gives {
            pipeline.part_of(&[&record::write_holder(give.holder), "."]);
        }
    }

    /// Hands out the replies to those that renew and take.
    pub(crate) fn answer_simple(
        &self,
        renews: Vec<Renew>,
        takes: Vec<Take>,
        sent: Moment,
        replies: &mut impl Iterator<Item = Reply>,
        repairs: &mut Repairs,
    ) {
        for renew in renews {
            match replies.next() {
                Some(reply) if reply.as_int() == Some(1) => {
                    let outcomes = vec![Renewal::Renewed; renew.leases.len()];
                    drop(renew.asker.send(Ok(outcomes)));
                }
                reply => {
                    let failure = reply.as_ref().and_then(Reply::failure);
                    if failure.is_some_and(|failure| failure.kind() == ErrorKind::Internal) {
                        self.simplicity.is_old.store(true, Ordering::Relaxed);
                    }
                    repairs.add(Op::Renew(renew), complaint(reply.as_ref()));
                }
            }
        }
        if takes.is_empty() {
            return;
        }
        let entries = self.read_entries(replies.next(), takes.len());
        for (take, entry) in takes.into_iter().zip(entries) {
            let answer = match entry {
                Ok(entry) if entry.as_int() != Some(0) => Admission::read(&take.claim, entry),
                Ok(_) => Err(failure::of_complexity()),
                Err(failure) => Err(failure),
            };
            match answer {
                Ok(admission) => self.admit(take, admission, sent, None),
                Err(failure) => repairs.add(Op::Take(take), failure),
            }
        }
    }

    /// Hands out the reply to those that give back.
    pub(crate) fn answer_simple_gives(
        &self,
        gives: Vec<Give>,
        reply: Option<Reply>,
        repairs: &mut Repairs,
    ) {
        let entries = self.read_entries(reply, gives.len());
        self.note_heirs(entries.iter().flatten());
        for (give, entry) in gives.into_iter().zip(entries) {
            match entry {
                Ok(entry) if matches!(entry.as_int(), Some(1 | 2)) => {
                    self.tell_given(give, ReleaseOutcome::Released);
                }
                Ok(_) => repairs.add(Op::Give(give), failure::of_complexity()),
                Err(failure) => repairs.add(Op::Give(give), failure),
            }
        }
    }

    /// One entry for each of `count` requests, or why there is none.
    fn read_entries(&self, reply: Option<Reply>, count: usize) -> Vec<Result<Reply, Failure>> {
        let failure = match reply {
            None => complaint(None),
            Some(reply) if reply.as_int() == Some(-1) => {
                let until_ns = (Moment::now() + PAUSE).host_ns();
                self.simplicity.out_until_ns.store(until_ns, Ordering::Relaxed);
                complaint(Some(&reply))
            }
            Some(reply) if reply.failure().is_some() => complaint(Some(&reply)),
            Some(reply) if count == 1 => return vec![Ok(reply)],
            Some(reply) => match reply.into_list() {
                Ok(entries) if entries.len() == count => {
                    return entries.into_iter().map(Ok).collect();
                }
                Ok(_) => complaint(None),
                Err(reply) => complaint(Some(&reply)),
            },
        };
        (0..count).map(|_| Err(failure.clone())).collect()
    }
}

/// Why there was no answer: the server complained, or it was not simple.
fn complaint(reply: Option<&Reply>) -> Failure {
    match reply {
        None => failure::of_nonsense("too few answers"),
        Some(reply) => match reply.failure() {
            // The other scripts find out what is wrong, and tell.
            Some(failure) if failure.handling == Remedy::Tell => failure::of_complexity(),
            Some(failure) => failure,
            None => failure::of_complexity(),
        },
    }
}

#[cfg(test)]
mod tests {
    use lockfast_core::{LockName, RenewRequest};
    use tokio::sync::oneshot;

    use super::*;
    use crate::batch::Then;
    use crate::store::tests::store;
    use crate::wire::link::Traffic as _;

    fn renewal(store: &Store) -> Op {
        let lease = RenewRequest {
            name: LockName::new("nightly").unwrap(),
            holder: HolderId::random(store.client).unwrap(),
            ttl: PAUSE,
            lock_delay: Duration::ZERO,
        };
        let (asker, _told) = oneshot::channel();
        Op::Renew(Renew::new([lease].into(), asker))
    }

    /// A server before Redis 7.0 says that it does not know `PEXPIRE GT`; it is asked only once
    /// for each connection.
    #[tokio::test]
    async fn an_old_server_is_not_asked_in_vain() {
        let store = store();
        let mut batch = Batch::default();
        store.sort_into(&mut batch, renewal(&store));
        assert_eq!((batch.simple.renews.len(), batch.renews.len()), (1, 0));
        let reply = Reply::parse("-ERR Error running script: Wrong number of args\r\n");
        let mut repairs = Repairs::default();
        let (renews, mut replies) = (batch.simple.renews, [reply].into_iter());
        store.answer_simple(renews, Vec::new(), Moment::now(), &mut replies, &mut repairs);
        let mut batch = Batch::default();
        store.sort_into(&mut batch, renewal(&store));
        assert_eq!((batch.simple.renews.len(), batch.renews.len()), (0, 1));
        store.simplicity.meet_server();
        store.sort_into(&mut batch, renewal(&store));
        assert_eq!(batch.simple.renews.len(), 1);
    }

    /// While what is given back goes on to others, the server begins to answer before it does so:
    /// then it writes to them before it writes to us.
    #[tokio::test]
    async fn who_waits_is_told_before_who_gives_back() {
        let store = store();
        let commands = |op: Op| {
            store.submit_here(op);
            let mut pipeline = Pipeline::default();
            let (batch, _) = store.load(&mut pipeline).unwrap();
            (batch.preamble, pipeline.commands())
        };
        let give = || {
            let (name, holder) =
                (LockName::new("nightly").unwrap(), HolderId::random(store.client).unwrap());
            Op::Give(Give::new(name, holder, Then::Nothing))
        };
        assert_eq!(commands(give()), (0, 1));
        for (answer, before) in [(":2\r\n", 1), (":1\r\n", 0)] {
            let Op::Give(given) = give() else { unreachable!() };
            let mut repairs = Repairs::default();
            store.answer_simple_gives(vec![given], Some(Reply::parse(answer)), &mut repairs);
            assert_eq!(commands(give()), (before, 1 + before), "after {answer:?}");
        }
    }
}
