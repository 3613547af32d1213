//! The thread that has the database. It sleeps until there is a request, a message from another
//! client, the death of one that stands in somebody's way, or the end of a lease or wait. All
//! that waits then becomes one transaction; answers and messages follow the commit.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use lockfast_core::batch::Inbox;
use lockfast_core::watch::EventFeeds;
use lockfast_core::{
    ClientId, ConnectContext, ErrorKind, Label, LockName, LossReporter, Moment, Result,
};

use crate::access::Access;
use crate::backend::Op;
use crate::batch::{Batch, Chore, Done, Setting, Unsaved};
use crate::bell::{Bell, Pace};
use crate::boot::begin_boot;
use crate::cache::Cache;
use crate::claim::Clock;
use crate::client::{Clients, Life, Pipe};
use crate::config;
use crate::failure::Failure;
use crate::machine::Machine;
use crate::peers::Peers;
use crate::place::{Place, check_clock};
use crate::queue::Queue;
use crate::waiting::Waiting;
use crate::wire::Wire;
use crate::write_lock::WriteLock;

/// How many requests form one transaction at most.
const BATCH_MAX: usize = 512;
/// How often a process with waiters looks whether it missed something.
pub(crate) const SLOW_POLL_NS: u64 = 500_000_000;

/// The store as its thread sees it.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) wire: Wire,
    write_lock: Arc<WriteLock>,
    pub(crate) clients: Clients,
    pub(crate) me: ClientId,
    pub(crate) label: Label,
    label_saved: bool,
    pub(crate) losses: LossReporter,
    pub(crate) inbox: Arc<Inbox<Op>>,
    pub(crate) bell: Arc<Bell>,
    pub(crate) pace: Pace,
    /// Open as long as we live.
    _alive: OwnedFd,
    pub(crate) wake: OwnedFd,
    /// While somebody watches through us.
    pub(crate) watch: Option<OwnedFd>,
    pub(crate) feeds: EventFeeds,
    /// Watchers that did not get an event.
    pub(crate) missed: Vec<ClientId>,
    pub(crate) peers: Peers,
    pub(crate) cache: Cache,
    pub(crate) waiting: Waiting,
    pub(crate) chores: Vec<Chore>,
    pub(crate) ops: Vec<Op>,
    pub(crate) received: Vec<u8>,
    pub(crate) received_events: Vec<u8>,
    pub(crate) busy: u32,
    pub(crate) polled_ns: u64,
    /// What the database said when all waiters were last looked after.
    data_version: Option<i64>,
    /// Whether we have written since a watcher's ends were last looked for.
    wrote: bool,
    /// When the next claim ends, for watchers.
    next_end_ns: u64,
    pub(crate) closing: bool,
}

impl Store {
    /// Opens the store in its directory, and becomes one of its clients.
    pub(crate) fn open(
        config: &config::Embedded,
        context: ConnectContext,
        inbox: Arc<Inbox<Op>>,
        bell: Arc<Bell>,
    ) -> Result<Self> {
        check_clock()?;
        // What a group shares is locked as long as this lives: until all files are made.
        let place = Place::prepare(&config.dir, Access::of(config)?)?;
        let machine = Machine::read(&context.label.host)?;
        let write_lock = WriteLock::open(&place)?;
        let clients = Clients::new(place.clients()?);
        let me = context.client;
        let locked = write_lock.wait().map_err(|failure| failure.to_error())?;
        machine.admit(&place)?;
        let wire = Wire::open(write_lock.database(), &machine.boot_id, config.sync_full)
            .and_then(|wire| {
                // SQLite was given a path, which must have led to the file that was looked at.
                write_lock.check()?;
                begin_boot(&wire, &clients, machine.boot_id.clone())?;
                Ok(wire)
            })
            .map_err(|failure| failure.to_error())?;
        machine.sign(&place)?;
        // Whoever looks for dead clients has the lock, and so never sees a pipe that is made but
        // not yet open.
        let alive = clients.make(me, Pipe::Alive)?;
        let wake = clients.make(me, Pipe::Wake)?;
        drop(locked);
        let mut store = Self {
            wire,
            write_lock: Arc::new(write_lock),
            me,
            label: context.label,
            label_saved: false,
            losses: context.losses,
            inbox,
            bell,
            pace: Pace::new(),
            _alive: alive,
            wake,
            watch: None,
            feeds: EventFeeds::default(),
            missed: Vec::new(),
            peers: Peers::default(),
            cache: Cache::default(),
            waiting: Waiting::default(),
            chores: Vec::new(),
            ops: Vec::new(),
            received: Vec::new(),
            received_events: Vec::new(),
            busy: 0,
            polled_ns: 0,
            data_version: None,
            wrote: false,
            next_end_ns: 0,
            closing: false,
            clients,
        };
        store.find_dead();
        Ok(store)
    }

    /// The file that keeps us alive for others.
    pub(crate) fn witness(&self) -> PathBuf {
        self.clients.path(self.me, Pipe::Alive)
    }

    /// Works until the connection is closed.
    pub(crate) fn run(mut self) {
        while !self.closing {
            self.rest();
            self.look_after_waiters();
            self.work();
        }
        self.close();
    }

    /// Leaves the store in order. Whoever is killed before that is found dead by the others.
    pub(crate) fn close(mut self) {
        let mut left = true;
        if self.label_saved || self.watch.is_some() {
            self.chores.push(Chore::Leave);
            let chores = std::mem::take(&mut self.chores);
            match self.transact(&chores, &[]) {
                Ok(done) => {
                    left = !done.leaves_lease;
                    self.deliver(Vec::new(), done);
                }
                Err(_) => left = false,
            }
            // What we left may have gone to clients that are dead.
            while !self.chores.is_empty() {
                self.work();
            }
        }
        if left {
            self.clients.remove(self.me);
        }
        // Whoever closes the database last writes its log back, and nobody should open it in the
        // middle of that. Without the lock it is only slower.
        let _locked = self.write_lock.wait();
        drop(self.wire);
    }

    /// Clients that died while nobody looked.
    fn find_dead(&mut self) {
        // A directory that cannot be listed only delays this.
        for client in self.clients.list().unwrap_or_default() {
            if client != self.me && matches!(self.clients.life(client), Life::Dead) {
                self.chores.push(Chore::Reap(client));
            }
        }
    }

    /// What waiters need when nobody tells them: ends that are due, and the slow poll.
    fn look_after_waiters(&mut self) {
        if self.waiting.is_empty() && self.feeds.is_empty() {
            return;
        }
        let now_ns = Moment::now().host_ns();
        for name in self.waiting.take_due(now_ns) {
            self.end_waits(&name, now_ns);
            self.chores.push(Chore::Look(name));
        }
        if now_ns < self.polled_ns + SLOW_POLL_NS {
            return;
        }
        self.polled_ns = now_ns;
        self.feeds.prune();
        if self.feeds.is_empty() && self.watch.is_some() {
            self.chores.push(Chore::Watch(false));
        }
        if !self.feeds.is_empty() {
            // A watcher is told of every end, also where nobody waits for it.
            self.find_dead();
        }
        if let Err(failure) = self.slow_poll(now_ns) {
            self.data_version = None;
            self.fail_waiters(&failure);
        }
    }

    /// A queue as it is, for which nobody has to wait in line.
    pub(crate) fn read_queue(&self, name: &LockName) -> Result<Queue, Failure> {
        self.write_lock.check()?;
        self.wire.begin(false)?;
        let claims = self.wire.load_queue(name);
        self.wire.roll_back();
        claims.map(Queue::of)
    }

    /// Looks whether a message got lost. Nothing is read when nobody else has written since.
    fn slow_poll(&mut self, now_ns: u64) -> Result<(), Failure> {
        self.write_lock.check()?;
        let version = self.wire.data_version()?;
        let is_new = self.data_version != Some(version);
        if is_new {
            self.wire.begin(false)?;
            let result = self.compare_waiters();
            self.wire.roll_back();
            self.data_version = Some(version);
            result?;
        }
        if !self.feeds.is_empty() && (is_new || self.wrote || self.next_end_ns <= now_ns) {
            let ended = self.wire.names_ended(now_ns)?;
            self.chores.extend(ended.into_iter().map(Chore::Look));
            self.next_end_ns = self.wire.next_end_ns()?;
            self.wrote = false;
        }
        Ok(())
    }

    /// Does everything that waits, in one transaction.
    fn work(&mut self) {
        if self.ops.is_empty() && self.chores.is_empty() {
            return;
        }
        self.pace.begin_work();
        self.gather();
        let mut ops = std::mem::take(&mut self.ops);
        let rest = ops.split_off(ops.len().min(BATCH_MAX));
        if let Err(failure) = self.begin_watch(&ops) {
            tracing::warn!(error = failure.message(), "events of others cannot be watched");
        }
        let mut chores = std::mem::take(&mut self.chores);
        chores.dedup();
        let transacted = self.transact(&chores, &ops);
        self.pace.end_work(&self.bell);
        match transacted {
            Ok(done) => self.deliver(ops, done),
            Err(failure) => {
                // What was to be seen to is seen to by the slow poll.
                self.data_version = None;
                tracing::warn!(error = failure.message(), "a batch could not be written");
                self.closing |= ops.iter().any(|op| matches!(op, Op::Close));
                ops.into_iter().for_each(|op| op.fail(&failure));
            }
        }
        if chores.contains(&Chore::Watch(false)) && self.feeds.is_empty() {
            self.watch = None;
            self.clients.remove_pipe(self.me, Pipe::Watch);
        }
        self.peers.tidy(|| self.waiting.blockers());
        // They are done before what is in the inbox by now.
        self.ops = rest;
    }

    /// Lets those join the batch who are just about to ask again.
    fn gather(&mut self) {
        self.pace.gather(self.ops.len(), &self.inbox);
        let mut late = Vec::new();
        if self.ops.len() < BATCH_MAX {
            self.inbox.take_into(&mut late);
        }
        self.ops.append(&mut late);
        self.pace.note_batch(self.ops.len());
    }

    /// Opens our pipe for events when the first watcher comes.
    fn begin_watch(&mut self, ops: &[Op]) -> Result<(), Failure> {
        let wanted = ops.iter().any(|op| matches!(op, Op::Watch { .. }));
        if wanted && self.watch.is_none() {
            self.watch = Some(self.clients.make(self.me, Pipe::Watch)?);
            self.chores.push(Chore::Watch(true));
            self.polled_ns = Moment::now().host_ns();
        }
        Ok(())
    }

    /// Fills and commits a transaction, for which it waits in line with the other processes.
    fn transact(&mut self, chores: &[Chore], ops: &[Op]) -> Result<Done, Failure> {
        let only_reads = chores.is_empty() && ops.iter().all(Op::only_reads);
        let write_lock = Arc::clone(&self.write_lock);
        let locked = match only_reads {
            true => None,
            false => Some(write_lock.wait()?),
        };
        let mut attempt = match ops.iter().any(Op::must_last) {
            true => Err(Unsaved::NeedsFull),
            false => self.attempt(chores, ops, !only_reads, false),
        };
        if matches!(attempt, Err(Unsaved::NeedsFull)) {
            self.wire.set_full(true)?;
            attempt = self.attempt(chores, ops, true, true);
            self.wire.set_full(false)?;
        }
        if let Ok(done) = &attempt
            && done.is_news()
            && !(self.feeds.is_empty() && done.watchers.is_empty())
        {
            // Still in line, so that events arrive everywhere in the order of the commits.
            self.read_events();
            self.tell_watchers(done);
        }
        drop(locked);
        match attempt {
            Ok(done) => {
                self.label_saved |= done.label_saved;
                self.wrote |= !only_reads;
                done.reaped.iter().for_each(|client| self.clients.remove(*client));
                Ok(done)
            }
            Err(Unsaved::Failed(failure)) => Err(failure),
            Err(Unsaved::NeedsFull) => {
                Err(Failure::new(ErrorKind::Internal, "the fence's ceiling was not raised"))
            }
        }
    }

    fn attempt(
        &mut self,
        chores: &[Chore],
        ops: &[Op],
        writes: bool,
        full: bool,
    ) -> Result<Done, Unsaved> {
        self.wire.begin(writes)?;
        let clock = Clock::read();
        let filled = self.fill(chores, ops, clock, full);
        let committed = filled.and_then(|done| {
            let began = Moment::now();
            self.wire.commit()?;
            self.pace.note_commit(began);
            Ok(done)
        });
        if let Err(unsaved) = &committed {
            self.wire.roll_back();
            if matches!(unsaved, Unsaved::Failed(_)) {
                self.cache.clear();
            }
        }
        committed
    }

    fn fill(
        &mut self,
        chores: &[Chore],
        ops: &[Op],
        clock: Clock,
        full: bool,
    ) -> Result<Done, Unsaved> {
        let setting = Setting {
            wire: &self.wire,
            clients: &self.clients,
            peers: &mut self.peers,
            cache: &mut self.cache,
            me: self.me,
            label: (!self.label_saved).then_some(&self.label),
        };
        let mut batch = Batch::begin(setting, clock)?;
        for chore in chores {
            batch.run_chore(chore)?;
        }
        for op in ops {
            batch.run(op)?;
        }
        batch.save(full)
    }
}
