//! What happens to locks, for whoever watches. A stream that is not read fast enough loses events
//! and is told so; it never slows a store down. Where a lease that runs out makes no noise in the
//! store, [`Leases`] says when to look.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::fence::Fence;
use crate::holder::{ClientId, Label};
use crate::name::LockName;
use crate::time::{Moment, wall_clock, wall_clock_us};

/// How much later than its end a lease is looked at, so that one look finds it ended.
const LATER: Duration = Duration::from_millis(2);

/// Something that happened to a lock.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WatchEvent {
    /// When, by the wall clock of whoever did it.
    pub at: SystemTime,
    /// To which lock.
    pub name: LockName,
    /// What.
    pub kind: WatchKind,
    /// The fence of the grant it is about, if there was one.
    pub fence: Option<Fence>,
    /// Whose claim, for people.
    pub label: Option<Label>,
}

impl WatchEvent {
    /// An event that is about nobody's grant or claim that is known.
    pub fn new(at: SystemTime, name: LockName, kind: WatchKind) -> Self {
        Self { at, name, kind, fence: None, label: None }
    }

    /// The same with the fence of the grant it is about, if there was one.
    #[must_use]
    pub fn with_fence(self, fence: Option<Fence>) -> Self {
        Self { fence, ..self }
    }

    /// The same with the label of whose claim it is, if it has one.
    #[must_use]
    pub fn with_label(self, label: Option<Label>) -> Self {
        Self { label, ..self }
    }
}

/// What can happen to a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchKind {
    /// Somebody began to wait.
    Queued,
    /// Somebody got it.
    Granted,
    /// Its holder gave it back.
    Released,
    /// Somebody stopped waiting.
    Abandoned,
    /// Its holder died or did not renew it in time.
    Expired,
    /// An operator took it away.
    Revoked,
    /// The value of this name was written or removed; not told when its time ran out.
    Changed,
    /// The watcher was too slow and missed events before this one.
    Missed,
}

impl WatchKind {
    /// The word for it, stable.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Granted => "granted",
            Self::Released => "released",
            Self::Abandoned => "abandoned",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
            Self::Changed => "changed",
            Self::Missed => "missed",
        }
    }

    /// What a letter stands for in the messages of the stores that tell events by text.
    pub fn from_letter(letter: &str) -> Option<Self> {
        match letter {
            "q" => Some(Self::Queued),
            "g" => Some(Self::Granted),
            "r" => Some(Self::Released),
            "a" => Some(Self::Abandoned),
            "e" => Some(Self::Expired),
            "v" => Some(Self::Revoked),
            "c" => Some(Self::Changed),
            _ => None,
        }
    }
}

/// Events as they happen, until it is dropped or the store is gone.
///
/// ```
/// use std::time::SystemTime;
/// use lockfast_core::{EventStream, LockName, WatchEvent, WatchKind};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast_core::Result<()> {
/// let (mut feed, mut events) = EventStream::channel(); // what a store does when it is watched
/// feed.offer(WatchEvent::new(SystemTime::now(), LockName::new("report")?, WatchKind::Granted));
/// drop(feed);
/// while let Some(event) = events.next().await {
///     println!("{} was {}", event.name, event.kind.as_str());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct EventStream(mpsc::Receiver<WatchEvent>);

impl EventStream {
    /// How many events may wait to be read before some are missed.
    pub const BACKLOG_MAX: usize = 1024;

    /// A stream and the end that feeds it.
    pub fn channel() -> (EventFeed, Self) {
        let (sender, receiver) = mpsc::channel(Self::BACKLOG_MAX);
        (EventFeed { sender, missed: false }, Self(receiver))
    }

    /// The next event; `None` when there will be no more.
    ///
    /// # Cancel safety
    /// Safe: no event is lost.
    pub async fn next(&mut self) -> Option<WatchEvent> {
        self.0.recv().await
    }
}

/// The end of an [`EventStream`] that a store writes to.
#[derive(Debug)]
pub struct EventFeed {
    sender: mpsc::Sender<WatchEvent>,
    missed: bool,
}

impl EventFeed {
    /// Passes an event on, after a [`WatchKind::Missed`] when something before it was lost. What
    /// does not fit is lost.
    pub fn offer(&mut self, event: WatchEvent) {
        if self.missed {
            let missed = WatchEvent {
                at: wall_clock(),
                name: event.name.clone(),
                kind: WatchKind::Missed,
                fence: None,
                label: None,
            };
            self.missed = self.sender.try_send(missed).is_err();
        }
        if !self.missed && matches!(self.sender.try_send(event), Err(TrySendError::Full(_))) {
            self.missed = true;
        }
    }

    /// Events were lost, or may have been, on the way here.
    pub fn miss(&mut self) {
        self.missed = true;
    }

    /// Whether the stream was dropped.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Ends when the stream is dropped. The stream does not end while this is kept.
    pub fn closing(&self) -> impl Future<Output = ()> + Send + 'static {
        let sender = self.sender.clone();
        async move { sender.closed().await }
    }
}

/// All streams that one connection feeds.
#[derive(Debug, Default)]
pub struct EventFeeds(Vec<EventFeed>);

impl EventFeeds {
    /// Opens another stream.
    pub fn open(&mut self) -> EventStream {
        let (feed, stream) = EventStream::channel();
        self.0.push(feed);
        stream
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets the streams that were dropped.
    pub fn prune(&mut self) {
        self.0.retain(|feed| !feed.is_closed());
    }

    /// Passes an event on to every stream.
    pub fn tell(&mut self, event: &WatchEvent) {
        self.0.retain_mut(|feed| {
            feed.offer(event.clone());
            !feed.is_closed()
        });
    }

    /// Events were lost, or may have been, on the way here.
    pub fn miss(&mut self) {
        self.0.iter_mut().for_each(EventFeed::miss);
    }
}

/// An event as a store tells it, before it is known who the client is.
#[derive(Clone, Debug)]
pub struct Notice {
    /// When, in µs of the store's wall clock.
    pub at_us: u64,
    /// What.
    pub kind: WatchKind,
    /// The fence of the grant it is about, if there was one.
    pub fence: Option<Fence>,
    /// Whose claim.
    pub client: ClientId,
    /// How long a grant lasts unless it is renewed.
    pub lasts: Duration,
    /// To which lock.
    pub name: LockName,
}

impl Notice {
    /// The event, with the client's label where it is known.
    pub fn into_event(self, label: Option<Label>) -> WatchEvent {
        WatchEvent {
            at: SystemTime::UNIX_EPOCH + Duration::from_micros(self.at_us),
            name: self.name,
            kind: self.kind,
            fence: self.fence,
            label,
        }
    }
}

/// A lease that was seen to begin.
#[derive(Clone, Debug)]
pub struct Lease {
    /// Of which lock.
    pub name: LockName,
    /// With which fence.
    pub fence: Fence,
    client: ClientId,
    due_ns: u64,
}

impl Lease {
    /// That it ran out, just now.
    pub fn expired(self) -> Notice {
        Notice {
            at_us: wall_clock_us(),
            kind: WatchKind::Expired,
            fence: Some(self.fence),
            client: self.client,
            lasts: Duration::ZERO,
            name: self.name,
        }
    }
}

/// The leases that were seen to begin and not yet to end, for a store where nobody tells that one
/// ran out.
#[derive(Debug)]
pub struct Leases {
    most: usize,
    known: BTreeMap<(LockName, u64), Lease>,
    due: BTreeSet<(u64, LockName, u64)>,
}

impl Leases {
    /// Keeps an eye on so many at most; what begins beyond that is not looked at.
    pub fn up_to(most: usize) -> Self {
        Self { most, known: BTreeMap::new(), due: BTreeSet::new() }
    }

    /// Takes note of an event.
    pub fn note(&mut self, notice: &Notice) {
        let Some(fence) = notice.fence else { return };
        let (name, client) = (notice.name.clone(), notice.client);
        if notice.kind != WatchKind::Granted {
            self.remove(name, fence.get());
        } else if self.known.len() < self.most {
            self.watch(Lease { name, fence, client, due_ns: 0 }, notice.lasts);
        }
    }

    /// Keeps an eye on a lease that lasts this much longer unless it is renewed.
    pub fn watch(&mut self, mut lease: Lease, lasts: Duration) {
        let fence = lease.fence.get();
        lease.due_ns = (Moment::now() + lasts + LATER).host_ns();
        self.due.insert((lease.due_ns, lease.name.clone(), fence));
        self.known.insert((lease.name.clone(), fence), lease);
    }

    /// When to look next.
    pub fn next_due(&self) -> Option<Moment> {
        self.due.first().map(|(due_ns, ..)| Moment::from_host_ns(*due_ns))
    }

    /// Takes those that should be over, as many as may be looked at together.
    pub fn take_due(&mut self, now: Moment, most: usize) -> Vec<Lease> {
        let is_due = |(due_ns, ..): &&(u64, LockName, u64)| *due_ns <= now.host_ns();
        let due: Vec<_> = self.due.iter().take_while(is_due).take(most).cloned().collect();
        due.into_iter().filter_map(|(_, name, fence)| self.remove(name, fence)).collect()
    }

    /// Takes all of one lock.
    pub fn take_all_of(&mut self, name: &LockName) -> Vec<Lease> {
        let all = (name.clone(), 0)..=(name.clone(), u64::MAX);
        let fences: Vec<u64> = self.known.range(all).map(|((_, fence), _)| *fence).collect();
        fences.into_iter().filter_map(|fence| self.remove(name.clone(), fence)).collect()
    }

    fn remove(&mut self, name: LockName, fence: u64) -> Option<Lease> {
        let lease = self.known.remove(&(name, fence))?;
        self.due.remove(&(lease.due_ns, lease.name.clone(), fence));
        Some(lease)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(name: &str, fence: u64, kind: WatchKind, lasts: Duration) -> Notice {
        Notice {
            at_us: wall_clock_us(),
            kind,
            fence: Some(Fence::new(fence).unwrap()),
            client: ClientId::from_bytes([7; 6]),
            lasts,
            name: LockName::new(name).unwrap(),
        }
    }

    fn granted(name: &str, fence: u64) -> Notice {
        notice(name, fence, WatchKind::Granted, Duration::ZERO)
    }

    fn fences(leases: Vec<Lease>) -> Vec<u64> {
        leases.into_iter().map(|lease| lease.fence.get()).collect()
    }

    fn much_later() -> Moment {
        Moment::now() + Duration::from_secs(60)
    }

    #[tokio::test]
    async fn a_slow_reader_learns_that_it_missed_something() {
        let event = granted("a", 1).into_event(None);
        let mut feeds = EventFeeds::default();
        let mut stream = feeds.open();
        for _ in 0..EventStream::BACKLOG_MAX + 5 {
            feeds.tell(&event);
        }
        for _ in 0..EventStream::BACKLOG_MAX {
            assert_eq!(stream.next().await.unwrap().kind, WatchKind::Granted);
        }
        feeds.tell(&event);
        assert_eq!(stream.next().await.unwrap().kind, WatchKind::Missed);
        assert_eq!(stream.next().await.unwrap().kind, WatchKind::Granted);
        feeds.miss();
        feeds.tell(&event);
        assert_eq!(stream.next().await.unwrap().kind, WatchKind::Missed);
        assert_eq!(stream.next().await.unwrap().kind, WatchKind::Granted);
    }

    #[tokio::test]
    async fn a_dropped_stream_is_forgotten() {
        let event = granted("a", 1).into_event(None);
        let mut feeds = EventFeeds::default();
        drop(feeds.open());
        feeds.tell(&event);
        assert!(feeds.is_empty());
        drop(feeds.open());
        feeds.prune();
        assert!(feeds.is_empty());
        let (feed, stream) = EventStream::channel();
        let closing = feed.closing();
        assert!(!feed.is_closed());
        drop(stream);
        closing.await;
        assert!(feed.is_closed());
    }

    #[test]
    fn a_lease_that_did_not_end_is_due() {
        let mut leases = Leases::up_to(10);
        leases.note(&notice("a", 1, WatchKind::Queued, Duration::ZERO));
        assert!(leases.next_due().is_none());
        for fence in 2..=4 {
            leases.note(&granted("a", fence));
        }
        leases.note(&notice("a", 3, WatchKind::Released, Duration::ZERO));
        leases.note(&notice("b", 5, WatchKind::Granted, Duration::from_secs(3600)));
        assert!(leases.next_due().is_some_and(|due| due.has_passed(much_later())));
        assert_eq!(fences(leases.take_due(much_later(), 1)), [2]);
        assert_eq!(fences(leases.take_due(much_later(), 10)), [4]);
        assert!(leases.take_due(much_later(), 10).is_empty());
        assert!(leases.next_due().is_some_and(|due| !due.has_passed(much_later())));
    }

    #[test]
    fn a_lease_that_is_looked_at_can_be_watched_further_or_told_as_expired() {
        let mut leases = Leases::up_to(10);
        leases.note(&granted("a", 1));
        let lease = leases.take_due(much_later(), 10).remove(0);
        leases.watch(lease, Duration::from_secs(3600));
        assert!(leases.take_due(much_later(), 10).is_empty());
        let lease = leases.take_all_of(&LockName::new("a").unwrap()).remove(0);
        assert!(leases.next_due().is_none());
        let event = lease.expired().into_event(None);
        assert_eq!((event.kind, event.fence.map(Fence::get)), (WatchKind::Expired, Some(1)));
    }

    #[test]
    fn all_of_one_lock_are_taken_and_no_more_than_allowed_are_kept() {
        let mut leases = Leases::up_to(3);
        for (name, fence) in [("a", 1), ("b", 2), ("a", 3), ("a", 4)] {
            leases.note(&granted(name, fence));
        }
        assert_eq!(fences(leases.take_all_of(&LockName::new("a").unwrap())), [1, 3]);
        assert_eq!(fences(leases.take_due(much_later(), 10)), [2]);
    }
}
