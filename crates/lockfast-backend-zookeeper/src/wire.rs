//! ZooKeeper's protocol: the few requests that locks need, over connections that the keeper's
//! runtime drives. A [`Session`] outlives its connections; the server decides when it is over.

mod dial;
mod jute;
mod link;
mod node_watcher;
mod session;

pub(crate) use dial::{Dialer, Limits};
pub(crate) use node_watcher::NodeWatcher;
pub(crate) use session::{Proof, Session, Status};

use jute::Reader;

/// What the server knows about a node besides its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// The transaction that made the node: higher than that of every node made before.
    pub(crate) created: i64,
    /// When, in ms since 1970 on the server's clock.
    pub(crate) created_ms: i64,
    /// The session that an ephemeral node ends with.
    pub(crate) owner: i64,
    /// How often its data was changed.
    pub(crate) version: i32,
}

impl Stat {
    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let created = reader.long()?;
        let _modified = reader.long()?;
        let created_ms = reader.long()?;
        let _modified_ms = reader.long()?;
        let version = reader.int()?;
        let _other_versions = (reader.int()?, reader.int()?);
        let owner = reader.long()?;
        let _sizes = (reader.int()?, reader.int()?);
        let _children_modified = reader.long()?;
        Some(Self { created, created_ms, owner, version })
    }
}

/// Some rights on a node, and of whose kind those are who have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) rights: i32,
    pub(crate) scheme: String,
}

/// What becomes of a node when nobody deletes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeKind {
    /// It ends with the session that made it, and the server adds a number to its name.
    EphemeralSequential,
    /// The server deletes it some time after its last child.
    Container,
    /// It stays.
    Persistent,
}

/// A change of a node below one that is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NodeEvent {
    Created(String),
    Deleted(String),
    Changed(String),
    /// The connection broke: changes may have been missed.
    Missed,
}
