//! Values: one script compares and writes, or only reads. The id of a write is the version of what it
//! leaves.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockfast_core::{
    Change, ErrorKind, Expected, LockName, Result, Version, VersionedValue, WriteOutcome,
    WriteRequest,
};

use crate::backend::{Redis, check_name, check_slot, leaves_open};
use crate::claim::whole_ms;
use crate::record;
use crate::slot;
use crate::store::{Store, lock};
use crate::wire::{Failure, Pipeline, Reply, failure};

/// What a write says instead of how long its value stays.
const FOR_EVER: &str = "";
const REMOVED: &str = "-";
/// The longest time that a value is kept for, so that the server can add it to its clock.
const KEEP_MS_MAX: u64 = 1 << 53;
/// How long replicas may take to confirm a write.
const REPLICAS_MS: u64 = 1000;
/// Beyond so many writes without a known answer all are forgotten.
const TRIES_MAX: usize = 100_000;

/// How often each write was tried whose answer is not known, so that the server can tell the last try
/// from an earlier one that comes late.
#[derive(Default)]
pub(crate) struct Tries(Mutex<HashMap<[u8; 16], u64>>);

impl Tries {
    /// Counts another try.
    fn count(&self, id: [u8; 16]) -> u64 {
        let mut tries = lock(&self.0);
        if tries.len() >= TRIES_MAX {
            tries.clear();
        }
        let count = tries.entry(id).or_default();
        *count += 1;
        *count
    }

    /// What became of it is known.
    fn settle(&self, id: [u8; 16]) {
        lock(&self.0).remove(&id);
    }
}

/// A write as the script wants it.
struct Written {
    name: LockName,
    expected: String,
    /// What shall be stored, or the id alone.
    record: Vec<u8>,
    stays: String,
    tried: u64,
}

impl Redis {
    pub(crate) async fn read_value(&self, name: LockName) -> Result<Option<VersionedValue>> {
        let asked = name.clone();
        let replies = self
            .ask_of_value(&name, move |store, pipeline| {
                store.write_value_call(pipeline, &asked, 0);
            })
            .await?;
        let reply = replies.into_iter().next().ok_or_else(nonsense);
        let value = reply.and_then(|reply| read_value(&self.store, &name, reply));
        value.map_err(|failure| failure.to_error().with_lock(&name))
    }

    pub(crate) async fn write_value(&self, request: WriteRequest) -> Result<WriteOutcome> {
        let WriteRequest { name, expected, change, id } = request;
        let version = Version::from_bytes(id);
        let mut record = record::write_version(version).into_bytes();
        record.push(b'.');
        let stays = match change {
            Change::Put { bytes, keep } => {
                record.extend(bytes);
                keep.map_or_else(|| FOR_EVER.to_owned(), |keep| write_keep(keep).to_string())
            }
            Change::Remove => REMOVED.to_owned(),
        };
        let expected = match expected {
            Expected::Nothing => String::new(),
            Expected::Version(version) => record::write_version(version),
        };
        let tried = self.tries.count(id);
        let written = Written { name: name.clone(), expected, record, stays, tried };
        let answer = self
            .ask_of_value(&name, move |store, pipeline| store.write_value(pipeline, &written))
            .await
            .and_then(|replies| {
                let outcome = self.read_outcome(&name, version, replies);
                outcome.map_err(|failure| failure.to_error().with_lock(&name))
            });
        if !answer.as_ref().is_err_and(leaves_open) {
            self.tries.settle(id);
        }
        answer
    }

    /// Sends the commands that are about a value, and waits for their replies.
    async fn ask_of_value(
        &self,
        name: &LockName,
        write: impl Fn(&Store, &mut Pipeline) + Send + Sync + 'static,
    ) -> Result<Vec<Reply>> {
        let prefix = &self.store.config().prefix;
        check_name(prefix, name)?;
        check_slot(&self.store, name)?;
        let (slot, store) = (slot::of_lock(prefix, name.as_str()), Arc::clone(&self.store));
        let replies = self.ask(slot, move |pipeline| write(&store, pipeline)).await;
        replies.map_err(|error| error.with_lock(name))
    }

    fn read_outcome(
        &self,
        name: &LockName,
        version: Version,
        replies: Vec<Reply>,
    ) -> std::result::Result<WriteOutcome, Failure> {
        let mut replies = replies.into_iter();
        let reply = replies.next().ok_or_else(nonsense)?;
        let outcome = match reply.as_int() {
            Some(0) => WriteOutcome::Written(None),
            Some(1) => WriteOutcome::Written(Some(version)),
            _ => return read_value(&self.store, name, reply).map(WriteOutcome::Conflict),
        };
        // Nobody can undo it: others may have read it.
        let wanted = self.store.config().min_replicas;
        match replies.next().and_then(|reply| reply.as_int()) {
            Some(count) if count < i64::from(wanted) => Err(Failure::new(
                ErrorKind::Unreachable,
                format!(
                    "it is written, but only {count} of {wanted} replicas confirmed it, so that a \
                     failover may forget it"
                ),
            )),
            _ => Ok(outcome),
        }
    }
}

impl Store {
    /// Begins a call of the script.
    fn write_value_call(&self, pipeline: &mut Pipeline, name: &LockName, arguments: usize) {
        let keys = self.keys(name);
        let is_cluster = self.cluster.is_some();
        self.scripts().value.call(pipeline, if is_cluster { 2 } else { 3 }, arguments);
        keys.write_lock(pipeline);
        keys.write_aside(pipeline, "value");
        if !is_cluster {
            pipeline.part(record::WATCH_KEY);
        }
    }

    fn write_value(&self, pipeline: &mut Pipeline, written: &Written) {
        let replicas = self.config().min_replicas;
        self.write_value_call(pipeline, &written.name, 6);
        pipeline.part(&written.expected);
        pipeline.part(&written.record);
        pipeline.part(&written.stays);
        pipeline.part_number(written.tried);
        pipeline.part(record::write_client(self.client));
        pipeline.part(if replicas > 0 { "1" } else { "" });
        if replicas > 0 {
            pipeline.command(3);
            pipeline.part("WAIT");
            pipeline.part_number(u64::from(replicas));
            let limit = whole_ms(self.config().request_timeout) / 3;
            // Zero would be for ever.
            pipeline.part_number(limit.clamp(1, REPLICAS_MS));
        }
    }
}

/// For how many milliseconds the server keeps a value.
fn write_keep(keep: Duration) -> u64 {
    whole_ms(keep).clamp(1, KEEP_MS_MAX)
}

/// What the script says is there.
fn read_value(
    store: &Store,
    name: &LockName,
    reply: Reply,
) -> std::result::Result<Option<VersionedValue>, Failure> {
    let fields = reply.into_list().map_err(|_| nonsense())?;
    let (stored, left_ms) = match fields.as_slice() {
        [] => return Ok(None),
        [stored, left_ms] => (stored.as_bytes(), left_ms.as_int()),
        _ => return Err(nonsense()),
    };
    let (Some(stored), Some(left_ms)) = (stored, left_ms) else { return Err(nonsense()) };
    // Without an end it is negative.
    let remaining = u64::try_from(left_ms).ok().map(Duration::from_millis);
    let read = record::read_value(stored);
    let Some((version, bytes)) = read else {
        let key = format!("lockfast:{{{}{name}}}:value", store.config().prefix);
        return Err(failure::of_server("LFCORRUPT", Some(&key)));
    };
    Ok(Some(VersionedValue::new(version, bytes.to_vec(), remaining)))
}

fn nonsense() -> Failure {
    failure::of_nonsense("a value of another form")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::store;

    #[test]
    fn the_last_try_is_known() {
        let tries = Tries::default();
        assert_eq!([tries.count([1; 16]), tries.count([1; 16]), tries.count([2; 16])], [1, 2, 1]);
        tries.settle([1; 16]);
        assert_eq!([tries.count([1; 16]), tries.count([2; 16])], [1, 2]);
    }

    /// Zero would be refused by the server, and so would what its clock cannot be added to.
    #[test]
    fn every_time_can_be_kept() {
        let table = [
            (Duration::ZERO, 1),
            (Duration::from_nanos(1), 1),
            (Duration::from_micros(1500), 2),
            (Duration::MAX, KEEP_MS_MAX),
        ];
        for (keep, ms) in table {
            assert_eq!(write_keep(keep), ms, "{keep:?}");
        }
    }

    #[tokio::test]
    async fn what_is_no_value_is_told_by_its_key() {
        let (store, name) = (store(), LockName::new("a b").unwrap());
        let read = |text: &str| read_value(&store, &name, Reply::parse(text));
        assert_eq!(read("*0\r\n").unwrap(), None);
        // The last character says more than fits into 16 bytes.
        let rubbish = read("*2\r\n$24\r\nAAAAAAAAAAAAAAAAAAAAAB.x\r\n:-1\r\n").unwrap_err();
        assert_eq!(rubbish.kind(), ErrorKind::CorruptRecord);
        assert!(rubbish.message().contains("lockfast:{a b}:value"), "{rubbish:?}");
        for nonsense in [":7\r\n", "*1\r\n:1\r\n", "*2\r\n:1\r\n:1\r\n"] {
            assert_eq!(read(nonsense).unwrap_err().kind(), ErrorKind::CorruptRecord);
        }
        let value = read("*2\r\n$25\r\nAAAAAAAAAAAAAAAAAAAAAA.x.\r\n:1500\r\n").unwrap().unwrap();
        assert_eq!(
            (value.version, value.bytes.as_slice()),
            (Version::from_bytes([0; 16]), &b"x."[..])
        );
        assert_eq!(value.remaining, Some(Duration::from_millis(1500)));
    }
}
