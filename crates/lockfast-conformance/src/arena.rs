//! The place where one case happens: a fresh store, and as many connections to it as the case
//! asks for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockfast::{Guarantee, Locker, Options};
use lockfast_core::{
    AcquireOutcome, AcquireRequest, Address, Backend, ClientId, ConnectContext, Fence, HolderId,
    Label, LockName, LockView, LossCause, LossReport, LossReporter, Mode, Moment, Profile, Query,
    Refusal, ReleaseOutcome, ReleaseRequest, RenewOutcome, RenewRequest, RevokeOutcome,
    RevokeRequest, SessionId, Wait,
};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::Seed;
use crate::harness::Harness;
use lockfast_core::flaky::{FaultSwitch, Flaky};

/// Long enough for anything that has to happen, short enough that its absence is noticed before
/// the case's time limit.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);

/// How much later than it could a store may let the next in (P9).
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// A fresh store.
#[derive(Clone)]
pub(crate) struct Arena {
    pub(crate) harness: Arc<dyn Harness>,
    pub(crate) url: String,
    pub(crate) profile: Profile,
    pub(crate) seed: Seed,
    keeper: Handle,
}

impl Arena {
    pub(crate) async fn open(harness: Arc<dyn Harness>, keeper: Handle, seed: Seed) -> Self {
        let url = harness.fresh_url();
        let client = Client::connect(harness.as_ref(), &url, keeper.clone()).await;
        let profile = client.backend.profile().clone();
        Self { harness, url, profile, seed, keeper }
    }

    /// A new connection to the store.
    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.harness.as_ref(), &self.url, self.keeper.clone()).await
    }

    /// Several connections to the store.
    pub(crate) async fn clients<const N: usize>(&self) -> [Client; N] {
        let mut clients = Vec::new();
        for _ in 0..N {
            clients.push(self.client().await);
        }
        clients.try_into().ok().expect("as many as asked for")
    }

    /// The lease engine on a connection of its own, behind a link that `switch` can break.
    pub(crate) async fn locker(&self, switch: &FaultSwitch) -> Locker {
        connect_locker(self.harness.as_ref(), &self.url, switch, Options::default()).await
    }

    /// The lease engine as a program connects that needs this guarantee.
    pub(crate) async fn locker_with(&self, required: Guarantee) -> lockfast::Result<Locker> {
        let connect = |context| self.harness.connect(address(&self.url), context);
        Locker::builder().require(required).connect_with(connect).await
    }

    /// A ttl for leases that are meant to expire.
    pub(crate) fn short_ttl(&self) -> Duration {
        self.ttl(Duration::from_millis(400))
    }

    /// This ttl, or the next that the store allows.
    pub(crate) fn ttl(&self, wanted: Duration) -> Duration {
        self.profile.ttl.fit(wanted)
    }

    /// The modes that the store has, with this number of permits.
    pub(crate) fn modes(&self, permits: u32) -> Vec<Mode> {
        let permit = Mode::permit(permits).expect("a valid limit");
        let modes = [Mode::Exclusive, Mode::Shared, permit];
        modes.into_iter().filter(|mode| self.profile.require_mode(*mode).is_ok()).collect()
    }
}

/// The lease engine on a connection of its own.
pub(crate) async fn connect_locker(
    harness: &dyn Harness,
    url: &str,
    switch: &FaultSwitch,
    options: Options,
) -> Locker {
    let switch = switch.clone();
    Locker::builder()
        .options(options)
        .connect_with(|context| {
            let timers = context.runtime.clone();
            let connecting = harness.connect(address(url), context);
            Box::pin(async move {
                let flaky = Flaky::new(connecting.await?, switch, timers);
                Ok(Arc::new(flaky) as Arc<dyn Backend>)
            })
        })
        .await
        .expect("a connection")
}

/// A store's URL, split.
fn address(url: &str) -> Address {
    Address::parse(url).expect("a valid URL")
}

/// A lock's name.
pub(crate) fn name(text: &str) -> LockName {
    LockName::new(text).expect("a valid name")
}

/// One connection to a store, as the lease engine would have it.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) label: Label,
    id: ClientId,
    losses: Arc<Mutex<mpsc::UnboundedReceiver<LossReport>>>,
    /// The sessions of the leases that were granted in one.
    sessions: Arc<Mutex<HashMap<HolderId, SessionId>>>,
}

/// A lock that was granted to a client of the case.
#[derive(Clone)]
pub(crate) struct Held {
    pub(crate) name: LockName,
    pub(crate) holder: HolderId,
    pub(crate) fence: Fence,
    /// When it ends if nobody renews it, as its holder must believe.
    pub(crate) until: Moment,
    /// When the answer arrived.
    pub(crate) granted: Moment,
}

impl Client {
    async fn connect(harness: &dyn Harness, url: &str, keeper: Handle) -> Self {
        let id = ClientId::random().expect("random numbers");
        let label =
            Label::of_this_process().with_text(&format!("client {id}")).expect("a valid label");
        let (report, losses) = mpsc::unbounded_channel();
        let context = ConnectContext {
            runtime: keeper,
            client: id,
            label: label.clone(),
            losses: LossReporter::new(move |told| {
                // Nobody listens any more when the case is over.
                let _ = report.send(told);
            }),
        };
        let backend = harness.connect(address(url), context).await.expect("a connection");
        let losses = Arc::new(Mutex::new(losses));
        Self { backend, label, id, losses, sessions: Arc::default() }
    }

    /// A holder id of this connection that was never used.
    pub(crate) fn holder(&self) -> HolderId {
        HolderId::random(self.id).expect("random numbers")
    }

    /// A ttl that does not pass within the case, where the store allows one.
    pub(crate) fn long_ttl(&self) -> Duration {
        self.backend.profile().ttl.fit(Duration::from_secs(120))
    }

    /// Asks for the lock alone, at once, for so long that it cannot expire within the case.
    pub(crate) fn request(&self, name: &LockName) -> AcquireRequest {
        AcquireRequest {
            name: name.clone(),
            mode: Mode::Exclusive,
            holder: self.holder(),
            ttl: self.long_ttl(),
            lock_delay: Duration::ZERO,
            wait: Wait::No,
            detached: false,
            floor: None,
        }
    }

    /// The same, waiting for as long as it takes.
    pub(crate) fn waiting_request(&self, name: &LockName) -> AcquireRequest {
        AcquireRequest { wait: Wait::Forever, ..self.request(name) }
    }

    /// The store's answer to a request, with the lock as this client would hold it.
    pub(crate) async fn acquire(&self, request: AcquireRequest) -> Result<Held, Refusal> {
        let (name, holder, ttl) = (request.name.clone(), request.holder, request.ttl);
        match self.backend.acquire(request).await.expect("an answer") {
            AcquireOutcome::Granted(grant) => {
                let mut sessions = self.sessions.lock().expect("no panic");
                sessions.extend(grant.session.map(|session| (holder, session)));
                Ok(Held {
                    name,
                    holder,
                    fence: grant.fence,
                    until: grant.from + grant.lasts(ttl),
                    granted: Moment::now(),
                })
            }
            AcquireOutcome::Taken(refusal) => Err(refusal),
        }
    }

    /// Takes a lock that must be granted.
    #[track_caller]
    pub(crate) fn take(&self, request: AcquireRequest) -> impl Future<Output = Held> + '_ {
        let caller = std::panic::Location::caller();
        async move {
            match self.acquire(request).await {
                Ok(held) => held,
                Err(refusal) => panic!("{caller}: not granted, although it must be: {refusal}"),
            }
        }
    }

    /// Asks for a lock that must be refused.
    #[track_caller]
    pub(crate) fn be_refused(&self, request: AcquireRequest) -> impl Future<Output = Refusal> + '_ {
        let caller = std::panic::Location::caller();
        async move {
            match self.acquire(request).await {
                Ok(held) => panic!("{caller}: granted with {:?}, although taken", held.fence),
                Err(refusal) => refusal,
            }
        }
    }

    /// Begins to wait for a lock, in a task.
    pub(crate) fn wait_for(&self, request: AcquireRequest) -> JoinHandle<Held> {
        let client = self.clone();
        tokio::spawn(async move { client.take(request).await })
    }

    /// Begins to wait for a lock, in a task, and returns when the store knows.
    pub(crate) async fn queue_for(&self, request: AcquireRequest) -> JoinHandle<Held> {
        let name = request.name.clone();
        let before = self.view(&name).await.waiting;
        let task = self.wait_for(request);
        self.until(&name, "one more waits", |view| view.waiting > before).await;
        task
    }

    /// Gives a lock back.
    pub(crate) async fn release(&self, held: &Held) -> ReleaseOutcome {
        self.release_of(&held.name, held.holder).await
    }

    /// Gives back whatever the holder has or wants.
    pub(crate) async fn release_of(&self, name: &LockName, holder: HolderId) -> ReleaseOutcome {
        let request = ReleaseRequest { name: name.clone(), holder };
        self.backend.release(request).await.expect("an answer")
    }

    /// Renews one lease for as long as it can be.
    pub(crate) async fn renew_long(&self, held: &Held) -> RenewOutcome {
        self.renew(held, self.long_ttl()).await
    }

    /// Renews one lease.
    pub(crate) async fn renew(&self, held: &Held, ttl: Duration) -> RenewOutcome {
        let batch = vec![renewal(&held.name, held.holder, ttl)];
        let mut answers = self.backend.renew(batch).await.expect("an answer");
        assert_eq!(answers.len(), 1, "one answer for one renewal");
        answers.remove(0)
    }

    /// Takes a lock away from its holders.
    pub(crate) async fn revoke(&self, name: &LockName, expect: Option<Fence>) -> RevokeOutcome {
        let request = RevokeRequest {
            name: name.clone(),
            expect_fence: expect,
            reason: "the case says so".into(),
        };
        self.backend.revoke(request).await.expect("an answer")
    }

    /// The lock as the store sees it.
    pub(crate) async fn view(&self, name: &LockName) -> LockView {
        let query = Query::Name(name.clone());
        let mut views = self.backend.inspect(query).await.expect("an answer");
        assert_eq!(views.len(), 1, "a query for one name answers one view");
        assert_eq!(&views[0].name, name);
        views.remove(0)
    }

    /// The locks that start with `prefix`.
    pub(crate) async fn list(
        &self,
        prefix: &str,
        after: Option<&LockName>,
        limit: usize,
    ) -> Vec<LockView> {
        let query = Query::Prefix { prefix: prefix.into(), after: after.cloned(), limit };
        self.backend.inspect(query).await.expect("an answer")
    }

    /// Waits until the lock looks as `expected`.
    #[track_caller]
    pub(crate) fn until<'a>(
        &'a self,
        name: &'a LockName,
        expected: &'a str,
        reached: impl Fn(&LockView) -> bool + 'a,
    ) -> impl Future<Output = LockView> + 'a {
        let caller = std::panic::Location::caller();
        async move {
            let start = Moment::now();
            loop {
                let view = self.view(name).await;
                if reached(&view) {
                    return view;
                }
                if Moment::now().since(start) > PATIENCE {
                    panic!("{caller}: expected that {expected}, but the store says {view:?}");
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    }

    /// What a task that waits for a lock brings, which must be within [`PATIENCE`].
    #[track_caller]
    pub(crate) fn finish<'a, T>(
        &'a self,
        name: &'a LockName,
        mut task: JoinHandle<T>,
    ) -> impl Future<Output = T> + 'a
    where
        T: 'a,
    {
        let caller = std::panic::Location::caller();
        async move {
            match tokio::time::timeout(PATIENCE, &mut task).await {
                Ok(Ok(value)) => value,
                Ok(Err(error)) => panic!("{caller}: {error}"),
                Err(_) => {
                    let view = self.view(name).await;
                    let is_late = tokio::time::timeout(PATIENCE, task).await.is_ok();
                    panic!("{caller}: pending after {PATIENCE:?}, late {is_late}: {view:?}")
                }
            }
        }
    }

    /// The losses that the store reported since this or [`Client::loss_of`] was last asked.
    pub(crate) fn reported_losses(&self) -> Vec<LossReport> {
        let mut losses = self.losses.lock().expect("no panic");
        std::iter::from_fn(|| losses.try_recv().ok()).collect()
    }

    /// The loss that the store reported for a holder, if it did within `bound`.
    pub(crate) async fn loss_of(&self, holder: HolderId, bound: Duration) -> Option<LossCause> {
        let start = Moment::now();
        loop {
            while let Ok(report) = self.losses.lock().expect("no panic").try_recv() {
                let mut sessions = self.sessions.lock().expect("no panic");
                match report {
                    LossReport::Lease(lost, cause) if lost == holder => return Some(cause),
                    LossReport::Session(ended, cause) if sessions.get(&holder) == Some(&ended) => {
                        return Some(cause);
                    }
                    LossReport::Moved(moved, session) => {
                        sessions.insert(moved, session);
                    }
                    LossReport::Lease(..) | LossReport::Session(..) => {}
                }
            }
            if Moment::now().since(start) > bound {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// One renewal of a batch.
pub(crate) fn renewal(name: &LockName, holder: HolderId, ttl: Duration) -> RenewRequest {
    RenewRequest { name: name.clone(), holder, ttl, lock_delay: Duration::ZERO }
}

/// The result of a task, which must end within [`PATIENCE`].
#[track_caller]
pub(crate) fn finish<T>(task: JoinHandle<T>) -> impl Future<Output = T> {
    let caller = std::panic::Location::caller();
    async move {
        match tokio::time::timeout(PATIENCE, task).await {
            Ok(Ok(value)) => value,
            Ok(Err(error)) => panic!("{caller}: {error}"),
            Err(_) => panic!("{caller}: still pending after {PATIENCE:?}"),
        }
    }
}
