//! The processes of the fleet: started, killed, stopped and ended. All of it may block.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockfast_faults::child::Child;
use lockfast_faults::clock::Clock;
use lockfast_faults::reaper;
use lockfast_faults::seed::Seed;

use crate::history::What;
use crate::recorder::Recorder;
use crate::route::Way;
use crate::worker::{self, Script};

/// How long a worker may take to end when it was told to, beyond the ttl.
const END_MAX: Duration = Duration::from_secs(40);

/// A clock is stepped by at most this, to either side.
const STEP_MAX: Duration = Duration::from_secs(3600);

/// One worker: the process that runs, or the one that will.
pub(super) struct Worker {
    script: Script,
    /// The way to the store, if it is led through proxies.
    pub(super) way: Option<Way>,
    clock: Option<Clock>,
    recorder: Arc<Recorder>,
    process: Mutex<Option<Process>>,
}

struct Process {
    child: Child,
    _ward: reaper::Ward,
}

impl Worker {
    /// One that does not run yet.
    pub(super) fn new(
        script: Script,
        way: Option<Way>,
        clock: Option<Clock>,
        recorder: Arc<Recorder>,
    ) -> Self {
        Self { script, way, clock, recorder, process: Mutex::new(None) }
    }

    fn number(&self) -> u32 {
        self.script.worker
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts its process, the `generation`th of its kind.
    pub(super) fn start(&self, generation: u32) -> io::Result<()> {
        let mut process = self.process();
        let log = self.script.directory.join(format!("worker-{}.log", self.number()));
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(worker::COMMAND);
        // A group of its own: an interrupt at the terminal is for the director.
        command.stderr(OpenOptions::new().create(true).append(true).open(log)?).process_group(0);
        if let Some(clock) = &self.clock {
            clock.preload(&mut command);
        }
        let mut child = Child::spawn(&mut command)?;
        let pid = child.pid();
        // It would end with its input, unless it is stopped just then.
        let ward = reaper::watch(pid, None);
        self.recorder.record(What::WorkerStarted { worker: self.number(), pid });
        let script = Script { generation, ..self.script.clone() };
        child.send(&serde_json::to_string(&script)?)?;
        *process = Some(Process { child, _ward: ward });
        Ok(())
    }

    /// Kills its process.
    pub(super) fn kill(&self) -> io::Result<()> {
        let Some(mut process) = self.process().take() else { return Ok(()) };
        self.recorder.record(What::WorkerKilled { worker: self.number() });
        process.child.kill().map(|_| ())
    }

    /// Stops its process.
    pub(super) fn pause(&self) -> io::Result<()> {
        self.process().as_ref().map_or(Ok(()), |process| process.child.stop())
    }

    /// Lets it continue.
    pub(super) fn resume(&self) -> io::Result<()> {
        self.process().as_ref().map_or(Ok(()), |process| process.child.resume())
    }

    /// Sets its wall clock wrong.
    pub(super) fn step_clock(&self, chance: u64) {
        let mut dice = Seed(chance).dice();
        let span = dice.time_between(Duration::from_millis(100), STEP_MAX);
        match &self.clock {
            Some(clock) if dice.one_in(2) => clock.step_forward(span),
            Some(clock) => clock.step_back(span),
            None => {}
        }
    }

    /// Sets it right.
    pub(super) fn mend_clock(&self) {
        if let Some(clock) = &self.clock {
            clock.step_forward(Duration::ZERO);
        }
    }

    /// Records that its process has ended by itself, and says so, if it has.
    pub(super) fn look(&self) -> io::Result<Option<String>> {
        let mut process = self.process();
        let Some(running) = process.as_mut() else { return Ok(None) };
        let Some(status) = running.child.try_wait()? else { return Ok(None) };
        *process = None;
        let (worker, code) = (self.number(), status.code());
        self.recorder.record(What::WorkerEnded { worker, code });
        Ok(Some(format!("worker {worker} ended by itself with {status}; see worker-{worker}.log")))
    }

    /// Lets its process end in order, and waits for that; what went wrong, if anything did.
    pub(super) fn end(&self) -> io::Result<Option<String>> {
        let Some(mut process) = self.process().take() else { return Ok(None) };
        let (worker, bound) = (self.number(), END_MAX + Duration::from_nanos(self.script.ttl));
        match process.child.finish(bound) {
            Ok(status) => {
                self.recorder.record(What::WorkerEnded { worker, code: status.code() });
                let message =
                    format!("worker {worker} ended with {status}; see worker-{worker}.log");
                Ok((!status.success()).then_some(message))
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                self.recorder.record(What::WorkerEnded { worker, code: None });
                Ok(Some(format!("worker {worker} did not end within {bound:?} and was killed")))
            }
            Err(error) => Err(error),
        }
    }
}
