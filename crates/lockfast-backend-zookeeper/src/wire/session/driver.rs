//! Writes the requests of a session, reads the answers, and finds another server when one is lost.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lockfast_core::{Moment, jitter};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::super::dial::{Dialer, Identity};
use super::super::jute::Reader;
use super::super::link::{self, Link, Progress, op};
use super::super::{NodeEvent, NodeWatcher};
use super::life::Life;
use super::{Request, Status, Watch};
use crate::failure::{self, Failure, Fate, code};

/// How much may wait to be written.
const WRITE_BYTES: usize = 256 * 1024;
/// A server that says nothing is given at least so much time.
const SILENCE_MIN: Duration = Duration::from_millis(300);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// What happened to a node.
const CREATED: i32 = 1;
const DELETED: i32 = 2;
const CHANGED: i32 = 3;

type Reply = oneshot::Sender<Result<Vec<u8>, Failure>>;
/// By the whole path of the node.
type Watches = HashMap<String, Vec<Arc<NodeWatcher>>>;

/// What was written.
struct Pending {
    xid: i32,
    sent: Moment,
    is_change: bool,
    watch: Option<Watch>,
    reply: Reply,
}

pub(super) struct Driver {
    dialer: Arc<Dialer>,
    requests: mpsc::UnboundedReceiver<Request>,
    status: watch::Sender<Status>,
    beat: Duration,
    /// What was written and not answered, in order: so it is answered.
    pending: VecDeque<Pending>,
    life: Life,
    watches: Watches,
    /// Of those who are told the end of a node.
    ends: Watches,
    trees: Vec<mpsc::UnboundedSender<NodeEvent>>,
    xid: i32,
    /// See [`Dialer::doubts`].
    doubts: watch::Receiver<u64>,
}

/// Why a connection is not served any more.
enum Stop {
    /// Nobody uses the session any more.
    Closed,
    Broken(Failure),
    Ended,
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        match failure.handling {
            Fate::Ended => Self::Ended,
            _ => Self::Broken(failure),
        }
    }
}

impl Driver {
    pub(super) fn new(
        dialer: Arc<Dialer>,
        requests: mpsc::UnboundedReceiver<Request>,
        status: watch::Sender<Status>,
        beat: Duration,
        life: Life,
    ) -> Self {
        let doubts = dialer.doubts.subscribe();
        Self {
            dialer,
            requests,
            status,
            beat,
            pending: VecDeque::new(),
            life,
            watches: HashMap::new(),
            ends: HashMap::new(),
            trees: Vec::new(),
            xid: 0,
            doubts,
        }
    }

    pub(super) async fn run(mut self, mut link: Link) {
        loop {
            let stop = self.serve(&mut link).await.err().unwrap_or(Stop::Closed);
            let Link { identity, endpoint, .. } = link;
            match stop {
                Stop::Closed => return,
                Stop::Broken(failure) => {
                    tracing::debug!(session = %format_args!("{:x}", identity.id), ?failure, "disconnected");
                    self.status.send_replace(Status::Disconnected { since: Moment::now() });
                    self.dialer.avoid(&endpoint);
                    self.let_go(&failure);
                }
                Stop::Ended => break,
            }
            match self.resume(identity).await {
                Ok(resumed) => link = resumed,
                Err(Stop::Ended) => break,
                Err(_) => return,
            }
            self.status.send_replace(Status::Connected);
        }
        tracing::debug!("the server ended a session");
        self.status.send_replace(Status::Ended);
        self.requests.close();
        self.let_go(&failure::of_end());
        while let Ok(request) = self.requests.try_recv() {
            let _ = request.reply.send(Err(failure::of_end()));
        }
    }

    /// Fails what was in flight, and wakes everybody who waits for a change: it may be missed.
    fn let_go(&mut self, failure: &Failure) {
        self.life.break_off();
        for pending in self.pending.drain(..) {
            let _ = pending.reply.send(Err(failure.clone()));
        }
        let watches = self.watches.drain().chain(self.ends.drain());
        for watcher in watches.flat_map(|(_, watchers)| watchers) {
            watcher.tell_missed();
        }
        for tree in self.trees.drain(..) {
            let _ = tree.send(NodeEvent::Missed);
        }
    }

    /// Connects again, until the server says that the session is over. So it is, too, where several
    /// servers decide now and one did when it was opened: its answers prove nothing any more, and it
    /// does not outlast its leases. The servers delete its nodes when they end it, by when all have
    /// long been told.
    async fn resume(&mut self, identity: Identity) -> Result<Link, Stop> {
        let mut pause = Duration::from_millis(10);
        loop {
            let is_used = !self.requests.is_closed() || !self.requests.is_empty();
            if !is_used {
                return Err(Stop::Closed);
            }
            match self.dialer.open(identity.clone()).await {
                Ok(_) if self.dialer.proof() != self.life.proof => return Err(Stop::Ended),
                Ok(link) => return Ok(link),
                Err(failure) if failure.handling == Fate::Ended => return Err(Stop::Ended),
                Err(failure) => tracing::debug!(?failure, "cannot connect again"),
            }
            sleep(pause.mul_f64(1.0 + jitter())).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn serve(&mut self, link: &mut Link) -> Result<(), Stop> {
        let silence = link.identity.timeout * 2 / 5;
        let silence = silence.min(self.dialer.config.request_timeout).max(SILENCE_MIN);
        let mut beats = interval(self.beat);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heard = Moment::now();
        let mut doubted: Option<Moment> = None;
        self.doubts.mark_unchanged();
        loop {
            let left =
                doubted.map_or(Duration::MAX, |at| (at + SILENCE_MIN).remaining(Moment::now()));
            tokio::select! {
                biased;
                progress = link.exchange() => if progress? == Progress::Read {
                    heard = Moment::now();
                    doubted = None;
                    self.take_replies(link)?;
                },
                // Another connection is silent: is this one, too?
                Ok(()) = self.doubts.changed() => {
                    doubted = Some(Moment::now());
                    self.ping(link);
                }
                () = sleep(left), if doubted.is_some() => {
                    Err(failure::of_silence(&link.endpoint, SILENCE_MIN))?;
                }
                request = self.requests.recv(), if link.queued() < WRITE_BYTES => match request {
                    Some(request) => self.queue(link, request),
                    None => {
                        link.close().await;
                        return Ok(());
                    }
                },
                _ = beats.tick() => {
                    if Moment::now().since(heard) > silence {
                        self.dialer.doubts.send_modify(|count| *count += 1);
                        Err(failure::of_silence(&link.endpoint, silence))?;
                    }
                    self.ping(link);
                }
            }
        }
    }

    fn ping(&mut self, link: &mut Link) {
        self.life.ping(Moment::now());
        link.queue(&op::frame(op::PING_XID, op::PING, Vec::new()));
    }

    /// Has a request written, and those that wait behind it.
    fn queue(&mut self, link: &mut Link, first: Request) {
        let sent = Moment::now();
        let mut next = Some(first);
        while let Some(Request { mut frame, is_change, watch, reply }) = next {
            // What nobody waits for any more was asked while there was no connection.
            if !reply.is_closed() {
                self.xid = if self.xid == i32::MAX { 1 } else { self.xid + 1 };
                frame[4..8].copy_from_slice(&self.xid.to_be_bytes());
                link.queue(&frame);
                let xid = self.xid;
                self.pending.push_back(Pending { xid, sent, is_change, watch, reply });
            }
            let has_room = link.queued() < WRITE_BYTES;
            next = if has_room { self.requests.try_recv().ok() } else { None };
        }
    }

    fn take_replies(&mut self, link: &mut Link) -> Result<(), Failure> {
        let short = || failure::of_nonsense("a reply without a header");
        while let Some(frame) = link.next_reply()? {
            let mut reader = Reader::new(frame);
            let xid = reader.int().ok_or_else(short)?;
            let zxid = reader.long().ok_or_else(short)?;
            let error = reader.int().ok_or_else(short)?;
            match (xid, error) {
                (op::NOTIFICATION_XID, _) => self.notify(reader),
                (_, code::SESSION_EXPIRED) => return Err(failure::of_end()),
                (_, code::SESSION_MOVED) => {
                    return Err(failure::of_break("the session was resumed elsewhere"));
                }
                (op::PING_XID, _) => self.life.answer_ping(),
                (op::AUTH_XID, error) => link::note_login(error),
                (xid, error) => {
                    self.dialer.seen.fetch_max(zxid, Ordering::Relaxed);
                    self.answer(xid, error, reader.rest())?;
                }
            }
        }
        Ok(())
    }

    fn answer(&mut self, xid: i32, error: i32, body: &[u8]) -> Result<(), Failure> {
        match self.pending.pop_front() {
            Some(Pending { xid: asked, sent, is_change, watch, reply }) if asked == xid => {
                if error == 0 {
                    watch.into_iter().for_each(|watch| self.register(watch));
                    self.life.answer(sent, is_change);
                }
                let answer =
                    if error == 0 { Ok(body.to_vec()) } else { Err(failure::of_refusal(error)) };
                let _ = reply.send(answer);
                Ok(())
            }
            Some(other) => {
                self.pending.push_front(other);
                Err(failure::of_nonsense("a reply out of order"))
            }
            None => Err(failure::of_nonsense("a reply to nothing")),
        }
    }

    fn register(&mut self, watch: Watch) {
        let (watches, path, watcher) = match watch {
            Watch::Tree(events) => return self.trees.push(events),
            Watch::Node(path, watcher) => (&mut self.watches, path, watcher),
            Watch::End(path, watcher) => (&mut self.ends, path, watcher),
        };
        let watchers = watches.entry(path).or_default();
        // Whoever has gone meanwhile has left no other reference.
        watchers.retain(|other| Arc::strong_count(other) > 1 && !Arc::ptr_eq(other, &watcher));
        watchers.push(watcher);
    }

    fn notify(&mut self, mut event: Reader<'_>) {
        let parts = (event.int(), event.int(), event.text());
        let (Some(kind), Some(_state), Some(path)) = parts else { return };
        self.tell_watchers(kind, path);
        if self.trees.is_empty() {
            return;
        }
        let chroot = &*self.dialer.config.chroot;
        let Some(path) = path.strip_prefix(chroot).map(str::to_owned) else { return };
        let event = match kind {
            CREATED => NodeEvent::Created(path),
            DELETED => NodeEvent::Deleted(path),
            CHANGED => NodeEvent::Changed(path),
            _ => return,
        };
        self.trees.retain(|tree| tree.send(event.clone()).is_ok());
    }

    fn tell_watchers(&mut self, kind: i32, path: &str) {
        let watchers = self.watches.remove(path).unwrap_or_default();
        if kind == CHANGED {
            return watchers.iter().for_each(|watcher| watcher.tell_changed());
        }
        let ends = self.ends.remove(path).unwrap_or_default();
        let told = watchers.iter().chain(&ends);
        match kind {
            // The server tells each connection of it once.
            DELETED => told.for_each(|watcher| watcher.tell_deleted()),
            // Whatever else there is says nothing about the node; it is looked at again.
            _ => told.for_each(|watcher| watcher.tell_missed()),
        }
    }
}
