//! `mode=advisory`: session locks of the server, so that other programs that use
//! `pg_advisory_lock` are kept out too. Each has a connection of its own that is never used for
//! anything else, waits in the server's own queue, and ends with that connection.

mod held;
mod look;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockfast_core::capability::{Expiry, FenceSurvival, Order, Reach};
use lockfast_core::task::Task;
use lockfast_core::{
    AcquireOutcome, AcquireRequest, Backend, BoxFuture, ConnectContext, DowngradeOutcome,
    DowngradeRequest, Error, ErrorKind, EventStream, Feature, Grant, Guarantee, HolderId, LockName,
    LockView, LossCause, Mode, Moment, Profile, Query, Refusal, ReleaseOutcome, ReleaseRequest,
    RenewOutcome, RenewRequest, Result, RevokeOutcome, RevokeRequest, TtlLimits, VersionedValue,
    Wait, WriteOutcome, WriteRequest,
};
use tokio::sync::{oneshot, watch};

use crate::failure::Failure;
use crate::migration;
use crate::store::{closed, lock};
use crate::wire::Dialer;
use held::{Held, Taken};

/// A server whose advisory locks are used.
pub(crate) struct Advisory {
    pub(crate) dialer: Arc<Dialer>,
    context: ConnectContext,
    profile: Profile,
    holds: Mutex<HashMap<HolderId, Hold>>,
    waits: AtomicU64,
}

/// What a holder has here.
#[derive(Clone)]
enum Hold {
    /// It waits under this number; dropping the sender ends that.
    Waiting {
        mode: Mode,
        number: u64,
        _stop: Arc<oneshot::Sender<()>>,
        /// Closed when it has left the server's queue.
        gone: watch::Receiver<()>,
    },
    Held(Arc<Held>),
    /// It is being given back.
    Leaving(watch::Receiver<()>),
}

/// Connects; refused where a pooler would give the lock to somebody else's session.
pub(crate) async fn connect(
    dialer: Arc<Dialer>,
    context: ConnectContext,
) -> Result<Arc<dyn Backend>> {
    let checking = Task::start(&context.runtime, {
        let dialer = Arc::clone(&dialer);
        async move {
            let session = dialer.dial().await?;
            if !session.is_direct {
                return Err(unsafe_pooler());
            }
            migration::ensure(&dialer.config, &session).await
        }
    });
    checking.finish().await.map_err(|failure| failure.to_error())?;
    let advisory = Advisory {
        dialer,
        context,
        profile: profile(),
        holds: Mutex::default(),
        waits: AtomicU64::new(0),
    };
    Ok(Arc::new(Shared(Arc::new(advisory))))
}

fn unsafe_pooler() -> Failure {
    Failure::new(
        ErrorKind::Unsupported,
        "mode=advisory does not work through a pooler, where another client would get the session \
         that has the lock; connect to the server itself, or use mode=lease",
    )
}

pub(crate) fn profile() -> Profile {
    Profile {
        backend: "postgres",
        guarantee: Guarantee::Efficiency,
        because: "the server lets go as soon as it ends the session, which the holder may learn \
                  late",
        order: Order::Fifo,
        expiry: Expiry::Session,
        reach: Reach::Network,
        fence: FenceSurvival::DataLoss,
        ttl: TtlLimits {
            min: Duration::from_secs(1),
            because: "the server notices a silent connection no sooner",
            ..TtlLimits::LOCKFAST
        },
        lacks: &[
            (Feature::Permits, "an advisory lock is exclusive or shared; use mode=lease"),
            (
                Feature::LockDelay,
                "an advisory lock is free as soon as its connection ends; use mode=lease",
            ),
            (Feature::Detached, "an advisory lock ends with its connection; use mode=lease"),
            (Feature::Values, "an advisory lock is a lock and nothing else; use mode=lease"),
            (
                Feature::Events,
                "the server does not tell of its advisory locks; use mode=lease to watch",
            ),
        ],
    }
}

impl fmt::Debug for Advisory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Advisory")
            .field("endpoint", &self.dialer.config.endpoint)
            .finish_non_exhaustive()
    }
}

impl Advisory {
    async fn take(self: Arc<Self>, request: AcquireRequest) -> Result<AcquireOutcome> {
        let start = Moment::now();
        let named = |failure: Failure| failure.to_error().with_lock(&request.name);
        let other_mode = |mode| named(Error::already_held(request.mode, mode).into());
        let earlier = lock(&self.holds).get(&request.holder).cloned();
        match &earlier {
            Some(Hold::Held(held)) => {
                let mode = held.mode().await;
                if mode != request.mode {
                    return Err(other_mode(mode));
                }
                let from = Moment::now();
                match held.ping(&self.dialer).await {
                    Ok(()) => return Ok(AcquireOutcome::Granted(Grant::new(held.fence, from))),
                    // The lock ended with its session, so this is a new acquisition.
                    Err(_) if held.has_ended().await => {}
                    Err(failure) => return Err(named(failure)),
                }
            }
            Some(Hold::Waiting { mode, .. }) if *mode != request.mode => {
                return Err(other_mode(*mode));
            }
            Some(Hold::Waiting { .. } | Hold::Leaving(_)) | None => {}
        }
        let (stop, stopped) = oneshot::channel();
        let (staying, gone) = watch::channel(());
        let number = self.waits.fetch_add(1, Ordering::Relaxed);
        let waiting = Hold::Waiting { mode: request.mode, number, _stop: Arc::new(stop), gone };
        lock(&self.holds).insert(request.holder, waiting);
        // The new request takes the place of the one that waits.
        match earlier {
            Some(Hold::Waiting { gone, _stop: stop, .. }) => {
                drop(stop);
                self.see_gone(gone).await;
            }
            Some(Hold::Leaving(gone)) => self.see_gone(gone).await,
            Some(Hold::Held(_)) | None => {}
        }
        let (asker, answer) = oneshot::channel();
        let me = Arc::clone(&self);
        let asked = request.clone();
        let label = self.context.label.clone();
        self.context.runtime.spawn(async move {
            let taken = held::take(&me.dialer, &label, &asked, stopped).await;
            if let Some(unwanted) = me.settle(&asked, number, taken, asker) {
                unwanted.abandon().await;
            }
            drop(staying);
        });
        match answer.await.unwrap_or_else(|_| Err(closed())).map_err(named)? {
            Some(grant) => Ok(AcquireOutcome::Granted(grant)),
            None => {
                let view = self.look_at(&request.name).await?;
                let waited = Moment::now().since(start);
                Ok(AcquireOutcome::Taken(Refusal::new(view, waited)))
            }
        }
    }

    /// Writes down what became of an acquisition and tells whoever asked. Returns what nobody wants.
    fn settle(
        self: &Arc<Self>,
        request: &AcquireRequest,
        number: u64,
        taken: std::result::Result<Taken, Failure>,
        asker: oneshot::Sender<std::result::Result<Option<Grant>, Failure>>,
    ) -> Option<Held> {
        let mut holds = lock(&self.holds);
        let is_present = matches!(holds.get(&request.holder),
            Some(Hold::Waiting { number: present, .. }) if *present == number);
        if is_present {
            holds.remove(&request.holder);
        }
        let answer = match taken {
            Ok(Taken::Held(held, grant)) if is_present && !asker.is_closed() => {
                let held = Arc::new(held);
                holds.insert(request.holder, Hold::Held(Arc::clone(&held)));
                drop(holds);
                let me = Arc::downgrade(self);
                let holder = request.holder;
                let losses = self.context.losses.clone();
                self.context.runtime.spawn(async move {
                    held.ended().await;
                    let Some(me) = me.upgrade() else { return };
                    let mut holds = lock(&me.holds);
                    let is_mine = matches!(holds.get(&holder),
                        Some(Hold::Held(present)) if Arc::ptr_eq(present, &held));
                    if is_mine {
                        holds.remove(&holder);
                        drop(holds);
                        losses.report(holder, LossCause::SessionEnded);
                    }
                });
                Ok(Some(grant))
            }
            Ok(Taken::Held(held, _)) => {
                let _ = asker.send(Err(closed()));
                return Some(held);
            }
            Ok(Taken::ByOthers) => Ok(None),
            Err(failure) => Err(failure),
        };
        let _ = asker.send(answer);
        None
    }

    /// Waits until one who was told to stop waiting has left the server's queue.
    async fn see_gone(&self, mut gone: watch::Receiver<()>) {
        let leaving = async { while gone.changed().await.is_ok() {} };
        // A server that does not answer notices by itself that the connection is closed.
        let _ = tokio::time::timeout(self.dialer.config.request_timeout, leaving).await;
    }

    async fn give(&self, request: ReleaseRequest) -> Result<ReleaseOutcome> {
        let (leaving, gone) = watch::channel(());
        let hold = {
            let mut holds = lock(&self.holds);
            let hold = holds.remove(&request.holder);
            match &hold {
                Some(Hold::Held(_)) => holds.insert(request.holder, Hold::Leaving(gone)),
                Some(Hold::Leaving(gone)) => {
                    holds.insert(request.holder, Hold::Leaving(gone.clone()))
                }
                Some(Hold::Waiting { .. }) | None => None,
            };
            hold
        };
        match hold {
            Some(Hold::Held(held)) => {
                // Closing it would be enough, but then nobody knows when it has happened.
                let unlocked = held.unlock(&self.dialer).await;
                held.close();
                self.forget_leaving(request.holder);
                drop(leaving);
                match unlocked {
                    Ok(true) => Ok(ReleaseOutcome::Released),
                    Ok(false) => Ok(ReleaseOutcome::NotHeld),
                    // It ends with its session, but when the server ends that is not known.
                    Err(failure) => Err(failure.to_error().with_lock(&request.name)),
                }
            }
            Some(Hold::Waiting { gone, _stop: stop, .. }) => {
                drop(stop);
                self.see_gone(gone).await;
                Ok(ReleaseOutcome::NotHeld)
            }
            // It was asked twice, and is over for both at the same moment.
            Some(Hold::Leaving(gone)) => {
                self.see_gone(gone).await;
                Ok(ReleaseOutcome::NotHeld)
            }
            None => Ok(ReleaseOutcome::NotHeld),
        }
    }

    fn forget_leaving(&self, holder: HolderId) {
        let mut holds = lock(&self.holds);
        if matches!(holds.get(&holder), Some(Hold::Leaving(_))) {
            holds.remove(&holder);
        }
    }

    async fn renew_one(&self, request: RenewRequest) -> RenewOutcome {
        let hold = lock(&self.holds).get(&request.holder).cloned();
        let Some(Hold::Held(held)) = hold else {
            return RenewOutcome::Lost(LossCause::SessionEnded);
        };
        match held.prolong(&self.dialer, request.ttl + request.lock_delay).await {
            Ok(()) => RenewOutcome::Renewed,
            Err(failure) => RenewOutcome::Lost(distrust(&held, &failure)),
        }
    }

    async fn downgrade_one(&self, request: DowngradeRequest) -> DowngradeOutcome {
        let hold = lock(&self.holds).get(&request.holder).cloned();
        let Some(Hold::Held(held)) = hold else {
            return DowngradeOutcome::Lost(LossCause::SessionEnded);
        };
        match held.downgrade(&self.dialer).await {
            Ok(()) => DowngradeOutcome::Downgraded,
            // It may have both locks now, or one of them.
            Err(failure) => DowngradeOutcome::Lost(distrust(&held, &failure)),
        }
    }
}

/// Ends a session that has not done what it was asked for: whether the server still has it, and how,
/// is not known.
fn distrust(held: &Held, failure: &Failure) -> LossCause {
    tracing::debug!(failure = failure.message(), "a session that has a lock is silent");
    held.close();
    LossCause::SessionEnded
}

/// How long a wait may last, if it ends.
fn patience(wait: Wait) -> Option<Duration> {
    match wait {
        Wait::No => Some(Duration::ZERO),
        Wait::Until(until) => Some(until.remaining(Moment::now())),
        Wait::Forever => None,
    }
}

/// The backend is shared with the tasks that wait.
#[derive(Debug)]
struct Shared(Arc<Advisory>);

impl Backend for Shared {
    fn profile(&self) -> &Profile {
        &self.0.profile
    }

    fn acquire(&self, request: AcquireRequest) -> BoxFuture<'_, Result<AcquireOutcome>> {
        Box::pin(Arc::clone(&self.0).take(request))
    }

    fn renew(&self, batch: Vec<RenewRequest>) -> BoxFuture<'_, Result<Vec<RenewOutcome>>> {
        Box::pin(async move {
            // Each has a connection of its own; their statements are under way together.
            let renewing: Vec<_> = batch
                .into_iter()
                .map(|request| {
                    let me = Arc::clone(&self.0);
                    self.0.context.runtime.spawn(async move { me.renew_one(request).await })
                })
                .collect();
            let mut outcomes = Vec::with_capacity(renewing.len());
            for renewal in renewing {
                let lost = |_| RenewOutcome::Lost(LossCause::SessionEnded);
                outcomes.push(renewal.await.unwrap_or_else(lost));
            }
            Ok(outcomes)
        })
    }

    fn downgrade(&self, request: DowngradeRequest) -> BoxFuture<'_, Result<DowngradeOutcome>> {
        Box::pin(async move {
            let me = Arc::clone(&self.0);
            // It goes on if the caller does not.
            let asking =
                self.0.context.runtime.spawn(async move { me.downgrade_one(request).await });
            asking.await.map_err(|_| closed().to_error())
        })
    }

    fn release(&self, request: ReleaseRequest) -> BoxFuture<'_, Result<ReleaseOutcome>> {
        Box::pin(async move {
            let me = Arc::clone(&self.0);
            let giving = self.0.context.runtime.spawn(async move { me.give(request).await });
            giving.await.unwrap_or_else(|_| Err(closed().to_error()))
        })
    }

    fn inspect(&self, query: Query) -> BoxFuture<'_, Result<Vec<LockView>>> {
        Box::pin(self.0.look(query))
    }

    fn revoke(&self, request: RevokeRequest) -> BoxFuture<'_, Result<RevokeOutcome>> {
        Box::pin(self.0.seize(request))
    }

    fn read(&self, name: LockName) -> BoxFuture<'_, Result<Option<VersionedValue>>> {
        Box::pin(async move { Err(self.profile().unsupported(Feature::Values).with_lock(&name)) })
    }

    fn write(&self, request: WriteRequest) -> BoxFuture<'_, Result<WriteOutcome>> {
        let unsupported = || self.profile().unsupported(Feature::Values);
        Box::pin(async move { Err(unsupported().with_lock(&request.name)) })
    }

    fn watch(&self) -> BoxFuture<'_, Result<EventStream>> {
        Box::pin(async { Err(self.profile().unsupported(Feature::Events)) })
    }
}
