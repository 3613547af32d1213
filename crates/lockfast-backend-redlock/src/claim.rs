//! One acquisition on its way: what the nodes are told round by round, and where it stands.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use lockfast_backend_redis::node::write_holder;
use lockfast_core::{AcquireRequest, Fence, Grant, HolderId, LockName, Moment, Wait};
use tokio::sync::oneshot;

use crate::ballot::{Ballot, Said};
use crate::record::holder_tag;
use crate::store::lock;
use crate::wire::Failure;

/// The way an outcome goes back.
pub(crate) type Asker = oneshot::Sender<Outcome>;

/// What the caller is told.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Granted(Grant),
    /// What each node said, and whether somebody else is in the way.
    Refused {
        votes: Vec<Said>,
        is_taken: bool,
    },
    Failed(Failure),
}

/// What a holder wants.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) name: LockName,
    pub(crate) holder: HolderId,
    /// The holder as it is written.
    pub(crate) text: String,
    tag: OnceLock<String>,
    pub(crate) ttl: Duration,
    /// How long a node keeps a grant that nobody renews, in ms.
    pub(crate) lease_ms: u64,
    pub(crate) wait: Wait,
    pub(crate) detached: bool,
    pub(crate) floor: Option<Fence>,
    /// Until when it may be held somewhere, in [`Moment::host_ns`].
    ends_ns: AtomicU64,
    state: Mutex<State>,
}

/// Where a claim stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// A round is under way.
    Asking,
    /// It waits for a better moment.
    Waiting,
    Held(Fence),
    /// Nobody wants it any more, or it was given back.
    Over,
}

/// What changes about a claim.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) phase: Phase,
    pub(crate) round: u32,
    pub(crate) proposal: u64,
    /// What is added to our clock for the proposals of this try, in microseconds.
    pub(crate) correction_us: i64,
    /// The highest fence that it ever proposed.
    pub(crate) top: u64,
    /// When the round began, before anything of it was sent.
    pub(crate) from: Moment,
    pub(crate) ballot: Ballot,
    /// What each node said last in the rounds before.
    pub(crate) record: Ballot,
    pub(crate) askers: Vec<Asker>,
    /// How the nodes are asked in this round.
    pub(crate) manner: Manner,
    /// The nodes that were or may have been asked in any round, as bits.
    pub(crate) sent: u32,
    /// The nodes that have granted it in this round, as bits.
    pub(crate) granted: u32,
    /// Whether a try was undone: then what the holder still has somewhere may be about to go.
    pub(crate) was_undone: bool,
    /// Whether nodes may have it among the callers.
    pub(crate) is_listed: bool,
    /// How many rounds in a row brought nothing although nobody was firmly in the way.
    pub(crate) misses: u32,
    /// How often the proposal was raised in this try.
    pub(crate) raises: u32,
    pub(crate) failing_since: Option<Moment>,
    /// The nodes that called it to try again, as bits.
    pub(crate) called_by: u32,
}

/// How nodes are asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manner {
    /// It becomes a caller where another has the lock.
    pub(crate) waits: bool,
    /// What the holder has already is raised to the proposal.
    pub(crate) raises: bool,
    /// Its time is up: the answer ends the wait, whatever it is.
    pub(crate) is_last: bool,
}

/// What a node is told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    pub(crate) proposal: u64,
    /// As the script reads it.
    pub(crate) how: u8,
    /// How long the node is to keep it, in ms.
    pub(crate) lease_ms: u64,
}

impl Ticket {
    /// It becomes a caller and takes nothing.
    const LIST: u8 = 8;

    /// Whether the answer is a vote.
    pub(crate) fn is_vote(self) -> bool {
        self.how != Self::LIST
    }
}

impl Claim {
    pub(crate) fn new(request: AcquireRequest, nodes: usize, asker: Asker) -> Self {
        let lease_ms = whole_ms(request.ttl) + whole_ms(request.lock_delay);
        let now = Moment::now();
        Self {
            text: write_holder(request.holder),
            tag: OnceLock::new(),
            name: request.name,
            holder: request.holder,
            ttl: request.ttl,
            lease_ms,
            wait: request.wait,
            detached: request.detached,
            floor: request.floor,
            ends_ns: AtomicU64::new((now + Duration::from_millis(lease_ms)).host_ns()),
            state: Mutex::new(State {
                phase: Phase::Waiting,
                round: 0,
                proposal: 0,
                correction_us: 0,
                top: 0,
                from: now,
                ballot: Ballot::new(nodes),
                record: Ballot::default(),
                askers: vec![asker],
                manner: Manner::default(),
                sent: 0,
                granted: 0,
                was_undone: false,
                is_listed: false,
                misses: 0,
                raises: 0,
                failing_since: None,
                called_by: 0,
            }),
        }
    }

    /// What nodes call the holder where others can hear it.
    pub(crate) fn tag(&self) -> &str {
        self.tag.get_or_init(|| holder_tag(&self.text))
    }

    /// The same, if it was ever needed.
    pub(crate) fn known_tag(&self) -> Option<&str> {
        self.tag.get().map(String::as_str)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Whether it may wait (any longer).
    pub(crate) fn may_wait(&self) -> bool {
        self.wait.is_open()
    }

    /// Lets a node be asked in this round, unless that would be of no use any more. A node that has
    /// heard nothing before the others decided that it waits is only told that it does.
    pub(crate) fn stamp(&self, node: usize, round: u32) -> Option<Ticket> {
        let mut state = self.state();
        if state.round != round {
            return None;
        }
        let Manner { waits, raises, .. } = state.manner;
        let is_new = state.sent & (1 << node) == 0;
        let how = match state.phase {
            Phase::Asking | Phase::Held(_) => {
                u8::from(waits) + 2 * u8::from(raises) + 4 * u8::from(state.is_listed)
            }
            Phase::Waiting if waits && is_new => Ticket::LIST,
            Phase::Waiting | Phase::Over => return None,
        };
        state.sent |= 1 << node;
        Some(Ticket { proposal: state.proposal, how, lease_ms: self.lease_ms })
    }

    /// Whether a node was or may have been asked.
    pub(crate) fn was_sent(&self, node: usize) -> bool {
        self.state().sent & (1 << node) != 0
    }

    /// What each node said last, also after it was decided and in earlier rounds.
    pub(crate) fn testimony(&self) -> Vec<Said> {
        self.state().testimony().votes().to_vec()
    }

    /// Takes over what is known of an earlier request of the same holder, which ends.
    pub(crate) fn succeed(&self, earlier: &Self) {
        let mut before = earlier.state();
        before.phase = Phase::Over;
        let mut state = self.state();
        state.sent = before.sent;
        state.is_listed = before.is_listed || before.manner.waits;
        state.proposal = before.proposal;
        state.top = before.top;
        state.was_undone = before.was_undone;
        let askers = std::mem::take(&mut before.askers);
        state.askers.extend(askers.into_iter().filter(|asker| !asker.is_closed()));
    }

    /// A node keeps it for so much longer from now on.
    pub(crate) fn extend(&self, lease: Duration) {
        self.ends_ns.fetch_max((Moment::now() + lease).host_ns(), Ordering::Relaxed);
    }

    /// Until when a node may have it, if nobody releases it.
    pub(crate) fn ends(&self) -> Moment {
        Moment::from_host_ns(self.ends_ns.load(Ordering::Relaxed))
    }

    /// Whether no node can have it any more.
    pub(crate) fn has_ended(&self, now: Moment) -> bool {
        self.ends_ns.load(Ordering::Relaxed) < now.host_ns()
    }
}

impl State {
    /// Ends the claim, of which something may be left to undo. Returns whether it had not ended: if
    /// it had, a later request of the same holder has taken over what it has, or another undoes it.
    pub(crate) fn close(&mut self) -> bool {
        let was_open = self.phase != Phase::Over;
        self.phase = Phase::Over;
        self.was_undone |= was_open;
        was_open
    }

    /// What each node said last, in this round or before.
    pub(crate) fn testimony(&self) -> Ballot {
        let mut record = self.record.clone();
        record.update(&self.ballot);
        record
    }

    /// Forgets those who do not ask any more. Returns whether somebody does.
    pub(crate) fn is_wanted(&mut self) -> bool {
        self.askers.retain(|asker| !asker.is_closed());
        !self.askers.is_empty()
    }
}

/// Gives the same outcome to all who asked. Returns whether somebody heard it.
pub(crate) fn tell_all(askers: Vec<Asker>, outcome: &Outcome) -> bool {
    // Not `any`: everybody is told.
    askers.into_iter().filter_map(|asker| asker.send(outcome.clone()).ok()).count() > 0
}

/// Whole milliseconds, upwards: a node must not let go before the holder does.
pub(crate) fn whole_ms(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX / 4).min(u64::MAX / 4)
}
