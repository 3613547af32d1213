//! What is asked of the server, and how many askers share one statement.

use std::sync::Arc;
use std::time::Duration;

use lockfast_core::lobby::{self, Lobby};
use lockfast_core::{HolderId, LockName, LossCause, Mode, ReleaseOutcome, RenewRequest};
use tokio::sync::oneshot;
use tokio_postgres::Row;

use crate::claim::Claim;
use crate::failure::Failure;
use crate::wire::Uuid;

/// How many locks one statement carries.
pub(crate) const LOCKS_MAX: usize = 1024;

/// What is added to the kind of a request that is the only one of its batch for its lock.
const ALONE: i16 = 10;

/// The way an answer goes back.
pub(crate) type Asker<T> = oneshot::Sender<Result<T, Failure>>;

/// One request.
pub(crate) enum Op {
    Take(Take),
    Give(Give),
    Renew(Renew),
    Plain(Plain),
}

/// Asks for a lock.
pub(crate) type Take = lobby::Take<Claim>;

/// Gives a lock back.
pub(crate) struct Give {
    pub(crate) name: LockName,
    pub(crate) holder: HolderId,
    /// Who wants to know.
    pub(crate) asker: Option<Asker<ReleaseOutcome>>,
    /// Whether it may have been done already, by a call that was not answered.
    pub(crate) doubtful: bool,
    pub(crate) tries: u8,
}

/// Asks for more time.
pub(crate) struct Renew {
    pub(crate) leases: Arc<[RenewRequest]>,
    pub(crate) asker: Asker<Vec<Renewal>>,
    pub(crate) tries: u8,
}

/// What became of a renewal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    Renewed,
    Lost(LossCause),
}

/// Any other statement.
pub(crate) struct Plain {
    pub(crate) statement: String,
    pub(crate) values: Vec<Value>,
    pub(crate) asker: Asker<Told>,
    /// Whether it can be done twice like once. A revocation cannot: the second takes the lock away
    /// from whoever has it next.
    pub(crate) is_repeatable: bool,
    /// Whether it was sent before and nobody knows what came of it.
    pub(crate) is_doubtful: bool,
    pub(crate) tries: u8,
}

/// What a plain statement was answered.
pub(crate) struct Told {
    pub(crate) rows: Vec<Row>,
    /// Whether an earlier try, of which nobody knows what came, may have done it.
    pub(crate) is_doubtful: bool,
}

/// How often a request is tried.
const TRIES_MAX: u8 = 4;

/// A value of a plain statement.
pub(crate) enum Value {
    Text(String),
    OptionalText(Option<String>),
    Number(i64),
    OptionalNumber(Option<i64>),
    Bytes(Vec<u8>),
    OptionalBytes(Option<Vec<u8>>),
    Holder(Uuid),
    /// The link by which it is sent.
    Link,
}

impl Op {
    /// Whether nobody wants the answer any more, so that it need not be asked.
    pub(crate) fn is_moot(&self, lobby: &Lobby<Claim>) -> bool {
        match self {
            Self::Take(take) => take.is_moot(lobby),
            Self::Give(_) | Self::Renew(_) => false,
            Self::Plain(plain) => plain.asker.is_closed(),
        }
    }

    /// Counts a failure. Returns whether it is worth another try.
    pub(crate) fn try_again(&mut self) -> bool {
        let tries = self.tries();
        *tries += 1;
        *tries < TRIES_MAX
    }

    /// Whether it has not failed yet.
    pub(crate) fn is_fresh(&mut self) -> bool {
        *self.tries() == 0
    }

    fn tries(&mut self) -> &mut u8 {
        match self {
            Self::Take(take) => &mut take.tries,
            Self::Give(give) => &mut give.tries,
            Self::Renew(renew) => &mut renew.tries,
            Self::Plain(plain) => &mut plain.tries,
        }
    }

    /// It was sent and not answered.
    pub(crate) fn doubt(&mut self) {
        match self {
            Self::Give(give) => give.doubtful = true,
            Self::Plain(plain) => {
                plain.is_doubtful = true;
                if !plain.is_repeatable {
                    plain.tries = TRIES_MAX;
                }
            }
            Self::Take(_) | Self::Renew(_) => {}
        }
    }

    /// How long an answer is worth waiting for before the connection counts as dead.
    pub(crate) fn limit(&self, request_timeout: Duration) -> Duration {
        let ttl = match self {
            Self::Take(take) => take.claim.ttl,
            Self::Renew(renew) => {
                renew.leases.iter().map(|lease| lease.ttl).min().unwrap_or(Duration::MAX)
            }
            Self::Give(_) | Self::Plain(_) => Duration::MAX,
        };
        (ttl / 3).max(Duration::from_millis(500)).min(request_timeout)
    }

    /// The name of a lock that it is about.
    fn name(&self, lease: usize) -> &str {
        match self {
            Self::Take(take) => take.claim.name.as_str(),
            Self::Give(give) => give.name.as_str(),
            Self::Renew(renew) => renew.leases[lease].name.as_str(),
            Self::Plain(_) => "",
        }
    }

    /// How many locks it is about.
    pub(crate) fn locks(&self) -> usize {
        match self {
            Self::Take(_) | Self::Give(_) => 1,
            Self::Renew(renew) => renew.leases.len(),
            Self::Plain(_) => 0,
        }
    }
}

/// What one statement carries.
pub(crate) struct Batch {
    /// Each is taken out when it is answered.
    pub(crate) ops: Vec<Option<Op>>,
    /// One for each lock, in the order of the names.
    pub(crate) lines: Vec<Line>,
}

/// One lock of a batch: whose request, and which of its leases.
#[derive(Clone, Copy)]
pub(crate) struct Line {
    pub(crate) op: usize,
    pub(crate) lease: usize,
}

/// A batch of one request in its most frequent form.
pub(crate) enum One<'a> {
    /// A claim, and whether it stays in the queue when its turn has not come.
    Take(&'a Claim, bool),
    Give(&'a Give),
}

impl<'a> One<'a> {
    pub(crate) fn name(&self) -> &'a str {
        match self {
            Self::Take(claim, _) => claim.name.as_str(),
            Self::Give(give) => give.name.as_str(),
        }
    }
}

/// The arrays that the server's function takes. Those that would say nothing stay empty.
#[derive(Default)]
pub(crate) struct Columns<'a> {
    pub(crate) kinds: Vec<i16>,
    pub(crate) names: Vec<&'a str>,
    pub(crate) holders: Vec<Uuid>,
    pub(crate) ttls: Vec<i64>,
    pub(crate) delays: Vec<i64>,
    pub(crate) modes: Vec<i32>,
    pub(crate) floors: Vec<Option<i64>>,
    pub(crate) calls: Vec<i64>,
}

impl Batch {
    /// Sorts requests by their locks.
    pub(crate) fn new(ops: Vec<Op>) -> Self {
        let mut lines = Vec::with_capacity(ops.len());
        for (op, request) in ops.iter().enumerate() {
            lines.extend((0..request.locks()).map(|lease| Line { op, lease }));
        }
        let name = |line: &Line| ops[line.op].name(line.lease);
        // Stable: requests for one lock stay in the order in which they were made.
        lines.sort_by(|a, b| name(a).cmp(name(b)));
        Self { ops: ops.into_iter().map(Some).collect(), lines }
    }

    /// Whether no other request is for the same lock, so that their order does not matter.
    fn is_alone(&self, at: usize) -> bool {
        let name = |at: usize| {
            let line = self.lines.get(at)?;
            Some(self.ops[line.op].as_ref()?.name(line.lease))
        };
        let own = name(at);
        own != name(at + 1) && (at == 0 || own != name(at - 1))
    }

    /// The locks that it gives back.
    pub(crate) fn given(&self) -> impl Iterator<Item = &str> {
        self.ops.iter().filter_map(|op| match op {
            Some(Op::Give(give)) => Some(give.name.as_str()),
            _ => None,
        })
    }

    /// What is left of it.
    pub(crate) fn into_ops(self) -> impl Iterator<Item = Op> {
        self.ops.into_iter().flatten()
    }

    /// Its only request, if it is of the most frequent form.
    pub(crate) fn only(&self) -> Option<One<'_>> {
        match self.ops.as_slice() {
            [Some(Op::Take(take))] if take.claim.is_plain() => {
                Some(One::Take(&take.claim, take.may_wait()))
            }
            [Some(Op::Give(give))] => Some(One::Give(give)),
            _ => None,
        }
    }

    /// What the server is told.
    pub(crate) fn columns(&self) -> Columns<'_> {
        let mut columns = Columns::default();
        let requests = || self.lines.iter().map(|line| (&self.ops[line.op], line.lease));
        let is_plain = |op: &Option<Op>| match op {
            Some(Op::Take(take)) => take.claim.is_plain(),
            Some(Op::Renew(renew)) => renew.leases.iter().all(|it| it.lock_delay.is_zero()),
            _ => true,
        };
        let is_short = self.ops.iter().all(is_plain);
        for (at, (op, lease)) in requests().enumerate() {
            let alone = if self.is_alone(at) { ALONE } else { 0 };
            match op {
                Some(Op::Take(take)) => {
                    let claim = &take.claim;
                    let kind = if take.may_wait() { 2 } else { 1 };
                    columns.add(kind + alone, &claim.name, claim.holder, claim.ttl);
                    columns.calls.push(claim.call);
                    if !is_short {
                        columns.delays.push(whole_us(claim.lock_delay));
                        columns.modes.push(write_mode(claim.mode));
                        columns.floors.push(claim.floor);
                    }
                    continue;
                }
                Some(Op::Give(give)) => {
                    columns.add(3 + alone, &give.name, give.holder, Duration::ZERO);
                }
                Some(Op::Renew(renew)) => {
                    let it = &renew.leases[lease];
                    columns.add(4 + alone, &it.name, it.holder, it.ttl);
                    if !is_short {
                        columns.delays.push(whole_us(it.lock_delay));
                    }
                }
                Some(Op::Plain(_)) | None => {}
            }
            columns.calls.push(0);
            if !is_short {
                columns.modes.push(0);
                columns.floors.push(None);
                columns.delays.resize(columns.modes.len(), 0);
            }
        }
        columns
    }
}

impl<'a> Columns<'a> {
    fn add(&mut self, kind: i16, name: &'a LockName, holder: HolderId, ttl: Duration) {
        self.kinds.push(kind);
        self.names.push(name.as_str());
        self.holders.push(Uuid(holder));
        self.ttls.push(whole_us(ttl));
    }
}

/// Whole microseconds, upwards: the store must not let go before the holder does.
pub(crate) fn whole_us(span: Duration) -> i64 {
    const MAX: i64 = i64::MAX / 8;
    i64::try_from(span.as_nanos().div_ceil(1_000)).unwrap_or(MAX).min(MAX)
}

/// A mode as the server stores it.
pub(crate) fn write_mode(mode: Mode) -> i32 {
    match mode {
        Mode::Exclusive => 0,
        Mode::Shared => -1,
        Mode::Permit { limit } => i32::try_from(limit.get()).unwrap_or(i32::MAX),
    }
}

/// A stored mode.
pub(crate) fn read_mode(number: i64) -> Option<Mode> {
    match number {
        0 => Some(Mode::Exclusive),
        -1 => Some(Mode::Shared),
        limit => Mode::permit(u32::try_from(limit).ok()?).ok(),
    }
}
