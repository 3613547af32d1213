//! The table of ShedLock as a store, on whichever server: `shedlock(name, lock_until, locked_at,
//! locked_by)`, one row for each name, free from `lock_until` on. Java programs take, prolong and give
//! back rows by plain statements; we do the same, and add no more than the holder's id to `locked_by`.
//!
//! The fence is `locked_at` in microseconds, above that of the row before if that was ours. A row of
//! another program that is ahead of the server's clock does not count: its next owner may be behind it.

mod desk;
mod owner;
mod table;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use lockfast_core::capability::{Expiry, FenceSurvival, Order, Reach};
use lockfast_core::task::Task;
use lockfast_core::{
    AcquireOutcome, AcquireRequest, Backend, BoxFuture, ConnectContext, DowngradeOutcome,
    DowngradeRequest, Error, ErrorKind, EventStream, Feature, Fence, Grant, Guarantee, HolderId,
    HolderView, Label, LockName, LockView, LossCause, Mode, Moment, Profile, Query, Refusal,
    ReleaseOutcome, ReleaseRequest, RenewOutcome, RenewRequest, Result, RevokeOutcome,
    RevokeRequest, TtlLimits, VersionedValue, Wait, WriteOutcome, WriteRequest, jitter,
};

pub use desk::Remedy;
use desk::{Answer, Desk, Look, Said, Step};
pub use owner::KEY_CHARS;
pub use table::{Change, Columns, Field, Row, Table, read_table};

/// How often a waiter looks at what nobody tells it of.
const POLL: Duration = Duration::from_millis(200);
/// The shortest time after which a server counts as silent.
const LIMIT_MIN: Duration = Duration::from_millis(500);
/// How often a row that is free when it is looked at is tried again before it counts as taken.
const TRIES: usize = 3;

/// What such a store promises on the server of that scheme.
pub fn profile(backend: &'static str) -> Profile {
    Profile {
        backend,
        guarantee: Guarantee::Efficiency,
        because: "programs that are not Lockfast write the same rows, some of them by their own \
                  clocks",
        order: Order::None,
        expiry: Expiry::Ttl,
        reach: Reach::Network,
        fence: FenceSurvival::DataLoss,
        ttl: TtlLimits::LOCKFAST,
        lacks: &[
            (Feature::Shared, "a row of ShedLock has one owner; use mode=lease"),
            (Feature::Permits, "a row of ShedLock has one owner; use mode=lease"),
            (Feature::Downgrade, "a row of ShedLock has one owner; use mode=lease"),
            (Feature::Floor, "a row that a Java program takes over forgets it; use mode=lease"),
            (
                Feature::Line,
                "nobody tells of a row of ShedLock that is free, so whoever waits looks several times \
                 a second; use mode=lease",
            ),
            (Feature::Values, "the table of ShedLock has no column for one; use mode=lease"),
            (
                Feature::Events,
                "nobody tells of changes in the table of ShedLock; use mode=lease to watch",
            ),
        ],
    }
}

/// The store. What waits is shared with tasks.
#[derive(Clone)]
pub struct Shedlock(Arc<Inner>);

struct Inner {
    desk: Desk,
    profile: Profile,
    columns: Columns,
    label: Label,
    runtime: tokio::runtime::Handle,
    request_timeout: Duration,
    /// The request by which each holder waits, so that a release ends it.
    waits: Mutex<Waits>,
}

#[derive(Default)]
struct Waits {
    of: HashMap<HolderId, u64>,
    count: u64,
}

impl fmt::Debug for Shedlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shedlock").field("backend", &self.0.profile.backend).finish_non_exhaustive()
    }
}

impl Shedlock {
    /// A store on a table that is connected and has these columns. It needs the keeper's runtime.
    pub fn new(
        table: impl Table,
        columns: Columns,
        profile: Profile,
        request_timeout: Duration,
        context: ConnectContext,
    ) -> Self {
        Self(Arc::new(Inner {
            desk: Desk::open(table),
            profile,
            columns,
            label: context.label,
            runtime: context.runtime,
            request_timeout,
            waits: Mutex::default(),
        }))
    }
}

impl Inner {
    fn waits(&self) -> std::sync::MutexGuard<'_, Waits> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn named(&self, name: &LockName) -> impl Fn(Error) -> Error + use<> {
        let (backend, name) = (self.profile.backend, name.clone());
        move |error| error.with_backend(backend).with_lock(&name)
    }

    fn check(&self, name: &LockName) -> Result<()> {
        self.columns.check(name).map_err(self.named(name))
    }

    /// For how long the server may be silent about a lease.
    fn limit(&self, ttl: Duration) -> Duration {
        (ttl / 4).max(LIMIT_MIN).min(self.request_timeout)
    }

    fn ask(&self, change: Option<Change>, look: Look, limit: Duration) -> Answer {
        self.desk.ask(Step { change, look, limit, is_repeatable: true })
    }

    async fn look(&self, look: Look) -> Result<Vec<Row>> {
        Ok(self.ask(None, look, self.request_timeout).receive().await?.rows)
    }

    async fn take(self: Arc<Self>, request: AcquireRequest) -> Result<AcquireOutcome> {
        let number = {
            let mut waits = self.waits();
            waits.count += 1;
            let number = waits.count;
            waits.of.insert(request.holder, number);
            number
        };
        let _waiting = Waiting { store: &self, holder: request.holder, number };
        let start = Moment::now();
        let mut tries = 1;
        loop {
            // Whether it is the last try is decided before it.
            let is_open = request.wait.is_open();
            let Said { from, rows, .. } = self.try_take(&request, number)?.receive().await?;
            let row = rows.into_iter().next();
            if let Some(row) = row.as_ref().filter(|row| row.is_of(request.holder)) {
                row.check_left(from, request.ttl)?;
                return Ok(AcquireOutcome::Granted(Grant::new(row.fence()?, from)));
            }
            // It was granted, and taken away before anybody heard of it.
            if let Some(cause) = row.as_ref().and_then(|row| row.revocation_of(request.holder)) {
                return Err(Error::lost(&request.name, cause));
            }
            let row = row.filter(Row::is_held);
            let left = row.as_ref().map_or(Duration::ZERO, Row::left);
            // Free by now: somebody was in between.
            if row.is_none() && tries < TRIES {
                tries += 1;
                continue;
            }
            if !is_open {
                let view = view(&request.name, row.as_ref());
                let waited = Moment::now().since(start);
                return Ok(AcquireOutcome::Taken(Refusal::new(view, waited)));
            }
            tries = 1;
            let pause = left.min(POLL.mul_f64(0.5 + jitter()));
            let rest = match request.wait {
                Wait::Until(until) => until.remaining(Moment::now()),
                Wait::No | Wait::Forever => pause,
            };
            tokio::time::sleep(pause.min(rest)).await;
        }
    }

    /// Asks for a row, unless the holder has given that up since.
    fn try_take(&self, request: &AcquireRequest, number: u64) -> Result<Answer> {
        let waits = self.waits();
        if waits.of.get(&request.holder) != Some(&number) {
            return Err(Error::new(ErrorKind::Unreachable, "the claim was given up"));
        }
        let change = Change::Take {
            name: request.name.as_str().to_owned(),
            key: owner::key(request.holder),
            revoked: owner::revoked_key(request.holder),
            owner: owner::write(request.holder, &self.label, self.columns.owner),
            span_ms: whole_ms(request.ttl + request.lock_delay),
        };
        Ok(self.ask(Some(change), Look::At(request.name.clone()), self.limit(request.ttl)))
    }

    fn renew(&self, request: &RenewRequest) -> Result<Answer> {
        self.check(&request.name)?;
        let change = Change::Renew {
            name: request.name.as_str().to_owned(),
            key: owner::key(request.holder),
            span_ms: whole_ms(request.ttl + request.lock_delay),
        };
        Ok(self.ask(Some(change), Look::At(request.name.clone()), self.limit(request.ttl)))
    }

    fn give(&self, request: &ReleaseRequest) -> Result<Answer> {
        self.check(&request.name)?;
        let mut waits = self.waits();
        waits.of.remove(&request.holder);
        let (name, key) = (request.name.as_str().to_owned(), owner::key(request.holder));
        Ok(self.ask(Some(Change::Give { name, key }), Look::Nothing, self.request_timeout))
    }

    async fn seize(&self, request: RevokeRequest) -> Result<RevokeOutcome> {
        for _ in 0..TRIES {
            let rows = self.look(Look::At(request.name.clone())).await?;
            let Some(row) = rows.into_iter().next().filter(Row::is_held) else {
                return Ok(RevokeOutcome::NotHeld);
            };
            let holders = view(&request.name, Some(&row)).holders;
            let is_other = |expected| holders.iter().all(|holder| holder.fence != Some(expected));
            if request.expect_fence.is_some_and(is_other) {
                return Ok(RevokeOutcome::OtherFence(holders));
            }
            let change = Change::Revoke {
                revoked: owner::revoke(&row.owner, &request.reason, self.columns.owner),
                name: row.name,
                owner: row.owner,
                at_us: row.at_us,
            };
            let (change, limit) = (Some(change), self.request_timeout);
            // The next owner must not lose it too.
            let step = Step { change, look: Look::Nothing, limit, is_repeatable: false };
            if self.desk.ask(step).receive().await?.is_changed {
                return Ok(RevokeOutcome::Revoked(holders));
            }
        }
        Err(Error::new(ErrorKind::Unreachable, "the row has another owner each time; try again"))
    }

    async fn list(&self, query: Query) -> Result<Vec<LockView>> {
        let (prefix, after, limit) = match query {
            Query::Name(name) => {
                self.check(&name)?;
                let rows = self.look(Look::At(name.clone())).await.map_err(self.named(&name))?;
                return Ok(vec![view(&name, rows.first())]);
            }
            Query::Prefix { prefix, after, limit } => (prefix, after, limit),
        };
        let rows = self.look(Look::All).await;
        let rows = rows.map_err(|error| error.with_backend(self.profile.backend))?;
        // A server may compare names in another way, and another program may use any as a name.
        let known = rows.iter().filter_map(|row| Some((LockName::new(&row.name).ok()?, row)));
        let mut found: Vec<(LockName, &Row)> = known
            .filter(|(name, row)| row.is_held() && name.as_str().starts_with(&prefix))
            .filter(|(name, _)| after.as_ref().is_none_or(|after| name > after))
            .collect();
        found.sort_by(|(left, _), (right, _)| left.cmp(right));
        found.truncate(limit);
        Ok(found.into_iter().map(|(name, row)| view(&name, Some(row))).collect())
    }
}

/// A holder that waits.
struct Waiting<'a> {
    store: &'a Inner,
    holder: HolderId,
    number: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waits = self.store.waits();
        if waits.of.get(&self.holder) == Some(&self.number) {
            waits.of.remove(&self.holder);
        }
    }
}

impl Row {
    fn is_held(&self) -> bool {
        self.left_us > 0
    }

    fn is_of(&self, holder: HolderId) -> bool {
        self.is_held() && self.owner.starts_with(&owner::key(holder))
    }

    fn left(&self) -> Duration {
        Duration::from_micros(u64::try_from(self.left_us).unwrap_or(0))
    }

    /// Whether it lasts as long as was asked for at `from`: not when it was over by the server's clock,
    /// so that nothing was written, and that clock was set back before it was looked at.
    fn check_left(&self, from: Moment, ttl: Duration) -> Result<()> {
        let passed = Moment::now().since(from);
        // So much may one clock run faster than the other.
        if self.left() + passed + ttl / 100 >= ttl {
            return Ok(());
        }
        let message =
            "the row ends sooner than was asked for: the server's clock was set; try again";
        Err(Error::new(ErrorKind::Unreachable, message))
    }

    fn fence(&self) -> Result<Fence> {
        let number = u64::try_from(self.at_us).unwrap_or(0);
        Fence::new(number).map_err(|error| {
            let message = format!("locked_at is of no use as a fence: {}", error.message());
            Error::new(ErrorKind::CorruptRecord, message)
        })
    }

    fn revocation_of(&self, holder: HolderId) -> Option<LossCause> {
        let reason = owner::revocation(&self.owner, holder)?;
        Some(LossCause::Revoked { reason: reason.to_owned() })
    }

    /// Why a holder that had it has it no more.
    fn loss_of(&self, holder: HolderId) -> LossCause {
        if let Some(cause) = self.revocation_of(holder) {
            return cause;
        }
        if !self.is_held() {
            return LossCause::Forgotten;
        }
        let by = owner::read(&self.owner).map_or_else(|| self.owner.clone(), |it| it.to_string());
        LossCause::Taken { by: Some(by) }
    }
}

/// A lock as its row says; a program that is not Lockfast has neither label nor fence.
fn view(name: &LockName, row: Option<&Row>) -> LockView {
    let Some(row) = row.filter(|row| row.is_held()) else {
        return LockView::new(name.clone(), Vec::new(), 0);
    };
    let label = owner::read(&row.owner);
    let fence = row.fence().ok().filter(|_| label.is_some());
    let since = Duration::from_micros(u64::try_from(row.at_us).unwrap_or(0));
    let since = SystemTime::UNIX_EPOCH + since;
    let holder = HolderView::new(Mode::Exclusive, since, row.left());
    LockView::new(name.clone(), vec![holder.with_label(label).with_fence(fence)], 0)
}

/// A time in whole milliseconds, which is not shorter although it begins with a whole one.
fn whole_ms(span: Duration) -> i64 {
    let whole = span.as_nanos().div_ceil(1_000_000) + 1;
    i64::try_from(whole).unwrap_or(i64::MAX)
}

impl Backend for Shedlock {
    fn profile(&self) -> &Profile {
        &self.0.profile
    }

    fn acquire(&self, request: AcquireRequest) -> BoxFuture<'_, Result<AcquireOutcome>> {
        Box::pin(async move {
            let store = &self.0;
            let named = store.named(&request.name);
            store.check(&request.name)?;
            store.profile.require_mode(request.mode).map_err(&named)?;
            if request.floor.is_some() {
                return Err(named(store.profile.unsupported(Feature::Floor)));
            }
            let taking = Arc::clone(store).take(request);
            Task::start(&store.runtime, taking).finish().await.map_err(named)
        })
    }

    fn renew(&self, batch: Vec<RenewRequest>) -> BoxFuture<'_, Result<Vec<RenewOutcome>>> {
        Box::pin(async move {
            let asked: Vec<_> = batch.iter().map(|request| self.0.renew(request)).collect();
            let mut outcomes = Vec::with_capacity(batch.len());
            for (request, answer) in batch.iter().zip(asked) {
                let said = match answer {
                    Ok(answer) => answer.receive().await.map_err(self.0.named(&request.name)),
                    Err(error) => Err(error),
                };
                outcomes.push(match said {
                    Ok(said) => match said.rows.first() {
                        Some(row) if row.is_of(request.holder) => {
                            match row.check_left(said.from, request.ttl) {
                                Ok(()) => RenewOutcome::Renewed,
                                Err(error) => {
                                    RenewOutcome::Unanswered(self.0.named(&request.name)(error))
                                }
                            }
                        }
                        Some(row) => RenewOutcome::Lost(row.loss_of(request.holder)),
                        None => RenewOutcome::Lost(LossCause::Forgotten),
                    },
                    Err(error) => RenewOutcome::Unanswered(error),
                });
            }
            Ok(outcomes)
        })
    }

    fn downgrade(&self, request: DowngradeRequest) -> BoxFuture<'_, Result<DowngradeOutcome>> {
        let unsupported = || self.profile().unsupported(Feature::Downgrade);
        Box::pin(async move { Err(unsupported().with_lock(&request.name)) })
    }

    fn release(&self, request: ReleaseRequest) -> BoxFuture<'_, Result<ReleaseOutcome>> {
        Box::pin(async move {
            let named = self.0.named(&request.name);
            let said = self.0.give(&request)?.receive().await.map_err(&named)?;
            match said {
                Said { is_changed: true, .. } => Ok(ReleaseOutcome::Released),
                Said { is_repeated: false, .. } => Ok(ReleaseOutcome::NotHeld),
                // It may have been given back, or have ended before.
                Said { .. } => {
                    let message =
                        "the answer to the release was lost, and nothing is held any more";
                    let error = Error::new(ErrorKind::Unreachable, message);
                    Err(named(error.with_retry(lockfast_core::Retry::Never)))
                }
            }
        })
    }

    fn inspect(&self, query: Query) -> BoxFuture<'_, Result<Vec<LockView>>> {
        Box::pin(self.0.list(query))
    }

    fn revoke(&self, request: RevokeRequest) -> BoxFuture<'_, Result<RevokeOutcome>> {
        Box::pin(async move {
            self.0.check(&request.name)?;
            let named = self.0.named(&request.name);
            self.0.seize(request).await.map_err(named)
        })
    }

    fn read(&self, name: LockName) -> BoxFuture<'_, Result<Option<VersionedValue>>> {
        Box::pin(async move { Err(self.profile().unsupported(Feature::Values).with_lock(&name)) })
    }

    fn write(&self, request: WriteRequest) -> BoxFuture<'_, Result<WriteOutcome>> {
        Box::pin(async move {
            Err(self.profile().unsupported(Feature::Values).with_lock(&request.name))
        })
    }

    fn watch(&self) -> BoxFuture<'_, Result<EventStream>> {
        Box::pin(async { Err(self.profile().unsupported(Feature::Events)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// B159: a row that was not written, and is held still only because the server's clock was set
    /// back, is no renewal.
    #[test]
    fn a_row_that_ends_too_soon_is_not_believed() {
        let ttl = Duration::from_secs(30);
        let row = |left_us| Row { name: "a".into(), owner: "b".into(), at_us: 1, left_us };
        for (left_us, is_right) in [(30_001_000, true), (29_900_000, true), (5_000_000, false)] {
            let checked = row(left_us).check_left(Moment::now(), ttl);
            assert_eq!(checked.is_ok(), is_right, "{left_us}");
        }
    }
}
