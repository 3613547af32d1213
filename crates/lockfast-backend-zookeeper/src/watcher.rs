//! Events of all locks and values, made from the changes of nodes that the server tells in their order.
//!
//! | changes | what happened |
//! |---|---|
//! | deleted and created in one step | a claim moved to another session of its process: nothing |
//! | changed and deleted in one step | its holder gave the lock back |
//! | changed twice in one step | an operator takes it away |
//! | deleted | its session ended; or it did not wait any longer |

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use lockfast_core::time::wall_clock;
use lockfast_core::watch::EventFeed;
use lockfast_core::{EventStream, Fence, HolderView, Label, LockName, WatchEvent, WatchKind};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::failure::{self, Failure, Fate};
use crate::inspect::{read_holders, read_line};
use crate::layout::{Contender, Line, lock_name, value_name};
use crate::store::Store;
use crate::wire::{NodeEvent, Session};

/// The second change of one step arrives right behind the first.
const TOGETHER: Duration = Duration::from_millis(50);

/// Opens a stream. It ends when it is dropped, or when its session ends.
pub(crate) async fn open(store: Arc<Store>) -> Result<EventStream, Failure> {
    let session = store.open_session().await?;
    let (feed, stream) = EventStream::channel();
    let mut watcher = Watcher::start(session, feed).await?;
    store.context.runtime.spawn(async move {
        let closing = watcher.feed.closing();
        tokio::select! {
            () = closing => {}
            failure = watcher.run() => tracing::debug!(?failure, "a stream of events ends"),
        }
    });
    Ok(stream)
}

struct Watcher {
    session: Session,
    feed: EventFeed,
    changes: mpsc::UnboundedReceiver<NodeEvent>,
    /// What was looked at ahead.
    next: VecDeque<NodeEvent>,
    locks: HashMap<LockName, Seen>,
}

/// A lock as the changes so far have left it.
#[derive(Default)]
struct Seen {
    line: Line,
    /// By node.
    claims: HashMap<String, SeenClaim>,
}

#[derive(Clone, Default)]
struct SeenClaim {
    label: Option<Label>,
    fence: Option<Fence>,
    is_granted: bool,
    is_revoked: bool,
}

impl SeenClaim {
    fn of(view: HolderView) -> Self {
        Self { label: view.label, fence: view.fence, ..Self::default() }
    }
}

impl Watcher {
    async fn start(session: Session, feed: EventFeed) -> Result<Self, Failure> {
        let (sender, changes) = mpsc::unbounded_channel();
        session.watch_tree(sender).await?;
        let (next, locks) = (VecDeque::new(), HashMap::new());
        let mut watcher = Self { session, feed, changes, next, locks };
        watcher.load().await?;
        Ok(watcher)
    }

    /// Learns who has what already.
    async fn load(&mut self) -> Result<(), Failure> {
        for node in self.session.children("/").await? {
            let Some(name) = lock_name(&node) else { continue };
            // What is used for something else is no lock.
            let Ok(line) = read_line(&self.session, &name).await else { continue };
            let mut seen = Seen::default();
            for (claim, view) in read_holders(&self.session, &name, &line.claims).await? {
                seen.claims.insert(claim.node, SeenClaim::of(view));
            }
            seen.line = line;
            for at in 0..seen.line.holders() {
                let claim = seen.claims.entry(seen.line.claims[at].node.clone()).or_default();
                claim.is_granted = true;
            }
            self.locks.insert(name, seen);
        }
        Ok(())
    }

    async fn run(&mut self) -> Failure {
        loop {
            let change = match self.next.pop_front() {
                Some(change) => Some(change),
                None => self.changes.recv().await,
            };
            let handled = match change {
                None => return failure::of_end(),
                Some(NodeEvent::Missed) => self.restart().await,
                Some(change) => self.handle(change).await,
            };
            match handled {
                Ok(()) => {}
                Err(failure) if failure.handling == Fate::Broken => {
                    self.next.push_back(NodeEvent::Missed);
                }
                Err(failure) => return failure,
            }
        }
    }

    /// The connection broke: what happened meanwhile is not known.
    async fn restart(&mut self) -> Result<(), Failure> {
        self.session.settled().await;
        self.feed.miss();
        self.next.clear();
        self.locks.clear();
        let (sender, changes) = mpsc::unbounded_channel();
        self.changes = changes;
        self.session.watch_tree(sender).await?;
        self.load().await
    }

    /// Whether the next change is this one; then it is taken.
    async fn is_next(&mut self, expected: &NodeEvent) -> bool {
        if self.next.is_empty()
            && let Ok(Some(change)) = timeout(TOGETHER, self.changes.recv()).await
        {
            self.next.push_back(change);
        }
        let is_next = self.next.front() == Some(expected);
        if is_next {
            self.next.pop_front();
        }
        is_next
    }

    async fn handle(&mut self, change: NodeEvent) -> Result<(), Failure> {
        let (NodeEvent::Created(path) | NodeEvent::Deleted(path) | NodeEvent::Changed(path)) =
            &change
        else {
            return Ok(());
        };
        let path = path.clone();
        if let Some(name) = value_name(&path) {
            self.tell(&name, WatchKind::Changed, None, None);
            return Ok(());
        }
        let Some((lock, node)) = path.strip_prefix('/').and_then(|path| path.split_once('/'))
        else {
            return Ok(());
        };
        let parts = lock_name(lock).zip(Contender::read(node.to_owned()));
        let Some((name, claim)) = parts else { return Ok(()) };
        match change {
            NodeEvent::Created(_) => self.claim_came(&name, claim).await?,
            NodeEvent::Deleted(_) => {
                if !self.is_next(&NodeEvent::Created(path)).await {
                    let kind =
                        if claim.is_ours() { WatchKind::Expired } else { WatchKind::Released };
                    self.claim_went(&name, &claim, kind);
                }
            }
            NodeEvent::Changed(_) => {
                if self.is_next(&NodeEvent::Deleted(path.clone())).await {
                    self.claim_went(&name, &claim, WatchKind::Released);
                } else if self.is_next(&NodeEvent::Changed(path)).await
                    && let Some(seen) = self.locks.get_mut(&name)
                    && let Some(claim) = seen.claims.get_mut(&claim.node)
                {
                    claim.is_revoked = true;
                }
            }
            NodeEvent::Missed => {}
        }
        Ok(())
    }

    async fn claim_came(&mut self, name: &LockName, claim: Contender) -> Result<(), Failure> {
        let known = self.locks.get(name);
        if known.is_some_and(|seen| seen.line.position(&claim.node).is_some()) {
            return Ok(());
        }
        let found = read_holders(&self.session, name, std::slice::from_ref(&claim)).await?;
        let found = found.into_iter().next().map(|(_, view)| SeenClaim::of(view));
        let found = found.unwrap_or_default();
        let label = found.label.clone();
        let seen = self.locks.entry(name.clone()).or_default();
        let (node, is_quiet) = (claim.node.clone(), claim.is_trying());
        seen.claims.insert(node.clone(), found);
        seen.line.insert(claim);
        self.settle(name);
        let is_granted = self.locks.get(name).and_then(|seen| seen.claims.get(&node));
        if !is_quiet && is_granted.is_some_and(|claim| !claim.is_granted) {
            self.tell(name, WatchKind::Queued, None, label);
        }
        Ok(())
    }

    fn claim_went(&mut self, name: &LockName, claim: &Contender, kind: WatchKind) {
        let Some(seen) = self.locks.get_mut(name) else { return };
        seen.line.remove(&claim.node);
        let Some(gone) = seen.claims.remove(&claim.node) else { return };
        let is_free = seen.line.claims.is_empty();
        let kind = match (gone.is_granted, gone.is_revoked) {
            (false, _) => WatchKind::Abandoned,
            (true, true) => WatchKind::Revoked,
            (true, false) => kind,
        };
        let fence = gone.fence.filter(|_| gone.is_granted);
        if gone.is_granted || !claim.is_trying() {
            self.tell(name, kind, fence, gone.label);
        }
        self.settle(name);
        if is_free {
            self.locks.remove(name);
        }
    }

    /// Tells who has the lock now and had not before.
    fn settle(&mut self, name: &LockName) {
        let Some(seen) = self.locks.get_mut(name) else { return };
        let mut granted = Vec::new();
        for at in 0..seen.line.holders() {
            let claim = seen.claims.entry(seen.line.claims[at].node.clone()).or_default();
            if !claim.is_granted {
                claim.is_granted = true;
                granted.push((claim.fence, claim.label.clone()));
            }
        }
        for (fence, label) in granted {
            self.tell(name, WatchKind::Granted, fence, label);
        }
    }

    fn tell(
        &mut self,
        name: &LockName,
        kind: WatchKind,
        fence: Option<Fence>,
        label: Option<Label>,
    ) {
        self.feed.offer(
            WatchEvent::new(wall_clock(), name.clone(), kind).with_fence(fence).with_label(label),
        );
    }
}
