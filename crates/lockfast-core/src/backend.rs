//! The trait that every store implements.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::runtime::Handle;

use crate::capability::Profile;
use crate::error::Result;
use crate::grant::{
    AcquireOutcome, DowngradeOutcome, LossCause, ReleaseOutcome, RenewOutcome, RevokeOutcome,
    SessionId,
};
use crate::holder::{ClientId, HolderId, Label};
use crate::name::LockName;
use crate::request::{
    AcquireRequest, DowngradeRequest, Query, ReleaseRequest, RenewRequest, RevokeRequest,
};
use crate::value::{VersionedValue, WriteOutcome, WriteRequest};
use crate::view::LockView;
use crate::watch::EventStream;

/// A future that can be stored and sent.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A store of locks.
///
/// Callers never see this trait: they see primitives, and the lease engine between the two. It
/// has no default methods, so that an implementation cannot forget one.
///
/// # Contract
/// - **Atomic.** Each operation takes effect at one moment, decided by the store's own clock. The
///   caller's clock is never sent.
/// - **Idempotent.** Every operation may be repeated for its holder: a lost reply never leads to
///   a second grant, a second fence or a deadlock with oneself.
/// - **Fenced.** Each grant's fence is higher than that of every earlier grant of the lock, over
///   release, expiry and restart.
/// - **Only the holder.** Renewing, downgrading and releasing compare the holder id in the store.
///
/// # Batching
/// The engine calls [`acquire`](Backend::acquire) and [`release`](Backend::release) once per
/// lock, from many tasks at once. A store that gains from it puts them into an
/// [`Inbox`](crate::batch::Inbox) and lets its one writer carry many in a round trip.
///
/// # Cancellation
/// Any returned future may be dropped at any moment, also before it was first polled. That must
/// not disturb other requests. The engine then repeats the request, or calls `release` for the
/// holder, which undoes whatever the dropped request did or may still do. A store does neither by
/// itself: it could take back what the repetition was granted.
///
/// # Threads
/// Futures are polled on the caller's executor, whatever that is, or on the keeper's. Background
/// work belongs on [`ConnectContext::runtime`] or on a thread of the store's own. A store may let
/// the caller's executor read and write for it as long as nothing depends on that: when it is
/// blocked or ends, the keeper's goes on. Nothing may block.
pub trait Backend: Send + Sync + fmt::Debug + 'static {
    /// What this store promises.
    fn profile(&self) -> &Profile;

    /// Takes a lock, waiting in the store's own way for as long as the request allows.
    ///
    /// To be correct:
    /// - grants only when the mode's rule about what is ahead in the queue holds; where the
    ///   profile says FIFO, nobody overtakes;
    /// - a repeated request of a holder that has the lock in the same mode answers the same
    ///   fence and lets the ttl begin again; in another mode it is
    ///   [`AlreadyHeld`](crate::ErrorKind::AlreadyHeld);
    /// - [`Grant::from`](crate::Grant::from) is not after the moment at which the ttl began;
    /// - waiters are woken, one per release, by a push where the store has one, with a slow poll
    ///   as the net;
    /// - after `Taken`, nothing of the request is left.
    fn acquire(&self, request: AcquireRequest) -> BoxFuture<'_, Result<AcquireOutcome>>;

    /// Prolongs leases; the answers are in the order of the batch.
    ///
    /// To be correct: never creates, never changes a fence, and one lease that is lost or that
    /// nobody answers for does not disturb the others.
    fn renew(&self, batch: Vec<RenewRequest>) -> BoxFuture<'_, Result<Vec<RenewOutcome>>>;

    /// Lets a holder that has the lock alone have it shared from now on, without giving it back.
    ///
    /// To be correct:
    /// - **one step**: the holder's mode changes, and everybody whom that lets in is granted, at one
    ///   moment, by the rule of [`queue`](crate::queue). The line is walked as after a release, with this
    ///   claim in its old place as a shared one: shared claims behind it are granted up to the next
    ///   exclusive one, which goes on waiting, and so does everybody behind that. They are woken as by a
    ///   release. At no moment is the lock free, and no exclusive claim is granted before this holder and
    ///   all other shared ones ahead of it have left;
    /// - **the same lease**: the place in the line, the fence, the ttl, the lock-delay and the moment at
    ///   which the lease ends stay as they are, also of one that was only handed over
    ///   ([`Grant::brief`](crate::Grant::brief)). It is renewed, released, revoked and lost as before;
    /// - **shared from then on** for whoever looks ([`inspect`](Backend::inspect)) and for a repeated
    ///   [`acquire`](Backend::acquire) of the holder: as shared it answers the same fence, as exclusive it
    ///   is [`AlreadyHeld`](crate::ErrorKind::AlreadyHeld). [`watch`](Backend::watch) tells of those who are
    ///   let in, and nothing of the downgrade itself;
    /// - **idempotent**: a holder that has the lock shared, by an earlier downgrade or because it asked for
    ///   it so, is answered [`Downgraded`](DowngradeOutcome::Downgraded), and nothing changes. So a
    ///   request whose answer was lost can be repeated;
    /// - **only the holder**: one that does not have the lock, because it never asked, still waits, has
    ///   released it, or lost it by expiry or revocation, is answered
    ///   [`Lost`](DowngradeOutcome::Lost) with the cause that a renewal would tell. Nothing is created or
    ///   changed, and a request that arrives after the holder's release does nothing;
    /// - **one use of a name**: when the holder has a permit, or when permits stand anywhere in the line
    ///   behind an exclusive holder, it is [`Conflict`](crate::ErrorKind::Conflict), as
    ///   [`check_use`](crate::queue::check_use) says it of the whole line for
    ///   [`Mode::Shared`](crate::Mode::Shared), and nothing has changed. Where claims enter a line without
    ///   a step in common with this one, a permit that came at the same moment may be overlooked and is
    ///   then counted as behind a shared holder; it is never granted beside an exclusive one.
    ///
    /// A renewal of the same lease may be on its way at the same time. Both take effect, in either order.
    /// After any other error the holder has the lock in one of the two modes; a repetition tells that it is
    /// shared.
    ///
    /// A store that lacks [`Feature::Downgrade`](crate::Feature::Downgrade) says so.
    fn downgrade(&self, request: DowngradeRequest) -> BoxFuture<'_, Result<DowngradeOutcome>>;

    /// Gives back what the holder has, or removes its waiting claim.
    ///
    /// To be correct: the next waiter is granted in the same step, and an acquisition of the same
    /// holder that was sent earlier but arrives later does not take effect.
    fn release(&self, request: ReleaseRequest) -> BoxFuture<'_, Result<ReleaseOutcome>>;

    /// Looks at locks without changing them. A [`Query::Name`] always answers one view.
    fn inspect(&self, query: Query) -> BoxFuture<'_, Result<Vec<LockView>>>;

    /// Takes a lock away from its holders, who are told so: at once where the store can push, at
    /// their next renewal elsewhere.
    fn revoke(&self, request: RevokeRequest) -> BoxFuture<'_, Result<RevokeOutcome>>;

    /// The value of a name, as the last write that was answered before this left it.
    ///
    /// A store that lacks [`Feature::Values`](crate::Feature::Values) says so.
    fn read(&self, name: LockName) -> BoxFuture<'_, Result<Option<VersionedValue>>>;

    /// Writes the value of a name if what is there is what the request expects.
    ///
    /// To be correct:
    /// - the comparison and the write are one step, and what was answered as written stays as long as
    ///   the store keeps its data;
    /// - a request that finds its own write there, known by its id, answers as the first did; a removal
    ///   may find nothing there and say so;
    /// - a conflict says that nothing was written: a store that repeats a request by itself, because its
    ///   answer was lost, and then finds something else, fails instead;
    /// - every write has a version of its own, also after a removal;
    /// - [`watch`](Backend::watch) tells of it as [`Changed`](crate::WatchKind::Changed).
    fn write(&self, request: WriteRequest) -> BoxFuture<'_, Result<WriteOutcome>>;

    /// Events of all locks and values, from now on.
    ///
    /// A store that lacks [`Feature::Events`](crate::Feature::Events) says so.
    fn watch(&self) -> BoxFuture<'_, Result<EventStream>>;
}

/// What the engine lends a store when it connects.
#[derive(Clone, Debug)]
pub struct ConnectContext {
    /// The keeper's runtime, for background work: it never waits for the caller's executor.
    pub runtime: Handle,
    /// The first bytes of every holder id that will come through this connection.
    pub client: ClientId,
    /// Who we are, for people.
    pub label: Label,
    /// How to tell that a lease ended before its renewal would find out.
    pub losses: LossReporter,
}

/// What a store tells of leases without being asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LossReport {
    /// A holder's lease ended.
    Lease(HolderId, LossCause),
    /// A session ended, and with it every lease in it.
    Session(SessionId, LossCause),
    /// A holder's lease is in this session from now on.
    Moved(HolderId, SessionId),
}

/// The way by which a store tells the engine that leases ended.
#[derive(Clone)]
pub struct LossReporter(Arc<dyn Fn(LossReport) + Send + Sync>);

impl LossReporter {
    /// A reporter that calls `report`, which must not block.
    pub fn new(report: impl Fn(LossReport) + Send + Sync + 'static) -> Self {
        Self(Arc::new(report))
    }

    /// Tells that the holder's lease ended.
    pub fn report(&self, holder: HolderId, cause: LossCause) {
        (self.0)(LossReport::Lease(holder, cause));
    }

    /// Tells that a session ended, and with it every lease whose
    /// [`Grant::session`](crate::Grant::session) it is: also one whose grant is on its way to
    /// the engine and is learnt of later. It costs as much as the session has leases, however many
    /// others there are. Nothing may be asked for in that session any more.
    pub fn session_ended(&self, session: SessionId, cause: LossCause) {
        (self.0)(LossReport::Session(session, cause));
    }

    /// Tells that a lease is in another session from now on, as after a renewal for another ttl. When
    /// that one has ended already, so has the lease. It may be told of a lease whose grant is on its
    /// way to the engine: the last that is told counts more than
    /// [`Grant::session`](crate::Grant::session).
    pub fn moved(&self, holder: HolderId, session: SessionId) {
        (self.0)(LossReport::Moved(holder, session));
    }
}

impl fmt::Debug for LossReporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LossReporter")
    }
}
