//! The guard process itself: starts the command, watches the deadline, and does not end before
//! everything below it has.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream as Socket;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use lockfast::{HolderId, LockName, Locker, Moment};
use rustix::process::{Pid, Signal, WaitStatus, getpid, kill_process_group, set_child_subreaper};
use tokio::signal::unix::{SignalKind, signal};

use super::link::{self, Link};
use super::schedule::{Schedule, Step};
use super::{Ending, FromGuard, OnceTimes, STUCK_PAUSE, SWEEP_PAUSE, Start, ToGuard};
use crate::exit::{Failure, INTERNAL};
use crate::output::Output;
use crate::plan::Store;
use crate::process::signals::Signals;
use crate::process::timer::Timer;
use crate::process::{descriptor, terminal, trampoline, tree};

/// Runs the guard; the wrapper's socket is standard input.
pub(crate) fn main(arguments: &[OsString]) -> u8 {
    let output = Output::of_form(arguments.first().map(OsString::as_os_str));
    match prepare().and_then(|(runtime, socket, handed)| {
        runtime.block_on(async { Warden::serve(socket, handed, &output).await })
    }) {
        Ok(()) => 0,
        Err(error) => {
            output.fail(&Failure::internal("the guard process failed", error));
            INTERNAL
        }
    }
}

fn prepare() -> io::Result<(tokio::runtime::Runtime, Socket, Handed)> {
    set_child_subreaper(Some(getpid()))?;
    let socket = Socket::from(io::stdin().as_fd().try_clone_to_owned()?);
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    let mut received = link::receive_fds(&socket)?.into_iter();
    let stdin = received.next().ok_or_else(|| io::Error::other("the wrapper is gone"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok((runtime, socket, Handed { stdin, connections: received.collect() }))
}

/// What the wrapper hands to its guard.
struct Handed {
    /// Its standard input, for the command.
    stdin: OwnedFd,
    /// Its connections to a store in which the lock ends with them. Nothing is ever sent on these
    /// or read from them: while they are open here, the server does not see that the wrapper died.
    connections: Vec<OwnedFd>,
}

struct Warden<'a> {
    output: &'a Output,
    link: Link,
    start: Start,
    schedule: Schedule,
    handed: Handed,
    /// Kept open so that the store counts the wrapper as alive while we are. The command inherits
    /// it, and so does what it starts: should wrapper and guard be killed at once, the store still
    /// sees them.
    _witness: Option<OwnedFd>,
    command: Option<Pid>,
    /// Signals that came before the command did.
    early: Vec<i32>,
    ending: Option<Ending>,
    children_left: bool,
    abandoned: bool,
    reported: bool,
    stuck: bool,
}

/// What a message asks the loop to do.
enum Next {
    Continue,
    Exit,
}

impl<'a> Warden<'a> {
    async fn serve(socket: Socket, handed: Handed, output: &'a Output) -> io::Result<()> {
        // A signal for everybody in our control group is meant for the command; the guard must
        // not die of it.
        let mut swallowed = Signals::listen()?;
        let mut children = signal(SignalKind::child())?;
        let mut timer = Timer::new()?;
        let mut link = Link::new(socket)?;
        let Some(ToGuard::Start(start)) = link.receive().await? else { return Ok(()) };
        let mut warden = Self::new(link, *start, handed, output)?;
        warden.link.send(&FromGuard::Ready);
        loop {
            warden.collect();
            let alarm = warden.act();
            if warden.is_over() {
                warden.return_terminal();
                if warden.abandoned {
                    warden.let_go().await;
                    return Ok(());
                }
                warden.report();
            }
            tokio::select! {
                message = warden.link.receive(), if !warden.abandoned => {
                    if let Next::Exit = warden.obey(message?) {
                        return Ok(());
                    }
                }
                _ = children.recv() => {}
                _ = swallowed.next() => {}
                () = timer.wait(alarm) => {}
            }
        }
    }

    fn new(link: Link, start: Start, handed: Handed, output: &'a Output) -> io::Result<Self> {
        let witness = match &start.witness {
            Some(path) => Some(open_for_all_below(path)?),
            None => None,
        };
        Ok(Self {
            output,
            link,
            schedule: Schedule::new(start.lease),
            start,
            handed,
            _witness: witness,
            command: None,
            early: Vec::new(),
            ending: None,
            children_left: false,
            abandoned: false,
            reported: false,
            stuck: false,
        })
    }

    fn obey(&mut self, message: Option<ToGuard>) -> Next {
        match message {
            Some(ToGuard::Go) => self.launch(),
            Some(ToGuard::Deadline { host_ns }) => self.schedule.renewed(host_ns),
            Some(ToGuard::Signal { number }) => self.pass_on(number),
            Some(ToGuard::Stop) => self.schedule.asked(Moment::now()),
            Some(ToGuard::Lost) => self.schedule.lost(Moment::now()),
            Some(ToGuard::Released) => return Next::Exit,
            Some(ToGuard::Start(_)) => {}
            None => {
                self.abandoned = true;
                self.schedule.abandoned(Moment::now());
            }
        }
        Next::Continue
    }

    fn launch(&mut self) {
        let started = self.handed.stdin.try_clone().and_then(|stdin| {
            let [name, arguments @ ..] = self.start.argv.as_slice() else {
                return Err(io::Error::other("there is no command"));
            };
            let mut command = Command::new("/proc/self/exe");
            command
                .arg0("lockfast")
                .args(trampoline::arguments(getpid(), self.start.foreground, self.output))
                .arg(&self.start.path)
                .arg(name)
                .args(arguments)
                .stdin(Stdio::from(stdin))
                .envs(self.start.set.iter().map(|(name, value)| (name, value)))
                .process_group(0);
            for name in &self.start.unset {
                command.env_remove(name);
            }
            command.spawn()
        });
        match started {
            Ok(child) => {
                let pid = Pid::from_child(&child);
                self.command = Some(pid);
                self.children_left = true;
                self.link.send(&FromGuard::Started { pid: pid.as_raw_pid() });
                std::mem::take(&mut self.early).into_iter().for_each(|number| self.pass_on(number));
            }
            Err(error) => {
                self.link.send(&FromGuard::CannotStart { message: error.to_string() });
            }
        }
    }

    /// Collects children that ended.
    fn collect(&mut self) {
        let reaped = tree::reap();
        self.children_left = reaped.children_left;
        for (pid, status) in reaped.changes {
            if Some(pid) != self.command {
                continue;
            }
            if status.stopped() {
                if self.start.terminal {
                    self.link.send(&FromGuard::Stopped);
                }
            } else if self.ending.is_none() {
                self.ending = Some(ending_of(status));
                if self.children_left {
                    self.schedule.left_over(Moment::now());
                }
            }
        }
    }

    /// Does what is due, and answers when to look again.
    fn act(&mut self) -> Option<Moment> {
        if !self.children_left {
            return None;
        }
        let was_for_lease = self.schedule.is_for_lease();
        let step = self.schedule.due(Moment::now());
        if self.schedule.is_for_lease() && !was_for_lease {
            self.link.send(&FromGuard::Stopping);
        }
        match step {
            None => return self.schedule.alarm(),
            Some(Step::Term { everything }) => self.term(everything),
            Some(Step::Kill) => {
                let spared = self.signal_all(Signal::KILL);
                self.tell_stuck(&spared);
                let pause = if spared.is_empty() { SWEEP_PAUSE } else { STUCK_PAUSE };
                return Some(Moment::now() + pause);
            }
        }
        self.schedule.alarm()
    }

    fn term(&mut self, everything: bool) {
        if everything && self.ending.is_some() && !self.abandoned {
            let count = tree::below(getpid(), &HashSet::new()).map_or(1, |found| found.len());
            self.link.send(&FromGuard::Leftovers { count });
        }
        // What is stopped must go on to be able to end.
        for signal in [Signal::TERM, Signal::CONT] {
            match self.command {
                Some(group) if !everything => drop(kill_process_group(group, signal)),
                _ => drop(self.signal_all(signal)),
            }
        }
    }

    fn signal_all(&self, signal: Signal) -> Vec<tree::Process> {
        tree::signal_below(getpid(), &HashSet::new(), signal)
    }

    fn tell_stuck(&mut self, spared: &[tree::Process]) {
        if !spared.is_empty() && !self.stuck {
            self.stuck = true;
            let pids = spared.iter().map(|process| process.pid.as_raw_pid()).collect();
            self.link.send(&FromGuard::Stuck { pids });
        }
    }

    fn pass_on(&mut self, number: i32) {
        let Some(signal) = Signal::from_named_raw(number) else { return };
        match self.command {
            Some(group) if self.ending.is_none() => drop(kill_process_group(group, signal)),
            Some(_) => drop(self.signal_all(signal)),
            None => self.early.push(number),
        }
    }

    fn is_over(&self) -> bool {
        let nothing_ran = self.command.is_none() && self.abandoned;
        !self.children_left && (self.ending.is_some() || nothing_ran)
    }

    fn report(&mut self) {
        if let Some(status) = self.ending
            && !self.reported
        {
            self.reported = true;
            let for_lease = self.schedule.is_for_lease();
            self.link.send(&FromGuard::Ended { status, for_lease });
        }
    }

    fn return_terminal(&self) {
        if let (true, Some(group), Some(wrapper)) =
            (self.start.terminal, self.command, Pid::from_raw(self.start.wrapper_group))
        {
            terminal::pass_on(&self.handed.stdin, group, wrapper);
        }
    }

    /// Gives the lock back for the wrapper that cannot any more.
    async fn let_go(&self) {
        if !self.handed.connections.is_empty() {
            // The lock ends with these, and they end with us.
            return;
        }
        let until = Moment::now() + self.start.lease.ttl;
        while let Err(failure) = self.release().await {
            if until.has_passed(Moment::now()) {
                let why = failure.message().unwrap_or("unknown").to_owned();
                self.output.warn(&format!("the lock is left to expire: {why}"));
                return;
            }
            tokio::time::sleep(STUCK_PAUSE).await;
        }
    }

    async fn release(&self) -> Result<(), Failure> {
        let locker = Store::at(self.start.url.clone())?.connect(Locker::builder()).await?;
        let name = LockName::new(&self.start.name)?;
        let holder = HolderId::parse(&self.start.holder)?;
        match self.start.once {
            Some(OnceTimes { at_most, at_least, started_ns }) => {
                let job = locker.once(&name, at_most)?.at_least(at_least);
                job.finish_detached(holder, Moment::from_host_ns(started_ns)).await?;
            }
            None => {
                locker.release_detached(&name, holder).await?;
            }
        }
        Ok(())
    }
}

/// Opens the witness so that every process below inherits it.
fn open_for_all_below(path: &OsStr) -> io::Result<OwnedFd> {
    descriptor::inheritable(OpenOptions::new().read(true).write(true).open(path)?)
}

fn ending_of(status: WaitStatus) -> Ending {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Ending::Exit(code),
        (None, Some(signal)) => Ending::Signal(signal),
        (None, None) => Ending::Exit(i32::from(INTERNAL)),
    }
}
