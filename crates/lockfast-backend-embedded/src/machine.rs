//! Which machine a store is on. Another machine that sees the same directory sees neither the
//! locks nor the processes of the first: to it all clients look dead, and it would end their
//! leases. So the store says where it is, in a file that is read before the database is touched.
//!
//! One start of one kernel has one boot id, whatever container asks. After another start, the
//! machine's own id must be one of those that were seen during the last: containers may have ids
//! of their own.

use std::path::Path;

use lockfast_core::error::quote;
use lockfast_core::{Error, ErrorKind, Result};

use crate::place::{Place, io_failure, shown};

/// Stands for the id of a machine that has none.
const NO_ID: &str = "-";

/// The machine as this process sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    /// Which start of the machine this is.
    pub(crate) boot_id: String,
    id: String,
    /// What people call it.
    host: String,
}

/// What a store says about where it is.
#[derive(Debug, PartialEq, Eq)]
struct Record {
    boot_id: String,
    host: String,
    /// By what ids the machine was known during that start.
    ids: Vec<String>,
}

impl Machine {
    pub(crate) fn read(host: &str) -> Result<Self> {
        const PATH: &str = "/proc/sys/kernel/random/boot_id";
        let boot_id = std::fs::read_to_string(PATH)
            .map_err(|error| io_failure(Path::new(PATH), "cannot be read", error))?;
        let files = ["/etc/machine-id", "/var/lib/dbus/machine-id"];
        let mut ids = files.iter().filter_map(|path| std::fs::read_to_string(path).ok());
        let id = ids.find_map(|text| machine_id(&text)).unwrap_or_else(|| NO_ID.into());
        let host = host.split_whitespace().collect();
        Ok(Self { boot_id: boot_id.trim().to_owned(), id, host })
    }

    /// Refuses the store of another machine. The caller has the write lock.
    pub(crate) fn admit(&self, place: &Place) -> Result<()> {
        let Some(text) = place.read_machine()? else {
            return Ok(());
        };
        let record = parse(&text).ok_or_else(|| unreadable(place))?;
        if record.boot_id == self.boot_id || record.ids.contains(&self.id) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "{} was last used on another machine, {}, which may still use it; machines cannot \
                 share such a store, so use a directory of this machine alone or a store with a \
                 server, or move the directory away if that machine is gone",
                shown(&place.dir),
                quote(&record.host)
            ),
        ))
    }

    /// Writes down that the store is here, if it does not say so. The caller has the write lock
    /// and was admitted.
    pub(crate) fn sign(&self, place: &Place) -> Result<()> {
        let earlier = place.read_machine()?;
        let mut ids = earlier
            .as_deref()
            .and_then(parse)
            .filter(|record| record.boot_id == self.boot_id)
            .map_or_else(Vec::new, |record| record.ids);
        if !ids.contains(&self.id) {
            ids.push(self.id.clone());
        }
        let (boot_id, host) = (self.boot_id.clone(), self.host.clone());
        let text = write(&Record { boot_id, host, ids });
        if earlier.is_some_and(|earlier| is_same(&earlier, &text)) {
            return Ok(());
        }
        place.write_machine(&text)
    }
}

/// Whether the same machine is meant, by whatever name.
fn is_same(one: &str, other: &str) -> bool {
    let key = |text: &str| parse(text).map(|record| (record.boot_id, record.ids));
    key(one) == key(other)
}

/// An id as systemd writes it: 32 digits.
fn machine_id(text: &str) -> Option<String> {
    let text = text.trim();
    let is_id = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| text.to_owned())
}

fn write(record: &Record) -> String {
    let ids: String = record.ids.iter().map(|id| format!("machine {id}\n")).collect();
    format!("boot {}\nhost {}\n{ids}", record.boot_id, record.host)
}

fn parse(text: &str) -> Option<Record> {
    let mut lines = text.lines();
    let boot_id = lines.next()?.strip_prefix("boot ")?.to_owned();
    let host = lines.next()?.strip_prefix("host ")?.to_owned();
    let ids: Option<Vec<String>> =
        lines.map(|line| line.strip_prefix("machine ").map(str::to_owned)).collect();
    ids.filter(|ids| !ids.is_empty() && !boot_id.is_empty()).map(|ids| Record {
        boot_id,
        host,
        ids,
    })
}

fn unreadable(place: &Place) -> Error {
    Error::new(
        ErrorKind::CorruptRecord,
        format!(
            "{} is not as Lockfast wrote it, so it cannot be told which machine the store belongs \
             to; remove the file if no other machine uses the directory",
            shown(&place.dir.join("machine"))
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(boot: &str, id: &str) -> Machine {
        Machine { boot_id: boot.into(), id: id.into(), host: format!("host-of-{id}") }
    }

    #[test]
    fn a_store_stays_with_its_machine() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::prepare_own(dir.path());
        let settle = |machine: &Machine| machine.admit(&place).and_then(|()| machine.sign(&place));
        settle(&machine("1", "a")).unwrap();
        // A container with an id of its own on the same machine.
        settle(&machine("1", "b")).unwrap();
        settle(&machine("1", "a")).unwrap();
        let before = place.read_machine().unwrap();
        let error = settle(&machine("2", "c")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("another machine, \"host-of-"), "{error}");
        assert_eq!(place.read_machine().unwrap(), before, "who is refused changes nothing");
        // The machine was started anew, and the container is the first to come.
        settle(&machine("2", "b")).unwrap();
        settle(&machine("2", "a")).unwrap();
        settle(&machine("3", "a")).unwrap();
        // It has not been here since.
        assert!(settle(&machine("4", "b")).is_err());
    }

    #[test]
    fn a_machine_without_an_id_is_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::prepare_own(dir.path());
        machine("1", NO_ID).sign(&place).unwrap();
        machine("2", NO_ID).admit(&place).unwrap();
        assert!(machine("2", "a").admit(&place).is_err());
    }

    #[test]
    fn rubbish_is_not_taken_for_a_machine() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::prepare_own(dir.path());
        for text in ["", "boot \nhost x\nmachine a\n", "boot 1\nhost x\n", "boot 1\nhost x\nid a\n"]
        {
            place.write_machine(text).unwrap();
            let error = machine("1", "a").admit(&place).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::CorruptRecord, "{text:?}");
            assert!(error.to_string().contains("remove the file"), "{error}");
        }
    }

    #[test]
    fn this_machine_is_read() {
        let machine = Machine::read("a host").unwrap();
        assert_eq!((machine.boot_id.len(), machine.host.as_str()), (36, "ahost"));
        assert_eq!(machine_id("uninitialized\n"), None);
        assert_eq!(machine_id(&format!("{}\n", "0a".repeat(16))), Some("0a".repeat(16)));
    }
}
