//! What callers get wrong, as tables: each mistake is refused before anything is touched, with
//! an error that says what was given, what is allowed and what to do.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::sync::Arc;
use std::time::Duration;

use lockfast::backend::{
    AcquireOutcome, AcquireRequest, Backend, BoxFuture, DowngradeOutcome, DowngradeRequest, Query,
    ReleaseRequest, RenewOutcome, RenewRequest, RevokeRequest, WriteRequest,
};
use lockfast::{
    Attempt, Error, ErrorKind, EventStream, Fence, Guarantee, Holder, Label, LockName, LockView,
    Locker, MultiLock, Options, Profile, ReleaseOutcome, Result, RevokeOutcome, VersionedValue,
    WriteOutcome,
};

async fn locker() -> Locker {
    Locker::connect("memory:").await.unwrap()
}

#[tokio::test]
async fn names_are_checked_before_any_io() {
    let locker = locker().await;
    let long = "x".repeat(256);
    let huge = "x".repeat(2_000_000);
    let names =
        ["", &long, &huge, "a\0b", "a\nb", "a\r", " a", "a ", ".", "..", "a\u{202e}", "e\u{301}"];
    for name in names {
        for made in [
            locker.mutex(name).map(|_| ()),
            locker.rwlock(name).map(|_| ()),
            locker.semaphore(name, 1).map(|_| ()),
        ] {
            let error = made.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidName);
            assert!(error.to_string().len() < 500);
        }
    }
}

/// B177: what is refused is refused when it is made, and not in the tenth round.
#[tokio::test]
async fn a_barrier_has_room_for_all_its_rounds() {
    let locker = Locker::connect("memory:").await.unwrap();
    let prefixed = Locker::builder().prefix("billing/").connect("memory:").await.unwrap();
    // A lock of this name and "#9" after it is possible, and with "#10" it is not.
    let long = "x".repeat(255 - "barrier:#9".len());
    assert_eq!(locker.barrier(&long, 1).unwrap_err().kind(), ErrorKind::InvalidName);
    let longest = "x".repeat(255 - "barrier:#18446744073709551615".len());
    assert_eq!(prefixed.barrier(&longest, 1).unwrap_err().kind(), ErrorKind::InvalidName);
    let barrier = locker.barrier(&longest, 1).unwrap();
    for round in 0..12 {
        assert_eq!(barrier.wait().await.unwrap(), round);
    }
}

#[tokio::test]
async fn similar_names_are_different_locks() {
    let locker = locker().await;
    let mut held = Vec::new();
    for name in ["a", "A", "a/b", "{a}", "a}{b"] {
        match locker.mutex(name).unwrap().try_acquire().await.unwrap() {
            Attempt::Acquired(guard) => held.push(guard),
            Attempt::Taken(refusal) => panic!("{name}: {refusal}"),
        }
    }
}

#[tokio::test]
async fn prefixes_have_no_braces_or_spaces() {
    for prefix in ["{a}", "a b", " a", "a{"] {
        let error = Locker::builder().prefix(prefix).connect("memory:").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
        assert!(error.to_string().contains("prefix"));
    }
}

#[tokio::test]
async fn options_are_checked_before_anything_is_touched() {
    let locker = locker().await;
    let table = [
        (Options::default().ttl(Duration::ZERO), ErrorKind::InvalidTtl),
        (Options::default().ttl(Duration::MAX), ErrorKind::InvalidTtl),
        (Options::default().wait(Duration::MAX), ErrorKind::InvalidWait),
        (Options::default().drift(f64::NAN), ErrorKind::InvalidConfig),
        (Options::default().renew_interval(Duration::from_secs(30)), ErrorKind::InvalidConfig),
    ];
    for (options, kind) in table {
        let mutex = locker.mutex("a").unwrap().with_options(options.clone());
        let rwlock = locker.rwlock("a").unwrap().with_options(options.clone());
        let semaphore = locker.semaphore("a", 2).unwrap().with_options(options.clone());
        let multi = locker.multi(["a", "b"]).unwrap().with_options(options.clone());
        let kinds = [
            mutex.acquire().await.map(|_| ()),
            mutex.try_acquire().await.map(|_| ()),
            mutex.acquire_full().await.map(|_| ()),
            mutex.acquire_as(&Holder::new()).await.map(|_| ()),
            mutex.acquire_detached().await.map(|_| ()),
            mutex.run(|_| async {}).await,
            rwlock.read().await.map(|_| ()),
            rwlock.try_write().await.map(|_| ()),
            semaphore.acquire().await.map(|_| ()),
            multi.acquire().await.map(|_| ()),
            multi.try_acquire().await.map(|_| ()),
        ];
        for (number, refused) in kinds.into_iter().enumerate() {
            assert_eq!(refused.unwrap_err().kind(), kind, "{number}: {options:?}");
        }
        assert!(locker.list("", None, 10).await.unwrap().is_empty(), "nothing is touched");
        // The next value that fits counts, and the last word is not kept from those before.
        mutex.with_options(Options::default()).acquire().await.unwrap().release().await.unwrap();
        let error = Locker::builder().options(options).connect("memory:").await.unwrap_err();
        assert_eq!(error.kind(), kind);
    }
}

#[tokio::test]
async fn a_wait_of_zero_is_one_try() {
    let locker = locker().await;
    let _held = locker.mutex("a").unwrap().acquire().await.unwrap();
    let second = locker.mutex("a").unwrap().with_options(Options::default().no_wait());
    let error = second.acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Taken);
    let refusal = error.refusal().unwrap();
    assert_eq!(refusal.lock.holders.len(), 1);
    assert_eq!(refusal.lock.holders[0].label.as_ref().unwrap().pid, std::process::id());
}

#[tokio::test]
async fn semaphores_need_permits_and_agreement() {
    let locker = locker().await;
    assert_eq!(locker.semaphore("s", 0).unwrap_err().kind(), ErrorKind::InvalidConfig);
    let _held = locker.semaphore("s", 3).unwrap().acquire().await.unwrap();
    let error = locker.semaphore("s", 5).unwrap().try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let text = error.to_string();
    assert!(text.contains('5') && text.contains('3'), "{text}");
}

#[tokio::test]
async fn multi_locks_are_checked() {
    let locker = locker().await;
    let other = Locker::connect("memory:").await.unwrap();
    let lock = |name: &str| locker.mutex(name).unwrap();
    let many: Vec<_> = (0..10_000).map(|n| lock(&n.to_string())).collect();
    let table = [
        (vec![], "at least one"),
        (vec![lock("a"), lock("b"), lock("a")], "\"a\" is in the multi-lock twice"),
        (many, "at most 256"),
        (vec![lock("a"), other.mutex("b").unwrap()], "one locker"),
    ];
    for (locks, words) in table {
        let error = MultiLock::new(locks).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[tokio::test]
async fn a_renewal_of_what_is_over_says_so() {
    let locker = locker().await;
    let mutex = locker.mutex("a").unwrap();
    let guard = mutex.acquire().await.unwrap();
    let lease = guard.lease().clone();
    guard.release().await.unwrap();
    for error in
        [lease.check().unwrap_err(), lease.extend(Duration::from_secs(5)).await.unwrap_err()]
    {
        assert_eq!(error.kind(), ErrorKind::NotHeld, "{error}");
    }
    let holder = lease.holder();
    let renewed = locker.renew_detached(lease.name(), holder, Duration::from_secs(5)).await;
    assert_eq!(renewed.unwrap_err().kind(), ErrorKind::NotHeld);
    let released = locker.release_detached(lease.name(), holder).await.unwrap();
    assert_eq!(released, ReleaseOutcome::NotHeld);

    let guard = mutex.acquire().await.unwrap();
    locker.revoke(guard.name(), "tested").await.unwrap();
    guard.lost().await;
    let error = guard.extend(Duration::from_secs(5)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(error.to_string().contains("tested"), "{error}");
}

#[tokio::test]
async fn a_ttl_that_is_not_possible_does_not_change_a_lease() {
    let locker = locker().await;
    let guard = locker.mutex("a").unwrap().acquire().await.unwrap();
    let before = guard.deadline();
    for ttl in [Duration::ZERO, Duration::MAX] {
        assert_eq!(guard.extend(ttl).await.unwrap_err().kind(), ErrorKind::InvalidTtl);
    }
    assert_eq!(guard.deadline(), before);
    guard.extend(Duration::from_millis(500)).await.unwrap();
    assert!(guard.remaining() <= Duration::from_millis(500));
}

#[tokio::test]
async fn a_reason_or_label_that_a_terminal_would_obey_is_refused() {
    let locker = locker().await;
    let guard = locker.mutex("a").unwrap().acquire().await.unwrap();
    let revoked = locker.revoke(guard.name(), "\u{1b}[31m").await;
    assert_eq!(revoked.unwrap_err().kind(), ErrorKind::InvalidMetadata);
    guard.check().unwrap();
    let label = Label::of_this_process().with_text(&"x".repeat(5 * 1024));
    assert_eq!(label.unwrap_err().kind(), ErrorKind::InvalidMetadata);
}

#[tokio::test]
async fn a_floor_from_the_far_future_is_refused() {
    let locker = locker().await;
    let floor = Fence::new((1 << 53) - 1).unwrap();
    let mutex = locker.mutex("a").unwrap().floor(floor);
    assert_eq!(mutex.acquire().await.unwrap_err().kind(), ErrorKind::InvalidToken);
    assert!(locker.mutex("a").unwrap().try_acquire().await.unwrap().is_acquired());
}

/// A store that has nothing but its profile.
#[derive(Debug)]
struct Bare(Profile);

fn nothing<T>() -> BoxFuture<'static, Result<T>> {
    Box::pin(async { Err(Error::new(ErrorKind::Internal, "there is nothing behind it")) })
}

impl Backend for Bare {
    fn profile(&self) -> &Profile {
        &self.0
    }

    fn acquire(&self, _: AcquireRequest) -> BoxFuture<'_, Result<AcquireOutcome>> {
        nothing()
    }

    fn renew(&self, _: Vec<RenewRequest>) -> BoxFuture<'_, Result<Vec<RenewOutcome>>> {
        nothing()
    }

    fn downgrade(&self, _: DowngradeRequest) -> BoxFuture<'_, Result<DowngradeOutcome>> {
        nothing()
    }

    fn release(&self, _: ReleaseRequest) -> BoxFuture<'_, Result<ReleaseOutcome>> {
        nothing()
    }

    fn inspect(&self, _: Query) -> BoxFuture<'_, Result<Vec<LockView>>> {
        nothing()
    }

    fn revoke(&self, _: RevokeRequest) -> BoxFuture<'_, Result<RevokeOutcome>> {
        nothing()
    }

    fn read(&self, _: LockName) -> BoxFuture<'_, Result<Option<VersionedValue>>> {
        nothing()
    }

    fn write(&self, _: WriteRequest) -> BoxFuture<'_, Result<WriteOutcome>> {
        nothing()
    }

    fn watch(&self) -> BoxFuture<'_, Result<EventStream>> {
        nothing()
    }
}

/// A store that gives less than was required is refused with the reason, and one that gives more is not.
#[tokio::test]
async fn correctness_can_be_required() {
    use Guarantee::{Correctness, Efficiency};
    Locker::builder().require(Correctness).connect("memory:").await.unwrap();
    let (_, profile) = lockfast::known_profiles().remove(0);
    let table = [
        (Efficiency, Correctness, false),
        (Correctness, Correctness, true),
        (Correctness, Efficiency, true),
        (Efficiency, Efficiency, true),
    ];
    for (given, required, is_enough) in table {
        let profile = Profile { guarantee: given, because: "a test says so", ..profile.clone() };
        let (backend, store) = (profile.backend, Arc::new(Bare(profile)));
        let connecting = Locker::builder().require(required);
        let connected = connecting
            .connect_with(|_| Box::pin(async move { Ok(store as Arc<dyn Backend>) }))
            .await;
        assert_eq!(connected.is_ok(), is_enough, "{given} for {required}");
        let Err(error) = connected else { continue };
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert_eq!(error.backend(), Some(backend), "{error}");
        assert_eq!(
            error.message(),
            "correctness was required, but this store gives efficiency: a test says so"
        );
    }
}

#[test]
fn the_async_api_needs_no_runtime() {
    // A hand-made executor: nothing of tokio's is around.
    use std::future::Future as _;
    use std::task::{Context, Wake, Waker};
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = std::pin::pin!(async {
        let locker = Locker::connect("memory:").await.unwrap();
        let first = locker.mutex("a").unwrap().acquire().await.unwrap();
        let options = Options::default().wait(Duration::from_millis(150));
        let second = locker.mutex("a").unwrap().with_options(options);
        assert_eq!(second.acquire().await.unwrap_err().kind(), ErrorKind::Taken);
        first.release().await.unwrap();
        second.acquire().await.unwrap().release().await.unwrap();
    });
    while future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
        std::thread::park();
    }
}
