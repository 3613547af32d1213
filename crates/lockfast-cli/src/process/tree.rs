//! The processes below one, also those that left their process group or session.
//!
//! Whoever is a child subreaper stays the ancestor of everything that its children start, so the
//! chain of parents in `/proc` finds daemons as well.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, pidfd_open, pidfd_send_signal, wait,
};

/// How often the way up to an ancestor is walked when processes end meanwhile.
const WALKS_MAX: usize = 100;

/// A process that was seen alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Process {
    /// Its id.
    pub(crate) pid: Pid,
    /// When it started, in clock ticks since boot: tells it from a later one with the same id.
    started: u64,
}

struct Stat {
    parent: i32,
    state: u8,
    started: u64,
}

impl Process {
    /// The process that has this id now; a zombie also counts.
    pub(crate) fn with_id(pid: Pid) -> Option<Self> {
        stat(pid).map(|stat| Self { pid, started: stat.started })
    }

    /// Reads what `Display` wrote.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (pid, started) = text.split_once('.')?;
        let pid = pid.parse().ok().filter(|pid| *pid > 0).and_then(Pid::from_raw)?;
        Some(Self { pid, started: started.parse().ok()? })
    }

    /// Whether this very process is an ancestor of the calling one. A daemon's parent has ended,
    /// but what took its place is above it as well: the guard is a subreaper.
    pub(crate) fn is_above_us(self) -> bool {
        (0..WALKS_MAX).find_map(|_| self.look_up_from(getpid())).unwrap_or(false)
    }

    /// Walks from parent to parent; `None` when one of them has ended meanwhile, and its children
    /// have another parent now.
    fn look_up_from(self, from: Pid) -> Option<bool> {
        let mut pid = from;
        let mut process = stat(pid)?;
        while pid != self.pid {
            let Some(parent) = Pid::from_raw(process.parent) else { return Some(false) };
            let next = stat(parent)?;
            // Otherwise the id may be a stranger's by now.
            stat(pid).filter(|again| again.parent == process.parent)?;
            (pid, process) = (parent, next);
        }
        Some(process.started == self.started)
    }

    /// Sends a signal to exactly this process.
    ///
    /// # Errors
    /// When it may not be signalled; that it is gone is no error.
    pub(crate) fn signal(self, signal: Signal) -> io::Result<()> {
        let gone = |error: Errno| match error {
            Errno::SRCH => Ok(()),
            error => Err(io::Error::from(error)),
        };
        let handle = match pidfd_open(self.pid, PidfdFlags::empty()) {
            Ok(handle) => handle,
            Err(error) => return gone(error),
        };
        // The id may have been given to a stranger since; the handle now pins whoever has it.
        match stat(self.pid) {
            Some(now) if now.started == self.started => {
                pidfd_send_signal(handle, signal).or_else(gone)
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.pid.as_raw_pid(), self.started)
    }
}

/// The living processes below `root`, except those in `except` and what is below them.
///
/// A process that moves to another parent during the scan may be missed, so "none" is sure only
/// when [`reap`] says that there are no children either, or when a second scan agrees.
///
/// # Errors
/// When `/proc` cannot be read.
pub(crate) fn below(root: Pid, except: &HashSet<Process>) -> io::Result<Vec<Process>> {
    let mut children: HashMap<i32, Vec<(Pid, Stat)>> = HashMap::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let pid = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        let Some(pid) = pid else { continue };
        if let Some(stat) = stat(pid) {
            children.entry(stat.parent).or_default().push((pid, stat));
        }
    }
    let mut found = Vec::new();
    let mut open = vec![root];
    while let Some(parent) = open.pop() {
        for (pid, stat) in children.remove(&parent.as_raw_pid()).unwrap_or_default() {
            let process = Process { pid, started: stat.started };
            if except.contains(&process) {
                continue;
            }
            open.push(pid);
            if is_alive(pid, &stat) {
                found.push(process);
            }
        }
    }
    Ok(found)
}

/// A zombie does nothing any more, unless only its first thread has ended.
fn is_alive(pid: Pid, stat: &Stat) -> bool {
    if !matches!(stat.state, b'Z' | b'X') {
        return true;
    }
    std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_pid()))
        .is_ok_and(|threads| threads.count() > 1)
}

fn stat(pid: Pid) -> Option<Stat> {
    parse_stat(&std::fs::read(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?)
}

fn parse_stat(line: &[u8]) -> Option<Stat> {
    // The second field is the program's name in brackets, which may hold anything.
    let end = line.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(line.get(end + 2..)?).ok()?;
    let mut fields = rest.split(' ');
    let state = *fields.next()?.as_bytes().first()?;
    let parent = fields.next()?.parse().ok()?;
    let started = fields.nth(17)?.parse().ok()?;
    Some(Stat { parent, state, started })
}

/// Signals everything below `root`; answers those that may not be signalled.
pub(crate) fn signal_below(root: Pid, except: &HashSet<Process>, signal: Signal) -> Vec<Process> {
    let found = below(root, except).unwrap_or_default();
    found.into_iter().filter(|process| process.signal(signal).is_err()).collect()
}

/// What became of our children since the last time.
pub(crate) struct Reaped {
    /// Children that ended or stopped.
    pub(crate) changes: Vec<(Pid, WaitStatus)>,
    /// Whether any child is left.
    pub(crate) children_left: bool,
}

/// Collects every child that ended.
pub(crate) fn reap() -> Reaped {
    let mut changes = Vec::new();
    loop {
        match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            Ok(Some(change)) => changes.push(change),
            Ok(None) => return Reaped { changes, children_left: true },
            Err(Errno::INTR) => {}
            Err(_) => return Reaped { changes, children_left: false },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_names_do_not_confuse() {
        let line = b"42 (a) S 1 (x) S 7 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345 9 9";
        let stat = parse_stat(line).unwrap();
        assert_eq!((stat.parent, stat.state, stat.started), (7, b'S', 12345));
        assert!(parse_stat(b"").is_none());
    }

    #[test]
    fn ancestors_are_known_by_id_and_start() {
        let us = Process::with_id(getpid()).unwrap();
        assert_eq!(Process::parse(&us.to_string()), Some(us));
        let parent = rustix::process::getppid().and_then(Process::with_id).unwrap();
        assert!(us.is_above_us() && parent.is_above_us());
        assert!(!Process { started: parent.started + 1, ..parent }.is_above_us());
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(!Process::with_id(Pid::from_child(&child)).unwrap().is_above_us());
        child.kill().unwrap();
        child.wait().unwrap();
        for bad in ["", "1", "1.", ".1", "0.1", "-1.1", "x.1", "99999999999.1"] {
            assert_eq!(Process::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn children_are_found_and_signalled() {
        let me = getpid();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_child(&child);
        let found = below(me, &HashSet::new()).unwrap();
        let process = *found.iter().find(|process| process.pid == pid).unwrap();
        let except = HashSet::from([process]);
        assert!(!below(me, &except).unwrap().contains(&process));
        let stranger = Process { started: process.started + 1, ..process };
        stranger.signal(Signal::KILL).unwrap();
        assert!(child.try_wait().unwrap().is_none(), "a stranger was signalled");
        process.signal(Signal::KILL).unwrap();
        child.wait().unwrap();
        process.signal(Signal::KILL).unwrap();
    }
}
