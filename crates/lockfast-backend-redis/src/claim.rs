//! One acquisition on its way: what the server is told, and what it answers.

use std::time::Duration;

use lockfast_core::lobby::{self, Place};
use lockfast_core::{
    AcquireRequest, Error, ErrorKind, Fence, Grant, HolderId, LockName, LossCause, Mode, Wait,
};

use crate::record::{self, Seen};
use crate::wire::{Failure, Reply};

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
        }
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
        let nonsense = || Failure::of_nonsense("an acquisition of another form");
        let fields = reply.into_list().map_err(|_| nonsense())?;
        let (code, fields) = fields.split_first().ok_or_else(nonsense)?;
        let text = || fields.first().and_then(Reply::as_text).unwrap_or_default();
        let mode = || record::read_mode(text()).ok_or_else(nonsense);
        Err(match code.as_int() {
            Some(0) => return read_place(fields).map(Self::Waiting).ok_or_else(nonsense),
            Some(1) => return Seen::read(fields).map(Self::Taken).ok_or_else(nonsense),
            Some(2) => Error::conflict(claim.mode, mode()?).into(),
            Some(3) => Error::already_held(claim.mode, mode()?).into(),
            Some(4) => {
                let cause = LossCause::Revoked { reason: text().into() };
                Failure::new(ErrorKind::Lost, format!("the lease was lost: {cause}"))
            }
            Some(5) => Error::floor_ahead().into(),
            Some(6) => Failure::of_server("WRONGTYPE", None),
            Some(7) => exhausted(),
            Some(8) => {
                let (code, details) = text().split_once(' ').unwrap_or((text(), ""));
                Failure::of_server(code.trim_start_matches('-'), Some(details))
            }
            _ => nonsense(),
        })
    }
}

/// A place in the queue. Only the first looks by itself, unless what is in its way never ends.
fn read_place(fields: &[Reply]) -> Option<Place> {
    let [place, blocked_ms, now_us] = fields else { return None };
    let is_head = place.as_int()? == 0;
    let blocked = u64::try_from(blocked_ms.as_int()?).ok().map(Duration::from_millis);
    let now_us = u64::try_from(now_us.as_int()?).ok()?;
    Some(Place { blocked: blocked.filter(|_| is_head), now_us: Some(now_us) })
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
