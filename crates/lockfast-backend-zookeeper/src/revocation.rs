//! Ending claims of other processes: an operator takes a lock away, or somebody who knows the holder
//! id gives it back.

use std::sync::Arc;
use std::time::Duration;

use lockfast_core::{
    HolderView, LockName, ReleaseOutcome, ReleaseRequest, RevokeOutcome, RevokeRequest,
};
use tokio::time::timeout;

use crate::failure::{self, Failure};
use crate::inspect::{read_holders, read_line};
use crate::layout::{Contender, lock_path};
use crate::record::{Record, one_line};
use crate::store::Store;
use crate::wire::{NodeWatcher, Session};

/// How long a holder has to read why, and to go.
const NOTICE: Duration = Duration::from_millis(500);

/// Takes the lock away. A holder that is Lockfast finds the reason in its node and deletes that
/// itself; whoever does not is deleted.
pub(crate) async fn revoke(
    store: Arc<Store>,
    request: RevokeRequest,
) -> Result<RevokeOutcome, Failure> {
    let RevokeRequest { name, expect_fence, reason } = request;
    let session = store.waiting().await?;
    session.sync().await?;
    let line = read_line(&session, &name).await?;
    let held = read_holders(&session, &name, &line.claims[..line.holders()]).await?;
    let views =
        |held: Vec<(Contender, HolderView)>| held.into_iter().map(|(_, view)| view).collect();
    if held.is_empty() {
        return Ok(RevokeOutcome::NotHeld);
    }
    if expect_fence.is_some() && !held.iter().any(|(_, view)| view.fence == expect_fence) {
        return Ok(RevokeOutcome::OtherFence(views(held)));
    }
    let reason = one_line(&reason);
    let mut seizures = Vec::with_capacity(held.len());
    for (claim, _) in &held {
        let seizing = seize(Arc::clone(&session), name.clone(), claim.clone(), reason.clone());
        seizures.push(store.context.runtime.spawn(seizing));
    }
    for seizure in seizures {
        seizure.await.unwrap_or_else(|error| Err(failure::of_break(error.to_string())))?;
    }
    Ok(RevokeOutcome::Revoked(views(held)))
}

/// Gives back what a holder has or wants that another process asked for.
pub(crate) async fn release(
    store: Arc<Store>,
    request: ReleaseRequest,
) -> Result<ReleaseOutcome, Failure> {
    let session = store.waiting().await?;
    session.sync().await?;
    let line = read_line(&session, &request.name).await?;
    let Some(at) = line.claims.iter().position(|claim| claim.is_of(request.holder)) else {
        return Ok(ReleaseOutcome::NotHeld);
    };
    let path = format!("{}/{}", lock_path(&request.name), line.claims[at].node);
    let is_held = at < line.holders();
    let deleted = match is_held {
        true => session.give_back(&path).await,
        false => session.delete(&path).await,
    };
    match deleted {
        Ok(()) if is_held => Ok(ReleaseOutcome::Released),
        Ok(()) => Ok(ReleaseOutcome::NotHeld),
        Err(failure) if failure.handling.is_no_node() => Ok(ReleaseOutcome::NotHeld),
        Err(failure) => Err(failure),
    }
}

async fn seize(
    session: Arc<Session>,
    name: LockName,
    claim: Contender,
    reason: String,
) -> Result<(), Failure> {
    let path = format!("{}/{}", lock_path(&name), claim.node);
    match leave_reason(&session, &path, &claim, reason).await {
        Ok(()) => {}
        Err(failure) if failure.handling.is_no_node() => return Ok(()),
        Err(failure) => return Err(failure),
    }
    match session.delete(&path).await {
        Err(failure) if !failure.handling.is_no_node() => Err(failure),
        _ => Ok(()),
    }
}

/// Leaves the reason where a living holder reads it, and gives it time to.
async fn leave_reason(
    session: &Session,
    path: &str,
    claim: &Contender,
    reason: String,
) -> Result<(), Failure> {
    let (data, _) = session.get(path, None).await?;
    let Some(record) = Record::read(&data).filter(|_| claim.is_ours()) else { return Ok(()) };
    session.take_away(path, &Record { reason: Some(reason), ..record }.write()).await?;
    let watcher = Arc::new(NodeWatcher::default());
    let leaving = async {
        loop {
            session.get(path, Some(&watcher)).await?;
            watcher.notified().await;
        }
    };
    // Too late is no failure: it is deleted then.
    timeout(NOTICE, leaving).await.unwrap_or(Ok(()))
}
