//! What this machine can do at best: commits of one row per second, with and without waiting for
//! the disk, and how long a commit takes that another process is told of through a named pipe.
//! Prints JSON.
//!
//! ```text
//! cargo run --release --example raw_sqlite [DIRECTORY]
//! ```
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement, not a library")]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use lockfast_core::Moment;
use rusqlite::Connection;

const SPAN: Duration = Duration::from_secs(1);
const HAND_OVERS: usize = 1_000;

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let [word, there, back] = arguments.as_slice()
        && word == "listen"
    {
        return listen(Path::new(there), Path::new(back));
    }
    let parent = arguments.first().map_or_else(std::env::temp_dir, Into::into);
    let dir = tempfile::tempdir_in(parent).unwrap();
    let figures: Vec<_> = ["full", "normal"]
        .map(|synchronous| {
            let db = open(&dir.path().join(synchronous), synchronous);
            let commits = commits_per_s(&db);
            let mut hand_overs = hand_overs_us(&db, dir.path());
            hand_overs.sort_by(f64::total_cmp);
            let hand_over = hand_overs[hand_overs.len() / 2];
            format!(
                "\"commits_{synchronous}_per_s\":{commits:.0},\
                 \"hand_over_{synchronous}_p50_us\":{hand_over:.1}"
            )
        })
        .into();
    println!("{{{}}}", figures.join(","));
}

/// With the settings of the embedded store.
fn open(path: &Path, synchronous: &str) -> Connection {
    let db = Connection::open(path).unwrap();
    let mode: String = db.query_row("PRAGMA journal_mode=WAL", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
    db.execute_batch(&format!(
        "PRAGMA synchronous={synchronous}; PRAGMA wal_autocheckpoint=2000;
         PRAGMA journal_size_limit=8388608;
         CREATE TABLE t (id INTEGER PRIMARY KEY, x INTEGER, pad BLOB);
         INSERT INTO t VALUES (1, 0, zeroblob(120));"
    ))
    .unwrap();
    db
}

const UPDATE: &str = "UPDATE t SET x = x + 1 WHERE id = 1";

/// One row, one connection, nothing else: as bare as a commit can be.
fn commits_per_s(db: &Connection) -> f64 {
    let mut update = db.prepare(UPDATE).unwrap();
    let start = Moment::now();
    let mut commits = 0;
    while Moment::now().since(start) < SPAN {
        for _ in 0..32 {
            update.execute([]).unwrap();
        }
        commits += 32;
    }
    f64::from(commits) / Moment::now().since(start).as_secs_f64()
}

/// From before a commit to when another process hears of it.
fn hand_overs_us(db: &Connection, dir: &Path) -> Vec<f64> {
    let paths = ["there", "back"].map(|name| dir.join(name));
    paths.iter().for_each(|path| make_pipe(path));
    let mut child = Command::new(std::env::current_exe().unwrap())
        .arg("listen")
        .args(&paths)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let [mut there, mut back] = paths.each_ref().map(|path| open_pipe(path));
    let mut update = db.prepare(UPDATE).unwrap();
    let mut times = Vec::with_capacity(HAND_OVERS);
    let mut heard_ns = [0; 8];
    for _ in 0..HAND_OVERS {
        let start_ns = Moment::now().host_ns();
        update.execute([]).unwrap();
        there.write_all(&[1]).unwrap();
        back.read_exact(&mut heard_ns).unwrap();
        times.push((u64::from_ne_bytes(heard_ns) - start_ns) as f64 / 1e3);
    }
    there.write_all(&[0]).unwrap();
    child.wait().unwrap();
    paths.iter().for_each(|path| std::fs::remove_file(path).unwrap());
    times
}

fn make_pipe(path: &Path) {
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, path, fifo, mode, 0).unwrap();
}

fn open_pipe(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

/// The other process: says when it heard something.
fn listen(there: &Path, back: &Path) {
    let (mut there, mut back) = (open_pipe(there), open_pipe(back));
    let mut byte = [0];
    loop {
        there.read_exact(&mut byte).unwrap();
        if byte == [0] {
            return;
        }
        back.write_all(&Moment::now().host_ns().to_ne_bytes()).unwrap();
    }
}
