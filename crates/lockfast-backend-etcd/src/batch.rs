//! What is written goes through one writer: what arrives while a transaction is under way forms
//! the next one, so that many locks share one write of the cluster's log.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use lockfast_core::{ErrorKind, LockName, Moment};
use tokio::sync::oneshot;

use crate::failure::{self, Failure, Fate};
use crate::key::Span;
use crate::store::Store;
use crate::wire::{
    Against, Compare, DeleteRangeRequest, Done, Op, PutRequest, RangeRequest, RangeResponse,
    Relation, RequestOp, Target, TxnRequest, TxnResponse,
};

/// What the server allows in one transaction unless it is set up otherwise.
pub(crate) const OPS_MAX: usize = 128;
/// How many keys of a lock a new claim looks at: a free lock has one.
pub(crate) const LOOK_MAX: i64 = 16;

type Asker<T> = oneshot::Sender<Result<T, Failure>>;

/// Something to be written.
pub(crate) enum Write {
    /// Makes the key of a claim, and looks at the line if a span is given.
    Create { name: LockName, put: PutRequest, span: Option<Span>, asker: Asker<Created> },
    /// Deletes a key if it is the one that was made at this revision; the answer is whether it was.
    Delete { key: Vec<u8>, revision: i64, asker: Asker<bool> },
    /// Writes a key if it is the one that was made at this revision, and was written last at that
    /// one, if given; the answer is the revision of that write, or that it is not.
    Move { put: PutRequest, revision: i64, written: Option<i64>, asker: Asker<Option<i64>> },
}

/// A key that was made.
#[derive(Debug)]
pub(crate) struct Created {
    pub(crate) revision: i64,
    /// The first keys of the lock, and how many there are.
    pub(crate) seen: Option<RangeResponse>,
}

pub(crate) fn op(request: Op) -> RequestOp {
    RequestOp { request: Some(request) }
}

pub(crate) fn range(span: &Span, limit: i64) -> RangeRequest {
    RangeRequest {
        key: span.from.clone(),
        range_end: span.to.clone(),
        limit,
        ..RangeRequest::default()
    }
}

/// The key is the one that was made at this revision.
pub(crate) fn made_at(key: &[u8], revision: i64) -> Compare {
    Compare {
        result: Relation::Equal.into(),
        target: Target::Create.into(),
        key: key.to_vec(),
        against: Some(Against::CreateRevision(revision)),
    }
}

/// The key is as it was written at this revision.
pub(crate) fn written_at(key: &[u8], revision: i64) -> Compare {
    Compare {
        result: Relation::Equal.into(),
        target: Target::Mod.into(),
        key: key.to_vec(),
        against: Some(Against::ModRevision(revision)),
    }
}

pub(crate) fn delete(key: Vec<u8>) -> RequestOp {
    op(Op::Delete(DeleteRangeRequest { key, ..DeleteRangeRequest::default() }))
}

fn get(key: Vec<u8>) -> RequestOp {
    op(Op::Range(RangeRequest { key, keys_only: true, ..RangeRequest::default() }))
}

/// What fits into one transaction.
#[derive(Default)]
struct Batch {
    request: TxnRequest,
    writes: Vec<Write>,
    /// A key can be written once in a transaction.
    keys: HashSet<Vec<u8>>,
}

/// Transactions whose keys hang on one lease: if it does not exist any more, they fail as a whole.
#[derive(Default)]
struct Lane {
    batches: Vec<Batch>,
    /// Where the next key of a lock can be made: the keys of one transaction are made at one
    /// revision, and the line of a lock has an order.
    next: HashMap<LockName, usize>,
    /// The first that has room.
    open: usize,
}

/// Transactions that are being put together.
#[derive(Default)]
struct Plan {
    plain: HashMap<i64, Lane>,
    /// Apart from the others, so that what is not as expected holds up few.
    moves: HashMap<i64, Lane>,
}

impl Lane {
    fn add(&mut self, write: Write) {
        let name = write.name().cloned();
        let from = name.as_ref().and_then(|name| self.next.get(name)).copied().unwrap_or(0);
        let mut at = from.max(self.open);
        while self.batches.get(at).is_some_and(|batch| !batch.has_room_for(&write)) {
            at += 1;
        }
        if at == self.batches.len() {
            self.batches.push(Batch::default());
        }
        if let Some(name) = name {
            self.next.insert(name, at + 1);
        }
        self.batches[at].add(write);
        while self.batches.get(self.open).is_some_and(Batch::is_full) {
            self.open += 1;
        }
    }
}

impl Plan {
    fn add(&mut self, write: Write) {
        let lanes = match &write {
            Write::Create { .. } | Write::Delete { .. } => &mut self.plain,
            Write::Move { .. } => &mut self.moves,
        };
        let lease = match &write {
            Write::Create { put, .. } | Write::Move { put, .. } => put.lease,
            Write::Delete { .. } => lanes.keys().next().copied().unwrap_or(0),
        };
        lanes.entry(lease).or_default().add(write);
    }

    fn into_batches(self) -> impl Iterator<Item = Batch> {
        self.plain.into_values().chain(self.moves.into_values()).flat_map(|lane| lane.batches)
    }
}

impl Write {
    /// The lock whose line a key is added to.
    fn name(&self) -> Option<&LockName> {
        match self {
            Self::Create { name, .. } => Some(name),
            Self::Delete { .. } | Self::Move { .. } => None,
        }
    }

    fn key(&self) -> &[u8] {
        match self {
            Self::Create { put, .. } | Self::Move { put, .. } => &put.key,
            Self::Delete { key, .. } => key,
        }
    }

    /// Whether a key that was found instead of what was expected answers this.
    fn is_answered_by(&self, found: &RangeResponse) -> bool {
        let is = |made: i64, written: Option<i64>| {
            found.kvs.iter().any(|kv| {
                kv.create_revision == made && written.is_none_or(|it| it == kv.mod_revision)
            })
        };
        match self {
            Self::Create { .. } => false,
            Self::Delete { revision, .. } => !is(*revision, None),
            Self::Move { revision, written, .. } => !is(*revision, *written),
        }
    }

    /// It is not as expected.
    fn refuse(self) {
        match self {
            Self::Create { .. } => {}
            Self::Delete { asker, .. } => drop(asker.send(Ok(false))),
            Self::Move { asker, .. } => drop(asker.send(Ok(None))),
        }
    }

    fn fail(self, failure: Failure) {
        match self {
            Self::Create { asker, .. } => drop(asker.send(Err(failure))),
            Self::Delete { asker, .. } => drop(asker.send(Err(failure))),
            Self::Move { asker, .. } => drop(asker.send(Err(failure))),
        }
    }
}

impl Batch {
    fn is_full(&self) -> bool {
        self.request.success.len() >= OPS_MAX || self.request.compare.len() + 1 >= OPS_MAX
    }

    fn has_room_for(&self, write: &Write) -> bool {
        let ops = 1 + usize::from(matches!(write, Write::Create { span: Some(_), .. }));
        let has_room = self.request.success.len() + ops <= OPS_MAX;
        has_room && !self.is_full() && !self.keys.contains(write.key())
    }

    fn add(&mut self, write: Write) {
        self.keys.insert(write.key().to_vec());
        match &write {
            Write::Create { put, span, .. } => {
                self.request.success.push(op(Op::Put(put.clone())));
                if let Some(span) = span {
                    self.request.success.push(op(Op::Range(range(span, LOOK_MAX))));
                }
            }
            Write::Delete { key, revision, .. } => {
                self.request.success.push(delete(key.clone()));
                self.expect(key, *revision, None);
            }
            Write::Move { put, revision, written, .. } => {
                self.request.success.push(op(Op::Put(put.clone())));
                self.expect(&put.key, *revision, *written);
            }
        }
        self.writes.push(write);
    }

    fn expect(&mut self, key: &[u8], revision: i64, written: Option<i64>) {
        self.request.compare.push(made_at(key, revision));
        self.request.compare.extend(written.map(|written| written_at(key, written)));
        self.request.failure.push(get(key.to_vec()));
    }

    /// Sends it and tells everybody. Returns what has to be sent once more, because something else
    /// in the same transaction was not as expected; and what by itself, because it was refused as a
    /// whole.
    async fn send(self, store: &Store) -> (Vec<Write>, Vec<Write>) {
        let sent = Moment::now();
        match store.link.txn(self.request).await {
            Ok(answer) => {
                let revision = answer.header.as_ref().map_or(0, |header| header.revision);
                store.pulses.note(sent, revision);
                match answer.succeeded {
                    true => {
                        read_answer(self.writes, answer, revision);
                        (Vec::new(), Vec::new())
                    }
                    false => (read_refusal(self.writes, answer), Vec::new()),
                }
            }
            // One may lack a right that the others have, or they are more than this server allows.
            Err(failure) if self.writes.len() > 1 && is_of_one(&failure) => {
                (Vec::new(), self.writes)
            }
            Err(failure) => {
                self.writes.into_iter().for_each(|write| write.fail(failure.clone()));
                (Vec::new(), Vec::new())
            }
        }
    }
}

/// Whether a transaction was refused, with nothing done, because of something that is in it.
pub(crate) fn is_of_one(failure: &Failure) -> bool {
    let is_refused = failure.handling == Fate::Refused;
    is_refused && matches!(failure.kind(), ErrorKind::Permission | ErrorKind::Internal)
}

fn read_answer(writes: Vec<Write>, answer: TxnResponse, revision: i64) {
    let mut done = answer.responses.into_iter().map(|it| it.response);
    for write in writes {
        let first = done.next().flatten();
        match (write, first) {
            (Write::Create { span, asker, .. }, Some(Done::Put(_))) => {
                let seen = match span.and_then(|_| done.next().flatten()) {
                    Some(Done::Range(seen)) => Some(seen),
                    _ => None,
                };
                let _ = asker.send(Ok(Created { revision, seen }));
            }
            (Write::Delete { asker, .. }, Some(Done::Delete(deleted))) => {
                let _ = asker.send(Ok(deleted.deleted > 0));
            }
            (Write::Move { asker, .. }, Some(Done::Put(_))) => {
                let _ = asker.send(Ok(Some(revision)));
            }
            (write, _) => write.fail(failure::of_nonsense("an answer has other parts")),
        }
    }
}

/// Nothing was done. Tells those because of whom, and returns the others.
fn read_refusal(writes: Vec<Write>, answer: TxnResponse) -> Vec<Write> {
    let mut found = answer.responses.into_iter().map(|it| it.response);
    let mut again = Vec::new();
    for write in writes {
        if matches!(write, Write::Create { .. }) {
            again.push(write);
            continue;
        }
        match found.next().flatten() {
            Some(Done::Range(found)) if write.is_answered_by(&found) => write.refuse(),
            Some(Done::Range(_)) => again.push(write),
            _ => write.fail(failure::of_nonsense("an answer has other parts")),
        }
    }
    again
}

impl Store {
    /// Hands something to the writer.
    pub(crate) fn submit(&self, write: Write) {
        self.inbox.push(write);
    }

    /// Makes a key.
    pub(crate) async fn create(
        &self,
        name: &LockName,
        put: PutRequest,
        span: Option<Span>,
    ) -> Result<Created, Failure> {
        let (asker, answer) = oneshot::channel();
        self.submit(Write::Create { name: name.clone(), put, span, asker });
        answer.await.unwrap_or_else(|_| Err(failure::of_closing()))
    }

    /// Deletes the key that was made at a revision. What is not known to be done is done again.
    pub(crate) async fn delete(&self, key: &[u8], revision: i64) -> Result<bool, Failure> {
        let mut was_in_doubt = false;
        loop {
            let (asker, answer) = oneshot::channel();
            self.submit(Write::Delete { key: key.to_vec(), revision, asker });
            match answer.await.unwrap_or_else(|_| Err(failure::of_closing())) {
                Ok(was_there) => return Ok(was_there || was_in_doubt),
                Err(failure) if failure.handling.is_in_doubt() && !was_in_doubt => {
                    was_in_doubt = true;
                }
                // Somebody else's lease, whose keys were in the same transaction.
                Err(failure) if failure.handling == Fate::NoLease => {}
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Writes the key that was made at a revision, if it is still there.
    pub(crate) async fn rewrite(
        &self,
        put: PutRequest,
        revision: i64,
    ) -> Result<Option<i64>, Failure> {
        self.rewrite_if(put, revision, None).await
    }

    /// The same, if it was written last at a revision.
    pub(crate) async fn rewrite_if(
        &self,
        put: PutRequest,
        revision: i64,
        written: Option<i64>,
    ) -> Result<Option<i64>, Failure> {
        let (asker, answer) = oneshot::channel();
        self.submit(Write::Move { put, revision, written, asker });
        answer.await.unwrap_or_else(|_| Err(failure::of_closing()))
    }

    /// Writes what is handed in, for ever.
    pub(crate) async fn write(self: Arc<Self>) {
        let mut taken = Vec::new();
        loop {
            self.written.notified().await;
            let Ok(room) = Arc::clone(&self.rounds).acquire_owned().await else { return };
            self.inbox.take_into(&mut taken);
            let mut plan = Plan::default();
            taken.drain(..).for_each(|write| plan.add(write));
            let room = Arc::new(room);
            for batch in plan.into_batches() {
                let (store, room) = (Arc::clone(&self), Arc::clone(&room));
                self.crew().spawn(async move {
                    let sending = store.sending.acquire().await;
                    let (mut again, alone) = batch.send(&store).await;
                    for write in alone {
                        let mut single = Batch::default();
                        single.add(write);
                        again.extend(single.send(&store).await.0);
                    }
                    again.into_iter().for_each(|it| store.submit(it));
                    drop((sending, room));
                });
            }
        }
    }
}

#[cfg(test)]
#[path = "batch_test.rs"]
mod tests;
