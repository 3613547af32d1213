//! One acquisition on its way: what the server is told, and what it answers.

use std::time::Duration;

use lockfast_core::lobby::{self, Place};
use lockfast_core::{
    AcquireRequest, Error, ErrorKind, Fence, Grant, HolderId, LockName, LockView, LossCause, Mode,
    Wait,
};

use crate::batch::read_mode;
use crate::failure::{self, Failure};
use crate::inspect::read_view;
use crate::offer::Offer;

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
    pub(crate) floor: Option<i64>,
    /// How we and the server call it, since a holder's id is a secret.
    pub(crate) call: i64,
}

impl Claim {
    pub(crate) fn new(request: AcquireRequest, call: i64) -> Self {
        let floor = request.floor.map(|floor| i64::try_from(floor.get()).unwrap_or(i64::MAX));
        Self {
            name: request.name,
            holder: request.holder,
            mode: request.mode,
            ttl: request.ttl,
            lock_delay: request.lock_delay,
            wait: request.wait,
            detached: request.detached,
            floor,
            call,
        }
    }

    /// Whether it has nothing special about it.
    pub(crate) fn is_plain(&self) -> bool {
        self.mode == Mode::Exclusive && self.lock_delay.is_zero() && self.floor.is_none()
    }
}

impl lobby::Claim for Claim {
    type Told = Result<Answer, Failure>;
    type Call = i64;
    type Offer = Offer;
    const POLL: Duration = Duration::from_secs(5);

    fn holder(&self) -> HolderId {
        self.holder
    }

    fn name(&self) -> &LockName {
        &self.name
    }

    fn call(&self) -> i64 {
        self.call
    }

    fn wait(&self) -> Wait {
        self.wait
    }
}

/// What the server answers to an acquisition.
#[derive(Debug)]
pub(crate) enum Admission {
    Granted(Fence),
    Waiting(Place),
    Taken(LockView),
}

/// What the caller is told.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Granted(Grant),
    Taken(LockView),
}

impl Admission {
    /// Reads one line of the server's answer.
    pub(crate) fn read(
        claim: &Claim,
        code: i16,
        number: Option<i64>,
        note: Option<&str>,
        now_us: i64,
    ) -> Result<Self, Failure> {
        let nonsense = || failure::of_nonsense(format!("code {code} to an acquisition"));
        let mode = || number.and_then(read_mode).ok_or_else(nonsense);
        Err(match code {
            1 => return read_fence(number).map(Self::Granted),
            2 | 3 => {
                let blocked = number.and_then(|us| u64::try_from(us).ok());
                let blocked = blocked.map(Duration::from_micros);
                return Ok(Self::Waiting(Place { blocked, now_us: u64::try_from(now_us).ok() }));
            }
            4 => {
                let view = note.and_then(|note| read_view(&claim.name, note));
                return view.map(Self::Taken).ok_or_else(nonsense);
            }
            5 => Error::conflict(claim.mode, mode()?).into(),
            6 => Error::already_held(claim.mode, mode()?).into(),
            7 => {
                let cause = LossCause::Revoked { reason: note.unwrap_or_default().into() };
                Error::lost(&claim.name, cause).into()
            }
            8 => Error::floor_ahead().into(),
            9 => Failure::new(
                ErrorKind::TokenExhausted,
                "the lock's fence is not below 2^53 and cannot rise any more; repair its row in \
                 table locks",
            ),
            _ => nonsense(),
        })
    }
}

/// A stored fence.
pub(crate) fn read_fence(number: Option<i64>) -> Result<Fence, Failure> {
    let number = number.and_then(|number| u64::try_from(number).ok()).unwrap_or(0);
    Fence::new(number).map_err(|error| Failure::new(error.kind(), error.to_string()))
}
