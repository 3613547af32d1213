//! How each request of a story is asked of a store, and what its answer is called.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use lockfast_core::{
    AcquireOutcome, AcquireRequest, DowngradeOutcome, DowngradeRequest, ErrorKind, Fence, LockName,
    LockView, Moment, Query, ReleaseOutcome, ReleaseRequest, RenewOutcome, RenewRequest, Result,
    RevokeOutcome, RevokeRequest,
};

use super::answer::{Answer, reason};
use super::step::{LOCKS, Who};
use crate::arena::Client;

/// What those who wait have heard.
#[derive(Default)]
pub(super) struct Ear {
    heard: Mutex<BTreeMap<Who, Result<Fence, ErrorKind>>>,
    is_late: AtomicBool,
}

impl Ear {
    fn heard(&self) -> MutexGuard<'_, BTreeMap<Who, Result<Fence, ErrorKind>>> {
        self.heard.lock().expect("no panic")
    }

    /// What was heard since this was last asked.
    pub(super) fn take(&self) -> BTreeMap<Who, Result<Fence, ErrorKind>> {
        std::mem::take(&mut self.heard())
    }

    /// Whether a lease may have run out because this machine stopped the test for too long.
    pub(super) fn is_late(&self) -> bool {
        self.is_late.load(Ordering::Relaxed)
    }

    /// Waits for a lock, and for as long as the story wants to.
    pub(super) async fn listen(&self, client: Client, who: Who, request: AcquireRequest) {
        let said = match self.acquire(&client, request).await {
            Answer::Granted(fence) => Ok(fence),
            Answer::Failed(kind) => Err(kind),
            // Nobody who waits without an end may be told that.
            _ => Err(ErrorKind::Internal),
        };
        self.heard().insert(who, said);
    }

    /// Asks for a lock. What is handed over only for a short time is renewed at once, as the lease
    /// engine does.
    pub(super) async fn acquire(&self, client: &Client, request: AcquireRequest) -> Answer {
        let AcquireRequest { name, holder, ttl, lock_delay, .. } = request.clone();
        let grant = match client.backend.acquire(request).await {
            Ok(AcquireOutcome::Granted(grant)) => grant,
            Ok(AcquireOutcome::Taken(refusal)) => return Answer::Taken(Some(refusal.lock)),
            Err(error) => return Answer::Failed(error.kind()),
        };
        if let Some(brief) = grant.brief {
            // When it was lost before that, whoever looks sees so.
            let _ =
                client.backend.renew(vec![RenewRequest { name, holder, ttl, lock_delay }]).await;
            let is_late = (grant.from + brief).has_passed(Moment::now());
            self.is_late.fetch_or(is_late, Ordering::Relaxed);
        }
        Answer::Granted(grant.fence)
    }
}

pub(super) async fn release(client: &Client, request: ReleaseRequest) -> Answer {
    match client.backend.release(request).await {
        Ok(ReleaseOutcome::Released) => Answer::Released,
        Ok(ReleaseOutcome::NotHeld) => Answer::NotHeld,
        Err(error) => Answer::Failed(error.kind()),
    }
}

/// Begins to ask for a lock, gives up after a moment that is another each time, and gives back what
/// may have been granted.
pub(super) async fn acquire_and_cancel(
    client: &Client,
    request: AcquireRequest,
    patience: usize,
) -> Answer {
    let gone = ReleaseRequest { name: request.name.clone(), holder: request.holder };
    let asker = client.clone();
    let asking = tokio::spawn(async move { asker.backend.acquire(request).await.is_ok() });
    for _ in 0..patience {
        tokio::task::yield_now().await;
    }
    asking.abort();
    let _ = asking.await;
    release(client, gone).await
}

/// The answers are in the order of the batch.
pub(super) async fn renew(client: &Client, batch: Vec<RenewRequest>) -> Vec<Answer> {
    let count = batch.len();
    match client.backend.renew(batch).await {
        Ok(outcomes) if outcomes.len() == count => outcomes.into_iter().map(renewed).collect(),
        Ok(_) => vec![Answer::Failed(ErrorKind::Internal); count],
        Err(error) => vec![Answer::Failed(error.kind()); count],
    }
}

fn renewed(outcome: RenewOutcome) -> Answer {
    match outcome {
        RenewOutcome::Renewed => Answer::Renewed,
        RenewOutcome::Lost(cause) => Answer::Lost(cause),
        RenewOutcome::Unanswered(error) => Answer::Failed(error.kind()),
    }
}

pub(super) async fn downgrade(client: &Client, request: DowngradeRequest) -> Answer {
    match client.backend.downgrade(request).await {
        Ok(DowngradeOutcome::Downgraded) => Answer::Downgraded,
        Ok(DowngradeOutcome::Lost(cause)) => Answer::Lost(cause),
        Err(error) => Answer::Failed(error.kind()),
    }
}

pub(super) async fn revoke(
    client: &Client,
    name: LockName,
    expect_fence: Option<Fence>,
    number: usize,
) -> Answer {
    let request = RevokeRequest { name, expect_fence, reason: reason(number) };
    match client.backend.revoke(request).await {
        Ok(RevokeOutcome::Revoked(holders)) => Answer::Revoked(holders),
        Ok(RevokeOutcome::NotHeld) => Answer::NotHeld,
        Ok(RevokeOutcome::OtherFence(holders)) => Answer::OtherFence(holders),
        Err(error) => Answer::Failed(error.kind()),
    }
}

pub(super) async fn look(client: &Client, name: &LockName) -> Answer {
    match client.backend.inspect(Query::Name(name.clone())).await {
        Ok(views) => match <[LockView; 1]>::try_from(views) {
            Ok([view]) if view.name == *name => Answer::Seen(view),
            _ => Answer::Failed(ErrorKind::Internal),
        },
        Err(error) => Answer::Failed(error.kind()),
    }
}

/// What a list of all locks of the story says of each of them. One that it does not name is free.
pub(super) async fn list(
    client: &Client,
    prefix: String,
    names: &[LockName; LOCKS],
) -> Vec<Answer> {
    let query = Query::Prefix { prefix, after: None, limit: 2 * LOCKS };
    let views = match client.backend.inspect(query).await {
        Ok(views) => views,
        Err(error) => return vec![Answer::Failed(error.kind()); LOCKS],
    };
    let in_order = views.windows(2).all(|pair| pair[0].name < pair[1].name);
    if !in_order || !views.iter().all(|view| names.contains(&view.name)) {
        return vec![Answer::Failed(ErrorKind::Internal); LOCKS];
    }
    let of = |name: &LockName| {
        let seen = views.iter().find(|view| view.name == *name).cloned();
        Answer::Seen(seen.unwrap_or_else(|| LockView::new(name.clone(), Vec::new(), 0)))
    };
    names.iter().map(of).collect()
}

/// The least ttl that a store keeps, or a tenth of a second.
pub(super) fn short_ttl(client: &Client) -> Duration {
    client.backend.profile().ttl.fit(Duration::from_millis(100))
}
