//! How locks are stored: a lock is a node, and its claims are children whose names have the form that
//! Curator, kazoo and the recipe in ZooKeeper's documentation use.

use std::fmt::Write as _;

use lockfast_core::address::percent_decode;
use lockfast_core::error::quote;
use lockfast_core::queue::{self, Ahead, Standing};
use lockfast_core::{Error, ErrorKind, HolderId, LockName, Mode};

use crate::config::Exclusive;

const PREFIX: &str = "_c_";
/// What stands between the id of a claim and its number, and what it means. `lock-` also ends the
/// `-lock-` of Curator.
const MARKS: [(&str, Mode); 5] = [
    ("__READ__", Mode::Shared),
    ("__WRIT__", Mode::Exclusive),
    ("__rlock__", Mode::Shared),
    ("__lock__", Mode::Exclusive),
    ("lock-", Mode::Exclusive),
];
const PERMIT: &str = "-permit-";
/// What the id of a claim ends with whose holder does not wait. Other programs take it for a part of the id.
const TRYING: &str = "-try";
/// The bytes of an id before that: those of the session and of the holder, and a hyphen between.
const ID_BYTES: usize = 49;
/// Servers count the children that a node had in 31 bits, and then give the same number again and
/// again. No claim has a number from here on: there is room for those that are on their way.
const NUMBERS_END: i32 = i32::MAX - (1 << 20);

/// The node that holds those of values. It is not the path of a lock: nothing that is encoded looks so.
pub(crate) const VALUES: &str = "/%values";

/// The path of a value.
pub(crate) fn value_path(name: &LockName) -> String {
    format!("{VALUES}{}", lock_path(name))
}

/// The name of the value at a path below the chroot, if that is the path of one.
pub(crate) fn value_name(path: &str) -> Option<LockName> {
    lock_name(path.strip_prefix(VALUES)?.strip_prefix('/')?)
}

/// The path of a lock. What ZooKeeper does not allow in a path is percent-encoded, and so is the
/// percent sign: different names have different paths, and plain names stay as they are.
pub(crate) fn lock_path(name: &LockName) -> String {
    let name = name.as_str();
    let mut path = String::with_capacity(name.len() + 1);
    path.push('/');
    for (at, character) in name.char_indices() {
        // The server keeps a node of this name for itself.
        let is_reserved = at == 0 && name == "zookeeper";
        if is_reserved || !is_plain(character) {
            let mut bytes = [0; 4];
            for byte in character.encode_utf8(&mut bytes).bytes() {
                // Writing to a string cannot fail.
                let _ = write!(path, "%{byte:02X}");
            }
        } else {
            path.push(character);
        }
    }
    path
}

/// Java counts characters beyond U+FFFF as two of a kind that is not allowed.
fn is_plain(character: char) -> bool {
    !matches!(character, '/' | '%' | '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}'
        | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..)
}

/// The lock of a node below the chroot, if that is the path of one.
pub(crate) fn lock_name(node: &str) -> Option<LockName> {
    let name = LockName::new(percent_decode(node).ok()?).ok()?;
    (lock_path(&name)[1..] == *node).then_some(name)
}

/// The name of a claim's node without its number.
pub(crate) fn claim_prefix(
    session: i64,
    holder: HolderId,
    mode: Mode,
    exclusive: Exclusive,
    is_trying: bool,
) -> String {
    let end = if is_trying { TRYING } else { "" };
    let id = format!("{PREFIX}{session:016x}-{}{end}", holder.to_hex());
    match (mode, exclusive) {
        (Mode::Exclusive, Exclusive::Mutex) => format!("{id}-lock-"),
        (Mode::Exclusive, Exclusive::Writer) => format!("{id}-__WRIT__"),
        (Mode::Shared, _) => format!("{id}-__READ__"),
        (Mode::Permit { limit }, _) => format!("{id}{PERMIT}{limit}-"),
    }
}

/// A claim as its node's name tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contender {
    pub(crate) node: String,
    pub(crate) mode: Mode,
    sequence: i32,
}

impl Contender {
    /// `None` for a node that is no claim.
    pub(crate) fn read(node: String) -> Option<Self> {
        let (mode, sequence) = split(&node)?;
        Some(Self { node, mode, sequence })
    }

    /// What orders it among the others: a number below zero, of another program, comes last.
    fn order(&self) -> u32 {
        self.sequence.cast_unsigned()
    }

    /// Whether it is the claim of this holder.
    pub(crate) fn is_of(&self, holder: HolderId) -> bool {
        self.is_ours() && self.node[PREFIX.len() + 17..].starts_with(&holder.to_hex())
    }

    /// Whether a Lockfast client made it, who can be told why it is taken away.
    pub(crate) fn is_ours(&self) -> bool {
        let Some(id) = self.node.strip_prefix(PREFIX) else { return false };
        let bytes = id.as_bytes();
        bytes.len() > ID_BYTES + 1
            && bytes[16] == b'-'
            && bytes[ID_BYTES] == b'-'
            && bytes[..16].iter().chain(&bytes[17..ID_BYTES]).all(u8::is_ascii_hexdigit)
    }

    /// Whether its holder does not wait.
    pub(crate) fn is_trying(&self) -> bool {
        let end = PREFIX.len() + ID_BYTES;
        self.is_ours()
            && self.node[end..].strip_prefix(TRYING).is_some_and(|rest| rest.starts_with('-'))
    }
}

/// The number in the name of a claim's node.
pub(crate) fn sequence_of(node: &str) -> Option<i32> {
    split(node).map(|(_, sequence)| sequence)
}

/// Whether the server has no numbers left that tell the order of claims.
pub(crate) fn is_beyond_order(node: &str) -> bool {
    sequence_of(node).is_none_or(|number| !(0..NUMBERS_END).contains(&number))
}

/// The mode and the number in the name of a claim's node.
fn split(node: &str) -> Option<(Mode, i32)> {
    split_permit(node).or_else(|| {
        MARKS.into_iter().find_map(|(mark, mode)| {
            let at = node.rfind(mark)?;
            Some((mode, read_sequence(&node[at + mark.len()..])?))
        })
    })
}

fn split_permit(node: &str) -> Option<(Mode, i32)> {
    let (limit, number) = node[node.rfind(PERMIT)? + PERMIT.len()..].split_once('-')?;
    Some((Mode::permit(limit.parse().ok()?).ok()?, read_sequence(number)?))
}

/// The number that the server gave: ten digits, or a sign and more when its 32 bits were used up.
fn read_sequence(text: &str) -> Option<i32> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_number = text.len() >= 10 && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}

/// The claims of a lock in the order in which they were made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    pub(crate) claims: Vec<Contender>,
    /// The mode of each.
    modes: Vec<Mode>,
    /// A child that is no claim.
    stranger: Option<String>,
}

impl Line {
    /// Sorts the children of a lock's node.
    pub(crate) fn read(children: Vec<String>) -> Self {
        let mut line = Self::default();
        line.claims.reserve(children.len());
        for node in children {
            match split(&node) {
                Some((mode, sequence)) => line.claims.push(Contender { node, mode, sequence }),
                None => line.stranger = Some(node),
            }
        }
        line.sort();
        line
    }

    /// Whether all children are claims: otherwise another program uses the node for something else.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.stranger.as_deref().map_or(Ok(()), |node| Err(foreign(node)))
    }

    /// Adds a claim at its place.
    pub(crate) fn insert(&mut self, claim: Contender) {
        self.claims.push(claim);
        self.sort();
    }

    /// Removes a claim that has gone.
    pub(crate) fn remove(&mut self, node: &str) {
        if let Some(at) = self.position(node) {
            self.claims.remove(at);
            self.modes.remove(at);
        }
    }

    fn sort(&mut self) {
        self.claims.sort_by_key(Contender::order);
        self.modes = self.claims.iter().map(|claim| claim.mode).collect();
    }

    /// Where a node stands.
    pub(crate) fn position(&self, node: &str) -> Option<usize> {
        let sequence = sequence_of(node)?;
        let is_ahead = |claim: &Contender| claim.order() < sequence.cast_unsigned();
        let start = self.claims.partition_point(is_ahead);
        let same = self.claims[start..].iter().take_while(|claim| claim.sequence == sequence);
        same.zip(start..).find(|(claim, _)| claim.node == node).map(|(_, at)| at)
    }

    /// Whether the claim at a place goes with those ahead of it.
    pub(crate) fn check_use(&self, at: usize) -> Result<(), Error> {
        queue::check_use(self.modes[..at].iter().copied(), self.modes[at])
    }

    /// Where the claim at a place stands.
    pub(crate) fn standing(&self, at: usize) -> Standing {
        queue::standing(&self.modes[..at], self.modes[at])
    }

    /// Whether one that came now would have the lock.
    pub(crate) fn admits(&self, mode: Mode) -> bool {
        queue::standing(&self.modes, mode) == Standing::Granted
    }

    /// How many wait. Those who do not wait have a claim as well, until they have seen that they are
    /// refused.
    pub(crate) fn waiting(&self) -> usize {
        self.claims[self.holders()..].iter().filter(|claim| !claim.is_trying()).count()
    }

    /// How many have the lock.
    pub(crate) fn holders(&self) -> usize {
        let mut ahead = Ahead::default();
        let waits = |mode: &Mode| {
            let is_granted = ahead.allows(*mode);
            ahead.count(*mode);
            !is_granted
        };
        self.modes.iter().position(waits).unwrap_or(self.modes.len())
    }
}

fn foreign(node: &str) -> Error {
    let message = format!(
        "its node has the child {}, which is no claim: another program uses it for something else",
        quote(node)
    );
    Error::new(ErrorKind::ForeignKey, message).with_backend("zookeeper")
}

#[cfg(test)]
#[path = "layout_test.rs"]
mod tests;
