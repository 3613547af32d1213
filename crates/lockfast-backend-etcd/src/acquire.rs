//! The way to a lock: a key is made, and if others are ahead of it, it waits until they are gone.

use std::sync::Arc;
use std::time::Duration;

use lockfast_core::{
    AcquireOutcome, AcquireRequest, Error, ErrorKind, Fence, Grant, HolderId, LockName, Mode,
    Moment, Refusal, RenewOutcome, RenewRequest,
};
use tokio::sync::{Notify, oneshot};

use crate::batch::Created;
use crate::claim::{Claim, Stage, class_of, first_put, lasting};
use crate::failure::{self, Failure, Fate};
use crate::gate::Entering;
use crate::key::Maker;
use crate::line::{Entry, Line};
use crate::record::State;
use crate::session::Class;
use crate::store::{Store, lock};
use crate::turn::Waited;
use crate::wire::RangeResponse;

/// How often a key is made anew when its lease ends meanwhile.
const TRIES_MAX: u32 = 5;

/// When a deletion that was not answered is tried again, if nobody asks for it before.
const LEAVE_AGAIN: Duration = Duration::from_secs(5);

/// What became of a new claim.
enum Entered {
    Granted(Grant),
    Taken(Line),
    Waiting,
}

impl Store {
    /// Serves a request and answers it.
    pub(crate) async fn acquire(
        self: Arc<Self>,
        request: AcquireRequest,
        mut asker: oneshot::Sender<lockfast_core::Result<AcquireOutcome>>,
    ) {
        let start = Moment::now();
        let held = self.claims.find(request.holder).map(|claim| claim.mode);
        let outcome = match held {
            Some(mode) if mode != request.mode => {
                Err(Error::already_held(request.mode, mode).with_backend("etcd"))
            }
            _ => {
                let entering = self.gates.enter(request.holder);
                let passed = entering.pass().await;
                let outcome = self.take(&request, start, &entering, &mut asker).await;
                drop(passed);
                outcome
            }
        };
        // Whoever gave up releases it, or asks again.
        let _ = asker.send(outcome.map_err(|error| error.with_lock(&request.name)));
    }

    async fn take(
        self: &Arc<Self>,
        request: &AcquireRequest,
        start: Moment,
        entering: &Entering<'_>,
        asker: &mut oneshot::Sender<lockfast_core::Result<AcquireOutcome>>,
    ) -> lockfast_core::Result<AcquireOutcome> {
        let told = |failure: Failure| failure.to_error();
        loop {
            self.settle_doubt(request.holder).await.map_err(told)?;
            let found = self.claims.find(request.holder);
            if let Some(claim) = &found {
                self.check_place(request.holder, claim).await?;
            }
            match found {
                Some(Claim { stage: Stage::Leaving { .. }, .. }) => {
                    self.withdraw(request.holder).await.map_err(told)?;
                    continue;
                }
                Some(claim) if claim.mode != request.mode => {
                    let error = Error::already_held(request.mode, claim.mode);
                    return Err(error.with_backend("etcd"));
                }
                Some(claim) if claim.is_held() => return self.repeat(request, &claim).await,
                Some(Claim { stage: Stage::Turn(revision), .. }) => {
                    let grant = self.claim_turn(request, revision).await.map_err(told)?;
                    if let Some(grant) = grant {
                        return Ok(AcquireOutcome::Granted(grant));
                    }
                    continue;
                }
                Some(claim) => self.stand_in_line(request, &claim).await.map_err(told)?,
                None if asker.is_closed() => return Err(failure::of_closing().to_error()),
                None => match self.enter(request).await? {
                    Entered::Granted(grant) => return Ok(AcquireOutcome::Granted(grant)),
                    Entered::Taken(line) => {
                        return Ok(self.refuse(&request.name, &line, start).await);
                    }
                    Entered::Waiting => {}
                },
            }
            match self.wait_turn(request, entering, asker).await.map_err(told)? {
                Waited::Signal => {}
                Waited::GivenUp => return Err(failure::of_closing().to_error()),
                Waited::TimeUp => {
                    if let Some(line) = self.leave(request).await.map_err(told)? {
                        return Ok(self.refuse(&request.name, &line, start).await);
                    }
                }
            }
        }
    }

    /// A holder that has the lock asks for it once more: its time begins again.
    async fn repeat(
        self: &Arc<Self>,
        request: &AcquireRequest,
        claim: &Claim,
    ) -> lockfast_core::Result<AcquireOutcome> {
        let from = Moment::now();
        let renewal = RenewRequest {
            name: request.name.clone(),
            holder: request.holder,
            ttl: request.ttl,
            lock_delay: request.lock_delay,
        };
        let fence = fence_of(claim.revision)?;
        match self.renew(vec![renewal]).await.pop() {
            Some(RenewOutcome::Renewed) => Ok(AcquireOutcome::Granted(Grant::new(fence, from))),
            Some(RenewOutcome::Lost(cause)) => Err(Error::lost(&request.name, cause)),
            Some(RenewOutcome::Unanswered(error)) => Err(error),
            None => Err(failure::of_closing().to_error()),
        }
    }

    /// Makes the key of a claim.
    async fn enter(self: &Arc<Self>, request: &AcquireRequest) -> lockfast_core::Result<Entered> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.enter_once(request).await {
                Ok(entered) => return Ok(entered),
                Err(Rejected::Error(error)) => return Err(error),
                Err(Rejected::Failure(failure)) => {
                    let may_help =
                        failure.handling.is_in_doubt() || failure.handling == Fate::NoLease;
                    // A claim that is there is gone on with, not made once more.
                    let is_there = self.claims.find(request.holder).is_some();
                    if tries == TRIES_MAX || !may_help || is_there {
                        return Err(failure.to_error());
                    }
                    self.settle_doubt(request.holder).await.map_err(|_| failure.to_error())?;
                }
            }
        }
    }

    async fn enter_once(self: &Arc<Self>, request: &AcquireRequest) -> Result<Entered, Rejected> {
        let is_busy = request.wait.is_open() && self.watches.is_busy(&request.name);
        if is_busy {
            let checked = self
                .watches
                .with_line(&request.name, |line| line.check_use(request.mode, i64::MAX));
            checked.unwrap_or(Ok(()))?;
        }
        let lasting = lasting(request.ttl, request.lock_delay);
        let class = if is_busy { Class::Waiting } else { class_of(lasting, request.detached) };
        let span = self.space.span_of(&request.name);
        lock(&self.readable).get_or_insert_with(|| span.from.clone());
        let session = self.session_of(class).await?;
        let Some(using) = session.using() else {
            return Err(failure::of_closing().with(Fate::NoLease).into());
        };
        let from = session.from();
        let key = self.space.key(&request.name, session.id, request.holder);
        let state = match (is_busy, request.wait.is_open()) {
            (true, _) => State::Waiting,
            (false, true) => State::Held,
            (false, false) => State::Trying,
        };
        let put = first_put(request, &key, &session, &self.context.label, state.clone());
        let span = (!is_busy).then_some(span);
        let created = match self.create(&request.name, put, span).await {
            Ok(created) => created,
            Err(failure) => {
                if failure.handling.is_in_doubt() {
                    self.doubt(request.holder, &session);
                } else if failure.handling == Fate::NoLease {
                    self.session_lost(&session);
                }
                return Err(failure.into());
            }
        };
        let claim = Claim {
            name: request.name.clone(),
            mode: request.mode,
            key,
            revision: created.revision,
            written: created.revision,
            says: state,
            session: Arc::clone(&session),
            stage: Stage::Waiting,
            is_detached: request.detached,
            signal: Arc::new(Notify::new()),
        };
        self.claims.insert(request.holder, claim.clone());
        if session.is_over() {
            // Its lease has ended in between, and the key with it.
            self.claims.remove(request.holder);
            return Err(failure::of_closing().with(Fate::NoLease).into());
        }
        drop(using);
        if is_busy {
            self.watches.open_line(self, &request.name);
            self.recheck(&claim);
            return Ok(Entered::Waiting);
        }
        self.see_line(request, &claim, created, from).await
    }

    /// Decides by the line as it was when the key was made.
    async fn see_line(
        self: &Arc<Self>,
        request: &AcquireRequest,
        claim: &Claim,
        created: Created,
        from: Moment,
    ) -> Result<Entered, Rejected> {
        // In a long line, only those who do not wait have to know all of it at once.
        let (seen, is_whole) = match created.seen {
            Some(seen) if seen.count <= seen.kvs.len() as i64 => (Ok(seen), true),
            Some(seen) if request.wait.is_open() => (Ok(seen), false),
            _ => self.look_back(claim).await,
        };
        let line = seen.and_then(|seen| self.read_claims(&request.name, &seen));
        let line = match line.map_err(Rejected::from).and_then(|line| {
            line.check_use(request.mode, claim.revision)?;
            Ok(line)
        }) {
            Ok(line) => line,
            Err(rejected) => {
                self.withdraw(request.holder).await?;
                return Err(rejected);
            }
        };
        if is_whole && line.is_granted(&claim.place()) {
            let fence = fence_of(claim.revision)?;
            let until = from + lasting(request.ttl, request.lock_delay);
            let stage = Stage::Held { until, since: Moment::now() };
            let held = self.claims.set_stage(request.holder, claim.revision, stage);
            let Some(session) = held else {
                return Err(failure::of_closing().with(Fate::NoLease).into());
            };
            let grant = Grant::new(fence, from).in_session(session.number());
            return Ok(Entered::Granted(grant));
        }
        if !request.wait.is_open() {
            self.withdraw(request.holder).await?;
            let mut line = line;
            line.remove(&claim.key, Moment::now());
            return Ok(Entered::Taken(line));
        }
        self.watches.open_line(self, &request.name);
        self.stand_in_line(request, claim).await?;
        self.recheck(claim);
        Ok(Entered::Waiting)
    }

    /// The line as it was when the key of a claim was made, and whether it is that. One that is granted
    /// only by now has to confirm that, or whoever waits behind it gives it up.
    async fn look_back(&self, claim: &Claim) -> (Result<RangeResponse, Failure>, bool) {
        match self.read_line_at(&claim.name, claim.revision).await {
            // It is not remembered any more.
            Err(failure) if failure.kind() == ErrorKind::Internal => {
                (self.read_line(&claim.name).await, false)
            }
            seen => (seen, true),
        }
    }

    /// A claim that is of another use than those ahead of it goes. Not all of them may have been known
    /// when its key was made, but all are when it has its turn.
    async fn check_place(
        self: &Arc<Self>,
        holder: HolderId,
        claim: &Claim,
    ) -> lockfast_core::Result<()> {
        if claim.mode == Mode::Exclusive {
            return Ok(());
        }
        let told = |failure: Failure| failure.to_error();
        let check = |line: &Line| line.check_use(claim.mode, claim.revision);
        let checked = match (claim.stage, self.watches.with_line(&claim.name, check)) {
            (Stage::Held { .. } | Stage::Leaving { .. }, _) => return Ok(()),
            (_, Some(checked)) => checked,
            (Stage::Waiting, None) => return Ok(()),
            (Stage::Turn(_), None) => {
                let found = self.read_line(&claim.name).await.map_err(told)?;
                check(&self.read_claims(&claim.name, &found).map_err(told)?)
            }
        };
        let Err(error) = checked else { return Ok(()) };
        self.withdraw(holder).await.map_err(told)?;
        Err(error.with_backend("etcd"))
    }

    /// A claim that waits hangs on the lease of those who wait.
    async fn stand_in_line(
        self: &Arc<Self>,
        request: &AcquireRequest,
        claim: &Claim,
    ) -> Result<(), Failure> {
        if claim.session.class == Class::Waiting || !request.wait.is_open() {
            return Ok(());
        }
        let lease = (Class::Waiting, None);
        self.put_under(request.holder, claim, lease, State::Waiting).await?;
        if matches!(claim.session.class, Class::Own(_)) {
            self.condemn(&claim.session);
        }
        Ok(())
    }

    /// The claims among the keys of a lock.
    pub(crate) fn read_claims(
        &self,
        name: &LockName,
        seen: &RangeResponse,
    ) -> Result<Line, Failure> {
        for kv in &seen.kvs {
            let is_strange =
                kv.lease == 0 && self.space.read(&kv.key) == Some((name.clone(), Maker::Nobody));
            if is_strange {
                let key = String::from_utf8_lossy(&kv.key).into_owned();
                let message = format!(
                    "the key {} is no claim to a lock; choose another name or delete that key",
                    lockfast_core::error::quote(&key)
                );
                return Err(Failure::new(ErrorKind::ForeignKey, message));
            }
        }
        Ok(Line::of(seen.kvs.iter().filter_map(|kv| Entry::read(&self.space, name, kv))))
    }

    /// The news that a claim has its turn may have come before the claim was known here.
    fn recheck(&self, claim: &Claim) {
        let place = claim.place();
        let is_first = self.watches.with_line(&claim.name, |line| line.is_granted(&place));
        if is_first == Some(true) {
            self.claims.call(&[place], None);
        }
    }

    /// The time is up: the claim goes. Returns the line without it; or nothing when its turn came
    /// just now.
    async fn leave(self: &Arc<Self>, request: &AcquireRequest) -> Result<Option<Line>, Failure> {
        let Some(claim) = self.claims.find(request.holder) else {
            let found = self.read_line(&request.name).await?;
            return self.read_claims(&request.name, &found).map(Some);
        };
        if claim.stage != Stage::Waiting {
            return Ok(None);
        }
        self.withdraw(request.holder).await?;
        let found = self.read_line(&request.name).await?;
        self.read_claims(&request.name, &found).map(Some)
    }

    /// Takes a claim back.
    pub(crate) async fn withdraw(self: &Arc<Self>, holder: HolderId) -> Result<(), Failure> {
        match self.claims.find(holder) {
            Some(claim) => self.remove(holder, &claim).await.map(|_| ()),
            None => Ok(()),
        }
    }

    /// Deletes the key of a claim, which is never granted from here on: a deletion whose answer is
    /// lost may still come. Returns whether the key was there.
    pub(crate) async fn remove(
        self: &Arc<Self>,
        holder: HolderId,
        claim: &Claim,
    ) -> Result<bool, Failure> {
        let was_held = match claim.stage {
            Stage::Waiting => false,
            Stage::Turn(_) | Stage::Held { .. } => true,
            Stage::Leaving { was_held, .. } => was_held,
        };
        let again = Moment::now() + LEAVE_AGAIN;
        self.claims.set_stage(holder, claim.revision, Stage::Leaving { again, was_held });
        let was_there = self.delete(&claim.key, claim.revision).await?;
        self.claims.moved(holder, claim.revision, None);
        if matches!(claim.session.class, Class::Own(_)) {
            self.condemn(&claim.session);
        }
        Ok(was_there || matches!(claim.stage, Stage::Leaving { .. }))
    }

    async fn refuse(&self, name: &LockName, line: &Line, start: Moment) -> AcquireOutcome {
        let lock = self.view(name, line).await;
        let waited = Moment::now().since(start);
        AcquireOutcome::Taken(Refusal::new(lock, waited))
    }
}

/// Why a claim was not entered.
enum Rejected {
    Failure(Failure),
    Error(Error),
}

impl From<Failure> for Rejected {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl From<Error> for Rejected {
    fn from(error: Error) -> Self {
        Self::Error(error.with_backend("etcd"))
    }
}

pub(crate) fn fence_of(revision: i64) -> lockfast_core::Result<Fence> {
    Fence::new(u64::try_from(revision).unwrap_or(0))
}
