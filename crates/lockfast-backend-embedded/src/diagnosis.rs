//! Where a store is, whose it is, and what that means for a lock. Nothing is made or changed, and the
//! database is not opened: to close it again would drop the locks that this process has on it.

use std::path::{Path, PathBuf};

use lockfast_core::error::printable;
use lockfast_core::{Address, Diagnosis, Error, ErrorKind, Finding, Guarantee, Label, Result};

use crate::config::{Config, Embedded};
use crate::file_system::FileSystem;
use crate::machine::Machine;
use crate::place::{Place, check_clock, open_above, open_dir, shown};
use crate::{backend, memory};

/// What is looked at.
pub const CHECKS: &[&str] =
    &[REACH, DIRECTORY, FILE_SYSTEM, OWNER, MACHINE, CLOCK, DURABILITY, SPACE];
const REACH: &str = "reach";
const DIRECTORY: &str = "directory";
const FILE_SYSTEM: &str = "file-system";
const OWNER: &str = "owner";
const MACHINE: &str = "machine";
const CLOCK: &str = "clock-namespace";
const DURABILITY: &str = "durability";
const SPACE: &str = "disk-space";

/// The database's log grows to 8 MiB before it is written back.
const BYTES_FREE_MIN: u64 = 32 << 20;

/// Looks at the store at `address`.
pub(crate) async fn diagnose(address: Address) -> Result<Diagnosis> {
    let config = match Config::read(&address)? {
        Config::Memory { name } => return Ok(of_memory(name.as_deref())),
        Config::Embedded(config) => config,
    };
    // A file system that hangs must not stop a thread that others need.
    let looking = tokio::task::spawn_blocking(move || look(&config)).await;
    let findings = looking.map_err(|error| {
        Error::new(ErrorKind::Internal, "the diagnosis ended").with_source(error)
    })?;
    Ok(Diagnosis::conclude(findings, Guarantee::Correctness, backend::BECAUSE))
}

fn of_memory(name: Option<&str>) -> Diagnosis {
    let whom = match name {
        None => "whoever shares this connection",
        Some(_) => "everything in this process that uses the name",
    };
    let reach = Finding::warn(
        REACH,
        whom,
        "no other process is kept out",
        "use embedded: for all processes of a machine, or a store with a server",
    );
    Diagnosis::conclude(vec![reach], Guarantee::Correctness, memory::BECAUSE)
}

fn look(config: &Embedded) -> Vec<Finding> {
    let me = rustix::process::geteuid().as_raw();
    let mut findings = vec![
        Finding::ok(REACH, format!("all processes of user {me} on this machine")),
        directory(&config.dir),
    ];
    let is_there = findings.iter().all(|finding| finding.fact != ABSENT);
    findings.extend(file_system(config, is_there));
    findings.extend([owner(&config.dir, is_there), machine(&config.dir, is_there)]);
    findings.push(match check_clock() {
        Ok(()) => Finding::ok(CLOCK, "the machine's own"),
        Err(error) => {
            refused(CLOCK, &error, "processes of the machine would not agree on the time")
        }
    });
    findings
}

const ABSENT: &str = "is not there yet; it is made on first use, for this user alone";

fn directory(dir: &Path) -> Finding {
    match std::fs::metadata(dir) {
        Ok(found) if found.is_dir() => Finding::ok(DIRECTORY, shown(dir)),
        Ok(_) => Finding::hazard(
            DIRECTORY,
            format!("{} is not a directory", shown(dir)),
            "the store cannot be used",
            "name a directory, as in embedded:/var/lib/lockfast",
        ),
        // What a link leads to may be missing as well, and then nothing is made there.
        Err(_) if std::fs::symlink_metadata(dir).is_err() => Finding::ok(DIRECTORY, ABSENT),
        Err(error) => Finding::hazard(
            DIRECTORY,
            format!("{}: {error}", shown(dir)),
            "the store cannot be used",
            "name a directory that this user can use",
        ),
    }
}

/// Everything that follows from where the files are.
fn file_system(config: &Embedded, is_there: bool) -> Vec<Finding> {
    let resolved = config.dir.canonicalize();
    let opened = match (&resolved, is_there) {
        (Ok(dir), _) => open_dir(dir),
        (Err(_), false) => open_above(&config.dir),
        (Err(_), true) => return unseen(&config.dir),
    };
    let dir: PathBuf = resolved.unwrap_or_else(|_| config.dir.clone());
    let Ok(file_system) = opened.and_then(|fd| FileSystem::of(&dir, &fd)) else {
        return unseen(&dir);
    };
    vec![kind(&file_system), durability(config, &file_system), space(&file_system)]
}

fn kind(file_system: &FileSystem) -> Finding {
    match file_system.flaw() {
        None => Finding::ok(FILE_SYSTEM, file_system.name()),
        Some(flaw) => Finding::hazard(
            FILE_SYSTEM,
            flaw,
            "the store cannot be used: machines that share the directory do not see each other's \
             locks",
            "use a directory on a disk of this machine, or a store with a server",
        ),
    }
}

fn unseen(dir: &Path) -> Vec<Finding> {
    let reason = format!("{} cannot be opened", shown(dir));
    let fix = "run it as the user whose store it is";
    [FILE_SYSTEM, DURABILITY, SPACE].map(|check| Finding::unknown(check, &reason, fix)).into()
}

fn durability(config: &Embedded, file_system: &FileSystem) -> Finding {
    if file_system.is_in_memory() {
        return Finding::warn(
            DURABILITY,
            format!("{} is gone when the machine is started anew", file_system.name()),
            "the fence begins again with the wall clock, so that it falls back if that was set back",
            "use a directory on a disk",
        );
    }
    Finding::ok(
        DURABILITY,
        match config.sync_full {
            true => "every commit waits for the disk (sync=full)",
            false => "the ceiling of the fence waits for the disk; leases end with the machine",
        },
    )
}

fn space(file_system: &FileSystem) -> Finding {
    let fact = format!("{} MiB free", file_system.bytes_free >> 20);
    if file_system.bytes_free >= BYTES_FREE_MIN {
        return Finding::ok(SPACE, fact);
    }
    Finding::warn(
        SPACE,
        fact,
        "when the disk is full nothing is granted or renewed, and leases end",
        "make room, or use a directory on another disk",
    )
}

fn owner(dir: &Path, is_there: bool) -> Finding {
    if !is_there {
        return Finding::ok(OWNER, "this user, once it is made");
    }
    match Place::open_mine(dir).and_then(|place| place.check_files()) {
        Ok(()) => Finding::ok(OWNER, "this user alone"),
        Err(error) => {
            refused(OWNER, &error, "others could forge grants and fences, so it is not used")
        }
    }
}

fn machine(dir: &Path, is_there: bool) -> Finding {
    if !is_there {
        return Finding::ok(MACHINE, "this one, once it is made");
    }
    let place = match Place::open_mine(dir) {
        Ok(place) => place,
        Err(error) => {
            return Finding::unknown(MACHINE, format!("{error:#}"), "see to its owner first");
        }
    };
    let host = Label::of_this_process().host;
    match Machine::read(&host).and_then(|machine| machine.admit(&place)) {
        Ok(()) => Finding::ok(MACHINE, "this one"),
        Err(error) => {
            refused(MACHINE, &error, "two machines would grant one lock twice, so it is not used")
        }
    }
}

/// What keeps the store from being used; the error says what to do about it.
fn refused(check: &'static str, error: &Error, meaning: &str) -> Finding {
    let said = error.to_string();
    let (fact, fix) = said.split_once("; ").unwrap_or((&said, "see to it and try again"));
    Finding::hazard(check, printable(fact), meaning, printable(fix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockfast_core::Severity;

    /// What cannot be mounted for a test.
    #[test]
    fn where_the_files_are() {
        let (nfs, tmpfs, ext4) = (0x6969, 0x0102_1994, 0xEF53);
        let config = |sync_full| Embedded { dir: "/x".into(), sync_full };
        let shared = FileSystem::made_up(nfs, "nfs4", u64::MAX);
        let found = kind(&shared);
        assert_eq!((found.severity, found.check), (Severity::Unsafe, FILE_SYSTEM));
        assert!(found.fact.contains("NFS"), "{found:?}");
        let fleeting = FileSystem::made_up(tmpfs, "tmpfs", BYTES_FREE_MIN);
        assert_eq!(kind(&fleeting).severity, Severity::Ok);
        assert_eq!(durability(&config(true), &fleeting).severity, Severity::Warn);
        assert_eq!(space(&fleeting).severity, Severity::Ok);
        let full = FileSystem::made_up(ext4, "ext4", BYTES_FREE_MIN - 1);
        assert_eq!(space(&full).severity, Severity::Warn);
        for (sync_full, words) in [(false, "leases end with the machine"), (true, "sync=full")] {
            let found = durability(&config(sync_full), &full);
            assert_eq!(found.severity, Severity::Ok);
            assert!(found.fact.contains(words), "{found:?}");
        }
    }
}
