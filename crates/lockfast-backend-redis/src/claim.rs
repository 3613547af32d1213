//! One acquisition on its way: what the server is told, and what it answers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lockfast_core::lobby::{self, Place};
use lockfast_core::{
    AcquireRequest, ClientId, Error, ErrorKind, Fence, Grant, HolderId, LockName, LossCause, Mode,
    Wait,
};

use crate::record::{self, Seen};
use crate::wire::{Failure, Reply, failure};

/// What a holder wants.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) name: LockName,
    pub(crate) holder: HolderId,
    pub(crate) mode: Mode,
    pub(crate) ttl: Duration,
    pub(crate) lock_delay: Duration,
    pub(crate) wait: Wait,
    pub(crate) detached: bool,
    pub(crate) has_floor: bool,
    /// As it stands in the queue: `holder.mode.ttl.delay`, and perhaps `.floor`.
    pub(crate) text: String,
    /// Its ticket in the queue, so that it gets its old place when it was taken out as one of a
    /// process that hangs; 0 if it never waited.
    ticket: AtomicU64,
    /// The client that was in its way when it last heard, if that was one, as a number.
    blocker: AtomicU64,
    /// Whether it is asked for in a call of its own, because one with others was refused.
    is_apart: AtomicBool,
}

impl Claim {
    pub(crate) fn new(request: AcquireRequest) -> Self {
        use std::fmt::Write as _;
        let mut text = record::write_holder(request.holder);
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            ".{}.{}.{}",
            record::write_mode(request.mode),
            whole_ms(request.ttl),
            whole_ms(request.lock_delay)
        );
        if let Some(floor) = request.floor {
            let _ = write!(text, ".{floor}");
        }
        Self {
            name: request.name,
            holder: request.holder,
            mode: request.mode,
            ttl: request.ttl,
            lock_delay: request.lock_delay,
            wait: request.wait,
            detached: request.detached,
            has_floor: request.floor.is_some(),
            text,
            ticket: AtomicU64::new(0),
            blocker: AtomicU64::new(NOBODY),
            is_apart: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_apart(&self) -> bool {
        self.is_apart.load(Ordering::Relaxed)
    }

    /// Returns whether it was not before.
    pub(crate) fn set_apart(&self) -> bool {
        !self.is_apart.swap(true, Ordering::Relaxed)
    }

    /// The same claim is made again, with the place that it had.
    pub(crate) fn inherit(&self, earlier: &Self) {
        if self.text == earlier.text {
            self.ticket.store(earlier.ticket.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    pub(crate) fn has_waited(&self) -> bool {
        self.ticket.load(Ordering::Relaxed) != 0
    }

    fn note_ticket(&self, now_us: u64) {
        let _ = self.ticket.compare_exchange(0, now_us, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Takes note of whose lease is in its way: if that ends by itself, that client hangs.
    pub(crate) fn note_blocker(&self, client: Option<ClientId>) {
        let number = client.map_or(NOBODY, |client| {
            client.as_bytes().iter().fold(0, |all, byte| all << 8 | u64::from(*byte))
        });
        self.blocker.store(number, Ordering::Relaxed);
    }

    /// What the script is told of its wait: `.who.ticket`.
    pub(crate) fn write_past(&self) -> String {
        let blocker = self.blocker.load(Ordering::Relaxed);
        let client = (blocker != NOBODY).then(|| {
            let [_, _, bytes @ ..] = blocker.to_be_bytes();
            record::write_client(ClientId::from_bytes(bytes))
        });
        let ticket = self.ticket.load(Ordering::Relaxed);
        format!(".{}.{ticket}", client.unwrap_or_default())
    }

    /// How long the server keeps a grant that nobody renews.
    pub(crate) fn lease_ms(&self) -> u64 {
        whole_ms(self.ttl) + whole_ms(self.lock_delay)
    }
}

impl lobby::Claim for Claim {
    type Told = Result<Answer, Failure>;
    type Call = HolderId;
    type Offer = ();
    const POLL: Duration = Duration::from_millis(5500);

    fn holder(&self) -> HolderId {
        self.holder
    }

    fn name(&self) -> &LockName {
        &self.name
    }

    fn call(&self) -> HolderId {
        self.holder
    }

    fn wait(&self) -> Wait {
        self.wait
    }
}

/// Stands for no client: it has more than 48 bits.
const NOBODY: u64 = u64::MAX;

/// Whole milliseconds, upwards: the store must not let go before the holder does.
pub(crate) fn whole_ms(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX / 4).min(u64::MAX / 4)
}

/// What the server answers to an acquisition.
#[derive(Debug)]
pub(crate) enum Admission {
    Granted(Fence),
    Waiting(Place),
    Taken(Seen),
}

/// What the caller is told.
#[derive(Debug)]
pub(crate) enum Answer {
    Granted(Grant),
    Taken(Seen),
}

impl Admission {
    /// Reads one entry of the acquisition script's answer.
    pub(crate) fn read(claim: &Claim, reply: Reply) -> Result<Self, Failure> {
        let number = reply.as_int().or_else(|| reply.as_text().and_then(|it| it.parse().ok()));
        if let Some(fence) = number {
            return record::read_fence(fence).map(Self::Granted);
        }
        let nonsense = || failure::of_nonsense("an acquisition of another form");
        let fields = reply.into_list().map_err(|_| nonsense())?;
        let (code, fields) = fields.split_first().ok_or_else(nonsense)?;
        let text = || fields.first().and_then(Reply::as_text).unwrap_or_default();
        let mode = || record::read_mode(text()).ok_or_else(nonsense);
        Err(match code.as_int() {
            Some(0) => return read_place(claim, fields).map(Self::Waiting).ok_or_else(nonsense),
            Some(1) => return Seen::read(fields).map(Self::Taken).ok_or_else(nonsense),
            Some(2) => Error::conflict(claim.mode, mode()?).into(),
            Some(3) => Error::already_held(claim.mode, mode()?).into(),
            Some(4) => {
                let cause = LossCause::Revoked { reason: record::read_text(text()) };
                Error::lost(&claim.name, cause).into()
            }
            Some(5) => Error::floor_ahead().into(),
            Some(6) => failure::of_server("WRONGTYPE", None),
            Some(7) => exhausted(),
            Some(8) => {
                let (code, details) = text().split_once(' ').unwrap_or((text(), ""));
                failure::of_server(code.trim_start_matches('-'), Some(details))
            }
            _ => nonsense(),
        })
    }
}

/// A place in the queue, how long what is in its way lasts unless that is for ever, and whose it is.
fn read_place(claim: &Claim, fields: &[Reply]) -> Option<Place> {
    let [_place, blocked_ms, now_us, blocker] = fields else { return None };
    let blocked = u64::try_from(blocked_ms.as_int()?).ok().map(Duration::from_millis);
    let now_us = u64::try_from(now_us.as_int()?).ok()?;
    claim.note_ticket(now_us);
    claim.note_blocker(blocker.as_text().and_then(record::read_client));
    Some(Place { blocked, now_us: Some(now_us) })
}

fn exhausted() -> Failure {
    Failure::new(
        ErrorKind::TokenExhausted,
        format!(
            "the fence in key {} is not below 2^53 and cannot rise any more; repair it",
            record::FENCE_KEY
        ),
    )
}
