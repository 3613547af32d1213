//! Reads the files of a history as one, by time: while they grow, and when they are complete.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Cursor, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use crate::history::{Event, MERGED};

/// What is read of a growing file at once.
const CHUNK_MAX: u64 = 8 << 20;
/// Files up to this size are read whole, so that thousands of them need not be open at once.
const SMALL_MAX: u64 = 256 << 10;
/// Lines of a file that are looked at before the first is taken, for recorders whose lines are not
/// quite in order.
const LOOK_AHEAD: usize = 100;

/// A line of a history.
#[derive(Clone, Debug)]
pub struct Line {
    /// What it says.
    pub event: Event,
    /// As it was written, without its end.
    pub text: String,
    place: (usize, u64),
}

impl Line {
    fn read(text: &[u8], place: (usize, u64)) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?.trim_end();
        let event = serde_json::from_str(text).ok()?;
        Some(Self { event, text: text.to_owned(), place })
    }

    fn order(&self) -> (u64, (usize, u64)) {
        (self.event.at, self.place)
    }
}

impl PartialEq for Line {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Line {}

impl PartialOrd for Line {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Line {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

/// The files of a history that lie in a directory, by name.
fn parts(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut parts = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let is_line_file = path.extension().is_some_and(|extension| extension == "jsonl");
        if is_line_file && path.file_name().is_some_and(|name| name != MERGED) {
            parts.push(path);
        }
    }
    parts.sort();
    Ok(parts)
}

/// Files that grow. What is written to them late may come out of order.
#[derive(Debug)]
pub struct Tail {
    directory: PathBuf,
    read: BTreeMap<OsString, u64>,
    waiting: BinaryHeap<Reverse<Line>>,
    lines: u64,
}

impl Tail {
    /// The files of this directory, which need not be there yet.
    pub fn new(directory: &Path) -> Self {
        let directory = directory.to_owned();
        Self { directory, read: BTreeMap::new(), waiting: BinaryHeap::new(), lines: 0 }
    }

    /// Reads what has been written since.
    ///
    /// # Errors
    /// When the directory or a file in it cannot be read.
    pub fn poll(&mut self) -> io::Result<()> {
        for path in parts(&self.directory)? {
            let Some(name) = path.file_name() else { continue };
            let read = self.read.entry(name.to_owned()).or_default();
            if fs::metadata(&path)?.len() <= *read {
                continue;
            }
            let mut file = File::open(&path)?;
            file.seek(SeekFrom::Start(*read))?;
            let mut text = Vec::new();
            file.take(CHUNK_MAX).read_to_end(&mut text)?;
            // A line that is not whole yet is read again when it is.
            let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            *read += whole as u64;
            for line in text[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                self.lines += 1;
                self.waiting.extend(Line::read(line, (0, self.lines)).map(Reverse));
            }
        }
        Ok(())
    }

    /// The next line that is not later than this.
    pub fn next_until(&mut self, at: u64) -> Option<Line> {
        if self.waiting.peek().is_none_or(|next| next.0.event.at > at) {
            return None;
        }
        self.waiting.pop().map(|next| next.0)
    }
}

/// Files that are complete: all of a directory, or one alone. It is an iterator over their lines by
/// time, of which only a few of each file are in memory.
pub struct Merge {
    sources: Vec<Source>,
    next: BinaryHeap<Reverse<Line>>,
    unreadable: u64,
}

struct Source {
    reader: Box<dyn BufRead>,
    lines: u64,
}

impl Merge {
    /// Opens a directory or a file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn open(path: &Path) -> io::Result<Self> {
        let paths = if path.is_dir() { parts(path)? } else { vec![path.to_owned()] };
        let merged = path.join(MERGED);
        // A directory from which only the merged history was kept.
        let paths = if paths.is_empty() && merged.is_file() { vec![merged] } else { paths };
        let mut merge = Self { sources: Vec::new(), next: BinaryHeap::new(), unreadable: 0 };
        for path in paths {
            let file = File::open(&path)?;
            let reader: Box<dyn BufRead> = if file.metadata()?.len() <= SMALL_MAX {
                Box::new(Cursor::new(fs::read(&path)?))
            } else {
                Box::new(BufReader::new(file))
            };
            merge.sources.push(Source { reader, lines: 0 });
        }
        for source in 0..merge.sources.len() {
            for _ in 0..LOOK_AHEAD {
                merge.read(source)?;
            }
        }
        Ok(merge)
    }

    /// Whether no line is left that can be read.
    pub fn is_empty(&self) -> bool {
        self.next.is_empty()
    }

    /// Lines that are not of a history. The last of a file whose writer was killed is not counted.
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// The next line, by time.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn next_line(&mut self) -> io::Result<Option<Line>> {
        let Some(Reverse(line)) = self.next.pop() else { return Ok(None) };
        self.read(line.place.0)?;
        Ok(Some(line))
    }

    fn read(&mut self, number: usize) -> io::Result<()> {
        let source = &mut self.sources[number];
        let mut text = Vec::new();
        while source.reader.read_until(b'\n', &mut text)? > 0 {
            source.lines += 1;
            if let Some(line) = Line::read(&text, (number, source.lines)) {
                self.next.push(Reverse(line));
                break;
            }
            let is_cut = !text.ends_with(b"\n");
            self.unreadable += u64::from(!is_cut && !text.trim_ascii().is_empty());
            text.clear();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn line(at: u64) -> String {
        format!("{{\"at\":{at},\"what\":\"healed\",\"number\":{at}}}\n")
    }

    fn write(directory: &Path, name: &str, text: &str) {
        let mut options = File::options();
        let mut file = options.create(true).append(true).open(directory.join(name)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn until(tail: &mut Tail, at: u64) -> Vec<u64> {
        tail.poll().unwrap();
        std::iter::from_fn(|| tail.next_until(at)).map(|line| line.event.at).collect()
    }

    #[test]
    fn growing_files_are_merged_line_by_line() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let mut tail = Tail::new(directory);
        assert!(until(&mut tail, 100).is_empty());
        write(directory, "a.jsonl", &(line(10) + &line(30)));
        write(directory, "b.jsonl", &(line(20) + "{\"at\":25,\"wha"));
        write(directory, MERGED, &line(11));
        write(directory, "notes.txt", &line(12));
        assert_eq!(until(&mut tail, 20), [10_u64, 20]);
        write(directory, "b.jsonl", "t\":\"healed\",\"number\":2}\n");
        write(directory, "c.jsonl", &line(5));
        assert_eq!(until(&mut tail, 100), [5_u64, 25, 30], "a late one comes as soon as it can");
        assert!(until(&mut tail, 100).is_empty());
    }

    #[test]
    fn complete_files_are_merged_and_what_cannot_be_read_is_counted() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let many: String = (0..3000).map(|at| line(2 * at)).collect();
        write(directory, "a.jsonl", &many);
        write(directory, "b.jsonl", &(line(7) + &line(3) + "nonsense\n\n" + &line(9)));
        write(directory, "c.jsonl", "{\"at\":1,\"what\":\"hea");
        let mut merge = Merge::open(directory).unwrap();
        let mut times = Vec::new();
        while let Some(line) = merge.next_line().unwrap() {
            times.push(line.event.at);
        }
        assert_eq!(times.len(), 3003);
        assert!(times.is_sorted());
        assert_eq!(merge.unreadable(), 1);
        assert_eq!(times[..7], [0_u64, 2, 3, 4, 6, 7, 8]);
    }
}
