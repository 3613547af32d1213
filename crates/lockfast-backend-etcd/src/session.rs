//! Leases of the cluster that many claims of this process share: one on which those who wait
//! hang, which ends soon after the process, and one for each length of time that locks are held.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockfast_core::{Moment, SessionId};
use tokio::sync::{RwLock, RwLockReadGuard, watch};

use crate::failure::{self, Failure, Fate};
use crate::store::{Store, lock};

/// How long a lease is kept that nothing hangs on.
const IDLE: Duration = Duration::from_secs(30);
/// How often a lease is asked for because of keys that are gone.
const SUSPECT_EVERY: Duration = Duration::from_secs(1);
/// How often a lease is prolonged: at the latest, and at most.
const INTERVAL_MIN: Duration = Duration::from_millis(400);
const INTERVAL_MAX: Duration = Duration::from_secs(20);

/// What a lease is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    /// Claims that wait.
    Waiting,
    /// Locks that are held for so many seconds.
    Hold(u64),
    /// One lock that outlives this process, held for so many seconds.
    Own(u64),
}

impl Class {
    fn seconds(self) -> i64 {
        match self {
            // The server gives its own minimum.
            Self::Waiting => 1,
            Self::Hold(seconds) | Self::Own(seconds) => i64::try_from(seconds).unwrap_or(i64::MAX),
        }
    }
}

/// A lease of the cluster.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: i64,
    pub(crate) class: Class,
    /// How long it lasts, as the server said.
    pub(crate) ttl: Duration,
    state: Mutex<State>,
    /// Held by everybody who writes keys under it, until what came of that is known here.
    uses: RwLock<()>,
    /// Whether it has certainly ended, so that nothing that was sent for it can take effect.
    over: watch::Sender<bool>,
}

#[derive(Debug)]
struct State {
    /// A moment that is not after the one from which the server counts.
    from: Moment,
    /// When it was last asked to be prolonged.
    asked: Moment,
    used: Moment,
    /// When it was last asked whether it is still there, because a key of it is gone.
    suspected: Option<Moment>,
    is_condemned: bool,
}

impl Session {
    pub(crate) fn new(id: i64, class: Class, ttl: Duration, sent: Moment) -> Self {
        let state =
            State { from: sent, asked: sent, used: sent, suspected: None, is_condemned: false };
        let (state, over) = (Mutex::new(state), watch::Sender::new(false));
        Self { id, class, ttl, state, uses: RwLock::new(()), over }
    }

    /// What the engine calls it. No number is given twice.
    pub(crate) fn number(&self) -> SessionId {
        SessionId(self.id.cast_unsigned())
    }

    /// A moment that is not after the one from which the server counts.
    pub(crate) fn from(&self) -> Moment {
        lock(&self.state).from
    }

    /// The server prolonged it because of what was sent then.
    pub(crate) fn prolonged(&self, sent: Moment) {
        let mut state = lock(&self.state);
        state.from = state.from.later_of(sent);
    }

    pub(crate) fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    /// Whether claims can still be made under it.
    pub(crate) fn is_usable(&self) -> bool {
        !self.is_over() && !lock(&self.state).is_condemned
    }

    /// Whether it is being ended by us.
    pub(crate) fn is_closing(&self) -> bool {
        !self.is_over() && lock(&self.state).is_condemned
    }

    /// Keeps it from being ended by us while a key is written under it; `None` when no more may be.
    pub(crate) fn using(&self) -> Option<RwLockReadGuard<'_, ()>> {
        let using = self.uses.try_read().ok()?;
        self.is_usable().then_some(using)
    }

    /// No more keys are written under it. Returns whether that is new.
    pub(crate) fn close(&self) -> bool {
        !std::mem::replace(&mut lock(&self.state).is_condemned, true)
    }

    /// Waits until it is known here what came of everything that was written under it, after
    /// [`Session::close`].
    pub(crate) async fn unused(&self) {
        drop(self.uses.write().await);
    }

    /// Whether so much of its time is left that a claim under it has a use.
    fn is_fresh(&self, now: Moment) -> bool {
        now.since(self.from()) < self.ttl / 2
    }

    /// A key of it is gone: whether it is to be asked if it is still there.
    pub(crate) fn is_suspected(&self, now: Moment) -> bool {
        let mut state = lock(&self.state);
        let is_new = state.suspected.is_none_or(|last| now.since(last) > SUSPECT_EVERY);
        if is_new {
            state.suspected = Some(now);
        }
        is_new
    }

    pub(crate) fn use_now(&self) {
        lock(&self.state).used = Moment::now();
    }

    /// Whether it is time to prolong it.
    pub(crate) fn is_due(&self, now: Moment) -> bool {
        let interval = (self.ttl / 4).clamp(INTERVAL_MIN, INTERVAL_MAX);
        let state = lock(&self.state);
        !matches!(self.class, Class::Own(_)) && now.since(state.asked) >= interval
    }

    /// It is asked to be prolonged.
    pub(crate) fn ask(&self, now: Moment) {
        lock(&self.state).asked = now;
    }

    /// Ends when it has certainly ended.
    pub(crate) async fn ended(&self) {
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }
}

/// All leases of this process.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    present: Mutex<HashMap<Class, Arc<Session>>>,
    /// Those that are prolonged.
    all: Mutex<HashMap<i64, Arc<Session>>>,
    opening: tokio::sync::Mutex<()>,
}

impl Sessions {
    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        lock(&self.all).values().cloned().collect()
    }

    pub(crate) fn find(&self, id: i64) -> Option<Arc<Session>> {
        lock(&self.all).get(&id).cloned()
    }

    fn present(&self, class: Class) -> Option<Arc<Session>> {
        let session = lock(&self.present).get(&class).cloned()?;
        session.use_now();
        session.is_usable().then_some(session)
    }

    /// No further claims are made under it.
    pub(crate) fn retire(&self, session: &Arc<Session>) {
        let mut present = lock(&self.present);
        if present.get(&session.class).is_some_and(|it| it.id == session.id) {
            present.remove(&session.class);
        }
    }
}

impl Store {
    /// A lease of this class: a shared one, or a new one where each lock has its own.
    pub(crate) async fn session_of(&self, class: Class) -> Result<Arc<Session>, Failure> {
        match class {
            Class::Own(_) => self.open_session(class).await,
            Class::Waiting | Class::Hold(_) => self.session(class).await,
        }
    }

    /// A lease of this class with enough time left.
    pub(crate) async fn session(&self, class: Class) -> Result<Arc<Session>, Failure> {
        loop {
            let session = match self.sessions.present(class) {
                Some(session) => session,
                None => self.open_shared(class).await?,
            };
            if session.is_fresh(Moment::now()) {
                return Ok(session);
            }
            match self.prolong(&session).await {
                Ok(()) => return Ok(session),
                // It ended, during a pause or an outage: another takes its place.
                Err(failure) if failure.handling == Fate::NoLease => {}
                Err(failure) => return Err(failure),
            }
        }
    }

    async fn open_shared(&self, class: Class) -> Result<Arc<Session>, Failure> {
        let _one_at_a_time = self.sessions.opening.lock().await;
        if let Some(session) = self.sessions.present(class) {
            return Ok(session);
        }
        let session = self.open_session(class).await?;
        lock(&self.sessions.all).insert(session.id, Arc::clone(&session));
        lock(&self.sessions.present).insert(class, Arc::clone(&session));
        Ok(session)
    }

    /// A new lease.
    pub(crate) async fn open_session(&self, class: Class) -> Result<Arc<Session>, Failure> {
        let sent = Moment::now();
        let granted = self.link.grant(class.seconds()).await?;
        let ttl = Duration::from_secs(u64::try_from(granted.ttl).unwrap_or(0));
        if granted.id == 0 || ttl.is_zero() {
            return Err(failure::of_nonsense("a lease without a number or an end"));
        }
        Ok(Arc::new(Session::new(granted.id, class, ttl, sent)))
    }

    /// The server says that there is no such lease: whatever hung on it is gone.
    pub(crate) fn session_lost(&self, session: &Arc<Session>) {
        self.sessions.retire(session);
        lock(&self.sessions.all).remove(&session.id);
        self.claims.lose_session(session);
        session.over.send_replace(true);
    }

    /// Ends the leases that nothing hung on for a while.
    pub(crate) fn end_idle_sessions(self: &Arc<Self>, now: Moment) {
        for session in self.sessions.all() {
            if self.claims.has_session(session.id) {
                session.use_now();
            } else if now.since(lock(&session.state).used) > IDLE {
                self.condemn(&session);
            }
        }
    }
}
