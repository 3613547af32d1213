//! What this machine can do at best: commits of one row per second, with and without waiting for
//! the disk, and how long it takes to wake another process through a named pipe. Prints JSON.
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

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let [word, there, back] = arguments.as_slice()
        && word == "echo"
    {
        return echo(there.as_ref(), back.as_ref());
    }
    let parent = arguments.first().map_or_else(std::env::temp_dir, Into::into);
    let dir = tempfile::tempdir_in(parent).unwrap();
    let full = commits_per_s(&dir.path().join("full.db"), "FULL");
    let normal = commits_per_s(&dir.path().join("normal.db"), "NORMAL");
    let mut wakes_us = wake_us(dir.path());
    wakes_us.sort_by(f64::total_cmp);
    let at = |share: usize| wakes_us[wakes_us.len() * share / 100];
    println!(
        "{{\"commits_full_per_s\":{full:.0},\"commits_normal_per_s\":{normal:.0},\
         \"wake_p50_us\":{:.1},\"wake_p99_us\":{:.1}}}",
        at(50),
        at(99)
    );
}

/// One row, one connection, nothing else: as bare as a commit can be.
fn commits_per_s(path: &Path, synchronous: &str) -> f64 {
    let db = Connection::open(path).unwrap();
    let mode: String = db.query_row("PRAGMA journal_mode=WAL", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
    db.execute_batch(&format!(
        "PRAGMA synchronous={synchronous}; PRAGMA wal_autocheckpoint=2000;
         CREATE TABLE t (id INTEGER PRIMARY KEY, x INTEGER, pad BLOB);
         INSERT INTO t VALUES (1, 0, zeroblob(120));"
    ))
    .unwrap();
    let mut update = db.prepare("UPDATE t SET x = x + 1 WHERE id = 1").unwrap();
    let start = Moment::now();
    let mut commits = 0;
    while Moment::now().since(start) < Duration::from_secs(2) {
        for _ in 0..32 {
            update.execute([]).unwrap();
        }
        commits += 32;
    }
    f64::from(commits) / Moment::now().since(start).as_secs_f64()
}

/// Half of a round trip to another process and back.
fn wake_us(dir: &Path) -> Vec<f64> {
    let (there, back) = (dir.join("there"), dir.join("back"));
    for path in [&there, &back] {
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, path, fifo, mode, 0).unwrap();
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .arg("echo")
        .args([&there, &back])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let open = |path| File::options().read(true).write(true).open(path).unwrap();
    let (mut there, mut back) = (open(&there), open(&back));
    let mut times = Vec::new();
    let mut byte = [0];
    for _ in 0..5_000 {
        let start = Moment::now();
        there.write_all(&[1]).unwrap();
        back.read_exact(&mut byte).unwrap();
        times.push(Moment::now().since(start).as_secs_f64() * 1e6 / 2.0);
    }
    there.write_all(&[0]).unwrap();
    child.wait().unwrap();
    times
}

fn echo(there: &Path, back: &Path) {
    let open = |path| File::options().read(true).write(true).open(path).unwrap();
    let (mut there, mut back) = (open(there), open(back));
    let mut byte = [0];
    loop {
        there.read_exact(&mut byte).unwrap();
        if byte == [0] {
            return;
        }
        back.write_all(&byte).unwrap();
    }
}
