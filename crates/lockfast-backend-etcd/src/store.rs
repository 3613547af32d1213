//! What the parts of the store share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockfast_core::batch::Inbox;
use lockfast_core::{ConnectContext, HolderId, Moment};
use lockfast_net::drive::Gather;
use tokio::sync::{Notify, Semaphore, mpsc};

use crate::batch::Write;
use crate::claim::Claims;
use crate::crew::Crew;
use crate::ends::Ends;
use crate::gate::Gates;
use crate::keeper::Ask;
use crate::key::Space;
use crate::link::Link;
use crate::pulse::Pulses;
use crate::session::{Session, Sessions};
use crate::values::Removals;
use crate::watches::Watches;
use crate::wire::{Connection, Dialer, RangeRequest, WatchOp};

/// How many transactions may be under way before the next waits for more to carry.
const ROUNDS: usize = 2;
/// How many transactions may be under way at once: the server refuses more than it can keep up
/// with.
const SENDING_MAX: usize = 64;
/// How often those who wait make sure of how old the news of their turn can be.
const PULSE: Duration = Duration::from_millis(300);
/// How often it is looked what is due.
const TICK: Duration = Duration::from_millis(100);
/// How long a lock is held before its end is watched for.
const WATCH_AGE: Duration = Duration::from_millis(300);

/// A connection to a cluster, and all that is done over it.
pub(crate) struct Store {
    pub(crate) context: ConnectContext,
    pub(crate) space: Space,
    pub(crate) link: Arc<Link>,
    pub(crate) claims: Claims,
    pub(crate) gates: Gates,
    /// One at a time puts the key of a holder under another lease.
    pub(crate) moving: Gates,
    pub(crate) sessions: Sessions,
    pub(crate) watches: Watches,
    pub(crate) pulses: Pulses,
    /// Holders for whom a key may have been written, or may still be, under these leases.
    pub(crate) doubts: Mutex<HashMap<HolderId, Vec<Arc<Session>>>>,
    pub(crate) removals: Removals,
    pub(crate) ends: Ends,
    /// A key that we have the right to read.
    pub(crate) readable: Mutex<Option<Vec<u8>>>,
    pub(crate) asks: mpsc::UnboundedSender<Ask>,
    pub(crate) inbox: Inbox<Write>,
    pub(crate) written: Arc<Notify>,
    pub(crate) rounds: Arc<Semaphore>,
    pub(crate) sending: Semaphore,
}

/// What the store's tasks listen to.
pub(crate) struct Ears {
    pub(crate) asks: mpsc::UnboundedReceiver<Ask>,
    pub(crate) watches: mpsc::UnboundedReceiver<WatchOp>,
}

impl Store {
    pub(crate) fn new(
        dialer: Dialer,
        first: Connection,
        context: ConnectContext,
    ) -> (Arc<Self>, Ears) {
        let (asks, asked) = mpsc::unbounded_channel();
        let (watches, watched) = Watches::new();
        let written = Arc::new(Notify::new());
        let wake = Arc::clone(&written);
        let store = Self {
            space: Space::new(&dialer.config().prefix),
            claims: Claims::new(context.losses.clone()),
            context,
            link: Arc::new(Link::new(dialer, first)),
            gates: Gates::default(),
            moving: Gates::default(),
            sessions: Sessions::default(),
            watches,
            pulses: Pulses::default(),
            doubts: Mutex::default(),
            removals: Removals::default(),
            ends: Ends::default(),
            readable: Mutex::default(),
            asks,
            inbox: Inbox::new(move || wake.notify_one()),
            written,
            rounds: Arc::new(Semaphore::new(ROUNDS)),
            sending: Semaphore::new(SENDING_MAX),
        };
        (Arc::new(store), Ears { asks: asked, watches: watched })
    }

    /// Who does the work that callers wait for.
    pub(crate) fn crew(&self) -> &Crew {
        self.link.dialer.crew()
    }

    /// While somebody waits, asks the cluster for its revision once in a while.
    pub(crate) async fn pulse(self: Arc<Self>) {
        loop {
            tokio::time::sleep(PULSE).await;
            let Some(key) = self.claims.any_waiting() else { continue };
            let sent = Moment::now();
            let request = RangeRequest { key, keys_only: true, ..RangeRequest::default() };
            let answer = self.link.range(request).await;
            if let Some(header) = answer.ok().and_then(|answer| answer.header) {
                self.pulses.note(sent, header.revision);
            }
        }
    }

    /// Does what is due, for ever.
    pub(crate) async fn tend(self: Arc<Self>) {
        loop {
            tokio::time::sleep(TICK).await;
            let now = Moment::now();
            self.watch_own(now, WATCH_AGE);
            self.look_at_watched_keys();
            self.check_lines(now);
            self.end_idle_sessions(now);
            self.end_due(now);
            self.ask_origins(now);
            self.evict(now);
        }
    }
}

impl Gather for Store {
    fn is_gathering(&self) -> bool {
        false
    }
}

/// Locks a mutex; nothing that holds one of these can panic half-way.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
