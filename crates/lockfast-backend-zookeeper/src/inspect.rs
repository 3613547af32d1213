//! Looking at locks.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lockfast_core::{Fence, HolderView, LockName, LockView, Query};
use tokio::time::{sleep, timeout};

use crate::failure::{self, Failure, Fate};
use crate::layout::{Contender, Line, lock_name, lock_path};
use crate::record::Record;
use crate::store::Store;
use crate::wire::{Session, Stat};

/// Until it is asked again.
const RETRY_AFTER: Duration = Duration::from_millis(20);
/// How many locks are read in one round.
const LOCKS_AT_ONCE: usize = 256;

/// The locks that a query asks for. What an earlier fault of the connection swallowed is asked again.
pub(crate) async fn look(store: &Arc<Store>, query: Query) -> Result<Vec<LockView>, Failure> {
    let limit = store.config().request_timeout;
    let looking = async {
        loop {
            let session = store.waiting().await?;
            session.settled().await;
            match try_look(&session, &query).await {
                Err(failure) if matches!(failure.handling, Fate::Broken | Fate::Ended) => {
                    sleep(RETRY_AFTER).await;
                }
                looked => return looked,
            }
        }
    };
    let silence = |_| Err(failure::of_silence(&store.config().endpoint(), limit));
    timeout(limit, looking).await.unwrap_or_else(silence)
}

async fn try_look(session: &Arc<Session>, query: &Query) -> Result<Vec<LockView>, Failure> {
    session.sync().await?;
    match query {
        Query::Name(name) => {
            let line = read_line(session, name).await?;
            Ok(vec![view(session, name, &line).await?])
        }
        Query::Prefix { prefix, after, limit } => {
            let nodes = session.children("/").await?;
            let mut names: Vec<LockName> = nodes
                .iter()
                .filter_map(|node| lock_name(node))
                .filter(|name| name.as_str().starts_with(prefix))
                .filter(|name| after.as_ref().is_none_or(|after| name > after))
                .collect();
            names.sort();
            look_at_each(session, &names, *limit).await
        }
    }
}

async fn look_at_each(
    session: &Arc<Session>,
    names: &[LockName],
    limit: usize,
) -> Result<Vec<LockView>, Failure> {
    let mut views = Vec::new();
    for some in names.chunks(LOCKS_AT_ONCE) {
        let lines: Vec<_> = some.iter().map(|name| session.children(&lock_path(name))).collect();
        for (name, line) in some.iter().zip(lines) {
            if views.len() == limit {
                return Ok(views);
            }
            let children = match none_if_gone(line.await) {
                // Another user's is not ours to see.
                Err(failure) if failure.handling.is_no_auth() => continue,
                children => children?,
            };
            // What is used for something else is no lock.
            let line = Line::read(children);
            if line.check().is_ok() && !line.claims.is_empty() {
                let view = view(session, name, &line).await?;
                if !view.holders.is_empty() || view.waiting > 0 {
                    views.push(view);
                }
            }
        }
    }
    Ok(views)
}

/// The claims of a lock; none when another program uses its node for something else.
pub(crate) async fn read_line(session: &Session, name: &LockName) -> Result<Line, Failure> {
    let line = Line::read(none_if_gone(session.children(&lock_path(name)).await)?);
    line.check()?;
    Ok(line)
}

fn none_if_gone(children: Result<Vec<String>, Failure>) -> Result<Vec<String>, Failure> {
    match children {
        Err(failure) if failure.handling.is_no_node() => Ok(Vec::new()),
        other => other,
    }
}

/// A lock as people may see it. Whoever has gone since is left out.
pub(crate) async fn view(
    session: &Session,
    name: &LockName,
    line: &Line,
) -> Result<LockView, Failure> {
    let held = line.holders();
    let waiting = line.waiting();
    let found = read_holders(session, name, &line.claims[..held]).await?;
    let holders = found.into_iter().map(|(_, view)| view).collect();
    Ok(LockView::new(name.clone(), holders, waiting))
}

/// Those who have a lock, with their nodes. Of another user's, no more is known than the servers tell.
pub(crate) async fn read_holders(
    session: &Session,
    name: &LockName,
    claims: &[Contender],
) -> Result<Vec<(Contender, HolderView)>, Failure> {
    let lock_path = lock_path(name);
    let path = |claim: &Contender| format!("{lock_path}/{}", claim.node);
    let reading: Vec<_> = claims.iter().map(|claim| session.get(&path(claim), None)).collect();
    let mut found = Vec::with_capacity(claims.len());
    for (claim, read) in claims.iter().zip(reading) {
        match read.await {
            Ok((data, stat)) => found.push((claim.clone(), holder(claim, &data, &stat))),
            Err(failure) if failure.handling.is_no_node() => {}
            Err(failure) if failure.handling.is_no_auth() => {
                match session.stat(&path(claim)).await {
                    Ok(stat) => found.push((claim.clone(), holder(claim, b"", &stat))),
                    Err(failure) if failure.handling.is_no_node() => {}
                    Err(failure) => return Err(failure),
                }
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(found)
}

fn holder(claim: &Contender, data: &[u8], stat: &Stat) -> HolderView {
    let record = Record::read(data).filter(|_| claim.is_ours());
    let created = || Fence::new(u64::try_from(stat.created).ok()?).ok();
    let since_ms = u64::try_from(stat.created_ms).unwrap_or(0);
    let since = SystemTime::UNIX_EPOCH + Duration::from_millis(since_ms);
    // Another program's claim lasts as long as its session.
    let remaining = record.as_ref().map_or(Duration::MAX, |record| record.lasts);
    HolderView::new(claim.mode, since, remaining)
        .with_fence(record.as_ref().and_then(|record| record.fence.or_else(created)))
        .with_label(record.map(|record| record.label))
}
