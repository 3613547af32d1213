//! Writes whose answer is lost. A key that may have been written under a lease, or may still be, is
//! made harmless by ending that lease: what is written under a lease that does not exist fails.
//! Whatever else hangs on it is put under another one before.

use std::sync::Arc;
use std::time::Duration;

use lockfast_core::{HolderId, LossCause, Moment};

use crate::claim::Claim;
use crate::failure::{self, Failure, Fate};
use crate::record::State;
use crate::session::{Class, Session};
use crate::store::{Store, lock};
use crate::wire::PutRequest;

/// How often an ending is tried.
const PAUSE: Duration = Duration::from_millis(100);
/// How often a key is written under a lease when that ends meanwhile.
const TRIES_MAX: u32 = 5;

impl Store {
    /// It is not known whether a key of a holder was written under a lease, or will be.
    pub(crate) fn doubt(self: &Arc<Self>, holder: HolderId, session: &Arc<Session>) {
        self.claims.may_be_under(holder, session);
        lock(&self.doubts).entry(holder).or_default().push(Arc::clone(session));
        self.condemn(session);
    }

    /// Whether something is in doubt for a holder.
    pub(crate) fn has_doubt(&self, holder: HolderId) -> bool {
        lock(&self.doubts).contains_key(&holder)
    }

    /// Waits until what is in doubt can take no effect any more.
    pub(crate) async fn settle_doubt(&self, holder: HolderId) -> Result<(), Failure> {
        let limit = self.link.dialer.config().request_timeout;
        loop {
            let doubted = lock(&self.doubts).get(&holder).and_then(|all| all.first().cloned());
            let Some(session) = doubted else { return Ok(()) };
            if tokio::time::timeout(limit, session.ended()).await.is_err() {
                return Err(failure::of_silence(&self.link.dialer.config().shown(), limit));
            }
            let mut doubts = lock(&self.doubts);
            if let Some(all) = doubts.get_mut(&holder) {
                all.retain(|doubted| !doubted.is_over());
                if all.is_empty() {
                    doubts.remove(&holder);
                }
            }
        }
    }

    /// Puts the key of a claim under a lease of a class, that was prolonged since a moment if one is given.
    /// Returns that lease, or `None` when the key is gone.
    pub(crate) async fn put_under(
        self: &Arc<Self>,
        holder: HolderId,
        claim: &Claim,
        (class, since): (Class, Option<Moment>),
        state: State,
    ) -> Result<Option<Arc<Session>>, Failure> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.put_under_once(holder, claim, (class, since), state.clone()).await {
                Err(failure) if failure.handling == Fate::NoLease && tries < TRIES_MAX => {}
                answer => return answer,
            }
        }
    }

    async fn put_under_once(
        self: &Arc<Self>,
        holder: HolderId,
        claim: &Claim,
        (class, since): (Class, Option<Moment>),
        state: State,
    ) -> Result<Option<Arc<Session>>, Failure> {
        let session = self.session_of(class).await?;
        // Before the key hangs on it, which may be the last that the cluster hears of us.
        if since.is_some_and(|since| !since.has_passed(session.from())) {
            self.prolong(&session).await?;
        }
        let entering = self.moving.enter(holder);
        let alone = entering.pass().await;
        if self.has_doubt(holder) {
            // Whoever moved it meanwhile does not know what became of that.
            drop(alone);
            self.settle_doubt(holder).await?;
            return Err(failure::of_closing().with(Fate::NoLease));
        }
        let Some(claim) = self.claims.find(holder).filter(|it| it.revision == claim.revision)
        else {
            return Ok(None);
        };
        let is_there = self.move_to(holder, &claim, &session, state).await?;
        Ok(is_there.then_some(session))
    }

    /// Writes the key of a claim under a lease, and takes note of what came of it. Returns whether
    /// the key was still there. One at a time for a holder.
    async fn move_to(
        self: &Arc<Self>,
        holder: HolderId,
        claim: &Claim,
        session: &Arc<Session>,
        state: State,
    ) -> Result<bool, Failure> {
        let Some(_using) = session.using() else {
            return Err(failure::of_closing().with(Fate::NoLease));
        };
        let put = claim.put(&self.context.label, state.clone());
        let put = PutRequest { lease: session.id, ..put };
        match self.overwrite(put, claim).await {
            Ok(written) => {
                let moved = written.map(|at| (at, Arc::clone(session), state));
                let is_known = self.claims.moved(holder, claim.revision, moved);
                if written.is_some() && !is_known {
                    // It was given up meanwhile, and would be in everybody's way.
                    self.delete(&claim.key, claim.revision).await?;
                    return Ok(false);
                }
                Ok(written.is_some())
            }
            Err(failure) => {
                if failure.handling.is_in_doubt() {
                    self.doubt(holder, session);
                } else if failure.handling == Fate::NoLease {
                    self.session_lost(session);
                }
                Err(failure)
            }
        }
    }

    /// Writes the key of a claim over what was written there last, so that whatever is still under way
    /// comes too late. Returns the revision of that write, or `None` when the key is gone.
    async fn overwrite(&self, put: PutRequest, claim: &Claim) -> Result<Option<i64>, Failure> {
        let mut written = claim.written;
        loop {
            let answer = self.rewrite_if(put.clone(), claim.revision, Some(written)).await?;
            if answer.is_some() {
                return Ok(answer);
            }
            let found = self.read_key(&put.key).await?;
            match found.filter(|kv| kv.create_revision == claim.revision) {
                Some(kv) => written = kv.mod_revision,
                None => return Ok(None),
            }
        }
    }

    /// Ends a lease, after its claims were put under another.
    pub(crate) fn condemn(self: &Arc<Self>, session: &Arc<Session>) {
        let is_new = session.close();
        self.sessions.retire(session);
        if !is_new || session.is_over() {
            return;
        }
        let (store, session) = (Arc::clone(self), Arc::clone(session));
        self.context.runtime.spawn(async move {
            session.unused().await;
            while let Err(failure) = store.end(&session).await
                && !store.crew().is_closed()
            {
                tracing::debug!(failure = failure.message(), "a lease could not be ended yet");
                tokio::time::sleep(PAUSE).await;
            }
        });
    }

    /// Moves everything away from a lease and ends it.
    async fn end(self: &Arc<Self>, session: &Arc<Session>) -> Result<(), Failure> {
        if session.is_over() {
            return Ok(());
        }
        self.move_claims(session).await?;
        self.end_lease(session.id).await?;
        self.look_at_doubted(session).await?;
        self.session_lost(session);
        Ok(())
    }

    /// Ends a lease that may have ended by itself.
    pub(crate) async fn end_lease(&self, lease: i64) -> Result<(), Failure> {
        match self.link.revoke(lease).await {
            Ok(_) => Ok(()),
            Err(failure) if failure.handling == Fate::NoLease => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Puts every claim of a lease, and what may be under it, under another one of the class that the
    /// claim has.
    async fn move_claims(self: &Arc<Self>, session: &Arc<Session>) -> Result<(), Failure> {
        let holders = self.claims.of_session(session.id);
        let moves: Vec<_> = holders
            .into_iter()
            .map(|holder| {
                let (store, id) = (Arc::clone(self), session.id);
                tokio::spawn(async move { store.move_claim(holder, id).await })
            })
            .collect();
        let mut outcome = Ok(());
        for moving in moves {
            let moved = moving.await.unwrap_or_else(|_| Err(failure::of_closing()));
            outcome = outcome.and(moved);
        }
        outcome
    }

    /// Puts one claim under another lease; if it is gone, its holder is told.
    async fn move_claim(self: &Arc<Self>, holder: HolderId, from: i64) -> Result<(), Failure> {
        let entering = self.moving.enter(holder);
        let _alone = entering.pass().await;
        // Somebody else may have done it.
        let Some(claim) = self.claims.find_under(holder, from) else { return Ok(()) };
        // One that only may hang on it, because an answer was lost, has a lease of its own kind.
        let next = self.session_of(claim.session.class).await?;
        if !self.move_to(holder, &claim, &next, claim.state()).await? && claim.is_held() {
            let cause = self.why_gone(&claim.key, claim.revision).await;
            self.context.losses.report(holder, cause);
        }
        Ok(())
    }

    /// What was under way to a lease may have arrived just before its end, after the claim was moved
    /// away: then its key is gone.
    async fn look_at_doubted(self: &Arc<Self>, session: &Session) -> Result<(), Failure> {
        let doubted: Vec<HolderId> = {
            let doubts = lock(&self.doubts);
            let is_of_session = |all: &[Arc<Session>]| all.iter().any(|it| it.id == session.id);
            doubts.iter().filter(|(_, all)| is_of_session(all)).map(|(it, _)| *it).collect()
        };
        let claims: Vec<Claim> =
            doubted.into_iter().filter_map(|holder| self.claims.find(holder)).collect();
        let keys: Vec<_> = claims.iter().map(|claim| (claim.key.clone(), claim.revision)).collect();
        for (claim, is_there) in claims.iter().zip(self.look_at_keys(&keys).await?) {
            if !is_there {
                self.claims.lose(&claim.key, claim.revision, LossCause::SessionEnded);
            }
        }
        Ok(())
    }
}
