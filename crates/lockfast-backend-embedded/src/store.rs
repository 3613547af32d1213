//! The thread that has the database. It sleeps until there is a request, a message from another
//! client, the death of one that stands in somebody's way, or the end of a lease or wait. All
//! that waits then becomes one transaction; answers and messages follow the commit.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use lockfast_core::batch::Inbox;
use lockfast_core::{ClientId, ConnectContext, ErrorKind, Label, LossReporter, Moment, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::backend::{Bell, Op};
use crate::batch::{Batch, Chore, Done, Setting, Unsaved};
use crate::boot::begin_boot;
use crate::cache::Cache;
use crate::claim::Clock;
use crate::client::{Clients, Life, Pipe, is_hung_up};
use crate::config;
use crate::failure::Failure;
use crate::feed::Feeds;
use crate::peers::Peers;
use crate::place::{Place, boot_id, check_clock};
use crate::waiting::Waiting;
use crate::wire::Wire;
use crate::write_lock::WriteLock;

/// How many requests form one transaction at most.
const BATCH_MAX: usize = 512;
/// How often a process with waiters looks whether it missed something.
const SLOW_POLL_NS: u64 = 500_000_000;
/// How many batches may follow each other without a look at the pipes.
const BUSY_MAX: u32 = 16;

/// The store as its thread sees it.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) wire: Wire,
    write_lock: Arc<WriteLock>,
    pub(crate) clients: Clients,
    pub(crate) me: ClientId,
    label: Label,
    label_saved: bool,
    pub(crate) losses: LossReporter,
    inbox: Arc<Inbox<Op>>,
    bell: Arc<Bell>,
    /// Open as long as we live.
    _alive: OwnedFd,
    wake: OwnedFd,
    /// While somebody watches through us.
    watch: Option<OwnedFd>,
    pub(crate) feeds: Feeds,
    /// Watchers that did not get an event.
    pub(crate) missed: Vec<ClientId>,
    pub(crate) peers: Peers,
    pub(crate) cache: Cache,
    pub(crate) waiting: Waiting,
    pub(crate) chores: Vec<Chore>,
    ops: Vec<Op>,
    pub(crate) received: Vec<u8>,
    pub(crate) received_events: Vec<u8>,
    busy: u32,
    polled_ns: u64,
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
        let place = Place::prepare(&config.dir)?;
        let boot_id = boot_id()?;
        let mut write_lock = WriteLock::open(&place)?;
        let clients = Clients::open(place.clients())?;
        let me = context.client;
        let locked = write_lock.wait().map_err(|failure| failure.to_error())?;
        let wire = Wire::open(write_lock.database(), &boot_id, config.sync_full)
            .and_then(|wire| {
                begin_boot(&wire, &clients, boot_id)?;
                Ok(wire)
            })
            .map_err(|failure| failure.to_error())?;
        // Whoever looks for dead clients has the lock, and so never sees a pipe that is made but
        // not yet open.
        let alive = clients.make(me, Pipe::Alive)?;
        let wake = clients.make(me, Pipe::Wake)?;
        drop(locked);
        write_lock.remember_database();
        let mut store = Self {
            wire,
            write_lock: Arc::new(write_lock),
            me,
            label: context.label,
            label_saved: false,
            losses: context.losses,
            inbox,
            bell,
            _alive: alive,
            wake,
            watch: None,
            feeds: Feeds::default(),
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

    /// Sleeps until there is something to do, and finds out what.
    fn rest(&mut self) {
        self.bell.set_asleep();
        if self.ops.is_empty() {
            self.inbox.take_into(&mut self.ops);
        }
        let has_work = !self.ops.is_empty() || !self.chores.is_empty();
        self.busy = if has_work { self.busy + 1 } else { 0 };
        if has_work && self.busy < BUSY_MAX && self.waiting.is_empty() {
            self.bell.set_awake();
            return;
        }
        self.busy = 0;
        let (rang, woken, told, ended) = self.sleep(has_work);
        self.bell.set_awake();
        if rang && self.ops.is_empty() {
            self.inbox.take_into(&mut self.ops);
        }
        if woken {
            self.read_wake();
        }
        if told {
            self.read_events();
        }
        for client in ended {
            // Its pipe stays hung up and would wake us for ever.
            self.peers.forget(client);
            self.chores.push(Chore::Reap(client));
        }
    }

    /// Waits for: the bell, a message, an event, the end of clients.
    fn sleep(&self, only_look: bool) -> (bool, bool, bool, Vec<ClientId>) {
        let timeout_ns = if only_look { Some(0) } else { self.time_left_ns() };
        let timeout = timeout_ns.map(|left_ns| Timespec {
            tv_sec: (left_ns / 1_000_000_000) as i64,
            tv_nsec: (left_ns % 1_000_000_000) as i64,
        });
        let mut sources = vec![
            PollFd::new(self.bell.event(), PollFlags::IN),
            PollFd::new(&self.wake, PollFlags::IN),
        ];
        let watch = self.watch.as_ref().unwrap_or(&self.wake);
        sources.push(PollFd::new(watch, PollFlags::IN));
        // Only those in somebody's way: the death of others is none of our business.
        let blockers = self.waiting.blockers();
        let peers = self.peers.pipes().filter(|(client, _)| blockers.contains(client));
        let peers: Vec<_> = peers.collect();
        sources.extend(peers.iter().map(|(_, pipe)| PollFd::new(*pipe, PollFlags::IN)));
        if poll(&mut sources, timeout.as_ref()).is_err() {
            // Interrupted: look at everything again.
            return (true, true, self.watch.is_some(), Vec::new());
        }
        let is_ready = |at: usize| !sources[at].revents().is_empty();
        let ended = peers
            .iter()
            .zip(3..)
            .filter(|((_, pipe), at)| is_ready(*at) && is_hung_up(pipe.as_fd()))
            .map(|((client, _), _)| *client)
            .collect();
        (is_ready(0), is_ready(1), self.watch.is_some() && is_ready(2), ended)
    }

    fn time_left_ns(&self) -> Option<u64> {
        let poll_ns = (!self.waiting.is_empty() || !self.feeds.is_empty())
            .then_some(self.polled_ns + SLOW_POLL_NS);
        let next_ns = match (poll_ns, self.waiting.next_due_ns()) {
            (Some(poll_ns), Some(due_ns)) => poll_ns.min(due_ns),
            (next_ns, None) | (None, next_ns) => next_ns?,
        };
        Some(next_ns.saturating_sub(Moment::now().host_ns()))
    }

    fn read_wake(&mut self) {
        let mut received = std::mem::take(&mut self.received);
        drain(&self.wake, &mut received);
        self.hear(&mut received);
        self.received = received;
    }

    fn read_events(&mut self) {
        let mut received = std::mem::take(&mut self.received_events);
        self.watch.iter().for_each(|watch| drain(watch, &mut received));
        self.hear(&mut received);
        self.received_events = received;
    }

    /// What waiters need when nobody tells them: ends that are due, and the slow poll.
    fn look_after_waiters(&mut self) {
        if self.waiting.is_empty() && self.feeds.is_empty() {
            return;
        }
        let now_ns = Moment::now().host_ns();
        let due = self.waiting.take_due(now_ns);
        self.chores.extend(due.into_iter().map(Chore::Look));
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
        let mut ops = std::mem::take(&mut self.ops);
        let rest = ops.split_off(ops.len().min(BATCH_MAX));
        if let Err(failure) = self.begin_watch(&ops) {
            tracing::warn!(error = failure.message, "events of others cannot be watched");
        }
        let mut chores = std::mem::take(&mut self.chores);
        chores.dedup();
        match self.transact(&chores, &ops) {
            Ok(done) => self.deliver(ops, done),
            Err(failure) => {
                // What was to be seen to is seen to by the slow poll.
                self.data_version = None;
                tracing::warn!(error = failure.message, "a batch could not be written");
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
        let mut attempt = self.attempt(chores, ops, !only_reads, false);
        if matches!(attempt, Err(Unsaved::NeedsFull)) {
            self.wire.set_full(true)?;
            attempt = self.attempt(chores, ops, true, true);
            self.wire.set_full(false)?;
        }
        if let Ok(done) = &attempt
            && !(done.effects.is_empty() || self.feeds.is_empty() && done.watchers.is_empty())
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
            self.wire.commit()?;
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

/// Reads all that a pipe holds.
fn drain(pipe: &OwnedFd, received: &mut Vec<u8>) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(count @ 1..) = rustix::io::read(pipe, &mut bytes) {
        received.extend_from_slice(&bytes[..count]);
        if count < bytes.len() {
            break;
        }
    }
}
