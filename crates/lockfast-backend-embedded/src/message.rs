//! What clients tell each other through pipes. A message fits into one atomic write, so that a
//! pipe holds whole messages only. Nothing depends on its arrival: a slow poll finds out as well.

use std::time::{Duration, SystemTime};

use lockfast_core::{Fence, HolderId, Label, LockName, WatchEvent, WatchKind};

/// The longest write that a pipe does not interleave with others (`PIPE_BUF`).
const BYTES_MAX: usize = 4096;
/// The longest reason that is passed on; the store has all of it.
const REASON_BYTES_MAX: usize = 1024;

/// One message.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    /// A waiting claim was granted.
    Granted { name: LockName, holder: HolderId, fence: Fence, from_ns: u64 },
    /// A lease was taken away.
    Revoked { name: LockName, holder: HolderId, reason: String },
    /// Something happened, for a watcher.
    Event(WatchEvent),
    /// The sender could not pass on all events.
    Missed,
}

impl Message {
    /// The bytes to write at once.
    pub(crate) fn encode(&self) -> Vec<u8> {
        // Room for the length, which is known at the end.
        let mut bytes = vec![0, 0];
        match self {
            Self::Granted { name, holder, fence, from_ns } => {
                bytes.push(1);
                put_text(&mut bytes, name.as_str());
                bytes.extend_from_slice(holder.as_bytes());
                bytes.extend_from_slice(&fence.get().to_le_bytes());
                bytes.extend_from_slice(&from_ns.to_le_bytes());
            }
            Self::Revoked { name, holder, reason } => {
                bytes.push(2);
                put_text(&mut bytes, name.as_str());
                bytes.extend_from_slice(holder.as_bytes());
                put_text(&mut bytes, cut(reason, REASON_BYTES_MAX));
            }
            Self::Event(event) => {
                bytes.push(3);
                put_event(&mut bytes, event);
            }
            Self::Missed => bytes.push(4),
        }
        debug_assert!(bytes.len() <= BYTES_MAX, "a message must be one write");
        let length = (bytes.len() - 2) as u16;
        bytes[..2].copy_from_slice(&length.to_le_bytes());
        bytes
    }

    /// Takes the messages out of what was read, and leaves a part of one. What cannot be
    /// understood is skipped.
    pub(crate) fn decode_all(buffer: &mut Vec<u8>, mut each: impl FnMut(Self)) {
        let mut at = 0;
        while let Some(head) = buffer.get(at..at + 2) {
            let length = usize::from(u16::from_le_bytes([head[0], head[1]]));
            let Some(body) = buffer.get(at + 2..at + 2 + length) else {
                break;
            };
            if let Some(message) = decode(&mut Parts(body)) {
                each(message);
            }
            at += 2 + length;
        }
        buffer.drain(..at);
        if buffer.len() > BYTES_MAX {
            // No message is that long: somebody else wrote into the pipe.
            buffer.clear();
        }
    }
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
}

fn put_event(bytes: &mut Vec<u8>, event: &WatchEvent) {
    let at = event.at.duration_since(SystemTime::UNIX_EPOCH);
    let at_us = at.unwrap_or_default().as_micros() as u64;
    bytes.extend_from_slice(&at_us.to_le_bytes());
    put_text(bytes, event.name.as_str());
    put_text(bytes, event.kind.as_str());
    bytes.extend_from_slice(&event.fence.map_or(0, Fence::get).to_le_bytes());
    if let Some(label) = &event.label {
        bytes.extend_from_slice(&label.pid.to_le_bytes());
        put_text(bytes, cut(&label.program, 256));
        put_text(bytes, cut(&label.host, 256));
        put_text(bytes, cut(label.text.as_deref().unwrap_or_default(), 256));
    }
}

/// The longest part of a text with so many bytes.
fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// What is left of a message.
struct Parts<'a>(&'a [u8]);

impl<'a> Parts<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn number(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = self.take().map(u16::from_le_bytes)?;
        let (text, rest) = self.0.split_at_checked(length.into())?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }

    fn name(&mut self) -> Option<LockName> {
        LockName::new(self.text()?).ok()
    }

    fn holder(&mut self) -> Option<HolderId> {
        self.take().map(HolderId::from_bytes)
    }
}

fn decode(parts: &mut Parts<'_>) -> Option<Message> {
    let [kind] = parts.take()?;
    Some(match kind {
        1 => Message::Granted {
            name: parts.name()?,
            holder: parts.holder()?,
            fence: Fence::new(parts.number()?).ok()?,
            from_ns: parts.number()?,
        },
        2 => Message::Revoked {
            name: parts.name()?,
            holder: parts.holder()?,
            reason: parts.text()?.to_owned(),
        },
        3 => Message::Event(decode_event(parts)?),
        4 => Message::Missed,
        _ => return None,
    })
}

fn decode_event(parts: &mut Parts<'_>) -> Option<WatchEvent> {
    const KINDS: [WatchKind; 7] = [
        WatchKind::Queued,
        WatchKind::Granted,
        WatchKind::Released,
        WatchKind::Abandoned,
        WatchKind::Expired,
        WatchKind::Revoked,
        WatchKind::Changed,
    ];
    let at = SystemTime::UNIX_EPOCH + Duration::from_micros(parts.number()?);
    let name = parts.name()?;
    let word = parts.text()?;
    let kind = KINDS.into_iter().find(|kind| kind.as_str() == word)?;
    let fence = Fence::new(parts.number()?).ok();
    let label = match parts.take().map(u32::from_le_bytes) {
        None => None,
        Some(pid) => Some(
            Label::new(parts.text()?.to_owned(), parts.text()?.to_owned(), pid)
                .with_stored_text(parts.text().filter(|text| !text.is_empty()).map(str::to_owned)),
        ),
    };
    Some(WatchEvent::new(at, name, kind).with_fence(fence).with_label(label))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockfast_core::ClientId;

    fn samples() -> Vec<Message> {
        let name = LockName::new("日本/".repeat(30).trim_end_matches('/')).unwrap();
        let holder = HolderId::random(ClientId::random().unwrap()).unwrap();
        let label =
            Label::new("p".repeat(64), "h".repeat(64), 7).with_stored_text(Some("é".repeat(64)));
        vec![
            Message::Granted {
                name: name.clone(),
                holder,
                fence: Fence::new(42).unwrap(),
                from_ns: 7,
            },
            Message::Revoked { name: name.clone(), holder, reason: "é".repeat(4_000) },
            Message::Event(
                WatchEvent::new(
                    SystemTime::UNIX_EPOCH + Duration::from_micros(5),
                    name,
                    WatchKind::Expired,
                )
                .with_fence(Some(Fence::new(3).unwrap()))
                .with_label(Some(label)),
            ),
            Message::Missed,
        ]
    }

    #[test]
    fn messages_survive_the_pipe_in_pieces() {
        let samples = samples();
        let bytes: Vec<u8> = samples.iter().flat_map(Message::encode).collect();
        let mut buffer = Vec::new();
        let mut seen = Vec::new();
        for piece in bytes.chunks(7) {
            buffer.extend_from_slice(piece);
            Message::decode_all(&mut buffer, |message| seen.push(message));
        }
        assert!(buffer.is_empty());
        assert_eq!(seen.len(), samples.len());
        for (seen, sent) in seen.iter().zip(&samples) {
            match sent {
                Message::Revoked { .. } => assert!(matches!(seen, Message::Revoked { reason, .. }
                    if reason.len() == REASON_BYTES_MAX)),
                _ => assert_eq!(format!("{seen:?}"), format!("{sent:?}")),
            }
        }
    }

    #[test]
    fn every_message_is_one_atomic_write() {
        for sample in samples() {
            assert!(sample.encode().len() <= BYTES_MAX);
        }
    }

    #[test]
    fn rubbish_is_skipped() {
        let mut buffer = vec![3, 0, 9, 9, 9];
        buffer.extend(Message::Missed.encode());
        let mut seen = 0;
        Message::decode_all(&mut buffer, |_| seen += 1);
        assert_eq!(seen, 1);
        buffer.extend([0xff; 9_000]);
        Message::decode_all(&mut buffer, |_| seen += 1);
        assert_eq!((seen, buffer.len()), (1, 0));
    }
}
