//! Where claims are. The key of a claim is the lock's name, a slash, the number of a lease in
//! hexadecimal digits and, for ours, a hyphen and the holder's id: other clients look at the part
//! up to the slash and at the order in which keys were made, and at nothing else. The keys of values
//! begin with a byte that no text has, so that they are no lock's and come after those of all locks.

use lockfast_core::{HolderId, LockName};

/// What follows the prefix in the key of a value.
const VALUE: &[u8] = b"\xffvalue/";

/// The locks and values that are stored under one prefix.
#[derive(Clone, Debug)]
pub(crate) struct Space(String);

/// Keys from the first to before the second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: Vec<u8>,
    pub(crate) to: Vec<u8>,
}

/// Who made a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Maker {
    /// A claim of Lockfast's.
    Holder(HolderId),
    /// A claim of another program.
    Other,
    /// Something that is not named like a claim.
    Nobody,
}

impl Space {
    pub(crate) fn new(prefix: &str) -> Self {
        Self(prefix.to_owned())
    }

    /// The keys of a lock, and those of the locks whose names go on with a slash.
    pub(crate) fn span_of(&self, name: &LockName) -> Span {
        let from = format!("{}{name}/", self.0).into_bytes();
        let to = after_prefix(&from);
        Span { from, to }
    }

    /// The keys of all locks and values.
    pub(crate) fn span(&self) -> Span {
        let from = self.0.as_bytes().to_vec();
        if from.is_empty() {
            // All keys, in etcd's way to say it.
            return Span { from: vec![0], to: vec![0] };
        }
        let to = after_prefix(&from);
        Span { from, to }
    }

    /// The keys of all locks whose names start so.
    pub(crate) fn span_of_all(&self, start: &str) -> Span {
        if start.is_empty() {
            let to = [self.0.as_bytes(), &VALUE[..1]].concat();
            return Span { to, ..self.span() };
        }
        let from = format!("{}{start}", self.0).into_bytes();
        let to = after_prefix(&from);
        Span { from, to }
    }

    /// The key of a value.
    pub(crate) fn key_of_value(&self, name: &LockName) -> Vec<u8> {
        [self.0.as_bytes(), VALUE, name.as_str().as_bytes()].concat()
    }

    /// Whose value a key holds; `None` for what can be no value's.
    pub(crate) fn read_value(&self, key: &[u8]) -> Option<LockName> {
        let name = key.strip_prefix(self.0.as_bytes())?.strip_prefix(VALUE)?;
        LockName::new(std::str::from_utf8(name).ok()?).ok()
    }

    /// The key of a claim that is made under a lease.
    pub(crate) fn key(&self, name: &LockName, lease: i64, holder: HolderId) -> Vec<u8> {
        format!("{}{name}/{lease:x}-{}", self.0, holder.to_hex()).into_bytes()
    }

    /// Whose a key is, and of which lock; `None` for what can be no lock's.
    pub(crate) fn read(&self, key: &[u8]) -> Option<(LockName, Maker)> {
        let text = std::str::from_utf8(key).ok()?.strip_prefix(self.0.as_str())?;
        let (name, rest) = text.rsplit_once('/')?;
        Some((LockName::new(name).ok()?, read_maker(rest)))
    }
}

/// The first key that does not start with this.
fn after_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

fn read_maker(rest: &str) -> Maker {
    let (lease, holder) = match rest.split_once('-') {
        Some((lease, holder)) => (lease, Some(holder)),
        None => (rest, None),
    };
    let is_lease = (1..=16).contains(&lease.len())
        && lease.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    match holder.map(HolderId::parse) {
        _ if !is_lease => Maker::Nobody,
        None => Maker::Other,
        Some(Ok(holder)) => Maker::Holder(holder),
        Some(Err(_)) => Maker::Nobody,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockfast_core::ClientId;

    fn name(text: &str) -> LockName {
        LockName::new(text).unwrap()
    }

    #[test]
    fn a_key_tells_lock_and_holder() {
        let holder = HolderId::random(ClientId::random().unwrap()).unwrap();
        for prefix in ["", "app/", "app"] {
            let space = Space::new(prefix);
            for text in ["a", "a/b", "a/", "/a", "//", "é", "a-1"] {
                let key = space.key(&name(text), 0x694d_81ef, holder);
                assert_eq!(space.read(&key), Some((name(text), Maker::Holder(holder))), "{text}");
                let span = space.span_of(&name(text));
                assert!(span.from <= key && key < span.to);
            }
        }
    }

    #[test]
    fn values_are_apart_from_locks() {
        for prefix in ["", "app/", "app"] {
            let space = Space::new(prefix);
            for text in ["a", "a/b", "a/", "/a", "é", "value/a", "\u{10ffff}"] {
                let key = space.key_of_value(&name(text));
                assert_eq!(space.read_value(&key), Some(name(text)));
                assert_eq!(space.read(&key), None, "{text} is a lock");
                assert_eq!(Space::new("").read(&key), None, "{text} is a lock without the prefix");
                let (all, locks) = (space.span(), space.span_of_all(""));
                assert!(all.from <= key && (key < all.to || all.to == [0]));
                assert!(key >= locks.to, "{text} is among the locks");
                let claim = space.span_of(&name(text)).from;
                assert!(locks.from <= claim && claim < locks.to);
                assert_eq!(space.read_value(&claim), None);
            }
        }
    }

    #[test]
    fn keys_of_others() {
        let space = Space::new("");
        let table: [(&[u8], _); 8] = [
            (b"a/694d81ef", Some(("a", Maker::Other))),
            (b"a/b/1", Some(("a/b", Maker::Other))),
            (b"a/config", Some(("a", Maker::Nobody))),
            (b"a/694D81EF", Some(("a", Maker::Nobody))),
            (b"a/12-34", Some(("a", Maker::Nobody))),
            (b"a/", Some(("a", Maker::Nobody))),
            (b"a", None),
            (b"\xff/1", None),
        ];
        for (key, expected) in table {
            let expected = expected.map(|(text, maker)| (name(text), maker));
            assert_eq!(space.read(key), expected, "{key:?}");
        }
    }

    #[test]
    fn spans() {
        let space = Space::new("");
        assert_eq!(space.span_of(&name("a")), Span { from: b"a/".into(), to: b"a0".into() });
        assert_eq!(space.span(), Span { from: vec![0], to: vec![0] });
        assert_eq!(space.span_of_all(""), Span { from: vec![0], to: vec![0xff] });
        assert_eq!(space.span_of_all("a"), Span { from: b"a".into(), to: b"b".into() });
        assert_eq!(after_prefix(&[1, 0xff]), [2]);
        assert_eq!(after_prefix(&[0xff]), [0]);
    }
}
