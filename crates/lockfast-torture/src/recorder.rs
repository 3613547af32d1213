//! Writes down what happens, so that it outlives the one who saw it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use lockfast_core::Moment;

use crate::history::{Event, What};

/// One process's part of a history.
#[derive(Debug)]
pub struct Recorder {
    worker: Option<u32>,
    log: Mutex<Log>,
}

#[derive(Debug)]
struct Log {
    file: File,
    lines: u64,
    failure: Option<io::Error>,
}

impl Recorder {
    /// Appends to `name` in the directory of a history. Nobody else writes there.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(directory: &Path, name: &str, worker: Option<u32>) -> io::Result<Self> {
        let path = directory.join(name);
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { worker, log: Mutex::new(Log { file, lines: 0, failure: None }) })
    }

    /// Records that something happens now.
    pub fn record(&self, what: What) {
        self.record_if(|_| Some(what));
    }

    /// Records what `look` finds, as of a moment that was read before it looked; says whether it
    /// found anything. Nobody else records meanwhile, so the lines of a file are in order.
    pub fn record_if(&self, look: impl FnOnce(Moment) -> Option<What>) -> bool {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Moment::now();
        let Some(what) = look(now) else { return false };
        let event = Event { at: now.host_ns(), worker: self.worker, what };
        let line = serde_json::to_vec(&event).map_err(io::Error::from).map(|mut line| {
            line.push(b'\n');
            line
        });
        log.lines += 1;
        if let Err(error) = line.and_then(|line| log.file.write_all(&line)) {
            log.failure.get_or_insert(error);
        }
        true
    }

    /// How many lines were written.
    pub fn lines(&self) -> u64 {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).lines
    }

    /// Whether everything was written.
    ///
    /// # Errors
    /// The first that went wrong.
    pub fn finish(self) -> io::Result<()> {
        let log = self.log.into_inner().unwrap_or_else(PoisonError::into_inner);
        log.failure.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_and_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let recorder = Recorder::open(directory.path(), "worker-1.jsonl", Some(1)).unwrap();
        let record = || {
            for claim in 0..100 {
                recorder.record_if(|_| Some(What::NotGranted { claim, why: "taken".into() }));
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(record);
            scope.spawn(record);
        });
        assert!(!recorder.record_if(|_| None));
        assert_eq!(recorder.lines(), 200);
        recorder.finish().unwrap();
        let text = std::fs::read_to_string(directory.path().join("worker-1.jsonl")).unwrap();
        let events: Vec<Event> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(events.len(), 200);
        assert!(events.is_sorted_by_key(|event| event.at));
        assert!(events.iter().all(|event| event.worker == Some(1)));
    }
}
