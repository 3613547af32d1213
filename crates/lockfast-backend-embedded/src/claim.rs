//! One place in a lock's queue. Times are nanoseconds since the machine started
//! ([`Moment::host_ns`]), because they mean the same to every process of the machine.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lockfast_core::time::wall_clock_us;
use lockfast_core::{
    AcquireRequest, ClientId, Fence, HolderId, HolderView, Label, LockName, Mode, Moment, Wait,
    WatchEvent, WatchKind,
};

/// The two clocks as they were when an operation took effect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// Decides what has expired.
    pub(crate) now_ns: u64,
    /// A lower bound for fences, and what people read.
    pub(crate) wall_us: u64,
}

impl Clock {
    /// Reads both.
    pub(crate) fn read() -> Self {
        Self::at(Moment::now())
    }

    /// Takes the present moment as already read.
    pub(crate) fn at(now: Moment) -> Self {
        Self { now_ns: now.host_ns(), wall_us: wall_clock_us() }
    }
}

/// A holder's claim on a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// Its place: claims of one lock are served in this order.
    pub(crate) ticket: u64,
    pub(crate) holder: HolderId,
    /// Through which connection it came: whose label it shows and whose life it depends on.
    pub(crate) client: ClientId,
    pub(crate) mode: Mode,
    pub(crate) stage: Stage,
    pub(crate) ttl_ns: u64,
    pub(crate) delay_ns: u64,
    /// When it ends unless something happens before: the wait of a waiting claim, the lease and
    /// its delay of a granted one.
    pub(crate) ends_ns: u64,
    /// The fence must be above this.
    pub(crate) floor: u64,
    /// Whether it outlives its client.
    pub(crate) detached: bool,
    /// What a store on disk still has to write.
    pub(crate) saved: Saved,
}

/// How far a claim has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It is not its turn.
    Waiting,
    /// It has the lock.
    Granted(Hold),
    /// It had the lock until an operator took it away; kept so that its holder can be told.
    Revoked { fence: Fence, reason: Arc<str> },
}

/// A grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) fence: Fence,
    /// When the ttl began, for whoever is told later.
    pub(crate) from_ns: u64,
    /// Since when on the wall clock, for people.
    pub(crate) since_us: u64,
}

/// How a claim compares with what is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Saved {
    /// Not there.
    No,
    /// There, and the same.
    Yes,
    /// There, but different by now.
    Stale,
}

/// Something that happened to a claim, for whoever waits or watches.
#[derive(Clone, Debug)]
pub(crate) struct Effect {
    pub(crate) what: Happening,
    /// The claim as it is now, or as it was when it left the queue.
    pub(crate) claim: Claim,
}

/// What can happen to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happening {
    /// It began to wait.
    Queued,
    /// It got the lock.
    Granted,
    /// It lost the lock to an operator and stays until its holder can be told.
    Revoked,
    /// It gave the lock back and is gone.
    Released,
    /// It stopped waiting and is gone.
    Abandoned,
    /// Its lease ended and it is gone.
    Expired,
    /// It was revoked before and is gone now.
    Forgotten,
}

impl Happening {
    /// Whether the claim has left the queue.
    pub(crate) fn is_end(self) -> bool {
        match self {
            Self::Queued | Self::Granted | Self::Revoked => false,
            Self::Released | Self::Abandoned | Self::Expired | Self::Forgotten => true,
        }
    }

    /// What a watcher is told; nothing about a claim whose end it knows already.
    pub(crate) fn watch_kind(self) -> Option<WatchKind> {
        Some(match self {
            Self::Queued => WatchKind::Queued,
            Self::Granted => WatchKind::Granted,
            Self::Revoked => WatchKind::Revoked,
            Self::Released => WatchKind::Released,
            Self::Abandoned => WatchKind::Abandoned,
            Self::Expired => WatchKind::Expired,
            Self::Forgotten => return None,
        })
    }
}

impl Effect {
    pub(crate) fn new(what: Happening, claim: &Claim) -> Self {
        Self { what, claim: claim.clone() }
    }

    /// What a watcher is told about it.
    pub(crate) fn event(
        &self,
        name: &LockName,
        wall_us: u64,
        label: Option<Label>,
    ) -> Option<WatchEvent> {
        Some(
            WatchEvent::new(
                SystemTime::UNIX_EPOCH + Duration::from_micros(wall_us),
                name.clone(),
                self.what.watch_kind()?,
            )
            .with_fence(self.claim.fence())
            .with_label(label),
        )
    }
}

impl Claim {
    /// A claim that waits at the place `ticket`.
    pub(crate) fn new(ticket: u64, client: ClientId, request: &AcquireRequest) -> Self {
        Self {
            ticket,
            holder: request.holder,
            client,
            mode: request.mode,
            stage: Stage::Waiting,
            ttl_ns: span_ns(request.ttl),
            delay_ns: span_ns(request.lock_delay),
            ends_ns: wait_ns(request.wait),
            floor: request.floor.map_or(0, Fence::get),
            detached: request.detached,
            saved: Saved::No,
        }
    }

    /// Lets the ttl begin now.
    pub(crate) fn begin_ttl(&mut self, ttl: Duration, delay: Duration, now_ns: u64) {
        self.ttl_ns = span_ns(ttl);
        self.delay_ns = span_ns(delay);
        self.ends_ns = self.lease_end_ns(now_ns);
        self.touch();
    }

    /// When a lease that begins now ends, its delay included.
    pub(crate) fn lease_end_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_add(self.ttl_ns).saturating_add(self.delay_ns)
    }

    /// Notes that the claim differs from what is on disk.
    pub(crate) fn touch(&mut self) {
        if self.saved == Saved::Yes {
            self.saved = Saved::Stale;
        }
    }

    /// The grant, if it has the lock.
    pub(crate) fn hold(&self) -> Option<Hold> {
        match self.stage {
            Stage::Granted(hold) => Some(hold),
            _ => None,
        }
    }

    /// The fence of its present or former grant.
    pub(crate) fn fence(&self) -> Option<Fence> {
        match self.stage {
            Stage::Waiting => None,
            Stage::Granted(hold) => Some(hold.fence),
            Stage::Revoked { fence, .. } => Some(fence),
        }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.stage == Stage::Waiting
    }

    /// Whether it counts for those behind it.
    pub(crate) fn is_live(&self) -> bool {
        !matches!(self.stage, Stage::Revoked { .. })
    }

    /// What people may see of it, if it has the lock.
    pub(crate) fn view(&self, now_ns: u64, label: Option<Label>) -> Option<HolderView> {
        let hold = self.hold()?;
        Some(
            HolderView::new(
                self.mode,
                SystemTime::UNIX_EPOCH + Duration::from_micros(hold.since_us),
                Duration::from_nanos(self.ends_ns.saturating_sub(now_ns)),
            )
            .with_fence(Some(hold.fence))
            .with_label(label),
        )
    }
}

/// A span in nanoseconds. SQLite's integers end at `i64::MAX`, which is 292 years.
fn span_ns(span: Duration) -> u64 {
    const MAX: u64 = i64::MAX as u64 / 4;
    u64::try_from(span.as_nanos()).unwrap_or(MAX).min(MAX)
}

/// Until when a claim waits.
pub(crate) fn wait_ns(wait: Wait) -> u64 {
    match wait {
        Wait::No => 0,
        Wait::Until(until) => until.host_ns().min(i64::MAX as u64),
        Wait::Forever => i64::MAX as u64,
    }
}
