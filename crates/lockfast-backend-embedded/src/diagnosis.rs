//! Where a store is, whose it is, and what that means for a lock. Nothing is made or changed, and the
//! database is not opened: to close it again would drop the locks that this process has on it.

use std::path::{Path, PathBuf};

use lockfast_core::error::printable;
use lockfast_core::{Address, Diagnosis, Error, ErrorKind, Finding, Guarantee, Label, Result};

use crate::access::{Access, word};
use crate::account::Group;
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
    })??;
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

fn look(config: &Embedded) -> Result<Vec<Finding>> {
    let group = config.group.as_deref().map(Group::find).transpose()?;
    let mut findings = vec![reach(group.as_ref()), directory(&config.dir, group.as_ref())];
    let is_there = std::fs::symlink_metadata(&config.dir).is_ok();
    findings.extend(file_system(config, is_there));
    findings.extend(match Access::of(config) {
        Ok(access) => [owner(config, &access, is_there), machine(config, &access, is_there)],
        Err(error) => [
            refused(OWNER, &error, "only members of the group can use the store"),
            Finding::unknown(MACHINE, format!("{error:#}"), UNOWNED),
        ],
    });
    findings.push(match check_clock() {
        Ok(()) => Finding::ok(CLOCK, "the machine's own"),
        Err(error) => {
            refused(CLOCK, &error, "processes of the machine would not agree on the time")
        }
    });
    Ok(findings)
}

const UNOWNED: &str = "see to its owner first";
const NOT_THERE: &str = "the directory is not there";

fn reach(group: Option<&Group>) -> Finding {
    let whose = match group {
        None => format!("user {}", rustix::process::geteuid().as_raw()),
        Some(group) => format!("root and the members of group {group}"),
    };
    Finding::ok(REACH, format!("all processes of {whose} on this machine"))
}

fn directory(dir: &Path, group: Option<&Group>) -> Finding {
    const UNUSABLE: &str = "the store cannot be used";
    match std::fs::metadata(dir) {
        Ok(found) if found.is_dir() => Finding::ok(DIRECTORY, shown(dir)),
        Ok(_) => Finding::hazard(
            DIRECTORY,
            format!("{} is not a directory", shown(dir)),
            UNUSABLE,
            "name a directory, as in embedded:/var/lib/lockfast",
        ),
        // What a link leads to may be missing as well, and then nothing is made there.
        Err(_) if std::fs::symlink_metadata(dir).is_err() => match group {
            None => Finding::ok(
                DIRECTORY,
                "is not there yet; it is made on first use, for this user alone",
            ),
            Some(group) => refused(DIRECTORY, &Access::absent(dir, group), UNUSABLE),
        },
        Err(error) => Finding::hazard(
            DIRECTORY,
            format!("{}: {error}", shown(dir)),
            UNUSABLE,
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
    let fix = "run it as a user who may use the store";
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

fn owner(config: &Embedded, access: &Access, is_there: bool) -> Finding {
    let forged = "others could forge grants and fences, so it is not used";
    match (&access.group, is_there) {
        (None, false) => return Finding::ok(OWNER, "this user, once it is made"),
        (Some(_), false) => return Finding::unknown(OWNER, NOT_THERE, "make the directory first"),
        (_, true) => {}
    }
    let place = match Place::find(&config.dir, access.clone()) {
        Ok(place) => place,
        Err(error) => return refused(OWNER, &error, forged),
    };
    if !place.is_still() {
        return Finding::unknown(
            OWNER,
            "another process opens the store at this moment",
            "run it again, and if it says so for long, look for a stopped process",
        );
    }
    match (place.check_files().and_then(|()| place.owner()), &access.group) {
        (Err(error), _) => refused(OWNER, &error, forged),
        (Ok(_), None) => Finding::ok(OWNER, "this user alone"),
        (Ok(0), Some(group)) => Finding::ok(
            OWNER,
            format!("root and group {group}, whose members can end each other's locks"),
        ),
        (Ok(owner), Some(group)) => Finding::warn(
            OWNER,
            format!("user {owner} and group {group}"),
            "other members of the group do not use what is not root's",
            format!("run chown root {}", word(&place.dir.to_string_lossy())),
        ),
    }
}

fn machine(config: &Embedded, access: &Access, is_there: bool) -> Finding {
    match (&access.group, is_there) {
        (None, false) => return Finding::ok(MACHINE, "this one, once it is made"),
        (Some(_), false) => return Finding::unknown(MACHINE, NOT_THERE, UNOWNED),
        (_, true) => {}
    }
    let place = match Place::find(&config.dir, access.clone()) {
        Ok(place) => place,
        Err(error) => return Finding::unknown(MACHINE, format!("{error:#}"), UNOWNED),
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
        let config = |sync_full| Embedded { dir: "/x".into(), sync_full, group: None };
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
