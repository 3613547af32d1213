//! What every store promises, and which primitives it has. Each primitive is really asked for, of a
//! store that has nothing but the profile, so that what is printed is what callers meet. JSON, for
//! `cargo xtask matrix`.
//!
//! ```text
//! cargo run --example stores --all-features
//! ```

#![allow(clippy::print_stdout, reason = "a table is made of what it prints")]

use std::sync::Arc;
use std::time::Duration;

use lockfast::backend::{
    AcquireOutcome, AcquireRequest, Backend, BoxFuture, DowngradeOutcome, DowngradeRequest,
    EventStream, Query, ReleaseRequest, RenewOutcome, RenewRequest, RevokeRequest, VersionedValue,
    WriteOutcome, WriteRequest,
};
use lockfast::{
    Error, ErrorKind, Feature, Fence, HolderId, LockName, LockView, Locker, MultiLock, Options,
    Profile, ReleaseOutcome, Result, RevokeOutcome,
};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

/// What a primitive is called, and how it is asked for.
struct Primitive {
    name: &'static str,
    ask: fn(&Locker) -> Result<()>,
}

const MINUTE: Duration = Duration::from_secs(60);

const PRIMITIVES: &[Primitive] = &[
    Primitive { name: "Mutex", ask: |locker| locker.mutex("a").map(drop) },
    Primitive { name: "RwLock", ask: |locker| locker.rwlock("a").map(drop) },
    Primitive { name: "RwLock with downgrade", ask: ask_for_downgrade },
    Primitive { name: "Semaphore", ask: |locker| locker.semaphore("a", 2).map(drop) },
    Primitive {
        name: "MultiLock",
        ask: |locker| MultiLock::new([locker.mutex("a")?, locker.mutex("b")?]).map(drop),
    },
    Primitive { name: "Leader", ask: |locker| locker.leader("a").map(drop) },
    Primitive {
        name: "Leader with observe",
        ask: |locker| ask_empty(async { locker.leader("a")?.observe().await.map(drop) }),
    },
    Primitive { name: "Once", ask: |locker| locker.once("a", at_most(locker)).map(drop) },
    Primitive { name: "Once with at_least", ask: ask_for_at_least },
    Primitive { name: "SharedValue", ask: |locker| locker.value("a").map(drop) },
    Primitive {
        name: "SharedValue that ends",
        ask: |locker| locker.value("a")?.keep(MINUTE).map(drop),
    },
    Primitive { name: "Latch", ask: |locker| locker.latch("a", 2).map(drop) },
    Primitive { name: "Barrier", ask: |locker| locker.barrier("a", 2).map(drop) },
    Primitive { name: "Refresh", ask: |locker| locker.refresh("a", MINUTE).map(drop) },
    Primitive { name: "detached lease", ask: ask_for_detached },
    Primitive {
        name: "lock-delay",
        ask: |locker| Options::default().lock_delay(MINUTE).check(locker.profile()),
    },
    Primitive {
        name: "floor",
        ask: |locker| Options::default().floor(Fence::new(1)?).check(locker.profile()),
    },
    Primitive { name: "watch", ask: |locker| ask_empty(async { locker.watch().await.map(drop) }) },
    // Another guard of what a holder has (`acquire_as`), for which no store is asked.
    Primitive { name: "re-entrance", ask: |locker| locker.mutex("a").map(drop) },
];

/// A time for which the store can keep a lock.
fn at_most(locker: &Locker) -> Duration {
    locker.profile().ttl.fit(MINUTE)
}

/// Nobody has a writer's guard of an empty store; what refuses one that is there is the profile.
fn ask_for_downgrade(locker: &Locker) -> Result<()> {
    locker.rwlock("a")?;
    locker.profile().require(Feature::Downgrade)
}

/// To give one back is refused as to take one is.
fn ask_for_detached(locker: &Locker) -> Result<()> {
    let name = LockName::new("a")?;
    runtime()?.block_on(locker.release_detached(&name, HolderId::from_bytes([7; 16]))).map(drop)
}

/// What is set is refused when the job starts.
fn ask_for_at_least(locker: &Locker) -> Result<()> {
    let at_most = at_most(locker);
    let once = locker.once("a", at_most)?.at_least(at_most);
    ask_empty(async { once.start().await.map(drop) })
}

/// What is not refused reaches the empty store.
fn ask_empty(asking: impl Future<Output = Result<()>>) -> Result<()> {
    match runtime()?.block_on(asking) {
        Err(error) if error.message() == EMPTY => Ok(()),
        asked => asked,
    }
}

fn runtime() -> Result<Runtime> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))
}

/// What the empty store answers.
const EMPTY: &str = "there is nothing behind it";

/// A store that has nothing but its profile.
#[derive(Debug)]
struct Empty(Profile);

fn refuse<T>() -> BoxFuture<'static, Result<T>> {
    Box::pin(async { Err(Error::new(ErrorKind::Internal, EMPTY)) })
}

impl Backend for Empty {
    fn profile(&self) -> &Profile {
        &self.0
    }

    fn acquire(&self, _: AcquireRequest) -> BoxFuture<'_, Result<AcquireOutcome>> {
        refuse()
    }

    fn renew(&self, _: Vec<RenewRequest>) -> BoxFuture<'_, Result<Vec<RenewOutcome>>> {
        refuse()
    }

    fn downgrade(&self, _: DowngradeRequest) -> BoxFuture<'_, Result<DowngradeOutcome>> {
        refuse()
    }

    fn release(&self, _: ReleaseRequest) -> BoxFuture<'_, Result<ReleaseOutcome>> {
        Box::pin(async { Ok(ReleaseOutcome::NotHeld) })
    }

    fn inspect(&self, _: Query) -> BoxFuture<'_, Result<Vec<LockView>>> {
        refuse()
    }

    fn revoke(&self, _: RevokeRequest) -> BoxFuture<'_, Result<RevokeOutcome>> {
        refuse()
    }

    fn read(&self, _: LockName) -> BoxFuture<'_, Result<Option<VersionedValue>>> {
        refuse()
    }

    fn write(&self, _: WriteRequest) -> BoxFuture<'_, Result<WriteOutcome>> {
        refuse()
    }

    fn watch(&self) -> BoxFuture<'_, Result<EventStream>> {
        refuse()
    }
}

/// The store, with the reason for each primitive that it refuses.
fn describe(url: &str, profile: &Profile, locker: &Locker) -> Result<Value> {
    let mut primitives = Vec::new();
    for primitive in PRIMITIVES {
        let refusal = match (primitive.ask)(locker) {
            Ok(()) => None,
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                Some(error.message().to_owned())
            }
            Err(error) => return Err(error),
        };
        primitives.push(json!({ "name": primitive.name, "refusal": refusal }));
    }
    Ok(json!({
        "url": url,
        "guarantee": profile.guarantee.to_string(),
        "because": profile.because,
        "order": profile.order.to_string(),
        "expiry": profile.expiry.to_string(),
        "reach": profile.reach.to_string(),
        "fence": profile.fence.to_string(),
        "ttl": profile.ttl.to_string(),
        "primitives": primitives,
    }))
}

fn main() -> Result<()> {
    let runtime = runtime()?;
    let mut stores = Vec::new();
    for (url, profile) in lockfast::known_profiles() {
        let backend: Arc<dyn Backend> = Arc::new(Empty(profile.clone()));
        let connecting = Locker::builder().connect_with(|_| Box::pin(async move { Ok(backend) }));
        let locker = runtime.block_on(connecting)?;
        stores.push(describe(url, &profile, &locker)?);
    }
    println!("{}", Value::Array(stores));
    Ok(())
}
