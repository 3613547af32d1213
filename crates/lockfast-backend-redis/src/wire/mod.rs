//! Commands, replies and connections: the only part that knows the `redis` crate, of which it
//! uses the protocol's parser. Connections are our own, so that a request is written by the very
//! thread that makes it, whatever executor that belongs to, and nothing is repeated or dropped
//! behind our back.

pub(crate) mod cluster;
pub(crate) mod connection;
pub(crate) mod dial;
pub(crate) mod failure;
pub(crate) mod link;
pub(crate) mod sentinel;
mod stream;

use redis::{PushKind, Value};

pub(crate) use failure::Failure;
use failure::Remedy;

/// Commands on their way to the server, one after the other.
#[derive(Debug, Default)]
pub struct Pipeline {
    bytes: Vec<u8>,
    commands: usize,
    is_asking: bool,
}

impl Pipeline {
    /// For a node whose slot is on its way to it: each command is preceded by one that says that
    /// we know, which has a reply of its own that is not counted here.
    pub(crate) fn asking() -> Self {
        Self { is_asking: true, ..Self::default() }
    }

    pub(crate) fn is_asking(&self) -> bool {
        self.is_asking
    }

    /// Adds the commands of another pipeline.
    pub(crate) fn append(&mut self, other: &Self) {
        self.bytes.extend_from_slice(&other.bytes);
        self.commands += if other.is_asking { 2 * other.commands } else { other.commands };
    }

    /// Begins a command of `parts` parts, which must follow.
    pub fn command(&mut self, parts: usize) {
        if self.is_asking {
            self.bytes.extend_from_slice(b"*1\r\n$6\r\nASKING\r\n");
        }
        self.commands += 1;
        self.number(b'*', parts);
    }

    /// The next part of a command.
    pub fn part(&mut self, part: impl AsRef<[u8]>) {
        let part = part.as_ref();
        self.number(b'$', part.len());
        self.bytes.extend_from_slice(part);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// The next part of a command, in pieces.
    pub fn part_of(&mut self, pieces: &[&str]) {
        self.number(b'$', pieces.iter().map(|piece| piece.len()).sum());
        pieces.iter().for_each(|piece| self.bytes.extend_from_slice(piece.as_bytes()));
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// The next part, a number.
    pub fn part_number(&mut self, number: u64) {
        let mut digits = [0; 20];
        let start = write_digits(number, &mut digits);
        self.part(&digits[start..]);
    }

    /// A whole command.
    pub fn all(&mut self, parts: &[&str]) {
        self.command(parts.len());
        parts.iter().for_each(|part| self.part(part));
    }

    /// A whole command that is answered only by messages, which are not counted as replies.
    pub(crate) fn unanswered(&mut self, parts: &[&str]) {
        self.all(parts);
        self.commands -= 1;
    }

    #[cfg(test)]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many replies it will bring.
    pub fn commands(&self) -> usize {
        self.commands
    }

    fn number(&mut self, mark: u8, number: usize) {
        let mut digits = [0; 20];
        let start = write_digits(number as u64, &mut digits);
        self.bytes.push(mark);
        self.bytes.extend_from_slice(&digits[start..]);
        self.bytes.extend_from_slice(b"\r\n");
    }
}

/// Writes a number at the end of `digits` and returns where it starts.
fn write_digits(mut number: u64, digits: &mut [u8; 20]) -> usize {
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return start;
        }
    }
}

/// What is heard when a channel of a cluster ends.
pub(crate) const UNSUBSCRIBED: &[u8] = b"U";

/// What the server answered.
#[derive(Debug)]
pub struct Reply(Value);

impl Reply {
    /// What a server would have sent.
    #[cfg(test)]
    pub(crate) fn parse(text: &str) -> Self {
        Self(redis::parse_redis_value(text.as_bytes()).unwrap())
    }

    /// A number.
    pub fn as_int(&self) -> Option<i64> {
        match self.0 {
            Value::Int(number) => Some(number),
            _ => None,
        }
    }

    /// Bytes of text.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match &self.0 {
            Value::BulkString(bytes) => Some(bytes),
            Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text.as_bytes()),
            Value::Okay => Some(b"OK"),
            _ => None,
        }
    }

    /// Text; what is not UTF-8 is not ours.
    pub fn as_text(&self) -> Option<&str> {
        self.as_bytes().and_then(|bytes| std::str::from_utf8(bytes).ok())
    }

    /// A list, or the reply itself if it is none.
    pub fn into_list(self) -> Result<Vec<Self>, Self> {
        match self.0 {
            Value::Array(values) | Value::Set(values) => Ok(values.into_iter().map(Self).collect()),
            value => Err(Self(value)),
        }
    }

    /// Fields and their values, or nothing if it is something else.
    pub(crate) fn into_pairs(self) -> Vec<(Self, Self)> {
        match self.0 {
            Value::Map(pairs) => pairs.into_iter().map(|(key, it)| (Self(key), Self(it))).collect(),
            Value::Array(values) => {
                let mut values = values.into_iter().map(Self);
                std::iter::from_fn(|| values.next().zip(values.next())).collect()
            }
            _ => Vec::new(),
        }
    }

    /// One list of several, in which a complaint about one of them stands for it, or the first
    /// complaint that concerns all of them.
    pub(crate) fn join(mut replies: Vec<Self>) -> Self {
        if replies.len() == 1 {
            return replies.swap_remove(0);
        }
        let mut all = Vec::with_capacity(replies.len());
        for reply in replies {
            let is_its_own = reply.failure().is_some_and(|it| it.handling == Remedy::AskApart);
            match reply.0 {
                Value::Array(values) => all.extend(values),
                value if is_its_own => all.push(value),
                value => return Self(value),
            }
        }
        Self(Value::Array(all))
    }

    /// The server's complaint, if this is one.
    pub fn failure(&self) -> Option<Failure> {
        match &self.0 {
            Value::ServerError(error) => Some(failure::of_server(error.code(), error.details())),
            _ => None,
        }
    }

    /// The payload of a message that was pushed to us; `None` for a reply.
    fn into_push(self) -> Result<Option<Vec<u8>>, Self> {
        match self.0 {
            Value::Push { kind: PushKind::Message | PushKind::SMessage, data } => {
                let payload = data.into_iter().nth(1);
                Ok(payload.and_then(|payload| match payload {
                    Value::BulkString(bytes) => Some(bytes),
                    _ => None,
                }))
            }
            // Whether we asked for it or the slot has moved, nothing more will come from there.
            Value::Push { kind: PushKind::SUnsubscribe, .. } => Ok(Some(UNSUBSCRIBED.to_vec())),
            // The confirmation of a subscription stands where a reply would.
            Value::Push { kind, .. } if kind_has_reply(&kind) => Err(Self(Value::Okay)),
            Value::Push { .. } => Ok(None),
            // Valkey 8 says so to one who has nothing to unsubscribe, where others push.
            Value::ServerError(error) if error.code() == "NOSUB" => Ok(None),
            value => Err(Self(value)),
        }
    }
}

fn kind_has_reply(kind: &PushKind) -> bool {
    matches!(kind, PushKind::Subscribe | PushKind::Unsubscribe | PushKind::SSubscribe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_packed() {
        let mut pipeline = Pipeline::default();
        pipeline.all(&["SET", "k", ""]);
        pipeline.command(2);
        pipeline.part("TTL");
        pipeline.part_number(1_234_567_890);
        let expected =
            "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n*2\r\n$3\r\nTTL\r\n$10\r\n1234567890\r\n";
        assert_eq!(String::from_utf8(pipeline.bytes).unwrap(), expected);
        assert_eq!(pipeline.commands, 2);
    }

    #[test]
    fn each_command_to_a_node_without_the_slot_is_announced() {
        let mut asking = Pipeline::asking();
        asking.all(&["GET", "k"]);
        assert_eq!(asking.commands(), 1);
        let mut pipeline = Pipeline::default();
        pipeline.append(&asking);
        let expected = "*1\r\n$6\r\nASKING\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
        assert_eq!(String::from_utf8(pipeline.bytes).unwrap(), expected);
        assert_eq!(pipeline.commands, 2);
    }
}
