//! One lease as the guards that hold it, the keeper and the store's answers share it. All of
//! them change it only through [`LeaseCell::apply`], which also tells whoever watches.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockfast_core::{Error, Fence, Grant, HolderId, LockName, LossCause, Mode, Moment, Result};
use tokio::sync::Notify;

use super::downgrade::HeldMode;
use super::policy::Policy;
use super::state::{Action, Event, LeaseState, Phase};
use super::undo;
use crate::store::Store;

/// A lease and everybody's view of it.
pub(crate) struct LeaseCell {
    pub(crate) store: Arc<Store>,
    pub(crate) name: LockName,
    pub(crate) holder: HolderId,
    pub(crate) fence: Fence,
    /// How many guards there are; the lease is given back with the last.
    pub(crate) guards: AtomicUsize,
    /// The schedule entry of the keeper that counts; any other is out of date.
    pub(crate) scheduled_ns: AtomicU64,
    granted_at: Moment,
    mode: Mutex<HeldMode>,
    state: Mutex<LeaseState>,
    version: AtomicU64,
    changed: Notify,
}

impl LeaseCell {
    pub(crate) fn new(
        store: Arc<Store>,
        name: LockName,
        holder: HolderId,
        mode: Mode,
        grant: &Grant,
        policy: Policy,
    ) -> Self {
        store.telemetry.began();
        let now = store.now();
        Self {
            store,
            name,
            holder,
            fence: grant.fence,
            guards: AtomicUsize::new(1),
            scheduled_ns: AtomicU64::new(0),
            granted_at: grant.from,
            mode: Mutex::new(HeldMode::Granted(mode)),
            state: Mutex::new(LeaseState::new(grant, now, policy, lockfast_core::jitter())),
            version: AtomicU64::new(1),
            changed: Notify::new(),
        }
    }

    /// Lets an event happen and carries out what concerns this process. What concerns the store
    /// (to renew) is the caller's.
    pub(crate) fn apply(self: &Arc<Self>, event: Event, now: Moment) -> Action {
        let (action, cause, has_ended) = {
            let mut state = self.state();
            let action = state.step(event, now);
            let cause = match &state.phase {
                Phase::Lost(cause) if action != Action::None => Some(cause.clone()),
                _ => None,
            };
            (action, cause, action != Action::None && state.is_over())
        };
        if has_ended {
            self.store.registry.forget(self.holder);
        }
        if !matches!(action, Action::None | Action::Renew) {
            self.version.fetch_add(1, Ordering::AcqRel);
            self.changed.notify_waiters();
        }
        if let Some(cause) = cause {
            self.record_loss(cause, now);
        }
        if action == Action::AnnounceLossAndUndo {
            undo::start(self.claim());
        }
        action
    }

    /// The holder wants another ttl. Returns the number of the renewal that asks for it.
    pub(crate) fn extend(self: &Arc<Self>, policy: Policy) -> u64 {
        let wanted = self.state().next_renewal();
        self.apply(Event::Extended(policy), self.store.now());
        self.store.keeper.track(Arc::clone(self));
        wanted
    }

    /// The holder wants a lease of the whole ttl now.
    pub(crate) fn confirm(self: &Arc<Self>) {
        self.apply(Event::Confirm, self.store.now());
        self.store.keeper.track(Arc::clone(self));
    }

    /// The store answered a renewal, or did not. The next one may be due sooner than the keeper
    /// has planned.
    pub(crate) fn answer(self: &Arc<Self>, event: Event) {
        self.apply(event, self.store.now());
        let next = self.next_look();
        if next.is_some_and(|next| next.host_ns() < self.scheduled_ns.load(Ordering::Relaxed)) {
            self.store.keeper.track(Arc::clone(self));
        }
    }

    /// When the keeper has to look at it, by this machine's clock.
    pub(crate) fn next_look(&self) -> Option<Moment> {
        let next = self.state().next_tick();
        next.map(|next| self.store.clock.on_machine(next))
    }

    /// The state at this moment, with the deadline looked at.
    pub(crate) fn look(self: &Arc<Self>) -> MutexGuard<'_, LeaseState> {
        let now = self.store.now();
        let state = self.state();
        if state.is_over() || !state.deadline.has_passed(now) {
            return state;
        }
        drop(state);
        self.apply(Event::Look, now);
        self.state()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, LeaseState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How it is held. Whoever counts another guard keeps this meanwhile.
    pub(crate) fn held_mode(&self) -> MutexGuard<'_, HeldMode> {
        self.mode.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a release has to name.
    pub(crate) fn claim(&self) -> undo::Claim {
        let state = self.state();
        let entry = undo::Entry {
            name: self.name.clone(),
            holder: self.holder,
            ttl: state.policy.ttl,
            lock_delay: state.policy.lock_delay,
            request_timeout: state.policy.request_timeout,
            may_wait: false,
        };
        undo::Claim { store: Arc::clone(&self.store), entry }
    }

    /// The holder is done with it.
    pub(crate) fn end(self: &Arc<Self>, now: Moment) {
        if self.apply(Event::Released, now) != Action::None {
            self.store.telemetry.ended(now.since(self.granted_at));
        }
    }

    /// Loggers and recorders are foreign code that may block, so they never run on the thread
    /// that has other losses to announce.
    fn record_loss(&self, cause: LossCause, now: Moment) {
        let (store, name, fence) = (Arc::clone(&self.store), self.name.clone(), self.fence);
        let held = now.since(self.granted_at);
        self.store.keeper.runtime().spawn(async move {
            store.telemetry.lost(&name, fence, &cause, held);
        });
    }

    /// Refuses what only the process that took the lease may do.
    pub(crate) fn check_process(&self) -> Result<()> {
        self.store.check_process().map_err(|error| error.with_lock(&self.name))
    }

    pub(crate) fn lost_error(&self, cause: LossCause) -> Error {
        Error::lost(&self.name, cause).with_backend(self.store.backend.profile().backend)
    }

    /// Waits until the version differs from `seen`.
    pub(crate) async fn changed(&self, seen: u64) -> u64 {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let version = self.version.load(Ordering::Acquire);
            if version != seen {
                return version;
            }
            changed.await;
        }
    }
}
