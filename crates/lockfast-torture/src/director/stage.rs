//! What a run needs before it begins: the store, what it can do, and the fleet.

use std::io;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockfast::{ErrorKind, Locker, Mode, Moment};
use lockfast_core::capability::{Order, Reach};
use lockfast_core::{Address, ClientId};
use lockfast_faults::clock::Clock;
use tokio::sync::watch;

use super::fleet::Worker;
use super::{Failure, Options, Store, World};
use crate::fault::Fault;
use crate::history::{FORMAT, What};
use crate::recorder::Recorder;
use crate::rig::{Rig, RigOptions};
use crate::route::{Route, Way};
use crate::schedule::Terms;
use crate::worker::{Script, Target, Use};

/// How many lines all workers together record in a second.
const LINES_PER_SECOND: u32 = 2000;

/// How many hold the lock with permits at a time.
const PERMITS: u32 = 3;

/// How long a store may take to show what it can do.
const PROBE_TIME_MAX: Duration = Duration::from_secs(20);

/// How many locks are mostly free.
const QUIET: u32 = 6;

/// What a run needs.
pub(super) struct Stage {
    rig: Option<Arc<Mutex<Box<dyn Rig>>>>,
    url: String,
    /// A connection of the director's own, which no fault of a worker touches.
    pub(super) locker: Locker,
    /// What the names of all locks of this run start with, and no other's.
    pub(super) prefix: String,
    targets: Vec<Target>,
    pub(super) recorder: Arc<Recorder>,
}

impl Stage {
    /// Connects to the store, and finds out what it can do. Nothing is left in it.
    pub(super) async fn set(options: &Options) -> Result<Self, Failure> {
        let rig = match options.store {
            Store::Rig(row) => {
                let directory = options.directory.join("servers");
                std::fs::create_dir(&directory)?;
                let Terms { ttl, faults, .. } = &options.terms;
                let clock = faults.iter().any(|fault| fault.steps_clock_of_server());
                let options = RigOptions { directory, ttl: *ttl, clock };
                let start = move || (row.start)(&options);
                let started = tokio::task::spawn_blocking(start).await;
                let started = started.unwrap_or_else(|panic| Err(io::Error::other(panic)));
                let refusal = |error| Failure::Rig(format!("{} does not start: {error}", row.name));
                Some(Arc::new(Mutex::new(started.map_err(refusal)?)))
            }
            Store::Url(_) => None,
        };
        let url = match (&options.store, &rig) {
            (Store::Url(url), _) => url.clone(),
            (_, Some(rig)) => rig.lock().unwrap_or_else(PoisonError::into_inner).url(),
            (Store::Rig(_), None) => String::new(),
        };
        let choices = lockfast::Options::default().ttl(options.terms.ttl);
        let locker = Locker::builder().options(choices).connect(&url).await?;
        if locker.profile().reach == Reach::Process {
            return Err(Failure::Unsuitable(format!(
                "{} reaches one process only, and the fleet has several; use embedded: instead",
                Address::parse(&url)?
            )));
        }
        let nonce = ClientId::random()?
            .as_bytes()
            .iter()
            .take(3)
            .fold(0, |number, byte| number << 8 | u32::from(*byte));
        let prefix = format!("torture-{}-{nonce:06x}-", options.terms.seed);
        let targets = targets(&locker, &prefix).await?;
        let recorder = Arc::new(Recorder::open(&options.directory, "director.jsonl", None)?);
        Ok(Self { rig, url, locker, prefix, targets, recorder })
    }

    /// Starts the fleet: the run begins.
    pub(super) async fn world(&self, options: &Options, planned: u32) -> Result<World, Failure> {
        let profile = self.locker.profile();
        self.recorder.record(What::Start {
            format: FORMAT,
            seed: options.terms.seed,
            store: Address::parse(&self.url)?.to_string(),
            guarantee: profile.guarantee.to_string(),
            fair: profile.order == Order::Fifo,
            ttl: nanos(options.terms.ttl),
            lasts: nanos(options.terms.lasts),
            processes: options.terms.processes,
            tasks: options.tasks,
            locks: self.targets.iter().map(|target| target.name.clone()).collect(),
        });
        let mut workers = Vec::new();
        for number in 0..options.terms.processes {
            let worker = Arc::new(self.worker(options, number).await?);
            worker.start(0)?;
            workers.push(worker);
        }
        let generations = workers.iter().map(|_| AtomicU32::new(0)).collect();
        Ok(World {
            recorder: Arc::clone(&self.recorder),
            workers,
            generations,
            rig: self.rig.clone(),
            server: tokio::sync::Mutex::new(()),
            ttl: options.terms.ttl,
            start: Moment::now(),
            begun: AtomicU32::new(0),
            planned,
            failure: Mutex::new(None),
            end: watch::Sender::new(false),
        })
    }

    async fn worker(&self, options: &Options, number: u32) -> Result<Worker, Failure> {
        let faults = &options.terms.faults;
        let way = match Route::of(&self.url) {
            Ok(route) if faults.iter().any(|fault| fault.is_of_link()) => {
                Some(Way::open(&route).await?)
            }
            _ => None,
        };
        let clock = if faults.contains(&Fault::Clock) {
            let directory = options.directory.join(format!("clock-{number}"));
            std::fs::create_dir(&directory)?;
            let made = tokio::task::spawn_blocking(move || Clock::new(&directory)).await;
            Some(made.map_err(io::Error::other)?)
        } else {
            None
        };
        let script = Script {
            worker: number,
            generation: 0,
            seed: options.terms.seed,
            url: way.as_ref().map_or(self.url.as_str(), Way::url).to_owned(),
            directory: std::path::absolute(&options.directory)?,
            ttl: nanos(options.terms.ttl),
            tasks: options.tasks,
            lines_per_second: (LINES_PER_SECOND / options.terms.processes.max(1)).max(1),
            targets: self.targets.clone(),
        };
        Ok(Worker::new(script, way, clock, Arc::clone(&self.recorder)))
    }
}

/// The locks that the fleet wants: in every mode that the store has.
async fn targets(locker: &Locker, prefix: &str) -> Result<Vec<Target>, Failure> {
    let mut uses = vec![("a", Use::Exclusive), ("b", Use::Exclusive)];
    if has_mode(locker, &format!("{prefix}probe-shared"), Mode::Shared).await? {
        uses.push(("readers", Use::ReadWrite));
    }
    if has_mode(locker, &format!("{prefix}probe-permits"), Mode::permit(PERMITS)?).await? {
        uses.push(("permits", Use::Permits(PERMITS)));
    }
    let target = |name: &str, used, quiet| Target { name: format!("{prefix}{name}"), used, quiet };
    let busy = uses.into_iter().map(|(name, used)| target(name, used, false));
    let quiet = (1..=QUIET).map(|number| target(&format!("quiet-{number}"), Use::Exclusive, true));
    Ok(busy.chain(quiet).collect())
}

/// Whether a store has a mode: then it grants a lock in it that nobody else wants. Whoever waits also
/// waits for a store that cannot serve for a moment, as one whose replica has just been started.
async fn has_mode(locker: &Locker, name: &str, mode: Mode) -> Result<bool, Failure> {
    if locker.profile().require_mode(mode).is_err() {
        return Ok(false);
    }
    let lock = locker
        .any_lock(name, mode)?
        .with_options(lockfast::Options::default().wait(PROBE_TIME_MAX));
    match lock.acquire().await {
        Ok(guard) => {
            guard.release().await?;
            Ok(true)
        }
        Err(error) if error.kind() == ErrorKind::Taken => Ok(true),
        Err(error) => Err(error.into()),
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
