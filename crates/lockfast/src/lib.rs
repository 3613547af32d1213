//! Distributed locks, always fenced: one API over every store that teams already run.
//!
//! ```
//! use std::time::Duration;
//! use lockfast::{Locker, fence::Gate};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> lockfast::Result<()> {
//! let locker = Locker::connect("memory:").await?; // `embedded:` for all processes of a machine
//! let report = locker
//!     .mutex("nightly-report")?
//!     .ttl(Duration::from_secs(10))
//!     .wait(Duration::from_secs(60));
//!
//! let gate = Gate::new("nightly-report", 0)?; // what you write to, and what checks its fences
//! let guard = report.acquire().await?;
//! let pages = *gate.open(&guard.token())?; // raise the fence first, then read
//! let checked = guard.check()?; // just before each side effect
//! println!("write with fence {}, {:?} left", checked.fence, checked.remaining);
//! *gate.check(&guard.token())? = pages + 1; // refused if a later holder was here
//! guard.release().await?;
//!
//! // Or let it be stopped when the lease is lost:
//! let lines = report.run(|lease| async move { format!("fence {}", lease.fence()) }).await?;
//! # assert!(lines.starts_with("fence"));
//! # Ok(())
//! # }
//! ```
//!
//! # What to rely on
//! - A guard past its deadline says lost without asking anyone, and the deadline is counted from
//!   before the request was sent, on a clock that also counts while the machine sleeps.
//! - Loss is told in time even when every thread of your executor is blocked.
//! - A dropped, cancelled or failed acquisition leaves nothing behind.
//! - Every grant has a fence higher than all before it. A paused process can still outlive its
//!   lease, so have the fence checked where it matters: see [`fence`].
//!
//! Futures work on any executor; background work has threads of its own. Without an executor,
//! use [`blocking`].
//!
//! # Where things are
//! | wanted | it is |
//! |---|---|
//! | a connection | [`Locker`] |
//! | one at a time | [`Locker::mutex`], or [`Locker::lock`] in one step |
//! | readers and writers, permits, several at once | [`Locker::rwlock`], [`Locker::semaphore`], [`Locker::multi`] |
//! | elections, scheduled jobs | [`Locker::leader`], [`Locker::once`] |
//! | a small value that all share, without a lost update | [`Locker::value`] |
//! | to wait until others are done, or until all have come | [`Locker::latch`], [`Locker::barrier`] |
//! | a value that one computes and all read | [`Locker::refresh`] |
//! | what is held | [`Guard`], and the [`Lease`] that is handed to others |
//! | a lock that is taken again by who has it | [`Holder`] |
//! | optimistic locking | [`optimistic`] |
//! | checking fences | [`fence`]; [`GateDatabase`] without a connection of one's own |
//! | a store of one's own | [`backend`] |
//! | to test what you do when a lock is lost | `testing`, with the feature of that name |
//!
//! # Logs and metrics
//! What happens to locks is told to [`tracing`](https://docs.rs/tracing): a span for each acquisition,
//! with the name of its lock, and events. Counts and times are told to
//! [`metrics`](https://docs.rs/metrics): [`backend::observe::METRICS`] has their names, labels and
//! descriptions. The handles of the metrics are made when a store is connected, so **install the
//! recorder before you [`connect`](Locker::connect)**: one that comes later hears nothing of that
//! connection.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> lockfast::Result<()> {
//! let recorder = metrics::NoopRecorder; // the one of your exporter
//! metrics::set_global_recorder(recorder).expect("the first recorder of the program");
//! let locker = lockfast::Locker::connect("memory:").await?; // it is heard from here on
//! locker.lock("nightly-report").await?.release().await?;
//! # Ok(())
//! # }
//! ```

pub mod blocking;
mod connect;
mod diagnose;
mod gate;
mod lease;
mod locker;
mod migrate;
pub mod optimistic;
mod prefix;
mod primitive;
mod randomness;
mod store;
mod telemetry;
#[cfg(feature = "testing")]
pub mod testing;

pub use diagnose::{diagnose, known_checks};
pub use gate::GateDatabase;
pub use lease::handle::{Checked, Guard, Lease, LeaseChanges, LeaseStatus, Released};
pub use lease::holder::Holder;
pub use lease::policy::Options;
pub use locker::{Locker, LockerBuilder};
/// The contract between the lease engine and the stores it runs on, for whoever writes one: see
/// [`Backend`](lockfast_core::Backend) and [`LockerBuilder::connect_with`].
pub use lockfast_core as backend;
pub use lockfast_core::capability::{
    Expiry, Feature, FenceSurvival, Guarantee, Order, Profile, Reach, TtlLimits,
};
pub use lockfast_core::diagnosis::{Diagnosis, Finding, Severity};
pub use lockfast_core::error::{Error, ErrorKind, Result, Retry};
pub use lockfast_core::fence::{Fence, FencingToken};
pub use lockfast_core::grant::{LossCause, Refusal, ReleaseOutcome, RevokeOutcome};
pub use lockfast_core::holder::{HolderId, Label};
pub use lockfast_core::migration::Migration;
pub use lockfast_core::name::LockName;
pub use lockfast_core::request::Mode;
pub use lockfast_core::time::Moment;
pub use lockfast_core::value::{Expected, Version, VersionedValue, WriteOutcome};
pub use lockfast_core::view::{HolderView, LockView};
pub use lockfast_core::watch::{EventStream, WatchEvent, WatchKind};
pub use lockfast_fence as fence;
pub use migrate::migrate;
pub use primitive::{
    AnyLock, Attempt, Barrier, Campaign, DetachedLease, Ensured, Latch, Leader, LeaderEvent,
    LeaderView, Leadership, MultiGuard, MultiLock, Mutex, Observer, Once, OnceGuard, Ran, Refresh,
    RefreshAttempt, RefreshGuard, RwLock, Semaphore, SharedValue,
};

/// The schemes of all stores that were compiled in, each with its colon.
///
/// ```
/// assert!(lockfast::known_schemes().contains(&"embedded:".to_owned()));
/// ```
pub fn known_schemes() -> Vec<String> {
    connect::known_schemes()
}

/// What every store that was compiled in promises with the usual settings of its servers, each with
/// what its URL starts with. No server is asked: what one promises as it is set up,
/// [`Locker::profile`] says.
///
/// ```
/// use lockfast::Guarantee;
///
/// let stores = lockfast::known_profiles();
/// let embedded = stores.iter().find(|(url, _)| *url == "embedded:").expect("compiled in");
/// assert_eq!(embedded.1.guarantee, Guarantee::Correctness);
/// ```
pub fn known_profiles() -> Vec<(&'static str, Profile)> {
    connect::known_profiles()
}

/// The examples on the front page and in the guides are held to the API.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/choosing.md")]
#[doc = include_str!("../../../docs/guides/elect.md")]
#[doc = include_str!("../../../docs/guides/observability.md")]
#[doc = include_str!("../../../docs/guides/once.md")]
#[doc = include_str!("../../../docs/guides/shared-state.md")]
#[doc = include_str!("../../../docs/guides/start.md")]
struct Readme;
