//! Values beside the locks. Each is a node whose data version the servers compare; a value that is
//! removed leaves its node, with what says so, because the data versions of a node that is made anew
//! begin again.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockfast_core::error::quote;
use lockfast_core::{
    Change, ErrorKind, Expected, LockName, Version, VersionedValue, WriteOutcome, WriteRequest,
};
use tokio::time::{sleep, timeout};

use crate::failure::{self, Failure, Fate, code};
use crate::layout::{VALUES, value_path};
use crate::store::{Store, lock};
use crate::wire::{NodeKind, Session, Stat};

/// Until it is asked again.
const RETRY_AFTER: Duration = Duration::from_millis(20);
/// Servers count the changes of a node in 31 bits.
const CHANGES_MAX: i32 = i32::MAX;

const WORDS: &[u8] = b"lockfast value 1 ";
const ID_DIGITS: usize = 32;
const PUT: &[u8] = b" put\n";
const REMOVED: &[u8] = b" removed\n";

/// The value of a name.
pub(crate) async fn read(
    store: Arc<Store>,
    name: LockName,
) -> Result<Option<VersionedValue>, Failure> {
    let path: Arc<str> = value_path(&name).into();
    insist(&store, |session, _| try_read(session, Arc::clone(&path))).await
}

async fn try_read(
    session: Arc<Session>,
    path: Arc<str>,
) -> Result<Option<VersionedValue>, Failure> {
    // In the order in which they are sent: what is read is not older than the proof.
    let (proving, reading) = (session.confirm(), session.get(&path, None));
    proving.await?;
    Found::of(reading.await)?.map_or(Ok(None), |found| found.value(&path))
}

/// Writes the value of a name if what is there is what was expected.
pub(crate) async fn write(
    store: Arc<Store>,
    request: WriteRequest,
) -> Result<WriteOutcome, Failure> {
    let write = Arc::new(Write::of(&request));
    insist(&store, |session, again| Arc::clone(&write).attempt(session, again)).await
}

/// A write as the servers understand it.
struct Write {
    path: String,
    expected: Expected,
    id: [u8; 16],
    data: Vec<u8>,
    is_removal: bool,
    /// The change that says that the value was removed, over which it is to be written.
    removed: Mutex<Option<i32>>,
}

impl Write {
    fn of(request: &WriteRequest) -> Self {
        let bytes = match &request.change {
            Change::Put { bytes, .. } => Some(bytes.as_slice()),
            Change::Remove => None,
        };
        Self {
            path: value_path(&request.name),
            expected: request.expected,
            id: request.id,
            data: Stored { id: request.id, bytes }.write(),
            is_removal: bytes.is_none(),
            removed: Mutex::default(),
        }
    }

    fn written(&self, stat: &Stat) -> WriteOutcome {
        WriteOutcome::Written((!self.is_removal).then(|| version_of(stat)))
    }

    /// Writes once. When it was tried `again`, the first try may have been done: then something else
    /// does not show that nothing was written.
    async fn attempt(
        self: Arc<Self>,
        session: Arc<Session>,
        again: bool,
    ) -> Result<WriteOutcome, Failure> {
        let mut over = match self.expected {
            Expected::Nothing => None,
            Expected::Version(version) => Some(changes_of(version)),
        };
        loop {
            match try_write(&session, &self.path, &self.data, over).await {
                Ok(stat) => return Ok(self.written(&stat)),
                Err(failure) if is_other(&failure) => {}
                Err(failure) => return Err(failure),
            }
            // The refusal has come from the leader, and what is read after it is not older.
            let found = Found::of(session.get(&self.path, None).await)?;
            let stored = found.as_ref().map(|found| found.stored(&self.path)).transpose()?;
            if let (Some(found), Some(stored)) = (&found, &stored)
                && stored.id == self.id
            {
                return Ok(self.written(&found.stat));
            }
            let is_nothing = stored.is_none_or(|stored| stored.bytes.is_none());
            let is_conflict = self.expected != Expected::Nothing || !is_nothing;
            // What was removed since the first try may be what that wrote.
            let change = found.as_ref().map(|found| found.stat.version);
            let is_new = change.is_some() && change != *lock(&self.removed);
            if again && (is_conflict || is_new) {
                return Err(failure::of_doubtful_write());
            }
            if is_conflict {
                let there = found.map_or(Ok(None), |found| found.value(&self.path))?;
                return Ok(WriteOutcome::Conflict(there));
            }
            // Somebody has removed it, or deleted even its node.
            *lock(&self.removed) = change;
            over = change;
        }
    }
}

/// Whether something else is there than was expected.
fn is_other(failure: &Failure) -> bool {
    matches!(failure.handling, Fate::Refused(code::NODE_EXISTS | code::BAD_VERSION | code::NO_NODE))
}

/// Makes the node, or writes over what was written as the change with this number.
async fn try_write(
    session: &Session,
    path: &str,
    data: &[u8],
    over: Option<i32>,
) -> Result<Stat, Failure> {
    match over {
        Some(CHANGES_MAX) => {
            let message = format!(
                "the value has changed 2^31 times, which is as far as the servers count; read it, \
                 delete its node {path} while nobody uses it, and write it anew"
            );
            Err(Failure::new(ErrorKind::TokenExhausted, message))
        }
        Some(changes) => session.set(path, data, changes).await,
        None => make(session, path, data).await,
    }
}

/// Makes the node of a value, and the one that holds them all if that is not there.
async fn make(session: &Session, path: &str, data: &[u8]) -> Result<Stat, Failure> {
    let made = session.create(path, data, NodeKind::Persistent).await;
    if !matches!(&made, Err(failure) if failure.handling.is_no_node()) {
        return made.map(|(_, stat)| stat);
    }
    match session.create(VALUES, b"", NodeKind::Persistent).await {
        Err(failure) if failure.handling == Fate::Refused(code::NODE_EXISTS) => {}
        // The chroot is gone, which is not what somebody does to a value.
        Err(failure) if failure.handling.is_no_node() => return Err(failure.with(Fate::Undone)),
        made => drop(made?),
    }
    session.create(path, data, NodeKind::Persistent).await.map(|(_, stat)| stat)
}

/// Asks again what a fault of the connection swallowed, for as long as requests may take: what may
/// have been done is known by its id. `ask` is told whether it was asked before.
async fn insist<T, F>(store: &Store, ask: impl Fn(Arc<Session>, bool) -> F) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    let limit = store.config().request_timeout;
    let asking = async {
        let mut again = false;
        loop {
            let session = store.waiting().await?;
            session.settled().await;
            match ask(session, again).await {
                Err(failure) if matches!(failure.handling, Fate::Broken | Fate::Ended) => {
                    again = true;
                    sleep(RETRY_AFTER).await;
                }
                asked => return asked,
            }
        }
    };
    let silence = |_| Err(failure::of_silence(&store.config().endpoint(), limit));
    timeout(limit, asking).await.unwrap_or_else(silence)
}

/// A value's node as it was read.
struct Found {
    data: Vec<u8>,
    stat: Stat,
}

impl Found {
    /// `None` when there is no such node.
    fn of(read: Result<(Vec<u8>, Stat), Failure>) -> Result<Option<Self>, Failure> {
        match read {
            Ok((data, stat)) => Ok(Some(Self { data, stat })),
            Err(failure) if failure.handling.is_no_node() => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    fn stored(&self, path: &str) -> Result<Stored<'_>, Failure> {
        Stored::read(&self.data).ok_or_else(|| {
            let message = format!(
                "the node {} holds no value of Lockfast's; choose another name or delete that node",
                quote(path)
            );
            Failure::new(ErrorKind::ForeignKey, message)
        })
    }

    fn value(&self, path: &str) -> Result<Option<VersionedValue>, Failure> {
        let bytes = self.stored(path)?.bytes;
        let version = version_of(&self.stat);
        Ok(bytes.map(|bytes| VersionedValue::new(version, bytes.to_vec(), None)))
    }
}

/// What a value's node holds: by which write, and the bytes, or that there are none any more.
#[derive(Debug, PartialEq, Eq)]
struct Stored<'a> {
    id: [u8; 16],
    bytes: Option<&'a [u8]>,
}

impl<'a> Stored<'a> {
    fn write(&self) -> Vec<u8> {
        let id = format!("{:0ID_DIGITS$x}", u128::from_be_bytes(self.id));
        let kind = if self.bytes.is_some() { PUT } else { REMOVED };
        [WORDS, id.as_bytes(), kind, self.bytes.unwrap_or_default()].concat()
    }

    /// `None` for what another program wrote.
    fn read(data: &'a [u8]) -> Option<Self> {
        let (id, rest) = data.strip_prefix(WORDS)?.split_at_checked(ID_DIGITS)?;
        let is_id = id.iter().all(u8::is_ascii_hexdigit);
        let id = std::str::from_utf8(id).ok().filter(|_| is_id)?;
        let id = u128::from_str_radix(id, 16).ok()?.to_be_bytes();
        let bytes = match rest.strip_prefix(PUT) {
            Some(bytes) => Some(bytes),
            None if rest == REMOVED => None,
            None => return None,
        };
        Some(Self { id, bytes })
    }
}

/// The transaction that made the node, and how often it has changed since.
fn version_of(stat: &Stat) -> Version {
    let (made, changes) = (stat.created.cast_unsigned(), stat.version.cast_unsigned());
    Version::from_bytes((u128::from(made) << 64 | u128::from(changes)).to_be_bytes())
}

/// How often the node had changed at a version; for one that is not of this store, a number that no
/// node has.
fn changes_of(version: Version) -> i32 {
    const NEVER: i32 = i32::MIN;
    let changes = u128::from_be_bytes(*version.as_bytes()) & u128::from(u64::MAX);
    i32::try_from(changes).unwrap_or(NEVER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let id = [0x0f; 16];
        for bytes in [None, Some(&b""[..]), Some(b"\0\n"), Some(b" removed\n")] {
            let stored = Stored { id, bytes };
            assert_eq!(Stored::read(&stored.write()), Some(stored));
        }
        let text = Stored { id, bytes: Some(b"x") }.write();
        assert_eq!(text, b"lockfast value 1 0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f put\nx");
    }

    #[test]
    fn what_others_wrote_is_not_ours() {
        let id = "0".repeat(ID_DIGITS);
        let table = [
            String::new(),
            "lockfast value 1 ".to_owned(),
            format!("lockfast value 1 {id}"),
            format!("lockfast value 1 +{} put\n", &id[1..]),
            format!("lockfast value 1 {id} removed\nx"),
            format!("lockfast value 2 {id} put\nx"),
        ];
        for data in table {
            assert_eq!(Stored::read(data.as_bytes()), None, "{data}");
        }
        assert_eq!(Stored::read(b"lockfast value 1 \xff"), None);
    }

    #[test]
    fn a_version_tells_which_change_of_which_node() {
        let stat = |created, version| Stat { created, created_ms: 0, owner: 0, version };
        for changes in [0, 7, i32::MAX] {
            let version = version_of(&stat(0x0123_4567_89ab_cdef, changes));
            assert_eq!(changes_of(version), changes);
            assert_ne!(version, version_of(&stat(0x0123_4567_89ab_cdf0, changes)));
        }
        for bytes in [[0xff; 16], [7; 16]] {
            // -1 would be any.
            assert_eq!(changes_of(Version::from_bytes(bytes)), i32::MIN);
        }
    }
}
