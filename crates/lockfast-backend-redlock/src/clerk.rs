//! Keeps the time that nodes have. Most requests are decided long before, so nothing is set up
//! for each of them: the clerk goes through all of them once in a while as long as there are any.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockfast_core::Moment;
use tokio::sync::Notify;

use crate::ballot::Said;
use crate::claim::{Claim, Phase};
use crate::giving::{Gave, Giving};
use crate::inquiry::Inquiry;
use crate::renewal::{Kept, Renewal};
use crate::store::{Store, lock};
use crate::wire::failure;

/// How often the clerk looks.
const TICK: Duration = Duration::from_millis(5);
/// How often it finds nothing before it goes to sleep. To wake it costs more than a few looks.
const IDLE_TICKS_MAX: u32 = 40;
/// However healthy a node looks, it does not keep anybody for longer than so many times its time.
const PATIENCE: u32 = 20;

/// What is under way.
pub(crate) enum Pending {
    Round(Arc<Claim>, u32),
    Renewal(Arc<Renewal>),
    Inquiry(Arc<Inquiry>),
    /// A refusal that is told when it is undone.
    Undo(Arc<Giving>),
}

struct Entry {
    since: Moment,
    limit: Duration,
    what: Pending,
}

/// The clerk's desk.
#[derive(Default)]
pub(crate) struct Clerk {
    entries: Mutex<Vec<Entry>>,
    is_awake: AtomicBool,
    woken: Notify,
}

impl Clerk {
    /// Keeps an eye on something.
    pub(crate) fn watch(&self, what: Pending, since: Moment, limit: Duration) {
        lock(&self.entries).push(Entry { since, limit, what });
        if !self.is_awake.swap(true, Ordering::AcqRel) {
            self.woken.notify_one();
        }
    }

    /// Works for ever.
    pub(crate) async fn work(store: Arc<Store>) {
        let clerk = &store.clerk;
        let mut idle_ticks = 0;
        let mut entries = Vec::new();
        loop {
            tokio::time::sleep(TICK).await;
            entries.append(&mut lock(&clerk.entries));
            idle_ticks = if entries.is_empty() { idle_ticks + 1 } else { 0 };
            entries.retain(|entry: &Entry| entry.is_open(&store));
            if idle_ticks < IDLE_TICKS_MAX {
                continue;
            }
            idle_ticks = 0;
            clerk.is_awake.store(false, Ordering::Release);
            if lock(&clerk.entries).is_empty() {
                clerk.woken.notified().await;
            }
            clerk.is_awake.store(true, Ordering::Release);
        }
    }
}

impl Entry {
    /// Whether it still has to be watched. Nodes whose time is up are marked as late.
    fn is_open(&self, store: &Arc<Store>) -> bool {
        let age = Moment::now().since(self.since);
        let is_late =
            |node: usize| age >= self.limit * PATIENCE || store.nodes[node].is_stuck(self.limit);
        match &self.what {
            Pending::Round(claim, round) => {
                let open: Vec<usize> = {
                    let state = claim.state();
                    if state.phase != Phase::Asking || state.round != *round {
                        return false;
                    }
                    let votes = state.ballot.votes().iter().enumerate();
                    votes.filter(|(_, said)| **said == Said::Nothing).map(|(at, _)| at).collect()
                };
                for node in open.into_iter().filter(|_| age >= self.limit) {
                    if is_late(node) {
                        store.vote(claim, *round, node, Said::Late(self.limit));
                    }
                }
            }
            Pending::Renewal(renewal) => {
                for node in 0..store.nodes.len() {
                    if age >= self.limit && renewal.waits_for(node) && is_late(node) {
                        renewal.vote_alike(node, &Kept::Late(self.limit));
                    }
                }
                return !renewal.is_decided();
            }
            Pending::Inquiry(inquiry) => {
                for node in 0..store.nodes.len() {
                    if age >= self.limit && inquiry.waits_for(node) && is_late(node) {
                        let endpoint = store.nodes[node].endpoint();
                        inquiry.answer(node, Err(failure::of_silence(endpoint, self.limit)));
                    }
                }
                return !inquiry.is_moot();
            }
            // It is undone there all the same, as soon as that can be.
            Pending::Undo(giving) => {
                for node in 0..store.nodes.len() {
                    if age >= self.limit && giving.waits_for(node) && is_late(node) {
                        let endpoint = store.nodes[node].endpoint();
                        let failure = failure::of_silence(endpoint, self.limit);
                        giving.vote(node, Gave::Failed(failure));
                    }
                }
                return !giving.is_told();
            }
        }
        true
    }
}
