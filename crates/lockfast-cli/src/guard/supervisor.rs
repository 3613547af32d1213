//! The wrapper's side of a running job: keeps the guard informed, passes signals on, tells people
//! what happens, and ends everything itself when the guard cannot.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream as Socket;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use lockfast::{Lease, LeaseStatus, LossCause, Moment};
use lockfast_core::view::brief;
use rustix::process::{
    Pid, Signal, getpgrp, getpid, kill_current_process_group, set_child_subreaper,
};
use tokio::signal::unix::{SignalKind, signal};

use super::link::{self, Link};
use super::{
    COMMAND, Ending, FromGuard, LeaseTerms, OnceTimes, STUCK_PAUSE, SWEEP_PAUSE, Start, ToGuard,
};
use crate::args::OnLost;
use crate::exit::{Failure, LOST, NOT_EXECUTABLE, RUN_FAILED};
use crate::held::{self, Held, Hold};
use crate::output::Output;
use crate::process::signals::Signals;
use crate::process::timer::Timer;
use crate::process::{descriptor, terminal, tree};

/// How long the guard may take beyond its own times before we do its work.
const GUARD_SLACK: Duration = Duration::from_millis(100);

/// Who asked to be stopped and goes on so soon was not.
const NOT_STOPPED: Duration = Duration::from_millis(20);

/// What to run, and under which terms.
pub(crate) struct Job {
    /// The store's URL, for the guard.
    pub(crate) url: String,
    /// The file that the guard keeps open.
    pub(crate) witness: Option<OsString>,
    /// Whether the lock ends with this process's connection.
    pub(crate) is_bound_to_connection: bool,
    /// The lease time.
    pub(crate) ttl: Duration,
    /// The times of a lease that is not renewed.
    pub(crate) once: Option<OnceTimes>,
    /// Whether TERM and INT end the command for certain, or only reach it.
    pub(crate) ends_by_signal: bool,
    /// How long the command may take to stop.
    pub(crate) grace: Duration,
    /// What happens to it on loss.
    pub(crate) on_lost: OnLost,
    /// The command's file.
    pub(crate) path: OsString,
    /// The command as typed, with its arguments.
    pub(crate) argv: Vec<OsString>,
    /// Variables to set for it.
    pub(crate) set: Vec<(OsString, OsString)>,
    /// Variables to remove.
    pub(crate) unset: Vec<OsString>,
    /// Where it writes, if not where we do.
    pub(crate) stdout: Option<OwnedFd>,
    /// What it holds.
    pub(crate) hold: Hold,
    /// What is held around us.
    pub(crate) around: Vec<Held>,
}

/// How the job went.
pub(crate) struct Verdict {
    /// How the command ended.
    pub(crate) ending: Ending,
    /// Whether it was stopped for the sake of the lease.
    pub(crate) for_lease: bool,
    /// Which of TERM and INT came for it first.
    pub(crate) asked_by: Option<Signal>,
}

/// The wrapper while its command runs.
pub(crate) struct Supervisor<'a> {
    lease: &'a Lease,
    output: &'a Output,
    link: Link,
    timer: Timer,
    terms: LeaseTerms,
    /// Children that this process had before it was `lockfast`.
    strangers: HashSet<tree::Process>,
    terminal: bool,
    command: Option<Pid>,
    lost_at: Option<Moment>,
    warned: bool,
    is_renewed: bool,
    ends_by_signal: bool,
    asked_by: Option<Signal>,
}

impl<'a> Supervisor<'a> {
    /// Starts the guard, which does not start the command yet.
    ///
    /// # Errors
    /// When there can be no guard.
    pub(crate) fn start(lease: &'a Lease, job: Job, output: &'a Output) -> Result<Self, Failure> {
        Self::prepare(lease, job, output)
            .map_err(|error| Failure::new(RUN_FAILED, format!("no guard process: {error}")))
    }

    fn prepare(lease: &'a Lease, mut job: Job, output: &'a Output) -> io::Result<Self> {
        set_child_subreaper(Some(getpid()))?;
        let strangers = tree::below(getpid(), &HashSet::new())?.into_iter().collect();
        let terms = LeaseTerms {
            deadline_ns: lease.deadline().host_ns(),
            ttl: job.ttl,
            grace: job.grace,
            on_lost: job.on_lost,
        };
        let terminal = terminal::is_in_session(io::stdin());
        // Before there is a socket to the guard: that one must end with us.
        let connections = match job.is_bound_to_connection {
            true => descriptor::own_sockets()?,
            false => Vec::new(),
        };
        let (socket, guard) = spawn_guard(&mut job, output)?;
        let stdin = io::stdin();
        let mut handed = vec![stdin.as_fd()];
        handed.extend(connections.iter().map(|connection| connection.as_fd()));
        link::send_fds(&socket, &handed)?;
        let mut link = Link::new(socket)?;
        let held = held::with(job.around, Held { hold: job.hold, guard });
        let mut set = job.set;
        set.push((held::VARIABLE.into(), held.into()));
        link.send(&ToGuard::Start(Box::new(Start {
            url: job.url,
            name: lease.name().as_str().to_owned(),
            holder: lease.holder().to_hex(),
            witness: job.witness,
            lease: terms,
            once: job.once,
            path: job.path,
            argv: job.argv,
            set,
            unset: job.unset,
            terminal,
            foreground: terminal::is_ours(io::stdin()),
            wrapper_group: getpgrp().as_raw_pid(),
        })));
        Ok(Self {
            lease,
            output,
            link,
            timer: Timer::new()?,
            terms,
            strangers,
            terminal,
            command: None,
            lost_at: None,
            warned: false,
            is_renewed: job.once.is_none(),
            ends_by_signal: job.ends_by_signal,
            asked_by: None,
        })
    }

    /// Runs the job to its end. Afterwards nothing of it is left, and the lock may be released.
    ///
    /// # Errors
    /// When the command cannot be started, or the guard died.
    ///
    /// # Cancel safety
    /// Not safe: the command would go on until the guard sees the socket closed.
    pub(crate) async fn supervise(&mut self, signals: &mut Signals) -> Result<Verdict, Failure> {
        let verdict = self.watch(signals).await;
        self.take_terminal();
        if verdict.is_err() {
            self.kill_everything().await;
        }
        verdict
    }

    /// Tells the guard that the lock was let go, so that it ends without doing so itself.
    pub(crate) fn dismiss(mut self) {
        self.link.send(&ToGuard::Released);
    }

    async fn watch(&mut self, signals: &mut Signals) -> Result<Verdict, Failure> {
        let lease = self.lease;
        let mut children = signal(SignalKind::child())
            .map_err(|error| Failure::internal("signals cannot be received", error))?;
        let mut lost = std::pin::pin!(lease.lost());
        let mut changes = lease.changes();
        loop {
            let backstop = self.backstop();
            tokio::select! {
                // What the guard said comes before what it seems not to have done: after a pause
                // of this process both are due.
                biased;
                message = self.link.receive() => match message {
                    Ok(Some(message)) => {
                        if let Some(verdict) = self.hear(message)? {
                            return Ok(verdict);
                        }
                    }
                    Ok(None) => return Err(guard_died("")),
                    Err(error) => return Err(guard_died(&format!(": {error}"))),
                },
                cause = &mut lost, if self.lost_at.is_none() => self.lose(&cause),
                _ = changes.next(), if self.lost_at.is_none() => self.tell_deadline(),
                signal = signals.next() => self.pass_on(signal),
                _ = children.recv() => drop(tree::reap()),
                () = self.timer.wait(backstop) => {
                    self.output.warn("the guard process did not act in time; stopping the command");
                    self.kill_everything().await;
                    return Ok(Verdict {
                        ending: Ending::Signal(Signal::KILL.as_raw()),
                        for_lease: true,
                        asked_by: self.asked_by,
                    });
                }
            }
        }
    }

    fn hear(&mut self, message: FromGuard) -> Result<Option<Verdict>, Failure> {
        match message {
            FromGuard::Ready if self.lost_at.is_none() => self.link.send(&ToGuard::Go),
            FromGuard::Ready => {
                return Err(Failure::new(LOST, "the lease was lost before the command started"));
            }
            FromGuard::Started { pid } => self.command = Pid::from_raw(pid),
            FromGuard::CannotStart { message } => {
                return Err(Failure::new(
                    NOT_EXECUTABLE,
                    format!("the command cannot be executed: {message}"),
                ));
            }
            FromGuard::Stopped => self.stop_with_command(),
            FromGuard::Stopping if self.lost_at.is_none() => self.output.warn(match self.is_renewed {
                true => "the lease could not be renewed in time; stopping the command before it ends",
                false => "the time of --at-most is almost over; stopping the command",
            }),
            FromGuard::Stopping => {}
            FromGuard::Leftovers { count } => self.output.warn(&format!(
                "the command ended but left {count} process(es) behind; stopping them before the \
                 lock is released"
            )),
            FromGuard::Stuck { pids } => self.output.warn(&format!(
                "processes that must end may not be signalled: {pids:?}; waiting for them"
            )),
            FromGuard::Ended { status, for_lease } => {
                let asked_by = self.asked_by;
                return Ok(Some(Verdict { ending: status, for_lease, asked_by }));
            }
        }
        Ok(None)
    }

    fn pass_on(&mut self, signal: Signal) {
        self.link.send(&ToGuard::Signal { number: signal.as_raw() });
        if matches!(signal, Signal::TERM | Signal::INT) {
            self.asked_by.get_or_insert(signal);
            if self.ends_by_signal {
                self.link.send(&ToGuard::Stop);
            }
        }
    }

    fn lose(&mut self, cause: &LossCause) {
        self.lost_at = Some(Moment::now());
        let consequence = match self.terms.on_lost {
            OnLost::Kill => "stopping the command",
            OnLost::Term => "asking the command to stop",
            OnLost::Warn => "the command goes on without the lock",
        };
        let name = lockfast_core::error::quote(self.lease.name().as_str());
        self.output.warn(&format!("lock {name} was lost: {cause}; {consequence}"));
        self.link.send(&ToGuard::Lost);
    }

    fn tell_deadline(&mut self) {
        match self.lease.status() {
            LeaseStatus::Jeopardy { until, failure } if !self.warned => {
                self.warned = true;
                let left = brief(until.remaining(Moment::now()));
                self.output.warn(&format!(
                    "the lease cannot be renewed and ends in {left} unless that changes: {failure}"
                ));
            }
            LeaseStatus::Held if self.warned => {
                self.warned = false;
                self.output.note("the lease is renewed again");
            }
            _ => {}
        }
        self.terms.deadline_ns = self.lease.deadline().host_ns();
        self.link.send(&ToGuard::Deadline { host_ns: self.terms.deadline_ns });
    }

    /// When we stop waiting for the guard to end the command: still before the deadline.
    fn backstop(&self) -> Option<Moment> {
        if self.terms.on_lost != OnLost::Kill {
            return None;
        }
        let last = self.terms.deadline().before(self.terms.margin() / 2);
        let after_loss = self.lost_at.map(|at| at + self.terms.grace + GUARD_SLACK);
        Some(after_loss.map_or(last, |at| at.earlier_of(last)))
    }

    /// The command was stopped at the terminal; so are we, as the shell expects.
    fn stop_with_command(&mut self) {
        self.take_terminal();
        let left = brief(self.lease.remaining());
        self.output.warn(&format!("stopped; nothing renews the lease, which ends in {left}"));
        let before = Moment::now();
        // We go on when the shell continues us, or at once if there is no shell that could.
        let _ = kill_current_process_group(Signal::TSTP);
        let was_stopped = Moment::now().since(before) > NOT_STOPPED;
        if terminal::is_ours(io::stdin()) {
            if let Some(group) = self.command {
                let _ = terminal::give_to(io::stdin(), group);
            }
        } else if !was_stopped {
            // It waits for a terminal that nobody will give to it; the kernel ends such groups
            // in this way.
            self.link.send(&ToGuard::Signal { number: Signal::HUP.as_raw() });
        }
        self.link.send(&ToGuard::Signal { number: Signal::CONT.as_raw() });
    }

    fn take_terminal(&self) {
        if let (true, Some(group)) = (self.terminal, self.command) {
            terminal::pass_on(io::stdin(), group, getpgrp());
        }
    }

    /// Ends the guard and everything else below us. Two scans must agree that nothing is left,
    /// because a process can change its parent during one.
    async fn kill_everything(&self) {
        let mut empty_scans = 0;
        let mut told = false;
        while empty_scans < 2 {
            let spared = tree::signal_below(getpid(), &self.strangers, Signal::KILL);
            if !spared.is_empty() && !told {
                told = true;
                self.output.warn("some processes may not be signalled; waiting for them to end");
            }
            drop(tree::reap());
            match tree::below(getpid(), &self.strangers) {
                Ok(left) if !left.is_empty() => empty_scans = 0,
                _ => empty_scans += 1,
            }
            let pause = if spared.is_empty() { SWEEP_PAUSE } else { STUCK_PAUSE };
            tokio::time::sleep(pause).await;
        }
    }
}

fn guard_died(detail: &str) -> Failure {
    Failure::new(
        RUN_FAILED,
        format!("the guard process died{detail}; the command was killed and the lock released"),
    )
}

/// Starts the guard with one end of a socket as its standard input, in a process group of its own
/// so that nothing meant for us or the command hits it. The command inherits its standard output, to
/// which the guard itself writes nothing.
fn spawn_guard(job: &mut Job, output: &Output) -> io::Result<(Socket, tree::Process)> {
    let (ours, theirs) = Socket::pair()?;
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("lockfast")
        .args([COMMAND, output.form()])
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .process_group(0);
    if let Some(stdout) = job.stdout.take() {
        command.stdout(Stdio::from(stdout));
    }
    for name in &job.unset {
        command.env_remove(name);
    }
    let guard = Pid::from_child(&command.spawn()?);
    let guard = tree::Process::with_id(guard).ok_or_else(|| io::Error::other("it is gone"))?;
    Ok((ours, guard))
}

impl From<ExitStatus> for Ending {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Exit(code),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::Exit(i32::from(crate::exit::INTERNAL)),
        }
    }
}

/// The exit code for how a command ended.
impl Ending {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Exit(code) => u8::try_from(code).unwrap_or(u8::MAX),
            Self::Signal(signal) => crate::exit::of_signal(signal),
        }
    }
}
