//! Who leads a run: starts the fleet, carries out the schedule of faults, and ends everything.

mod fleet;
mod left;
mod referee;
mod stage;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockfast::Moment;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::fault::Fault;
use crate::history::What;
use crate::judge::{Counts, Verdict};
use crate::recorder::Recorder;
use crate::rig::{Planned, Rig, Row};
use crate::schedule::{self, Entry, Target, Terms};
use fleet::Worker;
use referee::Referee;
use stage::Stage;

/// Between two looks at the fleet.
const TICK: Duration = Duration::from_secs(1);

/// What a run is to be.
#[derive(Clone)]
pub struct Options {
    /// Where the locks are.
    pub store: Store,
    /// From which the schedule follows.
    pub terms: Terms,
    /// How many tasks each worker has.
    pub tasks: u32,
    /// An empty directory for what is recorded.
    pub directory: PathBuf,
}

/// Where the locks are.
#[derive(Clone)]
pub enum Store {
    /// In a store of somebody's own; the URL may hold a password.
    Url(String),
    /// On servers that are started for the run.
    Rig(&'static Row),
}

/// How far a run is.
#[derive(Clone, Debug)]
pub struct Progress {
    /// How long it has gone on.
    pub elapsed: Duration,
    /// How long it is to last.
    pub lasts: Duration,
    /// How many faults have begun.
    pub begun: u32,
    /// How many there will have been.
    pub planned: u32,
    /// What the referee has counted.
    pub counts: Option<Counts>,
}

/// What is worth telling while it goes on.
#[derive(Clone, Debug)]
pub enum Told {
    /// Something that somebody should look at.
    Note(String),
    /// How far it is.
    Progress(Box<Progress>),
    /// The run is over, and is being judged.
    Judging,
}

/// Why there was no run, or only a part of one.
#[derive(Debug)]
pub enum Failure {
    /// The store cannot be used.
    Store(lockfast::Error),
    /// What is asked for is not possible with this store.
    Unsuitable(String),
    /// A server of our own cannot be started or broken.
    Rig(String),
    /// The machine does not do what it should.
    Machine(io::Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Unsuitable(message) | Self::Rig(message) => f.write_str(message),
            Self::Machine(error) => error.fmt(f),
        }
    }
}

impl From<lockfast::Error> for Failure {
    fn from(error: lockfast::Error) -> Self {
        Self::Store(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Machine(error)
    }
}

/// What those who carry out faults share.
struct World {
    recorder: Arc<Recorder>,
    workers: Vec<Arc<Worker>>,
    generations: Vec<AtomicU32>,
    rig: Option<Arc<Mutex<Box<dyn Rig>>>>,
    /// Servers are broken one after the other, however long they take to work again.
    server: tokio::sync::Mutex<()>,
    ttl: Duration,
    start: Moment,
    begun: AtomicU32,
    planned: u32,
    failure: Mutex<Option<Failure>>,
    end: watch::Sender<bool>,
}

/// Leads a run to its end, which comes early when `interrupted` does, and has it judged. What was
/// recorded is then complete, and nothing of it is left in the store.
///
/// # Errors
/// When it cannot begin, or has to end early because something of our own broke.
///
/// # Cancel safety
/// Not safe: workers end by themselves, but nothing waits for them.
pub async fn run(
    options: &Options,
    interrupted: impl Future<Output = ()>,
    tell: &mut dyn FnMut(Told),
) -> Result<Verdict, Failure> {
    let stage = Stage::set(options).await?;
    let referee = Referee::start(&options.directory)?;
    let entries = schedule::make(&options.terms);
    let world = Arc::new(stage.world(options, entries.len() as u32).await?);
    let mut faults = JoinSet::new();
    for entry in entries {
        faults.spawn(carry_out(Arc::clone(&world), entry));
    }
    watch_over(&world, options.terms.lasts, &referee, interrupted, tell).await?;
    world.end.send_replace(true);
    while let Some(ended) = faults.join_next().await {
        ended.map_err(|error| io::Error::other(error.to_string()))?;
    }
    for note in end_all(&world.workers).await? {
        tell(Told::Note(note));
    }
    let left = left::look(&stage, options).await?;
    world.recorder.record(left);
    world.recorder.record(What::End);
    tell(Told::Judging);
    let verdict = referee.conclude().await?;
    let failure = world.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
    failure.map_or(Ok(verdict), Err)
}

/// Waits for the end of the run, and looks after the fleet meanwhile.
async fn watch_over(
    world: &World,
    lasts: Duration,
    referee: &Referee,
    interrupted: impl Future<Output = ()>,
    tell: &mut dyn FnMut(Told),
) -> io::Result<()> {
    let mut interrupted = std::pin::pin!(interrupted);
    let mut failed = world.end.subscribe();
    loop {
        let elapsed = Moment::now().since(world.start);
        let (begun, planned) = (world.begun.load(Ordering::Relaxed), world.planned);
        let counts = referee.counts();
        let progress = Progress { elapsed, lasts, begun, planned, counts };
        tell(Told::Progress(Box::new(progress)));
        if elapsed >= lasts {
            return Ok(());
        }
        tokio::select! {
            () = tokio::time::sleep(TICK.min(lasts - elapsed)) => {}
            () = &mut interrupted => {
                tell(Told::Note("interrupted: the run ends in order".into()));
                return Ok(());
            }
            _ = failed.wait_for(|ends| *ends) => return Ok(()),
        }
        for worker in &world.workers {
            if let Some(note) = worker.look()? {
                tell(Told::Note(note));
            }
        }
    }
}

/// Carries out one fault of the schedule, unless the run ends before.
async fn carry_out(world: Arc<World>, entry: Entry) {
    let mut ending = world.end.subscribe();
    let due = (world.start + entry.at).remaining(Moment::now());
    if sleep_until_end(due, &mut ending).await {
        return;
    }
    let is_servers = matches!(entry.target, Target::Server(_));
    let turn = if is_servers { Some(world.server.lock().await) } else { None };
    if *ending.borrow() {
        return;
    }
    world.begun.fetch_add(1, Ordering::Relaxed);
    world.recorder.record(What::Fault {
        number: entry.number,
        fault: entry.fault.name().into(),
        target: entry.target(),
        outage: entry.fault.is_outage(),
        beyond: entry.fault.is_beyond(),
    });
    let begun = step(&world, entry, World::begin).await;
    if begun.is_ok() {
        sleep_until_end(entry.lasts, &mut ending).await;
    }
    let healed = step(&world, entry, World::heal).await;
    world.recorder.record(What::Healed { number: entry.number });
    drop(turn);
    if let Err(failure) = begun.and(healed) {
        world.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
        world.end.send_replace(true);
    }
}

/// Sleeps, and says whether the run ended before that.
async fn sleep_until_end(span: Duration, ending: &mut watch::Receiver<bool>) -> bool {
    tokio::select! {
        () = tokio::time::sleep(span) => false,
        _ = ending.wait_for(|ends| *ends) => true,
    }
}

/// Does what may block where it may.
async fn step(
    world: &Arc<World>,
    entry: Entry,
    work: fn(&World, Entry) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let world = Arc::clone(world);
    let done = tokio::task::spawn_blocking(move || work(&world, entry)).await;
    done.unwrap_or_else(|panic| {
        Err(Failure::Rig(format!("{} at {} failed: {panic}", entry.fault.name(), entry.target())))
    })
}

impl World {
    fn begin(&self, entry: Entry) -> Result<(), Failure> {
        match (entry.target, entry.fault) {
            (Target::Server(server), Fault::Server(fault)) => {
                let planned = Planned { fault, server, chance: entry.chance };
                self.rig(entry, |rig| rig.begin(&planned))
            }
            (Target::Workers(workers), fault) => {
                workers.members().try_for_each(|worker| self.begin_on(worker, fault, entry.chance))
            }
            (Target::Server(_), _) => Ok(()),
        }
    }

    fn heal(&self, entry: Entry) -> Result<(), Failure> {
        match (entry.target, entry.fault) {
            (Target::Server(server), Fault::Server(fault)) => {
                let planned = Planned { fault, server, chance: entry.chance };
                self.rig(entry, |rig| rig.heal(&planned))
            }
            (Target::Workers(workers), fault) => {
                workers.members().try_for_each(|worker| self.heal_on(worker, fault, entry.chance))
            }
            (Target::Server(_), _) => Ok(()),
        }
    }

    fn rig(
        &self,
        entry: Entry,
        work: impl FnOnce(&mut dyn Rig) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let Some(rig) = &self.rig else { return Ok(()) };
        let mut rig = rig.lock().unwrap_or_else(PoisonError::into_inner);
        work(rig.as_mut()).map_err(|error| {
            Failure::Rig(format!("{} at {} failed: {error}", entry.fault.name(), entry.target()))
        })
    }

    fn begin_on(&self, number: u32, fault: Fault, chance: u64) -> Result<(), Failure> {
        let worker = &self.workers[number as usize];
        match fault {
            Fault::Kill => worker.kill()?,
            Fault::Pause => worker.pause()?,
            Fault::Clock => worker.step_clock(chance),
            link => {
                if let Some(way) = &worker.way {
                    way.begin(link, self.ttl, chance);
                }
            }
        }
        Ok(())
    }

    fn heal_on(&self, number: u32, fault: Fault, chance: u64) -> Result<(), Failure> {
        let worker = &self.workers[number as usize];
        match fault {
            Fault::Kill => {
                let generation = self.generations[number as usize].fetch_add(1, Ordering::Relaxed);
                worker.start(generation + 1)?;
            }
            Fault::Pause => worker.resume()?,
            Fault::Clock => worker.mend_clock(),
            link => {
                if let Some(way) = &worker.way {
                    way.heal(link, self.ttl, chance);
                }
            }
        }
        Ok(())
    }
}

/// Lets all workers end at once; what went wrong with any.
async fn end_all(workers: &[Arc<Worker>]) -> Result<Vec<String>, Failure> {
    let mut ending = JoinSet::new();
    for worker in workers {
        let worker = Arc::clone(worker);
        ending.spawn_blocking(move || worker.end());
    }
    let mut notes = Vec::new();
    while let Some(ended) = ending.join_next().await {
        notes.extend(ended.map_err(|error| io::Error::other(error.to_string()))??);
    }
    Ok(notes)
}
