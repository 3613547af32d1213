//! The referee: a process outside the fleet that reads what is recorded while it grows, counts
//! along, and judges all of it when the run is over.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read as _, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockfast_core::Moment;

use crate::history::MERGED;
use crate::judge::{Judge, Verdict};
use crate::merge::{Merge, Tail};
use crate::report::{self, Timeline};

/// The hidden command by which it is started, with the directory of the history.
pub const COMMAND: &str = "__torture-referee";

/// The report, for a browser.
pub const REPORT: &str = "report.html";

/// The verdict, as JSON.
pub const VERDICT: &str = "verdict.json";

/// Between two looks at the files.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Between two lines of counts.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);
/// How long the line of an event may take to be written before the counts leave it out of order.
/// Whoever is paused meanwhile writes later; the verdict does not depend on it.
const WRITE_TIME: Duration = Duration::from_secs(1);

/// The process of the referee: prints the counts as a JSON object a line on standard output, every
/// second, and writes what it finds into the directory when the run is over or when its standard
/// input is closed.
pub fn main(arguments: &[OsString]) -> ExitCode {
    let result = match arguments {
        [directory] => watch(Path::new(directory), &mut io::stdout().lock(), &input_end()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "not started by a director")),
    };
    match result {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "the referee failed: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Turns true when standard input is closed: then the director is gone.
fn input_end() -> Arc<AtomicBool> {
    let ended = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&ended);
    std::thread::spawn(move || {
        let mut buffer = [0; 64];
        while io::stdin().read(&mut buffer).is_ok_and(|count| count > 0) {}
        flag.store(true, Ordering::Release);
    });
    ended
}

/// Follows a history until the director says that it is over or is gone, and then judges it.
///
/// # Errors
/// When the history cannot be read, or the verdict cannot be written.
pub fn watch(
    directory: &Path,
    counts: &mut dyn Write,
    abandoned: &AtomicBool,
) -> io::Result<Verdict> {
    let mut tail = Tail::new(directory);
    let mut judge = Judge::default();
    let mut counted = Moment::now();
    let mut listened = true;
    loop {
        // Asked first, so that what is read after it is all there is.
        let is_abandoned = abandoned.load(Ordering::Acquire);
        tail.poll()?;
        let now = Moment::now();
        let until = if is_abandoned { u64::MAX } else { now.before(WRITE_TIME).host_ns() };
        while let Some(line) = tail.next_until(until) {
            judge.feed(&line.event);
        }
        let is_over = judge.is_over() || is_abandoned;
        if listened && (is_over || now.since(counted) >= COUNT_INTERVAL) {
            counted = now;
            let line = serde_json::to_string(&judge.counts())?;
            // Nobody has to listen.
            listened = writeln!(counts, "{line}").and_then(|()| counts.flush()).is_ok();
        }
        if is_over {
            return conclude(directory, directory);
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// Judges a recorded history: the directory of a run, or one file. What is found is written into
/// the directory `into`: the verdict, the report, and the history as one file.
///
/// # Errors
/// When there is no history or it cannot be read, or the verdict cannot be written.
pub fn conclude(history: &Path, into: &Path) -> io::Result<Verdict> {
    let mut merge = Merge::open(history)?;
    if merge.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "there is no history in it"));
    }
    let (mut judge, mut timeline) = (Judge::default(), Timeline::default());
    let merged = into.join(MERGED);
    let is_merged = fs::canonicalize(history).ok() == fs::canonicalize(&merged).ok();
    let unfinished = into.join(format!("{MERGED}.part"));
    let mut all = BufWriter::new(File::create(&unfinished)?);
    while let Some(line) = merge.next_line()? {
        judge.feed(&line.event);
        timeline.feed(&line.event);
        writeln!(all, "{}", line.text)?;
    }
    all.flush()?;
    if is_merged {
        fs::remove_file(&unfinished)?;
    } else {
        fs::rename(&unfinished, &merged)?;
    }
    let verdict = judge.finish(merge.unreadable());
    let text = serde_json::to_string_pretty(&verdict)?;
    write_whole(&into.join(REPORT), &report::page(&verdict, timeline)?)?;
    write_whole(&into.join(VERDICT), &(text + "\n"))?;
    Ok(verdict)
}

/// Whoever sees the file sees all of it.
fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let part = path.with_extension("part");
    fs::write(&part, text)?;
    fs::rename(&part, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Event, FORMAT, What};
    use crate::judge::{Counts, Outcome};

    fn start(at: u64) -> Event {
        let what = What::Start {
            format: FORMAT,
            seed: 1,
            store: "memory:".into(),
            guarantee: "correctness".into(),
            fair: true,
            ttl: 1_000_000_000,
            lasts: 0,
            processes: 1,
            tasks: 1,
            locks: vec!["a".into()],
        };
        Event { at, worker: None, what }
    }

    fn hold(at: u64) -> [Event; 3] {
        let event = |at, what| Event { at, worker: Some(1), what };
        let (lock, mode, deadline) = ("a".to_owned(), crate::history::Mode::Exclusive, at + 1000);
        let how = "drop".to_owned();
        [
            event(at, What::Asked { claim: 1, lock, mode, wait: None }),
            event(at + 1, What::Granted { claim: 1, fence: 1, deadline }),
            event(
                at + 2,
                What::Ended { claim: 1, how, cause: None, last: None, deadline, kept: None },
            ),
        ]
    }

    fn append(directory: &Path, name: &str, events: &[Event]) {
        let mut file =
            File::options().create(true).append(true).open(directory.join(name)).unwrap();
        for event in events {
            writeln!(file, "{}", serde_json::to_string(event).unwrap()).unwrap();
        }
    }

    #[test]
    fn it_follows_a_run_to_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let at = Moment::now().host_ns();
        append(path, "director.jsonl", &[start(at)]);
        let writer = {
            let path = path.to_owned();
            std::thread::spawn(move || {
                std::thread::sleep(LOOK_INTERVAL);
                append(&path, "worker-1.jsonl", &hold(Moment::now().host_ns()));
                let (held, waited_for, processes) = Default::default();
                let left = What::Left { held, waited_for, processes };
                let now = Moment::now().host_ns();
                let event = |at, what| Event { at, worker: None, what };
                append(&path, "director.jsonl", &[event(now, left), event(now + 1, What::End)]);
            })
        };
        let mut printed = Vec::new();
        let verdict = watch(path, &mut printed, &AtomicBool::new(false)).unwrap();
        writer.join().unwrap();
        assert_eq!(verdict.outcome, Outcome::Kept, "{verdict:?}");
        let last = std::str::from_utf8(&printed).unwrap().lines().last().unwrap();
        let counts: Counts = serde_json::from_str(last).unwrap();
        assert_eq!((counts.events, counts.granted), (6, 1));
        let stored = fs::read_to_string(path.join(VERDICT)).unwrap();
        assert_eq!(serde_json::from_str::<Verdict>(&stored).unwrap(), verdict);
        let merged = fs::read_to_string(path.join(MERGED)).unwrap();
        assert_eq!(merged.lines().count(), 6);
        // Judged again, from the directory or from the one file, it comes to the same.
        assert_eq!(conclude(path, path).unwrap(), verdict);
        assert_eq!(conclude(&path.join(MERGED), path).unwrap(), verdict);
        assert_eq!(fs::read_to_string(path.join(MERGED)).unwrap(), merged);
    }

    #[test]
    fn without_a_history_nothing_is_written() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("a.jsonl"), "nonsense\n").unwrap();
        let error = conclude(directory.path(), directory.path()).unwrap_err();
        assert_eq!(error.to_string(), "there is no history in it");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        assert!(conclude(&directory.path().join("gone"), directory.path()).is_err());
    }

    #[test]
    fn it_judges_what_there_is_when_the_director_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let at = Moment::now().host_ns();
        append(path, "director.jsonl", &[start(at)]);
        append(path, "worker-1.jsonl", &hold(at));
        let verdict = watch(path, &mut io::sink(), &AtomicBool::new(true)).unwrap();
        assert_eq!(verdict.outcome, Outcome::Incomplete);
        assert_eq!(verdict.counts.granted, 1);
        assert!(verdict.notes[0].contains("has no `end`"), "{:?}", verdict.notes);
    }
}
