//! A worker of the fleet: a process of its own, in which many tasks take and lose a few locks on
//! the usual runtime.
//!
//! It is told what to do in the first line of its input, and ends when its input does: it gives
//! back what it has, and what it recorded is in its file.

pub mod attendant;
mod hold;
pub mod job;
mod run;
mod task;

use std::io::{self, BufRead as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockfast::{ErrorKind, Locker, Moment, Options};
use lockfast_faults::lateness::Lateness;
use lockfast_faults::ledger::{Count, Ledger};
use lockfast_faults::seed::Seed;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::recorder::Recorder;

/// The hidden command by which a worker is started.
pub const COMMAND: &str = "__torture-worker";

/// How long a worker that ends waits until everything is given back.
const SETTLE_MAX: Duration = Duration::from_secs(10);

/// How many threads run its tasks.
const THREADS: usize = 2;

/// Between two tries to connect.
const CONNECT_PAUSE: Duration = Duration::from_millis(100);

/// How a lock is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Use {
    /// By one at a time.
    Exclusive,
    /// By many who read or one who writes.
    ReadWrite,
    /// By so many at a time.
    Permits(u32),
}

/// One of the locks that all workers want.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Target {
    /// Its name.
    pub name: String,
    /// How it is used.
    pub used: Use,
    /// Whether it is wanted so seldom that it is mostly free.
    pub quiet: bool,
}

/// What a worker is told.
#[derive(Clone, Serialize, Deserialize)]
pub struct Script {
    /// Which worker it is.
    pub worker: u32,
    /// How many of that number ran before it.
    pub generation: u32,
    /// The seed of the run.
    pub seed: u64,
    /// The store, perhaps with a password.
    pub url: String,
    /// Where histories and gates are.
    pub directory: PathBuf,
    /// The ttl of leases, in nanoseconds.
    pub ttl: u64,
    /// How many tasks it has.
    pub tasks: u32,
    /// How many lines it may record in a second.
    pub lines_per_second: u32,
    /// The locks.
    pub targets: Vec<Target>,
}

/// What all tasks of a worker share.
struct Shared {
    script: Script,
    ttl: Duration,
    lockers: [Locker; 2],
    recorder: Recorder,
    /// By how much the machine keeps this process waiting.
    machine: Lateness,
    gates: Vec<Arc<Ledger>>,
    claims: AtomicU64,
    runs: tokio::sync::Semaphore,
    start: Moment,
    ending: watch::Receiver<bool>,
}

/// The process of a worker.
pub fn main() -> ExitCode {
    match play() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Its errors are a log file; when that cannot be written, the code is all there is.
            let _ = writeln!(io::stderr(), "{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn play() -> io::Result<()> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    let script: Script = serde_json::from_str(&line)?;
    let (end, ending) = watch::channel(false);
    std::thread::spawn(move || {
        // Nothing more is ever said: the input ends with the one who told us what to do.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        end.send_replace(true);
    });
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build()?;
    let outcome = runtime.block_on(work(script, ending));
    // A write to a gate may wait for one who was stopped in the middle of his.
    runtime.shutdown_background();
    outcome
}

async fn work(script: Script, ending: watch::Receiver<bool>) -> io::Result<()> {
    let recorder = Recorder::open(
        &script.directory,
        &format!("worker-{}.jsonl", script.worker),
        Some(script.worker),
    )?;
    let gates: io::Result<Vec<Arc<Ledger>>> =
        script.targets.iter().map(|target| gate(&script.directory, &target.name)).collect();
    let Some(first) = connect(&script, ending.clone()).await else { return Ok(()) };
    let Some(second) = connect(&script, ending.clone()).await else { return Ok(()) };
    let shared = Arc::new(Shared {
        ttl: Duration::from_nanos(script.ttl),
        lockers: [first, second],
        recorder,
        machine: Lateness::watch(),
        gates: gates?,
        claims: AtomicU64::new(0),
        runs: tokio::sync::Semaphore::new(1),
        start: Moment::now(),
        ending,
        script,
    });
    let mut tasks = JoinSet::new();
    for number in 0..shared.script.tasks {
        tasks.spawn(task::Task::new(Arc::clone(&shared), number).run());
    }
    let mut panicked = false;
    while let Some(ended) = tasks.join_next().await {
        panicked |= ended.is_err();
    }
    for locker in &shared.lockers {
        // What is not given back by then is found in the store at the end.
        let _ = tokio::time::timeout(SETTLE_MAX, locker.settled()).await;
    }
    if panicked {
        return Err(io::Error::other("a task panicked"));
    }
    match Arc::into_inner(shared) {
        Some(shared) => shared.recorder.finish(),
        None => Ok(()),
    }
}

/// What a lock guards: a file that checks fences.
fn gate(directory: &Path, lock: &str) -> io::Result<Arc<Ledger>> {
    Ledger::at(&directory.join(format!("{lock}.gate"))).map(Arc::new)
}

/// Connects as soon as that is possible; not at all when the run has ended.
async fn connect(script: &Script, mut ending: watch::Receiver<bool>) -> Option<Locker> {
    let ttl = Duration::from_nanos(script.ttl);
    loop {
        let builder = Locker::builder().options(Options::default().ttl(ttl));
        tokio::select! {
            connected = builder.connect(&script.url) => match connected {
                Ok(locker) => return Some(locker),
                Err(error) => {
                    let _ = writeln!(io::stderr(), "not connected: {error:#}");
                }
            },
            _ = ending.wait_for(|ends| *ends) => return None,
        }
        tokio::time::sleep(CONNECT_PAUSE).await;
    }
}

impl Shared {
    /// A number for an acquisition that no other process gives, which every language can hold.
    fn claim(&self) -> u64 {
        let (worker, generation) =
            (u64::from(self.script.worker), u64::from(self.script.generation));
        worker << 40 | generation << 28 | self.claims.fetch_add(1, Ordering::Relaxed)
    }

    fn is_ending(&self) -> bool {
        *self.ending.borrow()
    }

    /// Waits for the end of the run.
    async fn ended(&self) {
        // When the sender is gone, so is the process that watched the input.
        let _ = self.ending.clone().wait_for(|ends| *ends).await;
    }

    /// Sleeps, but not beyond the end of the run.
    async fn sleep(&self, span: Duration) {
        tokio::select! {
            () = tokio::time::sleep(span) => {}
            () = self.ended() => {}
        }
    }

    /// Waits while more was recorded than is allowed.
    async fn wait_for_budget(&self) {
        let allowed = u64::from(self.script.lines_per_second);
        while !self.is_ending() {
            let elapsed = Moment::now().since(self.start) + Duration::from_secs(1);
            let budget = elapsed.as_millis() as u64 * allowed / 1000;
            if self.recorder.lines() < budget {
                return;
            }
            self.sleep(Duration::from_millis(20)).await;
        }
    }

    /// Writes to what a lock guards, without a thread of the runtime: whoever was stopped in the
    /// middle of it keeps the file from everybody.
    async fn write(&self, place: usize, fence: u64) -> Option<Count> {
        let gate = Arc::clone(&self.gates[place]);
        tokio::task::spawn_blocking(move || gate.count(fence)).await.ok()?.ok()
    }

    fn seed(&self, subject: &str) -> Seed {
        let Script { seed, worker, generation, .. } = self.script;
        Seed(seed).of(&format!("worker {worker} generation {generation} {subject}"))
    }
}

/// The kind of an error, as it is recorded.
fn word_of_error(kind: ErrorKind) -> String {
    snake_case(&format!("{kind:?}"))
}

fn snake_case(name: &str) -> String {
    let mut word = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !word.is_empty() {
            word.push('_');
        }
        word.push(letter.to_ascii_lowercase());
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_errors_are_words() {
        assert_eq!(word_of_error(ErrorKind::NoQuorum), "no_quorum");
        assert_eq!(word_of_error(ErrorKind::Taken), "taken");
    }
}
