//! One acquisition on its way: what the server is told, and what it answers.

use std::num::NonZeroU32;
use std::time::{Duration, SystemTime};

use lockfast_core::lobby::{self, Place};
use lockfast_core::{
    AcquireRequest, ClientId, Error, ErrorKind, Fence, Grant, HolderId, HolderView, Label,
    LockName, LockView, LossCause, Mode, Wait,
};

use crate::failure::{self, Failure};

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
    pub(crate) floor: u64,
}

impl Claim {
    pub(crate) fn new(request: AcquireRequest) -> Self {
        Self {
            name: request.name,
            holder: request.holder,
            mode: request.mode,
            ttl: request.ttl,
            lock_delay: request.lock_delay,
            wait: request.wait,
            detached: request.detached,
            floor: request.floor.map_or(0, Fence::get),
        }
    }

    /// Whether another request of the same holder asks for the same.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.mode == other.mode
            && self.ttl == other.ttl
            && self.lock_delay == other.lock_delay
            && self.floor == other.floor
    }
}

impl lobby::Claim for Claim {
    type Told = Result<Answer, Failure>;
    type Call = HolderId;
    type Offer = ();
    const POLL: Duration = Duration::from_secs(5);

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

/// Whole microseconds, upwards: the store must not let go before the holder does. A year is as
/// good as for ever.
pub(crate) fn whole_us(span: Duration) -> u64 {
    const YEAR_US: u64 = 366 * 86_400 * 1_000_000;
    u64::try_from(span.as_nanos().div_ceil(1_000)).unwrap_or(YEAR_US).min(YEAR_US)
}

/// A mode as it is stored.
pub(crate) fn write_mode(mode: Mode) -> i64 {
    match mode {
        Mode::Exclusive => 0,
        Mode::Shared => -1,
        Mode::Permit { limit } => i64::from(limit.get()).min(i64::from(i32::MAX)),
    }
}

pub(crate) fn read_mode(text: &str) -> Option<Mode> {
    Some(match text.parse::<i64>().ok()? {
        0 => Mode::Exclusive,
        -1 => Mode::Shared,
        limit => Mode::Permit { limit: NonZeroU32::new(u32::try_from(limit).ok()?)? },
    })
}

/// A client as it is stored and written, in capitals as the server writes it.
pub(crate) fn write_client(client: ClientId) -> String {
    client.to_string().to_ascii_uppercase()
}

/// A client and a secret of its own, which is as long as a holder.
pub(crate) fn write_secret(client: ClientId) -> Result<String, Failure> {
    Ok(HolderId::random(client)?.to_hex().to_ascii_uppercase())
}

pub(crate) fn read_client(text: &str) -> Option<ClientId> {
    let mut bytes = [0; 6];
    if text.len() != 12 || !text.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(ClientId::from_bytes(bytes))
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
    /// Reads one line of the answer, without its number.
    pub(crate) fn read(claim: &Claim, line: &str) -> Result<Self, Failure> {
        let nonsense = || failure::of_nonsense("an acquisition of another form");
        let (code, rest) = line.split_once('\t').unwrap_or((line, ""));
        let mode = || read_mode(rest).ok_or_else(nonsense);
        Err(match code {
            "G" => return read_fence(rest).map(Self::Granted),
            "W" => {
                let blocked = rest.parse().map(Duration::from_micros).map_err(|_| nonsense())?;
                let blocked = Some(blocked);
                return Ok(Self::Waiting(Place { blocked, now_us: None }));
            }
            "T" => return Seen::read(rest).map(Self::Taken).ok_or_else(nonsense),
            "C" => Error::conflict(claim.mode, mode()?).into(),
            "H" => Error::already_held(claim.mode, mode()?).into(),
            "R" => {
                let cause = LossCause::Revoked { reason: rest.into() };
                Error::lost(&claim.name, cause).into()
            }
            "F" => Error::floor_ahead().into(),
            "X" => Failure::new(
                ErrorKind::TokenExhausted,
                "the fence in lockfast_locks or lockfast_store is not below 2^53 and cannot rise \
                 any more; repair it",
            ),
            _ => nonsense(),
        })
    }
}

pub(crate) fn read_fence(text: &str) -> Result<Fence, Failure> {
    let number = text.parse().map_err(|_| failure::of_nonsense("a fence that is no number"))?;
    Fence::new(number).map_err(|error| Failure::new(error.kind(), error.to_string()))
}

/// A lock as the server saw it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) holders: Vec<SeenHolder>,
    pub(crate) waiting: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct SeenHolder {
    pub(crate) client: ClientId,
    mode: Mode,
    fence: Option<Fence>,
    since: SystemTime,
    remaining: Duration,
}

impl Seen {
    /// Reads `waiting[;mode.fence.since_us.remaining_us.client]…`.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let mut parts = text.split(';');
        let waiting = parts.next()?.parse().ok()?;
        let holders = parts.map(SeenHolder::read).collect::<Option<_>>()?;
        Some(Self { holders, waiting })
    }

    /// The lock as people may see it.
    pub(crate) fn view(
        &self,
        name: &LockName,
        label: impl Fn(&ClientId) -> Option<Label>,
    ) -> LockView {
        let view = |holder: &SeenHolder| {
            HolderView::new(holder.mode, holder.since, holder.remaining)
                .with_fence(holder.fence)
                .with_label(label(&holder.client))
        };
        let holders = self.holders.iter().map(view).collect();
        LockView::new(name.clone(), holders, self.waiting)
    }

    /// How long the lease with this fence lasts, if it is there.
    pub(crate) fn remaining_of(&self, fence: Fence) -> Option<Duration> {
        let found = self.holders.iter().find(|holder| holder.fence == Some(fence));
        found.map(|holder| holder.remaining)
    }
}

impl SeenHolder {
    fn read(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.split('.').collect();
        let [mode, fence, since_us, remaining_us, client] = fields.as_slice() else { return None };
        let since = Duration::from_micros(since_us.parse().ok()?);
        Some(Self {
            client: read_client(client)?,
            mode: read_mode(mode)?,
            fence: Fence::parse(fence).ok(),
            since: SystemTime::UNIX_EPOCH.checked_add(since)?,
            remaining: Duration::from_micros(remaining_us.parse().ok()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_is_read() {
        let seen = Seen::read("2;-1.17.5.2500000.0000000000FF;4.18.6.1.0000000000FF").unwrap();
        assert_eq!((seen.waiting, seen.holders.len()), (2, 2));
        assert_eq!(seen.holders[0].mode, Mode::Shared);
        assert_eq!(seen.remaining_of(Fence::new(17).unwrap()), Some(Duration::from_millis(2500)));
        assert!(Seen::read("0").unwrap().holders.is_empty());
        for nonsense in ["", "x", "1;", "1;0.1.2.3", "1;0.1.2.3.xx"] {
            assert!(Seen::read(nonsense).is_none(), "{nonsense}");
        }
    }
}
