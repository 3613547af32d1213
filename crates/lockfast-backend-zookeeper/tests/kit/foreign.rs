//! Programs that take locks on ZooKeeper without Lockfast.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lockfast_faults::foreign::Foreign;
use lockfast_faults::zookeeper::{ZooKeeper, java};

/// Which program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// kazoo's `Lock`.
    Kazoo,
    /// Curator's `InterProcessMutex`.
    CuratorMutex,
    /// The reader of Curator's `InterProcessReadWriteLock`.
    CuratorReader,
    /// The writer of Curator's `InterProcessReadWriteLock`.
    CuratorWriter,
}

/// Of a program with Curator's locks.
const MEGABYTES: u32 = 64;

/// Starts a program that takes its locks on this server, with a session that lasts so long.
pub fn start(kind: Kind, server: &ZooKeeper, session: Duration) -> Foreign {
    let mut command = match kind {
        Kind::Kazoo => {
            let mut command = Command::new(find_installed("kazoo/bin/python"));
            command.arg(beside("clients/kazoo_lock.py"));
            command
        }
        Kind::CuratorMutex | Kind::CuratorReader | Kind::CuratorWriter => {
            let classes = find_installed("curator/CuratorLock.class");
            let folder = classes.parent().unwrap().display().to_string();
            let archives = [java::SERVER, java::CURATOR].concat();
            let mut command = java::command(MEGABYTES, false);
            command.args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp"]);
            command.args([&java::class_path(&archives, Some(&folder)), "CuratorLock"]);
            command
        }
    };
    command.args([server.address().to_string(), session.as_millis().to_string()]);
    match kind {
        Kind::Kazoo => &mut command,
        Kind::CuratorMutex => command.arg("mutex"),
        Kind::CuratorReader => command.arg("read"),
        Kind::CuratorWriter => command.arg("write"),
    };
    Foreign::start(&mut command)
}

/// A file that `cargo xtask setup` makes under `target/foreign-clients/`.
fn find_installed(file: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = root.join("target/foreign-clients").join(file);
    assert!(path.exists(), "{} is missing; run: cargo xtask setup", path.display());
    path
}

/// A file beside these tests.
fn beside(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(file)
}
