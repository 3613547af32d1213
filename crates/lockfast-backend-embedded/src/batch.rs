//! One transaction: everything that waited while the last one was written. Each queue is read
//! once, changed in memory by the rule, and its differences are written at the end; so is the
//! fence.

mod chore;

use std::collections::HashMap;

use lockfast_core::{
    AcquireRequest, ClientId, DowngradeOutcome, DowngradeRequest, Label, LockName, LockView, Query,
    ReleaseOutcome, RenewOutcome, RenewRequest, RevokeOutcome, RevokeRequest, VersionedValue,
    WriteOutcome, WriteRequest,
};

use crate::backend::Op;
use crate::cache::Cache;
use crate::claim::{Clock, Effect, Happening, Saved, Stage};
use crate::client::{Clients, Life};
use crate::counter::FenceCounter;
use crate::failure::{Failure, Scope};
use crate::peers::Peers;
use crate::queue::{Admission, Queue, Revocation};
use crate::values::{Decision, decide, written};
use crate::wire::{Meta, Wire};

pub(crate) use chore::Chore;

/// How far the ceiling is raised above the fence: ten seconds of the clock that the fence follows.
const CEILING_AHEAD: u64 = 10_000_000;

type Outcome<T> = Result<T, Failure>;

/// What is answered to one request once the batch is written.
#[derive(Debug)]
pub(crate) enum Answer {
    Admitted(Admission),
    Taken(LockView),
    Renewed(Vec<RenewOutcome>),
    Downgraded(DowngradeOutcome),
    Released(ReleaseOutcome),
    Seen(Vec<LockView>),
    Revoked(RevokeOutcome),
    Read(Option<VersionedValue>),
    Written(WriteOutcome),
    Watching,
    Closing,
    /// The request was withdrawn before it was looked at.
    Withdrawn,
    Refused(lockfast_core::Error),
}

/// Who does the batch, and with what.
#[derive(Debug)]
pub(crate) struct Setting<'a> {
    pub(crate) wire: &'a Wire,
    pub(crate) clients: &'a Clients,
    pub(crate) peers: &'a mut Peers,
    pub(crate) cache: &'a mut Cache,
    pub(crate) me: ClientId,
    /// Our label, as long as it is not in the store.
    pub(crate) label: Option<&'a Label>,
}

/// A batch on its way.
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    setting: Setting<'a>,
    fences: FenceCounter,
    done: Done,
    scratch: Vec<Effect>,
    /// Whether a claim of ours was made, so that our label is needed.
    claimed: bool,
}

/// A batch that is filled, and written once its transaction is.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) meta: Meta,
    pub(crate) clock: Clock,
    pub(crate) answers: Vec<Answer>,
    pub(crate) effects: Vec<(LockName, Effect)>,
    /// The names whose values were written.
    pub(crate) changed: Vec<LockName>,
    pub(crate) queues: HashMap<LockName, Queue>,
    /// Clients that were found dead.
    pub(crate) dead: Vec<ClientId>,
    /// Dead clients whose claims were seen to.
    pub(crate) reaped: Vec<ClientId>,
    /// Others who want to be told of events.
    pub(crate) watchers: Vec<ClientId>,
    /// Whether our label is in the store now.
    pub(crate) label_saved: bool,
    /// Whether a lease of ours stays that depends on our life.
    pub(crate) leaves_lease: bool,
}

/// Why a batch was not saved.
#[derive(Debug)]
pub(crate) enum Unsaved {
    Failed(Failure),
    /// A fence reached the ceiling, or a value was written: this batch must wait for the disk.
    NeedsFull,
}

impl From<Failure> for Unsaved {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl<'a> Batch<'a> {
    /// Begins a batch in the transaction that is open.
    pub(crate) fn begin(setting: Setting<'a>, clock: Clock) -> Outcome<Self> {
        setting.cache.check(setting.wire.data_version()?);
        let meta = match setting.cache.take_meta() {
            Some(meta) => meta,
            None => setting.wire.load_meta()?,
        };
        Ok(Self {
            fences: FenceCounter::after(meta.fence),
            setting,
            done: Done {
                meta,
                clock,
                answers: Vec::new(),
                effects: Vec::new(),
                changed: Vec::new(),
                queues: HashMap::new(),
                dead: Vec::new(),
                reaped: Vec::new(),
                watchers: Vec::new(),
                label_saved: false,
                leaves_lease: false,
            },
            scratch: Vec::new(),
            claimed: false,
        })
    }

    /// Does what somebody asked for.
    pub(crate) fn run(&mut self, op: &Op) -> Outcome<()> {
        let answer = match op {
            Op::Acquire { reply, .. } if reply.is_closed() => Ok(Answer::Withdrawn),
            Op::Acquire { request, .. } => self.acquire(request),
            Op::Renew { batch, .. } => self.renew(batch),
            Op::Downgrade { request, .. } => self.downgrade(request),
            Op::Release { request, .. } => {
                self.with_queue(&request.name, |queue, clock, fences, out| {
                    Answer::Released(queue.release(request.holder, clock, fences, out))
                })
            }
            Op::Inspect { query, .. } => self.inspect(query),
            Op::Revoke { request, .. } => self.revoke(request),
            Op::Read { name, .. } => self.read(name).map(Answer::Read),
            Op::Write { request, .. } => self.write(request).map(Answer::Written),
            Op::Watch { .. } => Ok(Answer::Watching),
            Op::Close => Ok(Answer::Closing),
        };
        let answer = match answer {
            Err(failure) if failure.handling == Scope::Lock => Answer::Refused(failure.to_error()),
            answer => answer?,
        };
        self.done.answers.push(answer);
        Ok(())
    }

    fn acquire(&mut self, request: &AcquireRequest) -> Outcome<Answer> {
        self.look(&request.name)?;
        let me = self.setting.me;
        let admission = self.with_queue(&request.name, |queue, clock, fences, out| {
            queue.acquire(me, request, clock, fences, out)
        })?;
        Ok(match admission {
            Ok(Admission::Taken) => Answer::Taken(self.view(&request.name)),
            Ok(admission) => {
                self.claimed = true;
                Answer::Admitted(admission)
            }
            Err(error) => Answer::Refused(error.with_backend("embedded").with_lock(&request.name)),
        })
    }

    fn renew(&mut self, batch: &[RenewRequest]) -> Outcome<Answer> {
        let mut outcomes = Vec::with_capacity(batch.len());
        for request in batch {
            let renewal = self
                .with_queue(&request.name, |queue, clock, _, _| queue.renew(request, clock.now_ns));
            let renewal = match renewal {
                Err(failure) if failure.handling == Scope::Lock => {
                    let error = failure.to_error().with_lock(&request.name);
                    outcomes.push(RenewOutcome::Unanswered(error));
                    continue;
                }
                renewal => renewal?,
            };
            outcomes.push(match renewal.loss(|client| self.setting.wire.label(client)) {
                None => RenewOutcome::Renewed,
                Some(cause) => RenewOutcome::Lost(cause),
            });
        }
        Ok(Answer::Renewed(outcomes))
    }

    fn downgrade(&mut self, request: &DowngradeRequest) -> Outcome<Answer> {
        let downgrade = self.with_queue(&request.name, |queue, clock, fences, out| {
            queue.downgrade(request.holder, clock, fences, out)
        })?;
        Ok(match downgrade {
            Ok(downgrade) => {
                let loss = downgrade.loss(|client| self.setting.wire.label(client));
                Answer::Downgraded(
                    loss.map_or(DowngradeOutcome::Downgraded, DowngradeOutcome::Lost),
                )
            }
            Err(error) => Answer::Refused(error.with_backend("embedded").with_lock(&request.name)),
        })
    }

    fn revoke(&mut self, request: &RevokeRequest) -> Outcome<Answer> {
        self.look(&request.name)?;
        let holders = self.view(&request.name).holders;
        let revocation = self.with_queue(&request.name, |queue, clock, fences, out| {
            queue.revoke(request, clock, fences, out)
        })?;
        Ok(Answer::Revoked(match revocation {
            Revocation::Done => RevokeOutcome::Revoked(holders),
            Revocation::NotHeld => RevokeOutcome::NotHeld,
            Revocation::OtherFence => RevokeOutcome::OtherFence(holders),
        }))
    }

    fn read(&self, name: &LockName) -> Outcome<Option<VersionedValue>> {
        self.setting.wire.load_value(name, self.done.clock.wall_us)
    }

    fn write(&mut self, request: &WriteRequest) -> Outcome<WriteOutcome> {
        let there = self.read(&request.name)?;
        if let Decision::Answer(outcome) = decide(request, there) {
            return Ok(outcome);
        }
        self.setting.wire.save_value(request, self.done.clock.wall_us)?;
        self.done.changed.push(request.name.clone());
        Ok(written(request))
    }

    /// Looks at queues without changing them.
    fn inspect(&mut self, query: &Query) -> Outcome<Answer> {
        let (prefix, mut after, limit) = match query {
            Query::Name(name) => return Ok(Answer::Seen(vec![self.see(name)?])),
            Query::Prefix { prefix, after, limit } => (prefix, after.clone(), *limit),
        };
        let mut views = Vec::new();
        while views.len() < limit {
            let mut names = Vec::new();
            let (wire, now_ns) = (self.setting.wire, self.done.clock.now_ns);
            wire.list_names(prefix, after.as_ref(), now_ns, |name| {
                names.push(name);
                views.len() + names.len() < limit
            })?;
            if names.is_empty() {
                break;
            }
            for name in &names {
                let view = self.see(name)?;
                if view.waiting > 0 || !view.holders.is_empty() {
                    views.push(view);
                }
            }
            after = names.pop();
        }
        Ok(Answer::Seen(views))
    }

    /// One lock as it is. A holder that died is not shown, though nobody may have noticed yet.
    fn see(&mut self, name: &LockName) -> Outcome<LockView> {
        let known = self.done.queues.get(name).cloned();
        let mut queue = match known {
            Some(queue) => queue,
            None => Queue::of(self.setting.wire.load_queue(name)?),
        };
        let dead = self.dead_of(suspects(&queue, self.setting.me, true));
        let clock = self.done.clock;
        queue.bury(
            |client| dead.contains(client),
            clock,
            &mut self.fences.clone(),
            &mut Vec::new(),
        );
        let wire = self.setting.wire;
        Ok(queue.view(name, clock.now_ns, |client| wire.label(client)))
    }

    /// Writes what has changed. The transaction is committed by the caller.
    pub(crate) fn save(mut self, full: bool) -> Result<Done, Unsaved> {
        let wire = self.setting.wire;
        if self.fences.last() != self.done.meta.fence {
            self.done.meta.fence = self.fences.last();
            if self.done.meta.fence >= self.done.meta.fence_ceiling {
                if !full {
                    return Err(Unsaved::NeedsFull);
                }
                self.done.meta.fence_ceiling = self.done.meta.fence.saturating_add(CEILING_AHEAD);
            }
            wire.save_meta(&self.done.meta)?;
        }
        // A new claim may take the ticket of one that ended.
        for (name, effect) in &self.done.effects {
            if effect.what.is_end() && effect.claim.saved != Saved::No {
                wire.delete_claim(name, effect.claim.ticket)?;
            }
        }
        for (name, queue) in &mut self.done.queues {
            for claim in queue.claims_mut() {
                match claim.saved {
                    Saved::Yes => continue,
                    Saved::No => wire.insert_claim(name, claim)?,
                    Saved::Stale => wire.update_claim(name, claim)?,
                }
                claim.saved = Saved::Yes;
            }
        }
        if let Some(label) = self.setting.label
            && self.claimed
        {
            wire.save_client(self.setting.me, label)?;
            self.done.label_saved = true;
        }
        self.forget_clients()?;
        if self.done.meta.watchers > 0 && self.done.is_news() {
            self.done.watchers = wire.load_watchers()?;
        }
        Ok(self.done)
    }

    /// Removes labels that nobody needs any more: of clients that are gone and have no claim left.
    fn forget_clients(&self) -> Outcome<()> {
        let Setting { wire, clients, me, .. } = self.setting;
        for client in &self.done.reaped {
            wire.delete_client(*client)?;
        }
        for (_, Effect { what, claim }) in &self.done.effects {
            let may_be_last = claim.detached || *what == Happening::Expired;
            if what.is_end()
                && may_be_last
                && claim.client != me
                && !matches!(clients.life(claim.client), Life::Alive(_))
            {
                wire.delete_client(claim.client)?;
            }
        }
        Ok(())
    }

    /// Changes a queue, which is read if it was not, and notes what that led to.
    fn with_queue<R>(
        &mut self,
        name: &LockName,
        work: impl FnOnce(&mut Queue, Clock, &mut FenceCounter, &mut Vec<Effect>) -> R,
    ) -> Outcome<R> {
        let clock = self.done.clock;
        let queue = match self.done.queues.get_mut(name) {
            Some(queue) => queue,
            None => {
                let queue = match self.setting.cache.take(name) {
                    Some(queue) => queue,
                    None => Queue::of(self.setting.wire.load_queue(name)?),
                };
                self.done.queues.entry(name.clone()).or_insert(queue)
            }
        };
        queue.expire(clock, &mut self.fences, &mut self.scratch);
        let result = work(queue, clock, &mut self.fences, &mut self.scratch);
        let effects = self.scratch.drain(..);
        self.done.effects.extend(effects.map(|effect| (name.clone(), effect)));
        Ok(result)
    }

    /// Ends what has ended by itself, and the claims of clients that stand in somebody's way and
    /// are dead.
    fn look(&mut self, name: &LockName) -> Outcome<()> {
        let me = self.setting.me;
        let suspects = self.with_queue(name, |queue, _, _, _| suspects(queue, me, false))?;
        let dead = self.dead_of(suspects);
        if !dead.is_empty() {
            self.with_queue(name, |queue, clock, fences, out| {
                queue.bury(|client| dead.contains(client), clock, fences, out);
            })?;
            self.done.dead.extend(dead);
        }
        Ok(())
    }

    fn dead_of(&mut self, mut suspects: Vec<ClientId>) -> Vec<ClientId> {
        let Setting { peers, clients, .. } = &mut self.setting;
        suspects.retain(|client| peers.is_dead(clients, *client));
        suspects
    }

    fn view(&self, name: &LockName) -> LockView {
        self.done.view(name, self.setting.wire)
    }
}

/// The other clients that stand in somebody's way: who holds, and who waits last.
///
/// Those in the middle of the line matter only to who looks at them: they are skipped when their
/// turn comes and they cannot be told.
fn suspects(queue: &Queue, me: ClientId, all: bool) -> Vec<ClientId> {
    let mut found = Vec::new();
    let last = queue.claims().last().map(|claim| claim.ticket);
    for claim in queue.claims() {
        let matters = match claim.stage {
            Stage::Waiting => all || Some(claim.ticket) == last,
            Stage::Granted(_) => !claim.detached,
            Stage::Revoked { .. } => false,
        };
        if matters && claim.client != me && !found.contains(&claim.client) {
            found.push(claim.client);
        }
    }
    found
}

impl Done {
    /// Whether there is something to tell to those who watch.
    pub(crate) fn is_news(&self) -> bool {
        !self.effects.is_empty() || !self.changed.is_empty()
    }

    /// A lock as it is after this batch.
    pub(crate) fn view(&self, name: &LockName, wire: &Wire) -> LockView {
        let empty = Queue::default();
        let queue = self.queues.get(name).unwrap_or(&empty);
        queue.view(name, self.clock.now_ns, |client| wire.label(client))
    }
}
