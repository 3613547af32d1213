//! What this binary does when it is started as a child of itself: it takes part in a case through
//! the lease engine, on its parent's orders, and is killed or stopped at the worst moment.
//!
//! Both sides talk in lines. Orders: `acquire`, `detach`, `watch`, `write`, `slow`, `release`, and
//! `meet`, `lead`, `compute`, `count` for the primitives. Answers: `waiting`, `granted FENCE HOST_NS`,
//! `watching`, `lost HOST_NS …`, `written`, `refused`, `slow`, `released`, `not released …`, and
//! `meeting`, `leading TERM`, `computing`, `counted`.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockfast::{Error, Guard, LeaderEvent, Lease, Locker, Moment, Mutex, Options, Released};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::Seed;
use crate::arena::connect_locker;
use crate::harness::Harness;
use crate::history::Interval;
use lockfast_core::flaky::{Fault, FaultSwitch, Operation};
use lockfast_faults::child::Child;
use lockfast_faults::ledger::Ledger;

/// Tells the binary that it is a child, and which part it has.
const ROLE_VARIABLE: &str = "LOCKFAST_CONFORMANCE_ROLE";

/// The lock that all actors want.
pub(crate) const LOCK: &str = "a";

/// How many meet at a barrier or count a latch down, and for how long a value is fresh.
pub(crate) const PARTIES: u32 = 3;
pub(crate) const FRESH: Duration = Duration::from_secs(600);

/// How long releases take on their way once an actor was told to be slow.
const SLOW: Duration = Duration::from_millis(200);

/// What a child is told when it is started.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) role: Role,
    pub(crate) url: String,
    pub(crate) ttl: Duration,
    /// Where its ledger and log are.
    pub(crate) directory: PathBuf,
    pub(crate) seed: Seed,
    /// How often a worker increments.
    pub(crate) rounds: u64,
}

/// Which part a child has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Obeys its parent's orders.
    Actor,
    /// Increments the ledger as often as it is told to, or until its input ends.
    Worker,
}

impl Script {
    /// Starts the child.
    pub(crate) fn start(&self) -> Child {
        let role = match self.role {
            Role::Actor => "actor",
            Role::Worker => "worker",
        };
        let mut command = Command::new(std::env::current_exe().expect("this binary"));
        command
            .env(ROLE_VARIABLE, role)
            .arg(&self.url)
            .arg(self.ttl.as_millis().to_string())
            .arg(&self.directory)
            .arg(self.seed.0.to_string())
            .arg(self.rounds.to_string());
        Child::spawn(&mut command).expect("a child process")
    }

    fn of_this_process() -> Option<Self> {
        let role = match std::env::var(ROLE_VARIABLE).ok()?.as_str() {
            "actor" => Role::Actor,
            "worker" => Role::Worker,
            _ => return None,
        };
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let [url, ttl, directory, seed, rounds] = arguments.try_into().ok()?;
        Some(Self {
            role,
            url,
            ttl: Duration::from_millis(ttl.parse().ok()?),
            directory: directory.into(),
            seed: Seed(seed.parse().ok()?),
            rounds: rounds.parse().ok()?,
        })
    }

    fn options(&self) -> Options {
        Options::default().ttl(self.ttl).request_timeout(self.ttl * 3 / 10).retries(20)
    }
}

/// Plays the part that the environment asks for, if it asks for one.
pub(crate) fn play(harness: &dyn Harness) -> Option<ExitCode> {
    let script = Script::of_this_process()?;
    // A case that hangs is left behind with its children, which may be stopped and could not end
    // by themselves.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let switch = FaultSwitch::default();
        let locker = connect_locker(harness, &script.url, &switch, script.options()).await;
        let lock = locker.mutex(LOCK).expect("a valid name");
        match script.role {
            Role::Actor => act(&script, &locker, &lock, &switch).await,
            Role::Worker => work(&script, &lock).await,
        }
    });
    Some(ExitCode::SUCCESS)
}

async fn act(script: &Script, locker: &Locker, lock: &Mutex, switch: &FaultSwitch) {
    let ledger = Ledger::open(&script.directory).expect("the ledger");
    let mut guard: Option<Guard> = None;
    let mut fence = 0;
    say("ready");
    for order in io::stdin().lock().lines().map_while(Result::ok) {
        match (order.as_str(), guard.take()) {
            ("acquire", _) => {
                say("waiting");
                let taken = lock.acquire().await.expect("a grant");
                fence = taken.fence().get();
                say(&format!("granted {fence} {}", Moment::now().host_ns()));
                guard = Some(taken);
            }
            ("detach", _) => {
                let lease = lock.acquire_detached().await.expect("a grant");
                say(&format!("granted {} {}", lease.fence, lease.holder.to_hex()));
            }
            ("watch", Some(taken)) => {
                watch(taken.lease().clone());
                guard = Some(taken);
            }
            ("write", taken) => {
                let written = ledger.write(fence, fence).expect("the ledger");
                say(if written { "written" } else { "refused" });
                guard = taken;
            }
            ("slow", taken) => {
                switch.set(Operation::Release, Fault::DelayRequest(SLOW));
                say("slow");
                guard = taken;
            }
            ("release", Some(taken)) => match taken.release().await.expect("an answer") {
                Released::Released => say("released"),
                other => say(&format!("not released: {other:?}")),
            },
            (order, _) => take_part(order, locker).await,
        }
    }
}

/// Takes part in what several do together, until it is killed.
async fn take_part(order: &str, locker: &Locker) {
    match order {
        "meet" => {
            let barrier = locker.barrier(LOCK, PARTIES).expect("a barrier");
            tokio::spawn(async move { barrier.wait().await });
            say("meeting");
        }
        "lead" => {
            let mut campaign =
                locker.leader(LOCK).and_then(|it| it.campaign()).expect("a campaign");
            match campaign.next().await {
                Ok(LeaderEvent::Elected { term, .. }) => say(&format!("leading {term}")),
                other => panic!("not elected: {other:?}"),
            }
            tokio::spawn(async move { campaign.next().await });
        }
        "compute" => {
            let refresh = locker.refresh(LOCK, FRESH).expect("a refresh");
            tokio::spawn(async move {
                let computing = refresh.ensure(|_| {
                    say("computing");
                    std::future::pending::<Result<(), Error>>()
                });
                computing.await
            });
        }
        "count" => {
            let latch = locker.latch(LOCK, PARTIES).expect("a latch");
            latch.count_down().await.expect("an answer");
            say("counted");
        }
        order => panic!("{order:?} makes no sense now"),
    }
}

/// Tells the parent, who may have gone.
fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Looks at the lease all the time, and says when it was last held.
fn watch(lease: Lease) {
    std::thread::spawn(move || {
        let mut last_held_ns = None;
        loop {
            // Taken before the look, so it is not later than what the look answers for.
            let now_ns = Moment::now().host_ns();
            match lease.check() {
                Ok(_) => {
                    if last_held_ns.replace(now_ns).is_none() {
                        say("watching");
                    }
                }
                Err(error) => {
                    say(&format!("lost {} {error}", last_held_ns.unwrap_or(0)));
                    return;
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

async fn work(script: &Script, lock: &Mutex) {
    let ledger = Ledger::open(&script.directory).expect("the ledger");
    let mut log = WorkLog::create(&script.directory).expect("a log");
    let mut dice = script.seed.dice();
    let over = Arc::new(AtomicBool::new(false));
    std::thread::spawn({
        let over = Arc::clone(&over);
        move || {
            // The parent closes our input when it wants us to end.
            let _ = io::copy(&mut io::stdin(), &mut io::sink());
            over.store(true, Ordering::SeqCst);
        }
    });
    say("ready");
    for _ in 0..script.rounds {
        if over.load(Ordering::SeqCst) {
            break;
        }
        let guard = lock.acquire().await.expect("a grant");
        let fence = guard.fence().get();
        log.note("start", Moment::now(), fence);
        if let Some(number) = ledger.read(fence).expect("the ledger") {
            tokio::time::sleep(dice.time_below(Duration::from_millis(2))).await;
            log.note("intent", Moment::now(), fence);
            let is_held = guard.check().is_ok();
            if is_held && ledger.write(fence, number + 1).expect("the ledger") {
                log.note("ack", Moment::now(), fence);
            } else {
                log.note("refused", Moment::now(), fence);
            }
        }
        log.note("end", Moment::now().earlier_of(guard.deadline()), fence);
        guard.release().await.expect("an answer");
    }
    say("done");
}

/// What one worker did: a line for each step, written before the next.
struct WorkLog(File);

impl WorkLog {
    fn create(directory: &Path) -> io::Result<Self> {
        let path = directory.join(format!("worker-{}.log", std::process::id()));
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        Ok(Self(file))
    }

    fn note(&mut self, step: &str, at: Moment, fence: u64) {
        let line = format!("{step} {} {fence}\n", at.host_ns());
        self.0.write_all(line.as_bytes()).expect("the log");
    }
}

/// What all workers of a directory did together.
#[derive(Debug, Default)]
pub(crate) struct Work {
    pub(crate) intervals: Vec<Interval>,
    /// Increments that were acknowledged.
    pub(crate) acknowledged: u64,
    /// Increments of workers that died between asking and being answered.
    pub(crate) unknown: u64,
}

impl Work {
    /// Joins the logs.
    pub(crate) fn read(directory: &Path) -> io::Result<Self> {
        let mut work = Self::default();
        for entry in std::fs::read_dir(directory)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "log") {
                work.add(&std::fs::read_to_string(path)?);
            }
        }
        Ok(work)
    }

    fn add(&mut self, log: &str) {
        let mut open: Option<Interval> = None;
        let mut asked = false;
        for line in log.lines() {
            let mut words = line.split(' ');
            let (Some(step), Some(Ok(at_ns)), Some(Ok(fence))) =
                (words.next(), words.next().map(str::parse), words.next().map(str::parse))
            else {
                continue;
            };
            match step {
                "start" => {
                    open =
                        Some(Interval { start_ns: at_ns, end_ns: at_ns, fence, exclusive: true });
                }
                "intent" => asked = true,
                "ack" => {
                    self.acknowledged += 1;
                    asked = false;
                }
                "refused" => asked = false,
                _ => {}
            }
            if let Some(interval) = &mut open {
                // A worker that died held it at least until it last said something; one whose
                // lease ended says when that was.
                interval.end_ns = at_ns;
            }
            if step == "end" {
                self.intervals.extend(open.take());
            }
        }
        self.intervals.extend(open);
        self.unknown += u64::from(asked);
    }
}
