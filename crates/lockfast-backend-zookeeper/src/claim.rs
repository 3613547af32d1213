//! One holder's claim, from its request until nothing of it is left in the store. A task of its own
//! does everything for it, one step after the other, so that no two requests of one holder cross.

mod enter;
mod hold;
mod leave;
mod wait;

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use enter::Seen;
use lockfast_core::queue::Standing;
use lockfast_core::{
    AcquireOutcome, AcquireRequest, Error, ErrorKind, Fence, Grant, HolderId, LockName, LossCause,
    Mode, Moment, Refusal, ReleaseOutcome, Result, Retry, Wait,
};
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::crowd::Member;
use crate::failure::{self, code};
use crate::inspect;
use crate::layout::{Line, lock_path};
use crate::record::Record;
use crate::store::{Store, lock};
use crate::wire::Session;

pub(crate) type Asker = oneshot::Sender<Result<AcquireOutcome>>;
type Leaver = oneshot::Sender<Result<ReleaseOutcome>>;

/// A holder's claim.
pub(crate) struct Claim {
    pub(crate) name: LockName,
    pub(crate) mode: Mode,
    pub(crate) holder: HolderId,
    state: Mutex<State>,
    phase: watch::Sender<Phase>,
    /// The session that it depends on now.
    session: watch::Sender<Option<Arc<Session>>>,
    /// Tells the task that the state has changed.
    notice: Notify,
    task: OnceLock<AbortHandle>,
}

/// What callers want of the claim, and what it depends on.
struct State {
    asker: Option<Asker>,
    /// Whether somebody was told that the lock is granted.
    is_told: bool,
    started: Moment,
    wait: Wait,
    ttl: Duration,
    lock_delay: Duration,
    is_leaving: bool,
    /// Whether a renewal asks for a session that lasts as long as its lease.
    is_wanted: bool,
    /// Those who asked for its end.
    leavers: Vec<Leaver>,
    /// How it ended, if it has.
    gone: Option<Gone>,
    /// When it ends unless it is renewed.
    until: Moment,
}

/// How far it has come.
#[derive(Clone, Debug)]
pub(crate) enum Phase {
    /// It asks or waits.
    Asking,
    /// It has the lock, for no longer than its node of the waiting session lives.
    Brief,
    /// It has the lock.
    Held { session: Arc<Session> },
    /// Nothing of it is left in the store.
    Gone(Gone),
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    Released,
    /// It had no lock.
    Unheld,
    /// It gave the lock back, or had lost it before: the answer was lost.
    InDoubt,
    /// Its node is still there: the servers do not allow to delete it.
    Denied,
    Lost(LossCause),
}

/// Its place in the line.
#[derive(Clone, Debug)]
struct Place {
    path: String,
    fence: Fence,
    session: Arc<Session>,
    /// Whether that is the session of those who wait.
    waits: bool,
}

impl Place {
    fn node(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

/// Why a step did not lead to the next one.
enum Turn {
    /// The place is gone: everything from the start.
    Again,
    Over(Gone),
}

impl Claim {
    /// A claim that is not yet worked on.
    pub(crate) fn new(request: &AcquireRequest, asker: Asker) -> Self {
        let now = Moment::now();
        let state = State {
            asker: Some(asker),
            is_told: false,
            started: now,
            wait: request.wait,
            ttl: request.ttl,
            lock_delay: request.lock_delay,
            is_leaving: false,
            is_wanted: false,
            leavers: Vec::new(),
            gone: None,
            until: now,
        };
        Self {
            name: request.name.clone(),
            mode: request.mode,
            holder: request.holder,
            state: Mutex::new(state),
            phase: watch::Sender::new(Phase::Asking),
            session: watch::Sender::new(None),
            notice: Notify::new(),
            task: OnceLock::new(),
        }
    }

    /// Starts its task.
    pub(crate) fn start(self: Arc<Self>, store: &Arc<Store>) {
        let member = Some(store.crowds.join(&self.name));
        let worker = Worker { store: Arc::clone(store), claim: Arc::clone(&self), member };
        let task = store.context.runtime.spawn(worker.run());
        // It is started once.
        let _ = self.task.set(task.abort_handle());
    }

    pub(crate) fn abort(&self) {
        self.task.get().into_iter().for_each(AbortHandle::abort);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase.borrow().clone()
    }

    /// Waits until it has come as far as `is_reached` says; `None` when its task has been aborted.
    pub(crate) async fn reach(&self, is_reached: impl FnMut(&Phase) -> bool) -> Option<Phase> {
        self.phase.subscribe().wait_for(is_reached).await.ok().map(|phase| phase.clone())
    }

    /// Another request of the holder takes the place of the one that waits. False when it is
    /// leaving or gone.
    pub(crate) fn ask_again(&self, request: &AcquireRequest, asker: Asker) -> bool {
        let mut state = self.state();
        if state.is_leaving || state.gone.is_some() {
            return false;
        }
        state.asker = Some(asker);
        state.started = Moment::now();
        state.wait = request.wait;
        state.ttl = request.ttl;
        state.lock_delay = request.lock_delay;
        drop(state);
        self.notice.notify_one();
        true
    }

    /// Asks for its end, and waits for it.
    pub(crate) async fn leave(&self) -> Result<ReleaseOutcome> {
        let (leaver, answer) = oneshot::channel();
        {
            let mut state = self.state();
            state.is_leaving = true;
            match state.gone {
                // Whoever asks again must find nothing.
                Some(_) => drop(leaver),
                None => state.leavers.push(leaver),
            }
        }
        self.notice.notify_one();
        answer.await.unwrap_or(Ok(ReleaseOutcome::NotHeld))
    }

    /// Tells those who asked for its end.
    fn tell_leavers(&self, answer: impl Fn() -> Result<ReleaseOutcome>) {
        let leavers = std::mem::take(&mut self.state().leavers);
        for leaver in leavers {
            let _ = leaver.send(answer());
        }
    }

    /// The lease lasts this long from `from` on. False when it is leaving.
    pub(crate) fn prolong(&self, from: Moment, ttl: Duration, lock_delay: Duration) -> bool {
        let mut state = self.state();
        state.ttl = ttl;
        state.lock_delay = lock_delay;
        let until = from + ttl + lock_delay;
        let is_sooner = until.has_passed(state.until);
        state.until = until;
        let is_leaving = state.is_leaving;
        drop(state);
        if is_sooner {
            self.notice.notify_one();
        }
        !is_leaving
    }

    /// Asks for a session that lasts as long as a lease of this length.
    pub(crate) fn want(&self, ttl: Duration, lock_delay: Duration) {
        let mut state = self.state();
        state.ttl = ttl;
        state.lock_delay = lock_delay;
        state.is_wanted = true;
        drop(state);
        self.notice.notify_one();
    }

    /// Whether a caller wants something of it.
    fn is_asked(&self) -> bool {
        let state = self.state();
        state.is_leaving || state.is_wanted || state.asker.is_some()
    }

    /// How long a lease lasts with its lock-delay.
    fn lasts(&self) -> Duration {
        let state = self.state();
        state.ttl + state.lock_delay
    }

    fn is_leaving(&self) -> bool {
        self.state().is_leaving
    }

    fn answer(&self, answer: Result<AcquireOutcome>) {
        let asker = self.state().asker.take();
        if let Some(asker) = asker {
            let is_grant = matches!(answer, Ok(AcquireOutcome::Granted(_)));
            // Whoever asked may have gone; the engine then releases, or asks again.
            let sent = asker.send(answer.map_err(|error| error.with_lock(&self.name)));
            self.state().is_told |= is_grant && sent.is_ok();
        }
    }
}

/// Does a claim's steps.
struct Worker {
    store: Arc<Store>,
    claim: Arc<Claim>,
    /// While it is worked on.
    member: Option<Member>,
}

impl Worker {
    async fn run(mut self) {
        let gone = tokio::select! {
            gone = self.live() => gone,
            never = self.tell_trouble() => match never {},
        };
        // Before anybody knows who may ask for the lock again.
        self.member = None;
        let claim = &self.claim;
        // What nobody was told of is not lost to anybody: the holder may ask again for another.
        let is_told = claim.state().is_told;
        if let Gone::Lost(cause) = &gone
            && is_told
        {
            self.store.context.losses.report(claim.holder, cause.clone());
        }
        // Somebody who asks again now makes a new claim.
        let is_remembered = matches!(gone, Gone::Lost(LossCause::Revoked { .. }));
        let remaining = {
            let mut state = claim.state();
            state.gone = Some(gone.clone());
            if state.is_leaving { Duration::ZERO } else { state.until.remaining(Moment::now()) }
        };
        if !is_remembered {
            self.forget();
        }
        claim.phase.send_replace(Phase::Gone(gone.clone()));
        claim.tell_leavers(|| match &gone {
            Gone::Released => Ok(ReleaseOutcome::Released),
            Gone::Unheld | Gone::Lost(_) => Ok(ReleaseOutcome::NotHeld),
            Gone::InDoubt => Err(in_doubt().with_lock(&claim.name)),
            Gone::Denied => {
                let failure = failure::of_refusal(code::NO_AUTH);
                Err(failure.to_error().with_lock(&claim.name))
            }
        });
        claim.answer(Err(match gone {
            // Whoever asked again just before is told what whoever does so later is told.
            Gone::Lost(cause) if is_remembered => {
                Error::lost(&claim.name, cause).with_backend("zookeeper")
            }
            _ => Error::new(ErrorKind::Unreachable, "the claim was given up"),
        }));
        if is_remembered {
            tokio::select! {
                () = sleep(remaining) => {}
                () = claim.notice.notified() => {}
            }
            self.forget();
        }
    }

    fn forget(&self) {
        let mut claims = lock(&self.store.claims);
        let holder = self.claim.holder;
        if claims.get(&holder).is_some_and(|present| Arc::ptr_eq(present, &self.claim)) {
            claims.remove(&holder);
        }
    }

    async fn live(&self) -> Gone {
        loop {
            match self.try_live().await {
                Ok(gone) | Err(Turn::Over(gone)) => return gone,
                Err(Turn::Again) if self.claim.is_leaving() => return Gone::Unheld,
                Err(Turn::Again) => {}
            }
        }
    }

    async fn try_live(&self) -> Result<Gone, Turn> {
        let (place, seen, from) = self.enter().await?;
        let lived = self.live_at(place.clone(), seen, from).await;
        if matches!(lived, Err(Turn::Again)) {
            // A server that lags may not know the node, and nothing is left behind.
            self.leave(&place).await;
        }
        lived
    }

    async fn live_at(&self, place: Place, seen: Seen, from: Moment) -> Result<Gone, Turn> {
        let line = match seen {
            Seen::Line(line) => line,
            Seen::Before(node) => {
                let from = self.wait(&place, self.behind(&node)).await?;
                return Ok(self.take_over(place, from).await);
            }
        };
        if let Err(error) = line.check() {
            self.leave(&place).await;
            return Err(self.refuse(error));
        }
        let Some(at) = line.position(place.node()) else { return Err(Turn::Again) };
        if let Err(error) = line.check_use(at) {
            self.leave(&place).await;
            return Err(self.refuse(error.with_backend("zookeeper")));
        }
        if line.standing(at) == Standing::Granted {
            if !place.waits {
                return Ok(self.hold(place, from).await);
            }
            let from = self.confirm_turn(&place).await?;
            return Ok(self.take_over(place, from).await);
        }
        if !self.claim.state().wait.is_open() {
            self.leave(&place).await;
            return Err(self.refuse_as_taken(&place, &line).await);
        }
        let place = self.queue(place).await?;
        let Some(Some(ahead)) = self.ahead(&place, &line) else { return Err(Turn::Again) };
        drop(line);
        let from = self.wait(&place, ahead).await?;
        Ok(self.take_over(place, from).await)
    }

    /// Tells whoever asked why not.
    fn refuse(&self, error: Error) -> Turn {
        self.claim.answer(Err(error));
        Turn::Over(Gone::Unheld)
    }

    /// Tells whoever asked who is in the way. The claim itself is gone from the store.
    async fn refuse_as_taken(&self, place: &Place, line: &Line) -> Turn {
        let claim = &self.claim;
        let waited = Moment::now().since(claim.state().started);
        let own = line.position(place.node()).map(|at| &line.claims[at]);
        let is_counted = own.is_some_and(|claim| !claim.is_trying());
        let answer = match inspect::view(&place.session, &claim.name, line).await {
            Ok(mut lock) => {
                // Everybody who waits, but not this one.
                lock.waiting -= usize::from(is_counted && lock.waiting > 0);
                Ok(AcquireOutcome::Taken(Refusal::new(lock, waited)))
            }
            Err(failure) => Err(failure.to_error()),
        };
        claim.answer(answer);
        Turn::Over(Gone::Unheld)
    }

    fn grant(&self, grant: Grant) {
        self.claim.answer(Ok(AcquireOutcome::Granted(grant)));
    }

    /// How many in this process want the lock.
    fn crowd_size(&self) -> usize {
        self.member.as_ref().map_or(1, Member::crowd_size)
    }

    fn depend_on(&self, session: &Arc<Session>) {
        self.claim.session.send_replace(Some(Arc::clone(session)));
    }

    fn lock_path(&self) -> String {
        lock_path(&self.claim.name)
    }

    fn record(&self, place: Option<&Place>, held: bool) -> Vec<u8> {
        let record = Record {
            label: self.store.context.label.clone(),
            lasts: self.claim.lasts(),
            fence: place.map(|place| place.fence),
            held,
            reason: None,
        };
        record.write()
    }

    /// Tells whoever asked when the session has been without a connection for too long. The claim
    /// goes on, and serves the holder's next request.
    async fn tell_trouble(&self) -> Infallible {
        let limit = self.store.config().request_timeout;
        let mut sessions = self.claim.session.subscribe();
        loop {
            let trouble = sessions.borrow_and_update().as_ref().map(|it| it.unserved_for(limit));
            let trouble = async {
                match trouble {
                    Some(trouble) => trouble.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Ok(()) = sessions.changed() => continue,
                () = trouble => {}
            }
            let endpoint = self.store.config().endpoint();
            let message = format!("no server of {endpoint} has served for {limit:?}");
            let error = || {
                let error = Error::new(ErrorKind::Unreachable, message.clone());
                error.with_backend("zookeeper")
            };
            self.claim.answer(Err(error()));
            self.claim.tell_leavers(|| Err(error().with_lock(&self.claim.name)));
            sleep(limit / 4).await;
        }
    }
}

fn in_doubt() -> Error {
    let message = "the answer to the release was lost, and nothing is held any more";
    let error = Error::new(ErrorKind::Unreachable, message).with_retry(Retry::Never);
    error.with_backend("zookeeper")
}
