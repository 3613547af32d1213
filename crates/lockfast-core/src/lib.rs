//! The contract between Lockfast's lease engine and the stores it runs on.
//!
//! ```text
//! caller → primitive → lease engine ──(this crate)──▶ backend → wire
//! ```
//!
//! Almost everything here is a definition: what is asked of a store ([`request`]), what it
//! answers ([`grant`]), what it may promise ([`capability`]) and the one trait that ties them
//! together ([`Backend`]). There is no I/O and no client library.
//!
//! | looking for | it is in |
//! |---|---|
//! | what a store must do | [`backend`] |
//! | names, modes, holders | [`name`], [`request`], [`holder`] |
//! | the clock and the deadline's units | [`time`] |
//! | fencing tokens | [`fence`] |
//! | the only public error | [`error`] |
//! | an error on its way from the wire | [`failure`] |
//! | what each node said, where several decide | [`vote`] |
//! | checking a fence in a database | [`gate`] |
//! | store URLs | [`address`] |
//! | what became of a store's schema | [`migration`] |
//! | what a store and a machine were found to be like | [`diagnosis`] |
//! | who is granted, and whom the others watch | [`queue`] |
//! | names of spans, events and metrics | [`observe`] |
//! | events for whoever watches | [`watch`] |
//! | values that are written by comparing versions | [`value`] |
//! | a store behind a bad link, for tests | [`flaky`] |
//!
//! What the stores of this project share besides is not shown in these pages and may change: `batch` (the
//! queue that lets a store batch), `lobby` (those who wait at a store that pushes), `jitter` (chance that
//! spreads what many do), `task` (work on the runtime of the connections) and `time::Alarm`.

pub mod address;
pub mod backend;
#[doc(hidden)]
pub mod batch;
pub mod capability;
pub mod diagnosis;
pub mod error;
pub mod failure;
pub mod fence;
pub mod flaky;
pub mod gate;
pub mod grant;
pub mod holder;
#[doc(hidden)]
pub mod jitter;
#[doc(hidden)]
pub mod lobby;
pub mod migration;
pub mod name;
pub mod observe;
pub mod queue;
pub mod request;
#[doc(hidden)]
pub mod task;
pub mod time;
pub mod value;
pub mod view;
pub mod vote;
pub mod watch;

pub use address::Address;
pub use backend::{Backend, BoxFuture, ConnectContext, LossReport, LossReporter};
pub use capability::{Feature, Guarantee, Profile, TtlLimits};
pub use diagnosis::{Diagnosis, Finding, Severity};
pub use error::{Error, ErrorKind, Result, Retry};
pub use failure::Failure;
pub use fence::{Fence, FencingToken};
pub use gate::{GateAnswer, GateStatement};
pub use grant::{
    AcquireOutcome, DowngradeOutcome, Grant, LossCause, Refusal, ReleaseOutcome, RenewOutcome,
    RevokeOutcome, SessionId,
};
pub use holder::{ClientId, HolderId, Label};
#[doc(hidden)]
pub use jitter::jitter;
pub use migration::Migration;
pub use name::LockName;
pub use request::{
    AcquireRequest, DowngradeRequest, Mode, Query, ReleaseRequest, RenewRequest, RevokeRequest,
    Wait,
};
#[doc(hidden)]
pub use time::Alarm;
pub use time::Moment;
pub use value::{Change, Expected, Version, VersionedValue, WriteOutcome, WriteRequest};
pub use view::{HolderView, LockView};
pub use vote::{NodeVote, Vote};
pub use watch::{EventStream, WatchEvent, WatchKind};
