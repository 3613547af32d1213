//! How things are written in Redis: holders, claims, modes, labels, and what a look at a lock
//! brings back.

use std::num::NonZeroU32;
use std::time::{Duration, SystemTime};

use lockfast_core::{
    ClientId, Fence, HolderId, HolderView, Label, LockName, LockView, Mode, Version,
};

use crate::wire::{Failure, Pipeline, Reply, failure};

/// The names of the keys that serve all locks.
pub(crate) const FENCE_KEY: &str = "lockfast:fence";
pub(crate) const GUARD_KEY: &str = "lockfast:guard";
pub(crate) const CROWD_KEY: &str = "lockfast:crowd";
pub(crate) const WATCH_KEY: &str = "lockfast:watch";
pub(crate) const CLIENT_KEY: &str = "lockfast:client:";
/// What scripts say in place of the link of a client that is not known.
pub(crate) const NO_LINK: &str = "-";
pub(crate) const PUSH_CHANNEL: &str = "lockfast:push:";
const EVENT_CHANNEL: &str = "lockfast:events";
/// Whoever watches a cluster listens to this on each node, so that its scripts know.
pub(crate) const WATCH_CHANNEL: &str = "lockfast:watched";
/// What all keys of our own start with; no lock's name may.
pub(crate) const RESERVED: &str = "lockfast:";
/// What stands in a lock's key while it is shared.
pub(crate) const SHARED_MARK: &str = "lockfast:shared";

pub(crate) const HOLDER_CHARS: usize = 22;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Where events of a database are published: channels belong to the whole server. Whoever watches
/// writes it into the key that says so.
pub(crate) fn event_channel(database: u32) -> String {
    match database {
        0 => EVENT_CHANNEL.to_owned(),
        _ => format!("{EVENT_CHANNEL}/{database}"),
    }
}

/// The 22 characters of a holder; the first 8 are its client's.
pub fn write_holder(holder: HolderId) -> String {
    write_base64(holder.as_bytes())
}

/// The 8 characters of a client.
pub fn write_client(client: ClientId) -> String {
    write_base64(client.as_bytes())
}

/// The holder of 22 characters.
pub fn read_holder(text: &str) -> Option<HolderId> {
    if text.len() != HOLDER_CHARS {
        return None;
    }
    read_base64(text).map(HolderId::from_bytes)
}

/// The client of 8 characters.
pub fn read_client(text: &str) -> Option<ClientId> {
    if text.len() != 8 {
        return None;
    }
    read_base64(text).map(ClientId::from_bytes)
}

/// The 22 characters of a version.
pub(crate) fn write_version(version: Version) -> String {
    write_base64(version.as_bytes())
}

/// The version and the bytes of a stored value, if Lockfast wrote it.
pub(crate) fn read_value(stored: &[u8]) -> Option<(Version, &[u8])> {
    let (version, rest) = stored.split_at_checked(HOLDER_CHARS)?;
    let version = read_base64(std::str::from_utf8(version).ok()?)?;
    Some((Version::from_bytes(version), rest.strip_prefix(b".")?))
}

fn write_base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(HOLDER_CHARS);
    for three in bytes.chunks(3) {
        let at = |place: usize| u32::from(three.get(place).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for place in 0..=three.len() {
            let six = (bits >> (18 - 6 * place)) & 63;
            text.push(char::from(ALPHABET[six as usize]));
        }
    }
    text
}

fn read_base64<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let (mut bits, mut count, mut at) = (0_u32, 0, 0);
    for character in text.bytes() {
        let six = ALPHABET.iter().position(|known| *known == character)?;
        bits = bits << 6 | six as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            *bytes.get_mut(at)? = (bits >> count) as u8;
            at += 1;
        }
    }
    // What is left over must be nothing, or two texts would mean the same.
    (at == N && bits & ((1 << count) - 1) == 0).then_some(bytes)
}

/// A mode as it is stored.
pub(crate) fn write_mode(mode: Mode) -> String {
    match mode {
        Mode::Exclusive => "x".into(),
        Mode::Shared => "s".into(),
        Mode::Permit { limit } => format!("p{limit}"),
    }
}

pub(crate) fn read_mode(text: &str) -> Option<Mode> {
    match text {
        "x" => Some(Mode::Exclusive),
        "s" => Some(Mode::Shared),
        _ => {
            let limit = text.strip_prefix('p')?.parse::<NonZeroU32>().ok()?;
            Some(Mode::Permit { limit })
        }
    }
}

/// A label as it is stored; none of its parts holds a tab.
pub fn write_label(label: &Label) -> String {
    let text = label.text.as_deref().unwrap_or_default();
    format!("{}\t{}\t{}\t{text}", label.program, label.host, label.pid)
}

/// The label of what [`write_label`] wrote.
pub fn read_label(stored: &str) -> Option<Label> {
    let mut parts = stored.splitn(4, '\t');
    let (program, host) = (read_text(parts.next()?), read_text(parts.next()?));
    let pid = parts.next()?.parse().ok()?;
    let text = read_text(parts.next()?);
    Some(Label::new(program, host, pid).with_stored_text((!text.is_empty()).then_some(text)))
}

/// Text for people that somebody has stored, as long as a label may be. It is escaped where it is
/// shown; programs get it as it is.
pub(crate) fn read_text(stored: &str) -> String {
    let most = Label::TEXT_BYTES_MAX.min(stored.len());
    let end = (0..=most).rev().find(|at| stored.is_char_boundary(*at)).unwrap_or(0);
    stored[..end].to_owned()
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

    /// A key of its bookkeeping, which a cluster keeps where the lock is.
    pub(crate) fn write_aside(self, pipeline: &mut Pipeline, what: &str) {
        pipeline.part_of(&["lockfast:{", self.prefix, self.name, "}:", what]);
    }

    /// All four, as most scripts want them.
    pub(crate) fn write_all(self, pipeline: &mut Pipeline) {
        self.write_lock(pipeline);
        self.write_aside(pipeline, "queue");
        self.write_aside(pipeline, "shared");
        self.write_aside(pipeline, "revoked");
    }
}

/// A lock as it was seen, without the labels, which are kept once per client.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) holders: Vec<SeenHolder>,
    pub(crate) waiting: usize,
}

/// A holder as it was seen.
#[derive(Clone, Debug)]
pub(crate) struct SeenHolder {
    /// Absent for a program that is not Lockfast.
    pub(crate) claim: Option<(ClientId, Fence)>,
    mode: Mode,
    remaining: Duration,
}

impl Seen {
    /// Reads what the scripts' `view` wrote.
    pub(crate) fn read(fields: &[Reply]) -> Option<Self> {
        let [value, left_ms, waiting, now_ms, shared @ ..] = fields else { return None };
        let mut seen =
            Self { holders: Vec::new(), waiting: usize::try_from(waiting.as_int()?).ok()? };
        let Some(value) = value.as_bytes() else { return Some(seen) };
        if value == SHARED_MARK.as_bytes() {
            seen.read_shared(now_ms.as_int()?, shared);
            return Some(seen);
        }
        // Without an expiry it stays until somebody deletes it.
        let left_ms = left_ms.as_int()?;
        let remaining = u64::try_from(left_ms).map_or(Duration::MAX, Duration::from_millis);
        let claim = std::str::from_utf8(value).ok().and_then(read_hold);
        let claim = claim.map(|(holder, fence)| (holder.client(), fence));
        seen.holders.push(SeenHolder { claim, mode: Mode::Exclusive, remaining });
        Some(seen)
    }

    fn read_shared(&mut self, now_ms: i64, shared: &[Reply]) {
        let Some((mode, holders)) = shared.split_first() else { return };
        let Some(mode) = mode.as_text().and_then(read_mode) else { return };
        for pair in holders.chunks_exact(2) {
            let holder = pair[0].as_text().and_then(read_holder);
            let record = pair[1].as_text().and_then(|record| record.split_once('.'));
            let (Some(holder), Some((ends_ms, fence))) = (holder, record) else { continue };
            let (Ok(ends_ms), Ok(fence)) = (ends_ms.parse::<i64>(), Fence::parse(fence)) else {
                continue;
            };
            if ends_ms > now_ms {
                let remaining = Duration::from_millis(ends_ms.abs_diff(now_ms));
                let claim = Some((holder.client(), fence));
                self.holders.push(SeenHolder { claim, mode, remaining });
            }
        }
        self.holders.sort_by_key(|holder| holder.claim.map(|(_, fence)| fence.get()));
    }

    /// How much time the lease with this fence has left.
    pub(crate) fn remaining_of(&self, fence: Fence) -> Option<Duration> {
        let is_meant = |holder: &&SeenHolder| holder.claim.is_some_and(|(_, it)| it == fence);
        self.holders.iter().find(is_meant).map(|holder| holder.remaining)
    }

    /// The lock as people may see it.
    pub(crate) fn view(
        &self,
        name: &LockName,
        label: impl Fn(&ClientId) -> Option<Label>,
    ) -> LockView {
        let holders = self.holders.iter().map(|holder| {
            // A fence is the server's time in microseconds, or a little more.
            let since = holder
                .claim
                .map(|(_, fence)| SystemTime::UNIX_EPOCH + Duration::from_micros(fence.get()));
            HolderView::new(holder.mode, since, holder.remaining)
                .with_fence(holder.claim.map(|(_, fence)| fence))
                .with_label(holder.claim.as_ref().and_then(|(client, _)| label(client)))
        });
        LockView::new(name.clone(), holders.collect(), self.waiting)
    }
}

/// The holder and fence of a lock's value, if Lockfast wrote it.
pub fn read_hold(value: &str) -> Option<(HolderId, Fence)> {
    let (holder, fence) = value.split_once('.')?;
    Some((read_holder(holder)?, Fence::parse(fence).ok()?))
}

/// A fence that the server answered.
pub(crate) fn read_fence(number: i64) -> Result<Fence, Failure> {
    let fence = u64::try_from(number).ok().and_then(|number| Fence::new(number).ok());
    fence.ok_or_else(|| failure::of_nonsense(format!("a fence of {number}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_survive_their_text() {
        let client = ClientId::random().unwrap();
        for _ in 0..100 {
            let holder = HolderId::random(client).unwrap();
            let text = write_holder(holder);
            assert_eq!((text.len(), read_holder(&text)), (22, Some(holder)));
            assert_eq!(&text[..8], write_client(client));
            assert_eq!(read_client(&text[..8]), Some(client));
            assert_eq!(read_hold(&format!("{text}.42")), Some((holder, Fence::new(42).unwrap())));
        }
        for text in ["", "short", "AAAAAAAAAAAAAAAAAAAAAB", "AAAAAAAAAAAAAAAAAAAAA!"] {
            assert_eq!(read_holder(text), None, "{text}");
        }
    }

    /// B31: whoever can write to the server can write any label.
    #[test]
    fn a_label_is_what_people_can_be_shown() {
        let long = "é".repeat(5000);
        let stored = format!("sh\u{1b}[2J\tho\u{202e}st\t7\tL: free\n{long}");
        let label = read_label(&stored).unwrap();
        let shown = label.to_string();
        assert!(shown.starts_with("sh\\u{1b}[2J (pid 7 on ho\\u{202e}st) “L: free\\né"), "{shown}");
        assert!(shown.len() < 300, "{shown}");
        for stored in ["", "a\tb", "a\tb\tc\td", "a\tb\t-1\td", "a\tb\t99999999999\td"] {
            assert_eq!(read_label(stored), None, "{stored:?}");
        }
    }

    /// B245: its value does not say since when another program has a lock.
    #[test]
    fn nobody_knows_since_when_another_program_has_it() {
        let (name, client) = (LockName::new("a").unwrap(), ClientId::random().unwrap());
        let fence = Fence::new(1_700_000_000_000_000).unwrap();
        let since = |claim| {
            let (mode, remaining) = (Mode::Exclusive, Duration::from_secs(5));
            let seen = Seen { holders: vec![SeenHolder { claim, mode, remaining }], waiting: 0 };
            seen.view(&name, |_| None).holders[0].since
        };
        assert_eq!(since(None), None);
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        assert_eq!(since(Some((client, fence))), Some(at));
    }

    #[test]
    fn labels_and_modes_survive_their_text() {
        let label = Label::of_this_process();
        let with_text = label.clone().with_text("a b").unwrap();
        for label in [label, with_text] {
            assert_eq!(read_label(&write_label(&label)), Some(label));
        }
        for mode in [Mode::Exclusive, Mode::Shared, Mode::permit(7).unwrap()] {
            assert_eq!(read_mode(&write_mode(mode)), Some(mode));
        }
        assert_eq!(read_mode("p0"), None);
    }
}
