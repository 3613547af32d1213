//! Values beside the locks. Each is one key whose revision is its version; a transaction compares
//! that and writes. Who removes a value leaves for a while that it did so, under a lease: thereby a
//! repetition is known, a request to create it that arrives late finds something there, and whoever
//! watches can tell a removal from an end.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockfast_core::{
    Change, ErrorKind, Expected, LockName, Moment, Version, VersionedValue, WriteOutcome,
    WriteRequest,
};

use crate::batch::{op, written_at};
use crate::failure::{self, Failure, Fate};
use crate::store::{Store, lock};
use crate::wire::{Done, KeyValue, Op, PutRequest, RangeRequest, TxnRequest, TxnResponse};

/// How long it is seen that a value was removed, and for how long a lease serves further removals.
const REMOVED_MIN: Duration = Duration::from_secs(60);
/// The longest lease that the server grants.
const LEASE_SECONDS_MAX: u64 = 9_000_000_000;
/// How often a lease is asked for when it ends before something is written under it.
const TRIES_MAX: u32 = 3;

const WORDS: &[u8] = b"lockfast value 1 ";
const ID_DIGITS: usize = 32;
const PUT: &[u8] = b" put\n";
const REMOVED: &[u8] = b" removed\n";

/// The lease under which removals are told.
#[derive(Debug, Default)]
pub(crate) struct Removals(Mutex<Option<(i64, Moment)>>);

/// What the key of a value holds: by which write, and the bytes, or that there are none any more.
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

    /// Reads what Lockfast wrote; `None` for anything else.
    fn read(value: &'a [u8]) -> Option<Self> {
        let (id, rest) = value.strip_prefix(WORDS)?.split_at_checked(ID_DIGITS)?;
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

    /// Reads what is there.
    fn of(kv: &'a KeyValue) -> Result<Self, Failure> {
        Self::read(&kv.value).ok_or_else(|| {
            let key = lockfast_core::error::quote(&String::from_utf8_lossy(&kv.key)).to_string();
            let message = format!(
                "the key {key} holds no value of Lockfast's; choose another name or delete that key"
            );
            Failure::new(ErrorKind::ForeignKey, message)
        })
    }
}

/// Whether somebody has written or removed a value there.
pub(crate) fn is_change(kv: &KeyValue) -> bool {
    Stored::read(&kv.value).is_some()
}

fn version_of(revision: i64) -> Version {
    Version::from_bytes(u128::from(revision.cast_unsigned()).to_be_bytes())
}

/// The revision that a version names; for one that is not of this store, one that no key has.
fn revision_of(version: Version) -> i64 {
    let number = u128::from_be_bytes(*version.as_bytes());
    i64::try_from(number).ok().filter(|revision| *revision > 0).unwrap_or(-1)
}

fn transaction(put: &PutRequest, revision: i64) -> TxnRequest {
    let get = RangeRequest { key: put.key.clone(), ..RangeRequest::default() };
    TxnRequest {
        compare: vec![written_at(&put.key, revision)],
        success: vec![op(Op::Put(put.clone()))],
        failure: vec![op(Op::Range(get))],
    }
}

/// What was found instead of what was expected.
fn found(answer: TxnResponse) -> Result<Option<KeyValue>, Failure> {
    match answer.responses.into_iter().next().and_then(|it| it.response) {
        Some(Done::Range(found)) => Ok(found.kvs.into_iter().next()),
        _ => Err(failure::of_nonsense("an answer has other parts")),
    }
}

/// What a transaction has led to.
enum Step {
    Written(i64),
    /// This is there instead.
    Found {
        kv: Option<KeyValue>,
        /// Whether an earlier try, whose answer was lost, may have been done.
        is_doubtful: bool,
    },
    /// The lease ended before.
    NoLease,
}

impl Store {
    /// The value of a name.
    pub(crate) async fn read_value(
        self: &Arc<Self>,
        name: &LockName,
    ) -> Result<Option<VersionedValue>, Failure> {
        let key = self.space.key_of_value(name);
        let found = self.link.range(RangeRequest { key, ..RangeRequest::default() }).await?;
        self.value_of(found.kvs.first()).await
    }

    /// Writes the value of a name if what is there is what was expected.
    pub(crate) async fn write_value(
        self: &Arc<Self>,
        request: &WriteRequest,
    ) -> Result<WriteOutcome, Failure> {
        let mut tries = 0;
        loop {
            tries += 1;
            let lease = self.lease_for(&request.change).await?;
            let written = self.write_under(request, lease).await;
            let is_used = matches!(&written, Ok(Some((_, under))) if *under == lease);
            // Where it is not known, it ends by itself.
            if written.is_ok() && !is_used && is_kept(&request.change) {
                let store = Arc::clone(self);
                self.context.runtime.spawn(async move { store.end_lease(lease).await });
            }
            match written? {
                Some((outcome, _)) => return Ok(outcome),
                None if tries < TRIES_MAX => self.removals.forget(lease),
                None => return Err(failure::of_closing()),
            }
        }
    }

    /// The lease under which a change is written; 0 for none.
    async fn lease_for(&self, change: &Change) -> Result<i64, Failure> {
        match change {
            Change::Put { keep: None, .. } => Ok(0),
            Change::Put { keep: Some(keep), .. } => {
                let seconds = keep.as_secs().saturating_add(u64::from(keep.subsec_nanos() > 0));
                self.grant_for(seconds.clamp(1, LEASE_SECONDS_MAX)).await
            }
            Change::Remove => {
                if let Some(lease) = self.removals.present(Moment::now()) {
                    return Ok(lease);
                }
                let sent = Moment::now();
                let lease = self.grant_for(REMOVED_MIN.as_secs() * 2).await?;
                *lock(&self.removals.0) = Some((lease, sent));
                Ok(lease)
            }
        }
    }

    async fn grant_for(&self, seconds: u64) -> Result<i64, Failure> {
        let granted = self.link.grant(i64::try_from(seconds).unwrap_or(i64::MAX)).await?;
        match granted.id {
            0 => Err(failure::of_nonsense("a lease without a number")),
            id => Ok(id),
        }
    }

    /// Writes under a lease. Returns what came of it, and under which lease what is there now; or
    /// nothing when the lease had ended.
    async fn write_under(
        self: &Arc<Self>,
        request: &WriteRequest,
        lease: i64,
    ) -> Result<Option<(WriteOutcome, i64)>, Failure> {
        let bytes = match &request.change {
            Change::Put { bytes, .. } => Some(bytes.as_slice()),
            Change::Remove => None,
        };
        let value = Stored { id: request.id, bytes }.write();
        let key = self.space.key_of_value(&request.name);
        let put = PutRequest { key, value, lease, ..PutRequest::default() };
        let written = |revision| WriteOutcome::Written(bytes.map(|_| version_of(revision)));
        let mut revision = match request.expected {
            Expected::Nothing => 0,
            Expected::Version(version) => revision_of(version),
        };
        loop {
            let (kv, is_doubtful) = match self.try_write(&put, revision).await? {
                Step::NoLease => return Ok(None),
                Step::Written(at) => return Ok(Some((written(at), lease))),
                Step::Found { kv, is_doubtful } => (kv, is_doubtful),
            };
            let stored = kv.as_ref().map(Stored::of).transpose()?;
            if let (Some(stored), Some(kv)) = (&stored, &kv)
                && stored.id == request.id
            {
                return Ok(Some((written(kv.mod_revision), kv.lease)));
            }
            // What is there now was written since, or was there before and never seen: also where it says
            // that there is nothing, what was removed may be what the first try wrote.
            if is_doubtful {
                return Err(failure::of_doubtful_write());
            }
            let is_nothing = stored.is_none_or(|stored| stored.bytes.is_none());
            if request.expected != Expected::Nothing || !is_nothing {
                let there = self.value_of(kv.as_ref()).await?;
                return Ok(Some((WriteOutcome::Conflict(there), 0)));
            }
            // Somebody has removed it, or that is not to be seen any more.
            revision = kv.map_or(0, |kv| kv.mod_revision);
        }
    }

    /// One transaction, again if its answer is lost: its id tells whether it was done before.
    async fn try_write(&self, put: &PutRequest, revision: i64) -> Result<Step, Failure> {
        let mut was_in_doubt = false;
        loop {
            let sending = self.sending.acquire().await;
            let answer = self.link.txn(transaction(put, revision)).await;
            drop(sending);
            match answer {
                Ok(answer) if answer.succeeded => {
                    let header = answer.header.ok_or_else(|| failure::of_nonsense("no header"))?;
                    return Ok(Step::Written(header.revision));
                }
                Ok(answer) => {
                    let is_doubtful = was_in_doubt;
                    return found(answer).map(|kv| Step::Found { kv, is_doubtful });
                }
                Err(failure) if failure.handling.is_in_doubt() && !was_in_doubt => {
                    was_in_doubt = true;
                }
                // Otherwise it may have been written, and have ended.
                Err(failure) if failure.handling == Fate::NoLease && !was_in_doubt => {
                    return Ok(Step::NoLease);
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// The value that is there.
    async fn value_of(
        self: &Arc<Self>,
        kv: Option<&KeyValue>,
    ) -> Result<Option<VersionedValue>, Failure> {
        let Some(kv) = kv else { return Ok(None) };
        let Some(bytes) = Stored::of(kv)?.bytes else { return Ok(None) };
        let remaining = match kv.lease {
            0 => None,
            lease => Some(self.left_of(lease).await?),
        };
        let version = version_of(kv.mod_revision);
        Ok(Some(VersionedValue::new(version, bytes.to_vec(), remaining)))
    }

    /// The whole seconds for which the lease of a value lasts.
    async fn left_of(&self, lease: i64) -> Result<Duration, Failure> {
        let sent = Moment::now();
        if let Some(left) = self.ends.left(lease, sent) {
            return Ok(left);
        }
        let said = self.link.time_to_live(lease).await?;
        // One that has ended is found by the server within half a second.
        let left = Duration::from_secs(u64::try_from(said.ttl).unwrap_or(0));
        self.ends.learn(lease, sent, Moment::now(), left);
        Ok(left)
    }
}

/// Whether a change has a lease of its own.
fn is_kept(change: &Change) -> bool {
    matches!(change, Change::Put { keep: Some(_), .. })
}

impl Removals {
    /// A lease that lasts for long enough.
    fn present(&self, now: Moment) -> Option<i64> {
        let present = *lock(&self.0);
        present.filter(|(_, granted)| now.since(*granted) < REMOVED_MIN).map(|(lease, _)| lease)
    }

    /// This lease has ended.
    fn forget(&self, lease: i64) {
        let mut present = lock(&self.0);
        if present.is_some_and(|(present, _)| present == lease) {
            *present = None;
        }
    }
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
    fn what_others_write_is_not_taken_for_ours() {
        let id = "0".repeat(ID_DIGITS);
        let table = [
            String::new(),
            "lockfast value 1 ".to_owned(),
            format!("lockfast value 1 {id}"),
            format!("lockfast value 1 +{} put\n", &id[1..]),
            format!("lockfast value 1 {id} removed\nx"),
            format!("lockfast value 2 {id} put\nx"),
        ];
        for value in table {
            assert_eq!(Stored::read(value.as_bytes()), None, "{value}");
        }
        assert_eq!(Stored::read(b"lockfast value 1 \xff"), None);
    }

    #[test]
    fn versions_of_other_stores_are_those_of_no_key() {
        for revision in [1, 77, i64::MAX] {
            assert_eq!(revision_of(version_of(revision)), revision);
        }
        for bytes in [[0; 16], [0xff; 16], [7; 16]] {
            assert_eq!(revision_of(Version::from_bytes(bytes)), -1);
        }
    }

    #[test]
    fn a_lease_serves_removals_while_it_lasts_for_long_enough() {
        let (removals, now) = (Removals::default(), Moment::now());
        *lock(&removals.0) = Some((7, now));
        removals.forget(6);
        assert_eq!(removals.present(now + REMOVED_MIN / 2), Some(7));
        assert_eq!(removals.present(now + REMOVED_MIN), None);
        removals.forget(7);
        assert_eq!(removals.present(now), None);
    }
}
