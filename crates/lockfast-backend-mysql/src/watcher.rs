//! Watching: every change is mailed to those who watch, and only while somebody does. A lease that
//! runs out changes nothing in the database, so whoever watches looks when one should have.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockfast_core::watch::{EventFeed, Lease, Leases, Notice};
use lockfast_core::{EventStream, Fence, LockName, Moment, Result, WatchKind};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::claim::read_client;
use crate::failure::Failure;
use crate::store::{Store, lock};
use crate::wire::Argument;

/// How long events are mailed after the last watcher was heard of, and how often it is.
const WATCH_US: u64 = 30_000_000;
const WATCH_REFRESH: Duration = Duration::from_secs(10);
/// How many leases a watcher keeps an eye on, and how many events may wait for it.
const LEASES_MAX: usize = 10_000;
const EVENTS_MAX: usize = 4096;
const PAUSE: Duration = Duration::from_millis(300);

/// Those who watch through this connection.
#[derive(Default)]
pub(crate) struct Feeds(Mutex<Vec<Arc<Mailbox>>>);

struct Mailbox {
    sender: mpsc::Sender<Notice>,
    /// Whether an event did not fit, or may have been lost on the way.
    has_missed: AtomicBool,
}

impl Feeds {
    /// Passes an event on.
    pub(crate) fn tell(&self, fields: &[&str]) {
        let Some(notice) = read_notice(fields) else { return };
        let mut mailboxes = lock(&self.0);
        mailboxes.retain(|mailbox| match mailbox.sender.try_send(notice.clone()) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                mailbox.has_missed.store(true, Ordering::Release);
                true
            }
            Err(TrySendError::Closed(_)) => false,
        });
    }

    /// Events may have been lost.
    pub(crate) fn miss(&self) {
        for mailbox in lock(&self.0).iter() {
            mailbox.has_missed.store(true, Ordering::Release);
        }
    }
}

/// Opens a stream of events.
pub(crate) async fn open(store: Arc<Store>) -> Result<EventStream> {
    let (feed, stream) = EventStream::channel();
    let (sender, events) = mpsc::channel(EVENTS_MAX);
    let mailbox = Arc::new(Mailbox { sender, has_missed: AtomicBool::new(false) });
    lock(&store.feeds.0).push(Arc::clone(&mailbox));
    keep_mailing(&store).await.map_err(|failure| failure.to_error())?;
    let weak = Arc::downgrade(&store);
    let runtime = store.runtime.clone();
    drop(store);
    runtime.spawn(async move {
        let Some(store) = weak.upgrade() else { return };
        let leases = Leases::up_to(LEASES_MAX);
        let mut watcher = Watcher { feed, mailbox, events, leases };
        watcher.run(&store).await;
    });
    Ok(stream)
}

struct Watcher {
    feed: EventFeed,
    mailbox: Arc<Mailbox>,
    events: mpsc::Receiver<Notice>,
    leases: Leases,
}

impl Watcher {
    /// Watches until nobody wants to know any more.
    async fn run(&mut self, store: &Arc<Store>) {
        let mut refreshed = Moment::now();
        while !self.feed.is_closed() {
            let refresh = (refreshed + WATCH_REFRESH).remaining(Moment::now()).min(PAUSE);
            let wait = self
                .leases
                .next_due()
                .map_or(refresh, |due| due.remaining(Moment::now()).min(refresh));
            match tokio::time::timeout(wait, self.events.recv()).await {
                Ok(Some(notice)) => self.pass_on(store, notice).await,
                Ok(None) => return,
                Err(_) => {}
            }
            if self.mailbox.has_missed.swap(false, Ordering::AcqRel) {
                self.feed.miss();
            }
            self.look_at_due(store).await;
            if (refreshed + WATCH_REFRESH).has_passed(Moment::now()) {
                // It is mailed for long enough to try again.
                if keep_mailing(store).await.is_ok() {
                    refreshed = Moment::now();
                }
            }
        }
        self.events.close();
    }

    async fn pass_on(&mut self, store: &Arc<Store>, notice: Notice) {
        if notice.kind == WatchKind::Granted {
            // Those who shared it until now may have it still, or have run out.
            let before = self.leases.take_all_of(&notice.name);
            self.look_at(store, before).await;
        }
        self.leases.note(&notice);
        self.tell(store, notice).await;
    }

    /// Looks at leases that should be over, if they were not renewed.
    async fn look_at_due(&mut self, store: &Arc<Store>) {
        let due = self.leases.take_due(Moment::now(), LEASES_MAX);
        self.look_at(store, due).await;
    }

    /// Tells which of these leases are over.
    async fn look_at(&mut self, store: &Arc<Store>, leases: Vec<Lease>) {
        if leases.is_empty() {
            return;
        }
        let names: HashSet<LockName> = leases.iter().map(|lease| lease.name.clone()).collect();
        let names: Vec<LockName> = names.into_iter().collect();
        let Ok(seen) = store.look(&names).await else {
            // It will be looked at again.
            leases.into_iter().for_each(|lease| self.leases.watch(lease, PAUSE));
            return;
        };
        let seen: HashMap<LockName, _> = names.into_iter().zip(seen).collect();
        for lease in leases {
            let remaining = seen.get(&lease.name).and_then(|seen| seen.remaining_of(lease.fence));
            match remaining {
                Some(remaining) => self.leases.watch(lease, remaining),
                None => self.tell(store, lease.expired()).await,
            }
        }
    }

    async fn tell(&mut self, store: &Arc<Store>, notice: Notice) {
        let client = notice.client;
        let label = store.find_labels(HashSet::from([client])).await.remove(&client);
        self.feed.offer(notice.into_event(label));
    }
}

/// Asks for events for a while.
async fn keep_mailing(store: &Store) -> std::result::Result<(), Failure> {
    let arguments = vec![Argument::from(&store.who), Argument::from(WATCH_US)];
    store.ask("CALL lockfast_watch(?, ?)", arguments).await.map(|_| ())
}

/// An event as it was mailed.
fn read_notice(fields: &[&str]) -> Option<Notice> {
    // Without a fence there is a field less.
    let (head, [client, lasts_us, name]) = fields.split_last_chunk()?;
    let (at_us, kind, fence) = match head {
        [at_us, kind] => (at_us, kind, None),
        [at_us, kind, fence] => (at_us, kind, Fence::parse(fence).ok()),
        _ => return None,
    };
    Some(Notice {
        at_us: at_us.parse().ok()?,
        kind: WatchKind::from_letter(kind)?,
        fence,
        client: read_client(client)?,
        lasts: Duration::from_micros(lasts_us.parse().ok()?),
        name: LockName::new(name).ok()?,
    })
}
