//! The memory store's values, and the rule by which both stores write: what is there is compared
//! with what was expected, and the id of a write is the version of what it leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lockfast_core::{
    Change, Expected, LockName, Version, VersionedValue, WriteOutcome, WriteRequest,
};

/// What a write leads to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It happens.
    Write,
    /// It happened before, or cannot.
    Answer(WriteOutcome),
}

/// Decides about a write, given what is there.
pub(crate) fn decide(request: &WriteRequest, there: Option<VersionedValue>) -> Decision {
    let version = there.as_ref().map(|value| value.version);
    let own = Version::from_bytes(request.id);
    let expected = match request.expected {
        Expected::Nothing => None,
        Expected::Version(version) => Some(version),
    };
    if version == Some(own) {
        Decision::Answer(WriteOutcome::Written(version))
    } else if version == expected {
        Decision::Write
    } else {
        Decision::Answer(WriteOutcome::Conflict(there))
    }
}

/// What is answered to a write that happened.
pub(crate) fn written(request: &WriteRequest) -> WriteOutcome {
    WriteOutcome::Written(match request.change {
        Change::Put { .. } => Some(Version::from_bytes(request.id)),
        Change::Remove => None,
    })
}

/// The values of a memory store. Times are nanoseconds since the machine started.
#[derive(Debug, Default)]
pub(crate) struct Values {
    stored: BTreeMap<LockName, Stored>,
    ends: BTreeSet<(u64, LockName)>,
}

#[derive(Debug)]
struct Stored {
    version: Version,
    bytes: Vec<u8>,
    ends_ns: Option<u64>,
}

impl Values {
    pub(crate) fn read(&self, name: &LockName, now_ns: u64) -> Option<VersionedValue> {
        let Stored { version, bytes, ends_ns } = self.stored.get(name)?;
        let remaining = match ends_ns {
            Some(ends_ns) if *ends_ns <= now_ns => return None,
            ends_ns => ends_ns.map(|ends_ns| Duration::from_nanos(ends_ns - now_ns)),
        };
        Some(VersionedValue::new(*version, bytes.clone(), remaining))
    }

    /// Writes if what is there is what was expected; whether anything was changed.
    pub(crate) fn write(&mut self, request: WriteRequest, now_ns: u64) -> (WriteOutcome, bool) {
        self.forget_ended(now_ns);
        if let Decision::Answer(outcome) = decide(&request, self.read(&request.name, now_ns)) {
            return (outcome, false);
        }
        let outcome = written(&request);
        let version = Version::from_bytes(request.id);
        let before = match request.change {
            Change::Put { bytes, keep } => {
                let ends_ns = keep.map(|keep| now_ns.saturating_add(nanos(keep)));
                if let Some(ends_ns) = ends_ns {
                    self.ends.insert((ends_ns, request.name.clone()));
                }
                self.stored.insert(request.name.clone(), Stored { version, bytes, ends_ns })
            }
            Change::Remove => self.stored.remove(&request.name),
        };
        if let Some(ends_ns) = before.and_then(|stored| stored.ends_ns)
            && self.stored.get(&request.name).and_then(|stored| stored.ends_ns) != Some(ends_ns)
        {
            self.ends.remove(&(ends_ns, request.name));
        }
        (outcome, true)
    }

    fn forget_ended(&mut self, now_ns: u64) {
        while let Some((ends_ns, _)) = self.ends.first()
            && *ends_ns <= now_ns
            && let Some((_, name)) = self.ends.pop_first()
        {
            self.stored.remove(&name);
        }
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(expected: Expected, id: u8, change: Change) -> WriteRequest {
        WriteRequest { name: LockName::new("a").unwrap(), expected, change, id: [id; 16] }
    }

    fn put(text: &str, keep: Option<u64>) -> Change {
        let bytes = text.as_bytes().to_vec();
        Change::Put { bytes, keep: keep.map(Duration::from_nanos) }
    }

    fn version(id: u8) -> Version {
        Version::from_bytes([id; 16])
    }

    #[test]
    fn a_write_that_ended_is_forgotten_and_one_that_follows_is_not() {
        let mut values = Values::default();
        let name = LockName::new("a").unwrap();
        let first = request(Expected::Nothing, 1, put("one", Some(10)));
        assert_eq!(values.write(first, 100).0, WriteOutcome::Written(Some(version(1))));
        assert_eq!(values.read(&name, 104).unwrap().remaining, Some(Duration::from_nanos(6)));
        let longer = request(Expected::Version(version(1)), 2, put("two", Some(20)));
        assert_eq!(values.write(longer, 105).0, WriteOutcome::Written(Some(version(2))));
        assert_eq!(values.read(&name, 111).unwrap().bytes, b"two");
        assert_eq!(values.read(&name, 125), None);
        let again = request(Expected::Nothing, 3, put("three", None));
        assert_eq!(values.write(again, 126), (WriteOutcome::Written(Some(version(3))), true));
        assert!(values.ends.is_empty());
        let removal = request(Expected::Version(version(3)), 4, Change::Remove);
        assert_eq!(values.write(removal, 127), (WriteOutcome::Written(None), true));
        assert!(values.stored.is_empty());
    }

    #[test]
    fn a_repetition_is_known() {
        let mut values = Values::default();
        let first = request(Expected::Nothing, 1, put("one", None));
        let (outcome, changed) = values.write(first.clone(), 1);
        assert!(changed);
        assert_eq!(values.write(first, 2), (outcome, false));
    }
}
