//! P3: a store in which many leases end together with one session tells so in one step, and
//! exactly these are lost, also one that is granted just then.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use lockfast::{
    ErrorKind, EventStream, Fence, Guarantee, Guard, HolderId, LeaseChanges, LeaseStatus, LockName,
    LockView, Locker, LossCause, Moment, Profile, ReleaseOutcome, Result, RevokeOutcome, TtlLimits,
};
use lockfast_core::capability::{Expiry, FenceSurvival, Order, Reach};
use lockfast_core::{
    AcquireOutcome, AcquireRequest, Backend, BoxFuture, ConnectContext, DowngradeOutcome,
    DowngradeRequest, Grant, LossReporter, Query, ReleaseRequest, RenewOutcome, RenewRequest,
    RevokeRequest, SessionId, VersionedValue, WriteOutcome, WriteRequest,
};

const LEASES: usize = 10_000;
const ENDED: LossCause = LossCause::SessionEnded;

/// Grants everything, in the session that it has at the time.
#[derive(Debug)]
struct Store {
    profile: Profile,
    losses: LossReporter,
    session: AtomicU64,
    fence: AtomicU64,
    /// The end of this session is told while the next grant is on its way.
    ends_meanwhile: Mutex<Option<SessionId>>,
    /// The next grant is moved to this session while it is on its way.
    moves_meanwhile: Mutex<Option<SessionId>>,
    renewals: AtomicU64,
}

impl Store {
    async fn open() -> (Locker, Arc<Self>) {
        let opened = Arc::new(Mutex::new(None));
        let place = Arc::clone(&opened);
        let connect = move |context: ConnectContext| {
            let store = Arc::new(Self {
                profile: Profile {
                    backend: "sessions",
                    guarantee: Guarantee::Efficiency,
                    because: "it is a test",
                    order: Order::None,
                    expiry: Expiry::Ttl,
                    reach: Reach::Process,
                    fence: FenceSurvival::Process,
                    ttl: TtlLimits::LOCKFAST,
                    lacks: &[],
                },
                losses: context.losses,
                session: AtomicU64::new(1),
                fence: AtomicU64::new(0),
                ends_meanwhile: Mutex::default(),
                moves_meanwhile: Mutex::default(),
                renewals: AtomicU64::new(0),
            });
            *place.lock().unwrap() = Some(Arc::clone(&store));
            let connected: Result<Arc<dyn Backend>> = Ok(Arc::new(Shared(store)));
            Box::pin(async move { connected }) as BoxFuture<'static, _>
        };
        let locker = Locker::builder().connect_with(connect).await.unwrap();
        let store = opened.lock().unwrap().take().unwrap();
        (locker, store)
    }

    fn begin_session(&self, session: u64) {
        self.session.store(session, Ordering::SeqCst);
    }

    fn grant(&self, holder: HolderId) -> Grant {
        let from = Moment::now();
        let fence = Fence::new(self.fence.fetch_add(1, Ordering::SeqCst) + 1).unwrap();
        let session = SessionId(self.session.load(Ordering::SeqCst));
        if let Some(moved) = self.moves_meanwhile.lock().unwrap().take() {
            self.losses.moved(holder, moved);
        }
        if let Some(ended) = self.ends_meanwhile.lock().unwrap().take() {
            self.losses.session_ended(ended, ENDED);
        }
        Grant::new(fence, from).in_session(session)
    }
}

#[derive(Debug)]
struct Shared(Arc<Store>);

impl Backend for Shared {
    fn profile(&self) -> &Profile {
        &self.0.profile
    }

    fn acquire(&self, request: AcquireRequest) -> BoxFuture<'_, Result<AcquireOutcome>> {
        Box::pin(async move { Ok(AcquireOutcome::Granted(self.0.grant(request.holder))) })
    }

    fn renew(&self, batch: Vec<RenewRequest>) -> BoxFuture<'_, Result<Vec<RenewOutcome>>> {
        self.0.renewals.fetch_add(batch.len() as u64, Ordering::SeqCst);
        Box::pin(async move { Ok(batch.iter().map(|_| RenewOutcome::Renewed).collect()) })
    }

    fn downgrade(&self, _: DowngradeRequest) -> BoxFuture<'_, Result<DowngradeOutcome>> {
        Box::pin(async { Ok(DowngradeOutcome::Downgraded) })
    }

    fn release(&self, _: ReleaseRequest) -> BoxFuture<'_, Result<ReleaseOutcome>> {
        Box::pin(async { Ok(ReleaseOutcome::Released) })
    }

    fn inspect(&self, _: Query) -> BoxFuture<'_, Result<Vec<LockView>>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn revoke(&self, _: RevokeRequest) -> BoxFuture<'_, Result<RevokeOutcome>> {
        Box::pin(async { Ok(RevokeOutcome::NotHeld) })
    }

    fn read(&self, _: LockName) -> BoxFuture<'_, Result<Option<VersionedValue>>> {
        Box::pin(async { Ok(None) })
    }

    fn write(&self, _: WriteRequest) -> BoxFuture<'_, Result<WriteOutcome>> {
        Box::pin(async { Ok(WriteOutcome::Conflict(None)) })
    }

    fn watch(&self) -> BoxFuture<'_, Result<EventStream>> {
        Box::pin(async { Ok(lockfast_core::watch::EventFeeds::default().open()) })
    }
}

async fn hold(locker: &Locker, name: &str) -> Guard {
    locker.mutex(name).unwrap().acquire().await.unwrap()
}

async fn hold_many(locker: &Locker) -> Vec<Guard> {
    let mut guards = Vec::with_capacity(LEASES);
    for number in 0..LEASES {
        guards.push(hold(locker, &format!("lock {number}")).await);
    }
    guards
}

/// Which of these have changed since this was asked last; all have at first.
fn changed(changes: &mut [LeaseChanges]) -> Vec<bool> {
    let mut context = Context::from_waker(Waker::noop());
    let mut is_ready = |next: &mut LeaseChanges| pin!(next.next()).poll(&mut context).is_ready();
    changes.iter_mut().map(|next| is_ready(next) && !is_ready(next)).collect()
}

#[tokio::test]
async fn ten_thousand_leases_end_with_their_session_and_no_other_does() {
    let (locker, store) = Store::open().await;
    let first = hold_many(&locker).await;
    store.begin_session(2);
    let second = hold_many(&locker).await;
    let mut first_changes: Vec<_> = first.iter().map(|guard| guard.changes()).collect();
    let mut second_changes: Vec<_> = second.iter().map(|guard| guard.changes()).collect();
    assert_eq!(changed(&mut first_changes), [true; LEASES], "where they stand is told at once");
    assert_eq!(changed(&mut second_changes), [true; LEASES]);
    let start = Moment::now();
    store.losses.session_ended(SessionId(1), ENDED);
    let took = Moment::now().since(start);
    // All at once, before the store is answered; a look at each lease for each would be 10^8.
    assert!(first.iter().all(|guard| guard.status() == LeaseStatus::Lost(ENDED)));
    assert!(second.iter().all(|guard| guard.status() == LeaseStatus::Held));
    assert_eq!(changed(&mut first_changes), [true; LEASES], "each is told once");
    assert_eq!(changed(&mut second_changes), [false; LEASES], "the others are not touched");
    assert!(took < Duration::from_secs(5), "{took:?}");
    store.losses.session_ended(SessionId(1), ENDED);
    assert_eq!(changed(&mut first_changes), [false; LEASES]);
    store.losses.session_ended(SessionId(2), LossCause::DataLost);
    let lost = LeaseStatus::Lost(LossCause::DataLost);
    assert!(second.iter().all(|guard| guard.status() == lost));
}

#[tokio::test]
async fn a_grant_that_is_on_its_way_when_its_session_ends_is_lost() {
    let (locker, store) = Store::open().await;
    *store.ends_meanwhile.lock().unwrap_or_else(PoisonError::into_inner) = Some(SessionId(1));
    let guard = hold(&locker, "late").await;
    assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(guard.status(), LeaseStatus::Lost(ENDED));
    store.begin_session(2);
    *store.ends_meanwhile.lock().unwrap() = Some(SessionId(3));
    let guard = hold(&locker, "in time").await;
    guard.check().unwrap();
}

#[tokio::test]
async fn a_lease_that_has_moved_ends_with_its_new_session() {
    let (locker, store) = Store::open().await;
    let [stays, moves, moves_late] =
        [hold(&locker, "a").await, hold(&locker, "b").await, hold(&locker, "c").await];
    store.losses.moved(moves.holder(), SessionId(2));
    store.losses.session_ended(SessionId(1), ENDED);
    assert_eq!(stays.status(), LeaseStatus::Lost(ENDED));
    assert_eq!(moves_late.status(), LeaseStatus::Lost(ENDED));
    moves.check().unwrap();
    store.losses.session_ended(SessionId(2), ENDED);
    assert_eq!(moves.status(), LeaseStatus::Lost(ENDED));
    store.begin_session(3);
    let late = hold(&locker, "d").await;
    store.losses.moved(late.holder(), SessionId(2));
    assert_eq!(late.status(), LeaseStatus::Lost(ENDED), "it has moved to what is over");
}

#[tokio::test]
async fn a_grant_that_moves_on_its_way_ends_with_its_new_session() {
    let (locker, store) = Store::open().await;
    *store.moves_meanwhile.lock().unwrap() = Some(SessionId(2));
    *store.ends_meanwhile.lock().unwrap() = Some(SessionId(1));
    let guard = hold(&locker, "a").await;
    guard.check().unwrap();
    store.losses.session_ended(SessionId(2), ENDED);
    assert_eq!(guard.status(), LeaseStatus::Lost(ENDED));
}

#[tokio::test]
async fn leases_that_ended_are_not_renewed() {
    let (locker, store) = Store::open().await;
    let ttl = Duration::from_millis(300);
    let lock = locker.mutex("a").unwrap().ttl(ttl);
    let guard = lock.acquire().await.unwrap();
    store.losses.session_ended(SessionId(1), ENDED);
    let before = store.renewals.load(Ordering::SeqCst);
    tokio::time::sleep(ttl).await;
    assert_eq!(store.renewals.load(Ordering::SeqCst), before);
    guard.release().await.unwrap();
}
