//! How things are written on a node, and what a look at a lock brings back. A lock's own key is
//! that of the Redis store, so that a program without Lockfast keeps out and is kept out.

use std::time::{Duration, SystemTime};

use lockfast_backend_redis::node::read_hold;
use lockfast_core::{ClientId, Fence, HolderView, Label, Mode};

use crate::wire::{Pipeline, Reply, digest};

/// There as long as somebody watches: the channel to which events are published. Channels reach
/// all databases of a server, so each database has its own.
pub(crate) const WATCH_KEY: &str = "lockfast:watchers";
/// There as long as anybody waits for any lock.
pub(crate) const CROWD_KEY: &str = "lockfast:crowd";
pub(crate) const CLIENT_KEY: &str = "lockfast:client:";
pub(crate) const PUSH_CHANNEL: &str = "lockfast:push:";
/// What all keys of our own start with; no lock's name may.
pub(crate) const RESERVED: &str = "lockfast:";
/// How many characters of a client's key name its connection; the rest is its label.
pub(crate) const LINK_CHARS: usize = 8;

/// How many characters of a digest stand for a holder.
const TAG_CHARS: usize = 16;

/// What stands for a holder where others can hear it. The scripts make the same of it.
pub(crate) fn holder_tag(text: &str) -> String {
    let mut tag = digest(text);
    tag.truncate(TAG_CHARS);
    tag
}

/// To which events of a database are published.
pub(crate) fn event_channel(database: u32) -> String {
    format!("lockfast:events:{database}")
}

/// The keys of one lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keys<'a> {
    pub(crate) prefix: &'a str,
    pub(crate) name: &'a str,
}

impl Keys<'_> {
    /// The lock's own key.
    pub(crate) fn write_lock(self, pipeline: &mut Pipeline) {
        pipeline.part_of(&[self.prefix, self.name]);
    }

    /// A key of its bookkeeping: `fence`, `callers` or `revoked`.
    pub(crate) fn write_aside(self, pipeline: &mut Pipeline, what: &str) {
        pipeline.part_of(&["lockfast:{", self.prefix, self.name, "}:", what]);
    }
}

/// A lock that somebody has on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// What stands in its key; it may hold a secret, so it is never shown.
    pub(crate) value: Vec<u8>,
    /// How much longer, if it ends by itself.
    pub(crate) left: Option<Duration>,
    /// How many wait.
    pub(crate) callers: usize,
    /// Our place among them, if we do.
    pub(crate) place: Option<usize>,
}

impl Seen {
    /// Reads a value, the time left and how many wait, and perhaps our place.
    pub(crate) fn read(fields: &[Reply]) -> Option<Self> {
        let [value, left_ms, callers, place @ ..] = fields else { return None };
        Some(Self {
            value: value.as_bytes()?.to_vec(),
            left: u64::try_from(left_ms.as_int()?).ok().map(Duration::from_millis),
            callers: usize::try_from(callers.as_int()?).ok()?,
            place: place.first().and_then(Reply::as_int).and_then(|it| usize::try_from(it).ok()),
        })
    }

    /// Whose it is, if Lockfast wrote it.
    pub(crate) fn claim(&self) -> Option<(ClientId, Fence)> {
        let (holder, fence) = read_hold(std::str::from_utf8(&self.value).ok()?)?;
        Some((holder.client(), fence))
    }

    /// The holder as people may see it.
    pub(crate) fn view(&self, label: impl Fn(&ClientId) -> Option<Label>) -> HolderView {
        let claim = self.claim();
        // A fence is its holder's clock in microseconds, or a little more.
        let since =
            claim.map(|(_, fence)| SystemTime::UNIX_EPOCH + Duration::from_micros(fence.get()));
        HolderView::new(Mode::Exclusive, since, self.left.unwrap_or(Duration::MAX))
            .with_fence(claim.map(|(_, fence)| fence))
            .with_label(claim.as_ref().and_then(|(client, _)| label(client)))
    }
}
