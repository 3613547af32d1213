//! A session: requests in the order of their calls, over as many connections as it takes.

mod driver;
mod life;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockfast_core::{Moment, SessionId};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use super::dial::{Dialer, Identity};
use super::jute::{Reader, Writer};
use super::link::op::{self, ANY_VERSION};
use super::{Access, NodeEvent, NodeKind, NodeWatcher, Stat};
use crate::failure::{self, Failure};
use crate::store::lock;
use driver::Driver;
use life::Life;

/// All rights, in an ACL.
const ALL: i32 = 31;
/// Of a node that was not changed since it was made.
const FIRST_VERSION: i32 = 0;

/// Whether a session can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Connected,
    /// Without a connection; requests wait for the next one.
    Disconnected {
        since: Moment,
    },
    /// The server ended it.
    Ended,
}

/// A session with the servers. It is closed when it is dropped, and the server then deletes its
/// ephemeral nodes.
pub(crate) struct Session {
    pub(crate) id: i64,
    /// How long the server keeps it after the last contact.
    pub(crate) timeout: Duration,
    dialer: Arc<Dialer>,
    requests: mpsc::UnboundedSender<Request>,
    status: watch::Receiver<Status>,
    alive_at: Arc<Mutex<Moment>>,
    /// As long as it lives.
    pub(crate) proof: Proof,
}

/// What is told about changes that come after the answer.
enum Watch {
    /// The next change of this node; also when it may have been missed.
    Node(String, Arc<NodeWatcher>),
    /// The end of this node, whatever was told of its changes before; also when it may have been
    /// missed.
    End(String, Arc<NodeWatcher>),
    /// All changes below a node.
    Tree(mpsc::UnboundedSender<NodeEvent>),
}

/// Which answers show that the servers keep a session from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Proof {
    /// Those of one server that decides alone.
    Any,
    /// Where several decide: those to changes, on which a majority agreed.
    Change,
}

struct Request {
    frame: Vec<u8>,
    /// Whether a majority has to agree on it.
    is_change: bool,
    watch: Option<Watch>,
    reply: oneshot::Sender<Result<Vec<u8>, Failure>>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({:x}, {:?})", self.id, self.timeout)
    }
}

impl Session {
    /// Opens a session and keeps it alive on `runtime` by a contact every `beat`. It ends when its
    /// answers prove no longer what they are taken for.
    pub(crate) async fn open(
        dialer: &Arc<Dialer>,
        runtime: &Handle,
        asked: Duration,
        beat: Duration,
        proof: Proof,
    ) -> Result<Self, Failure> {
        let alive_at = Arc::new(Mutex::new(Moment::now()));
        let link = dialer.open(Identity::new(asked)).await?;
        if dialer.proof() != proof {
            return Err(failure::of_break("several servers decide now where one did; try again"));
        }
        let (requests, queue) = mpsc::unbounded_channel();
        let (teller, status) = watch::channel(Status::Connected);
        let (id, timeout) = (link.identity.id, link.identity.timeout);
        let beat = beat.min(timeout / 4);
        let life = Life::new(proof, Arc::clone(&alive_at));
        let driver = Driver::new(Arc::clone(dialer), queue, teller, beat, life);
        runtime.spawn(driver.run(link));
        Ok(Self { id, timeout, dialer: Arc::clone(dialer), requests, status, alive_at, proof })
    }

    /// The last moment at which something was sent that proves, by its answer, that the session was
    /// alive then.
    pub(crate) fn alive_at(&self) -> Moment {
        *lock(&self.alive_at)
    }

    pub(crate) fn status(&self) -> Status {
        *self.status.borrow()
    }

    /// Waits until it is over: whether the server ended it, which has to be told, or we closed it.
    pub(crate) fn over(&self) -> impl Future<Output = bool> + Send + use<> {
        let mut status = self.status.clone();
        async move { status.wait_for(|status| *status == Status::Ended).await.is_ok() }
    }

    /// Waits until the server has ended it.
    pub(crate) async fn ended(&self) {
        if !self.over().await {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until it has been without a connection for so long.
    pub(crate) fn unserved_for(&self, limit: Duration) -> impl Future<Output = ()> + Send + use<> {
        let mut status = self.status.clone();
        let is_served = |status: &Status| !matches!(status, Status::Disconnected { .. });
        async move {
            loop {
                let found = status.wait_for(|status| !is_served(status)).await.map(|found| *found);
                let Ok(Status::Disconnected { since }) = found else {
                    // It was closed.
                    return std::future::pending().await;
                };
                let left = (since + limit).remaining(Moment::now());
                if timeout(left, status.wait_for(is_served)).await.is_err() {
                    return;
                }
            }
        }
    }

    /// Its number, for the lease engine.
    pub(crate) fn number(&self) -> SessionId {
        SessionId(self.id.cast_unsigned())
    }

    /// Waits until it is connected or ended.
    pub(crate) async fn settled(&self) {
        let mut status = self.status.clone();
        let is_settled = |status: &Status| !matches!(status, Status::Disconnected { .. });
        let _ = status.wait_for(is_settled).await;
    }

    /// Sends a request now; the future only waits for the answer.
    fn call(
        &self,
        code: i32,
        body: Writer,
        watch: Option<Watch>,
    ) -> impl Future<Output = Result<Vec<u8>, Failure>> + Send + use<> {
        let (reply, answer) = oneshot::channel();
        let frame = op::frame(0, code, body.into_bytes());
        // A driver that is gone drops it, and the answer says so.
        let is_change = op::CHANGES.contains(&code);
        let _ = self.requests.send(Request { frame, is_change, watch, reply });
        async move { answer.await.unwrap_or_else(|_| Err(failure::of_end())) }
    }

    fn path(&self, path: &str) -> String {
        match path {
            "/" if !self.dialer.config.chroot.is_empty() => self.dialer.config.chroot.clone(),
            path => format!("{}{path}", self.dialer.config.chroot),
        }
    }

    fn node(&self, path: &str, data: &[u8], flags: i32) -> Writer {
        let (scheme, id) = match self.dialer.config.login {
            Some(_) => ("auth", ""),
            None => ("world", "anyone"),
        };
        let node = Writer::default().text(path).bytes(data);
        node.int(1).int(ALL).text(scheme).text(id).int(flags)
    }

    /// Makes a node; the answer is its path below the chroot.
    pub(crate) fn create(
        &self,
        path: &str,
        data: &[u8],
        kind: NodeKind,
    ) -> impl Future<Output = Result<(String, Stat), Failure>> + use<> {
        let (code, flags) = match kind {
            NodeKind::EphemeralSequential => (op::CREATE2, 3),
            NodeKind::Container => (op::CREATE_CONTAINER, 4),
            NodeKind::Persistent => (op::CREATE2, 0),
        };
        let answer = self.call(code, self.node(&self.path(path), data, flags), None);
        let chroot = self.dialer.config.chroot.len();
        async move {
            let reply = answer.await?;
            let mut reader = Reader::new(&reply);
            let made = reader.text().zip(Stat::read(&mut reader));
            let (made, stat) = made.ok_or_else(|| failure::of_nonsense("to create"))?;
            Ok((made.get(chroot..).unwrap_or(made).to_owned(), stat))
        }
    }

    /// Writes to a node if its data has changed as often as this.
    pub(crate) fn set(
        &self,
        path: &str,
        data: &[u8],
        changes: i32,
    ) -> impl Future<Output = Result<Stat, Failure>> + use<> {
        let body = Writer::default().text(&self.path(path)).bytes(data).int(changes);
        let answer = self.call(op::SET_DATA, body, None);
        async move {
            let stat = Stat::read(&mut Reader::new(&answer.await?));
            stat.ok_or_else(|| failure::of_nonsense("to setData"))
        }
    }

    pub(crate) fn delete(&self, path: &str) -> impl Future<Output = Result<(), Failure>> + use<> {
        let body = Writer::default().text(&self.path(path)).int(ANY_VERSION);
        let answer = self.call(op::DELETE, body, None);
        async move { answer.await.map(|_| ()) }
    }

    /// Reads a node, and wakes `watcher` at its next change or when the connection breaks.
    pub(crate) fn get(
        &self,
        path: &str,
        watcher: Option<&Arc<NodeWatcher>>,
    ) -> impl Future<Output = Result<(Vec<u8>, Stat), Failure>> + use<> {
        let path = self.path(path);
        let body = Writer::default().text(&path).bool(watcher.is_some());
        let watch = watcher.map(|watcher| Watch::Node(path, Arc::clone(watcher)));
        let answer = self.call(op::GET_DATA, body, watch);
        async move {
            let reply = answer.await?;
            let mut reader = Reader::new(&reply);
            let parts = reader.bytes().map(<[u8]>::to_vec).zip(Stat::read(&mut reader));
            parts.ok_or_else(|| failure::of_nonsense("to getData"))
        }
    }

    /// What the servers know about a node besides its data, also of one that may not be read.
    pub(crate) fn stat(&self, path: &str) -> impl Future<Output = Result<Stat, Failure>> + use<> {
        let body = Writer::default().text(&self.path(path)).bool(false);
        let answer = self.call(op::EXISTS, body, None);
        async move {
            let stat = Stat::read(&mut Reader::new(&answer.await?));
            stat.ok_or_else(|| failure::of_nonsense("to exists"))
        }
    }

    /// Wakes `watcher` at the end of a node that is never a parent, also when a change of its data was
    /// told before.
    pub(crate) fn watch_end(
        &self,
        path: &str,
        watcher: &Arc<NodeWatcher>,
    ) -> impl Future<Output = Result<(), Failure>> + use<> {
        let path = self.path(path);
        let body = Writer::default().text(&path).bool(true);
        let watch = Watch::End(path, Arc::clone(watcher));
        let answer = self.call(op::GET_CHILDREN, body, Some(watch));
        async move { answer.await.map(|_| ()) }
    }

    /// Whether there is such a node, at its whole path.
    pub(crate) async fn exists_at(&self, whole_path: &str) -> Result<bool, Failure> {
        let body = Writer::default().text(whole_path).bool(false);
        match self.call(op::EXISTS, body, None).await {
            Ok(_) => Ok(true),
            Err(failure) if failure.handling.is_no_node() => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Reads a node at its whole path.
    pub(crate) async fn get_at(&self, whole_path: &str) -> Result<Vec<u8>, Failure> {
        let body = Writer::default().text(whole_path).bool(false);
        let reply = self.call(op::GET_DATA, body, None).await?;
        let data = Reader::new(&reply).bytes().map(<[u8]>::to_vec);
        data.ok_or_else(|| failure::of_nonsense("to getData"))
    }

    /// Who may do what with a node at its whole path.
    pub(crate) async fn access_at(&self, whole_path: &str) -> Result<Vec<Access>, Failure> {
        let reply = self.call(op::GET_ACL, Writer::default().text(whole_path), None).await?;
        let mut reader = Reader::new(&reply);
        let count = reader.int().unwrap_or(-1);
        let entry = |_| {
            let (rights, scheme, _id) = (reader.int()?, reader.text()?, reader.text()?);
            Some(Access { rights, scheme: scheme.to_owned() })
        };
        let entries: Option<Vec<Access>> = (0..count).map(entry).collect();
        entries.filter(|_| count >= 0).ok_or_else(|| failure::of_nonsense("to getACL"))
    }

    /// Writes to a node in such a way that whoever watches the tree sees that it is taken away from
    /// its holder: it is changed twice in one step.
    pub(crate) fn take_away(
        &self,
        path: &str,
        data: &[u8],
    ) -> impl Future<Output = Result<(), Failure>> + use<> {
        let path = self.path(path);
        let set = || Writer::default().text(&path).bytes(data).int(ANY_VERSION);
        self.multi([(op::SET_DATA, set()), (op::SET_DATA, set())])
    }

    /// The names of a node's children.
    pub(crate) fn children(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<Vec<String>, Failure>> + use<> {
        let body = Writer::default().text(&self.path(path)).bool(false);
        let answer = self.call(op::GET_CHILDREN, body, None);
        async move {
            let reply = answer.await?;
            read_names(&reply).ok_or_else(|| failure::of_nonsense("to getChildren"))
        }
    }

    /// Proves that the servers keep the session from now on, and that what is read afterwards is not
    /// older. A leader that was cut off from the others answers a sync alone until it notices, when
    /// they may long have another: where several decide, a majority has to agree on a change that
    /// changes nothing.
    pub(crate) fn confirm(&self) -> impl Future<Output = Result<(), Failure>> + use<> {
        let answer = match self.proof {
            Proof::Any => self.call(op::SYNC, Writer::default().text(&self.path("/")), None),
            Proof::Change => self.call(op::MULTI, op::no_change(&self.path("/")), None),
        };
        let is_multi = self.proof == Proof::Change;
        async move {
            let reply = answer.await?;
            if is_multi { read_multi(&reply) } else { Ok(()) }
        }
    }

    /// Goes to the leader and back: what is read afterwards is not older than what it knows.
    pub(crate) fn sync(&self) -> impl Future<Output = Result<(), Failure>> + use<> {
        let answer = self.call(op::SYNC, Writer::default().text(&self.path("/")), None);
        async move { answer.await.map(|_| ()) }
    }

    /// Makes an ephemeral node of another session one of this session, in one step and under the
    /// same name, unless its data has been changed.
    pub(crate) fn adopt(
        &self,
        path: &str,
        data: &[u8],
    ) -> impl Future<Output = Result<(), Failure>> + use<> {
        let path = self.path(path);
        let delete = Writer::default().text(&path).int(FIRST_VERSION);
        self.multi([(op::DELETE, delete), (op::CREATE, self.node(&path, data, 1))])
    }

    /// Deletes a node in such a way that whoever watches the tree sees that its holder did it: it is
    /// changed and deleted in one step.
    pub(crate) fn give_back(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<(), Failure>> + use<> {
        let path = self.path(path);
        let set = Writer::default().text(&path).bytes(b"").int(ANY_VERSION);
        let delete = Writer::default().text(&path).int(ANY_VERSION);
        self.multi([(op::SET_DATA, set), (op::DELETE, delete)])
    }

    /// Both or none.
    fn multi(
        &self,
        parts: [(i32, Writer); 2],
    ) -> impl Future<Output = Result<(), Failure>> + use<> {
        let answer = self.call(op::MULTI, op::transaction(parts), None);
        async move { read_multi(&answer.await?) }
    }

    /// Passes on all changes below the chroot until the connection breaks.
    pub(crate) async fn watch_tree(
        &self,
        events: mpsc::UnboundedSender<NodeEvent>,
    ) -> Result<(), Failure> {
        const RECURSIVE: i32 = 1;
        let body = Writer::default().text(&self.path("/")).int(RECURSIVE);
        self.call(op::ADD_WATCH, body, Some(Watch::Tree(events))).await.map(|_| ())
    }
}

fn read_names(reply: &[u8]) -> Option<Vec<String>> {
    let mut reader = Reader::new(reply);
    let count = reader.int().filter(|count| *count >= 0)?;
    (0..count).map(|_| reader.text().map(str::to_owned)).collect()
}

/// When a part fails, all are answered with an error, zero for those that did not fail.
fn read_multi(reply: &[u8]) -> Result<(), Failure> {
    const ERROR: i32 = -1;
    let mut reader = Reader::new(reply);
    while let (Some(kind), Some(false), Some(_)) = (reader.int(), reader.bool(), reader.int()) {
        if kind != ERROR {
            return Ok(());
        }
        match reader.int() {
            Some(0) => {}
            Some(code) => return Err(failure::of_refusal(code)),
            None => break,
        }
    }
    Err(failure::of_nonsense("to multi"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Fate;

    /// B116: a list that cannot be read is not an empty one.
    #[test]
    fn a_list_is_whole_or_none() {
        let names = Writer::default().int(2).text("a").text("b").into_bytes();
        assert_eq!(read_names(&names), Some(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(read_names(&Writer::default().int(0).into_bytes()), Some(Vec::new()));
        for count in [-1, i32::MIN, 3, i32::MAX] {
            let reply = Writer::default().int(count).text("a").text("b").into_bytes();
            assert_eq!(read_names(&reply), None, "{count}");
        }
        assert_eq!(read_names(&[]), None);
    }

    #[test]
    fn the_first_part_that_failed_is_told() {
        let error = |code| Writer::default().int(-1).bool(false).int(code).int(code).into_bytes();
        let end = Writer::default().int(-1).bool(true).int(-1).into_bytes();
        let failed = [error(0), error(-110), error(-2), end.clone()].concat();
        assert_eq!(read_multi(&failed), Err(failure::of_refusal(-110)));
        let done = [Writer::default().int(2).bool(false).int(0).into_bytes(), end].concat();
        assert_eq!(read_multi(&done), Ok(()));
        assert!(read_multi(&[]).is_err_and(|failure| failure.handling == Fate::Broken));
    }
}
