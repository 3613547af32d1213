//! Looking at advisory locks, which the server shows to everybody: who has one, who waits. Names
//! are known only of those whose fence was raised.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use lockfast_core::task::Task;
use lockfast_core::{
    Fence, HolderView, Label, LockName, LockView, Mode, Moment, Query, Result, RevokeOutcome,
    RevokeRequest,
};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::Advisory;
use super::held::key_of;
use crate::claim::read_fence;
use crate::failure::{self, Failure};
use crate::wire::{Dialer, Param, Session, get};

/// How often it is looked whether a session has ended.
const END_LOOK: Duration = Duration::from_millis(10);

/// Locks: the sessions of each, once though one that becomes a reader has two locks for a moment, the fence that was given last, and the name.
async fn sessions(
    dialer: &Dialer,
    session: &Session,
    names: &[LockName],
) -> Result<Vec<Row>, Failure> {
    let statement = format!(
        "SELECT l.granted, bool_and(l.mode = 'ShareLock'), l.pid, a.application_name, \
           (extract(epoch FROM a.backend_start) * 1000000)::bigint, {schema}.last_fence(k.name), \
           k.name \
         FROM (SELECT n.name, {key} AS key FROM unnest($1) AS n (name)) k \
         JOIN pg_locks l ON (l.classid::bigint << 32 | l.objid::bigint) = k.key \
         LEFT JOIN pg_stat_activity a ON a.pid = l.pid \
         WHERE l.locktype = 'advisory' AND l.objsubid = 1 \
           AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
         GROUP BY l.granted, l.pid, a.application_name, a.backend_start, k.name",
        schema = dialer.config.schema,
        key = key_of("n.name"),
    );
    let names: Vec<&str> = names.iter().map(LockName::as_str).collect();
    let params: [Param<'_>; 1] = [(&names, Type::TEXT_ARRAY)];
    session.ask(&statement, &params, dialer.config.request_timeout).await
}

fn read_view<'a>(
    name: &LockName,
    rows: impl IntoIterator<Item = &'a Row>,
) -> Result<LockView, Failure> {
    let mut view = LockView::new(name.clone(), Vec::new(), 0);
    for row in rows {
        if !get::<bool>(row, 0)? {
            view.waiting += 1;
            continue;
        }
        let is_shared: bool = get(row, 1)?;
        let who: Option<&str> = get(row, 3)?;
        let since_us: Option<i64> = get(row, 4)?;
        let label = who.and_then(read_label);
        let since = since_us.and_then(|since_us| u64::try_from(since_us).ok());
        let since = since.map(|us| SystemTime::UNIX_EPOCH + Duration::from_micros(us));
        let mode = if is_shared { Mode::Shared } else { Mode::Exclusive };
        // A program that is not Lockfast has no fence, and of those who share nobody knows whose the
        // last one is.
        let fence = if is_shared || label.is_none() { None } else { last_fence(row)? };
        // It lasts as long as its connection.
        let holder = HolderView::new(mode, since, Duration::MAX);
        view.holders.push(holder.with_fence(fence).with_label(label));
    }
    Ok(view)
}

/// The fence that was given last for the lock of a row.
fn last_fence(row: &Row) -> Result<Option<Fence>, Failure> {
    let fence: Option<i64> = get(row, 5)?;
    Ok(fence.and_then(|fence| read_fence(Some(fence)).ok()))
}

fn read_label(who: &str) -> Option<Label> {
    let mut words = who.strip_prefix("lockfast ")?.splitn(3, ' ');
    let pid = words.next()?.parse().ok()?;
    let host = words.next()?.to_owned();
    Some(Label::new(words.next()?.to_owned(), host, pid))
}

impl Advisory {
    pub(super) async fn look_at(&self, name: &LockName) -> Result<LockView> {
        let views = self.look(Query::Name(name.clone())).await?;
        views.into_iter().next().ok_or_else(|| failure::of_nonsense("no lock").to_error())
    }

    /// Looks on a connection of its own, which those that have locks are not used for.
    pub(super) async fn look(&self, query: Query) -> Result<Vec<LockView>> {
        let dialer = std::sync::Arc::clone(&self.dialer);
        let looking = Task::start(&self.context.runtime, async move {
            let session = dialer.dial().await?;
            let (names, limit) = match query {
                Query::Name(name) => (vec![name], usize::MAX),
                Query::Prefix { prefix, after, limit } => {
                    (find(&dialer, &session, &prefix, after.as_ref()).await?, limit)
                }
            };
            let is_list = limit != usize::MAX;
            let mut views = Vec::new();
            let rows = sessions(&dialer, &session, &names).await?;
            let mut rows_of: HashMap<&str, Vec<&Row>> = HashMap::new();
            for row in &rows {
                rows_of.entry(get(row, 6)?).or_default().push(row);
            }
            for name in names {
                let own = rows_of.remove(name.as_str()).unwrap_or_default();
                let view = read_view(&name, own)?;
                if !is_list || view.waiting > 0 || !view.holders.is_empty() {
                    views.push(view);
                }
                if views.len() >= limit {
                    break;
                }
            }
            Ok(views)
        });
        looking.finish().await.map_err(|failure: Failure| failure.to_error())
    }

    /// Ends the sessions that have a lock. Their holders learn it from the end of the connection.
    pub(super) async fn seize(&self, request: RevokeRequest) -> Result<RevokeOutcome> {
        let dialer = std::sync::Arc::clone(&self.dialer);
        let seizing = Task::start(&self.context.runtime, async move {
            let session = dialer.dial().await?;
            let rows = sessions(&dialer, &session, std::slice::from_ref(&request.name)).await?;
            let view = read_view(&request.name, &rows)?;
            if view.holders.is_empty() {
                return Ok(RevokeOutcome::NotHeld);
            }
            let is_ours = view.holders.iter().any(|holder| holder.label.is_some());
            let last = rows.first().map_or(Ok(None), last_fence)?.filter(|_| is_ours);
            if request.expect_fence.is_some_and(|expected| last != Some(expected)) {
                return Ok(RevokeOutcome::OtherFence(view.holders));
            }
            let limit_of_end = dialer.config.request_timeout;
            let mut ended = Vec::new();
            for row in &rows {
                if get(row, 0)? {
                    let pid: i32 = get(row, 2)?;
                    let params: [Param<'_>; 1] = [(&pid, Type::INT4)];
                    let limit = dialer.config.request_timeout;
                    session.ask("SELECT pg_terminate_backend($1)", &params, limit).await?;
                    ended.push(pid);
                }
            }
            // A session ends a moment after it was told to.
            let start = Moment::now();
            while Moment::now().since(start) < limit_of_end {
                let rows = sessions(&dialer, &session, std::slice::from_ref(&request.name)).await?;
                let has_ended =
                    |row: &Row| get(row, 2).map(|pid: i32| !ended.contains(&pid)).unwrap_or(true);
                if rows.iter().all(has_ended) {
                    break;
                }
                tokio::time::sleep(END_LOOK).await;
            }
            Ok(RevokeOutcome::Revoked(view.holders))
        });
        seizing.finish().await.map_err(|failure: Failure| failure.to_error())
    }
}

async fn find(
    dialer: &Dialer,
    session: &Session,
    prefix: &str,
    after: Option<&LockName>,
) -> Result<Vec<LockName>, Failure> {
    let statement = format!("SELECT {}.advisory_names($1, $2)", dialer.config.schema);
    let after = after.map(LockName::as_str);
    let params: [Param<'_>; 2] = [(&prefix, Type::TEXT), (&after, Type::TEXT)];
    let rows = session.ask(&statement, &params, dialer.config.request_timeout).await?;
    let name = |row| LockName::new(get::<&str>(row, 0)?).map_err(failure::of_nonsense);
    rows.iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_it() {
        let label = read_label("lockfast 7 host my program").unwrap();
        assert_eq!((label.pid, label.host.as_str()), (7, "host"));
        assert_eq!(label.program, "my program");
        assert!(read_label("psql").is_none());
    }
}
