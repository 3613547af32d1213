//! Short ways to hold, lose and be refused a lock, for the tests of a store. What they expect and
//! do not get is a panic, and nothing waits for longer than [`TIME_MAX`].

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use lockfast::{Attempt, DetachedLease, Guard, LeaseStatus, Locker, LossCause, Options, Refusal};
use lockfast_core::{
    AcquireOutcome, AcquireRequest, Address, Backend, BoxFuture, ClientId, ConnectContext, Error,
    ErrorKind, HolderId, LockName, Mode, ReleaseOutcome, ReleaseRequest, RenewOutcome,
    RenewRequest, Result, Wait,
};
use tokio::task::JoinHandle;

use lockfast_faults::wait::eventually;

/// Nothing in a test takes longer than this on a busy machine unless it hangs.
pub const TIME_MAX: Duration = Duration::from_secs(30);

/// How a store is connected to.
pub type Connect = fn(Address, ConnectContext) -> BoxFuture<'static, Result<Arc<dyn Backend>>>;

/// Connects to a store.
///
/// # Cancel safety
/// Safe, as connecting is.
pub async fn connect(url: &str, connect: Connect) -> Locker {
    try_connect(url, connect).await.unwrap_or_else(|error| panic!("cannot connect: {error:#}"))
}

/// Connects to a store, which may fail.
///
/// # Errors
/// What keeps it from that.
///
/// # Cancel safety
/// Safe, as connecting is.
pub async fn try_connect(url: &str, connect: Connect) -> Result<Locker> {
    let address = Address::parse(url)?;
    bounded(Locker::builder().connect_with(move |context| connect(address, context))).await
}

/// A lease of this length, and one try.
pub fn ttl(ttl: Duration) -> Options {
    Options::default().ttl(ttl).no_wait()
}

/// Takes a lock.
///
/// # Cancel safety
/// Safe: nothing is left behind.
pub async fn hold(locker: &Locker, name: &str, options: Options) -> Guard {
    let mutex = locker.mutex(name).unwrap().with_options(options);
    bounded(mutex.acquire()).await.unwrap_or_else(|error| panic!("not granted: {error:#}"))
}

/// Takes a free lock for so long and no longer, as a holder does that dies at once.
///
/// # Cancel safety
/// Safe: nothing is left behind.
pub async fn hold_detached(locker: &Locker, name: &str, span: Duration) -> DetachedLease {
    let lock = locker.mutex(name).unwrap().with_options(ttl(span));
    bounded(lock.acquire_detached()).await.unwrap()
}

/// Begins to wait for a lock that is taken, and returns when it stands in line.
///
/// # Cancel safety
/// The waiter goes on.
pub async fn queue_for(locker: &Locker, name: &str, options: Options) -> JoinHandle<Guard> {
    let before = count_waiting(locker, name).await;
    let (waiter, lock) = (locker.clone(), name.to_owned());
    let task = tokio::spawn(async move { hold(&waiter, &lock, options).await });
    let one_more = async || count_waiting(locker, name).await > before;
    eventually("one more waits", TIME_MAX, one_more).await;
    task
}

async fn count_waiting(locker: &Locker, name: &str) -> usize {
    locker.inspect(&LockName::new(name).unwrap()).await.unwrap().waiting
}

/// Who has a lock that is taken.
///
/// # Cancel safety
/// Safe: nothing is left behind.
pub async fn refusal(locker: &Locker, name: &str) -> Refusal {
    let mutex = locker.mutex(name).unwrap();
    match bounded(mutex.try_acquire()).await.unwrap() {
        Attempt::Taken(refusal) => refusal,
        Attempt::Acquired(guard) => panic!("granted with fence {}", guard.fence()),
    }
}

/// The error that a try to take a lock meets.
///
/// # Cancel safety
/// Safe: nothing is left behind.
pub async fn failure(locker: &Locker, name: &str, options: Options) -> Error {
    let mutex = locker.mutex(name).unwrap().with_options(options);
    match bounded(mutex.try_acquire()).await {
        Err(error) => error,
        Ok(Attempt::Taken(refusal)) => panic!("taken instead of an error: {refusal}"),
        Ok(Attempt::Acquired(guard)) => panic!("granted with fence {}", guard.fence()),
    }
}

/// Asks for a lock alone, for a new holder, past the lease engine.
pub fn request(client: ClientId, name: &str, ttl: Duration, wait: Wait) -> AcquireRequest {
    AcquireRequest {
        name: LockName::new(name).expect("a valid name"),
        mode: Mode::Exclusive,
        holder: HolderId::random(client).expect("random numbers"),
        ttl,
        lock_delay: Duration::ZERO,
        wait,
        detached: false,
        floor: None,
    }
}

/// Holds `app/0` to `app/19`, lets `withdraw` take away the right on one of them, so that those that
/// it is given stay, and renews and releases all of them together: that one's renewal is
/// refused with an error of this kind, and nothing happens to the others.
///
/// # Cancel safety
/// When dropped, locks stay behind.
pub async fn lose_the_right_on_one(
    backend: &Arc<dyn Backend>,
    client: ClientId,
    withdraw: impl FnOnce(&[String]),
    kind: ErrorKind,
) {
    const LOST: usize = 3;
    let (mut renewals, mut releases) = (Vec::new(), Vec::new());
    for at in 0..20 {
        let request = request(client, &format!("app/{at}"), Duration::from_secs(600), Wait::No);
        let AcquireRequest { name, holder, ttl, lock_delay, .. } = request.clone();
        let outcome = bounded(backend.acquire(request)).await.expect("an answer");
        assert!(matches!(outcome, AcquireOutcome::Granted(_)), "{outcome:?}");
        renewals.push(RenewRequest { name: name.clone(), holder, ttl, lock_delay });
        releases.push(ReleaseRequest { name, holder });
    }
    let names = renewals.iter().map(|renewal| renewal.name.as_str().to_owned());
    let left = names.enumerate().filter(|(at, _)| *at != LOST).map(|(_, name)| name);
    withdraw(&left.collect::<Vec<_>>());
    let outcomes = bounded(backend.renew(renewals)).await.expect("an answer");
    for (at, outcome) in outcomes.iter().enumerate() {
        match outcome {
            RenewOutcome::Renewed => assert_ne!(at, LOST),
            RenewOutcome::Unanswered(error) => {
                assert_eq!(at, LOST, "{error}");
                check_error(error, kind, &["ACL"]);
            }
            outcome @ RenewOutcome::Lost(_) => panic!("{at}: {outcome:?}"),
        }
    }
    let release = |request| {
        let backend = Arc::clone(backend);
        tokio::spawn(async move { backend.release(request).await })
    };
    let releasing: Vec<_> = releases.into_iter().map(release).collect();
    for (at, released) in releasing.into_iter().enumerate() {
        let released = bounded(released).await.expect("no panic");
        let is_released = matches!(released, Ok(ReleaseOutcome::Released));
        assert!(at == LOST || is_released, "{at}: {released:?}");
    }
}

/// Checks what the user sees: the kind of error, and that its message has these words.
pub fn check_error(error: &Error, kind: ErrorKind, words: &[&str]) {
    assert_eq!(error.kind(), kind, "{error}");
    let message = format!("{error:#}");
    for word in words {
        assert!(message.to_lowercase().contains(&word.to_lowercase()), "no {word:?} in: {message}");
    }
}

/// How a lease was lost, which must happen within `bound`.
///
/// # Cancel safety
/// Safe: it only looks.
pub async fn loss(guard: &Guard, bound: Duration) -> LossCause {
    let lost = tokio::time::timeout(bound, guard.lost()).await;
    lost.unwrap_or_else(|_| panic!("not lost within {bound:?}, it is {:?}", guard.status()))
}

/// Waits until a renewal has failed.
///
/// # Cancel safety
/// Safe: it only looks.
pub async fn wait_for_jeopardy(guard: &Guard, bound: Duration) {
    let is_in_jeopardy = async || matches!(guard.status(), LeaseStatus::Jeopardy { .. });
    eventually("jeopardy", bound, is_in_jeopardy).await;
}

/// Waits for a renewal that is sent after now, while the lease is held all the time.
///
/// # Cancel safety
/// Safe: it only looks.
pub async fn wait_for_renewal(guard: &Guard, bound: Duration) {
    let seen = guard.deadline();
    eventually("a renewal", bound, async || {
        assert!(guard.check().is_ok(), "{:?}", guard.status());
        guard.deadline().since(seen) > Duration::ZERO
    })
    .await;
}

/// Waits for a future that must not hang.
///
/// # Cancel safety
/// As that of the future.
pub async fn bounded<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(TIME_MAX, future).await.expect("it takes too long")
}
