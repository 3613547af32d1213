//! Locks on a ZooKeeper server, beside the recipe of zookeeper-client, Curator and kazoo. All run as
//! most people run them: on several threads.

use std::future::Future;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use lockfast_faults::zookeeper::{Setup, ZooKeeper, java};
use serde_json::Value;
use tokio::runtime::Builder;

use crate::contender::{Connection, Contender};
use crate::samples::{ROUNDS, Samples};
use crate::{cycle, handover, line};

const TASKS: [usize; 2] = [1, 64];
const WAITERS: [usize; 3] = [1, 8, 32];
/// A hand-over costs the same however many wait.
const CROWDS: [usize; 2] = [10, 5000];
const HOLD: Duration = Duration::from_millis(2);
const SPAN: Duration = Duration::from_secs(1);
const LEASES: usize = 10_000;
/// A lease of 30 s is renewed every 10 s, so within this twice.
const RENEW_SPAN: Duration = Duration::from_secs(20);
/// Of the program with Curator's locks.
const MEGABYTES: u32 = 256;

/// Those in Rust: ours, zookeeper-client's lock when its deletion is waited for, and as it is.
const IN_RUST: [&str; 3] = ["lockfast", "zookeeper-client", "zookeeper-client-background"];
const IN_OTHERS: [&str; 2] = ["curator", "kazoo"];

/// Runs a measurement on the runtime that `#[tokio::main]` gives here.
fn on_threads<T>(measurement: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let result = runtime.block_on(measurement);
    // What a library left running need not be waited for.
    runtime.shutdown_background();
    result
}

/// Programs in other languages.
pub(crate) struct Programs<'a> {
    /// A Python that has kazoo, and the program for it.
    pub(crate) python: &'a str,
    pub(crate) script: &'a str,
    /// Where the program with Curator's locks was compiled.
    pub(crate) classes: &'a str,
}

impl Programs<'_> {
    /// Runs one measurement.
    fn run(&self, peer: &str, server: &ZooKeeper, asked: &[&str]) -> Result<Value> {
        let mut command = match peer {
            "kazoo" => {
                let mut command = Command::new(self.python);
                command.args([self.script, asked[0], peer]);
                command
            }
            _ => {
                let mut command = java::command(MEGABYTES, true);
                let archives = [java::SERVER, java::CURATOR].concat();
                let path = java::class_path(&archives, Some(self.classes));
                command.args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", &path]);
                command.args(["CuratorPeer", asked[0]]);
                command
            }
        };
        command.arg(server.address().to_string()).args(&asked[1..]);
        command.arg(SPAN.as_secs_f64().to_string());
        let output = command.output().with_context(|| format!("{command:?} does not start"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{command:?} failed: {said}");
        serde_json::from_slice(&output.stdout).with_context(|| format!("{command:?}: {said}"))
    }
}

/// Measures everything, round by round.
pub(crate) fn measure(programs: &Programs<'_>) -> Result<Value> {
    let (durable, quick) = (start(true), start(false));
    let mut samples = Samples::default();
    for _ in 0..ROUNDS {
        for tasks in TASKS {
            cycles("durable", &durable, tasks, &mut samples)?;
            cycles("quick", &quick, tasks, &mut samples)?;
            for peer in IN_OTHERS {
                let result = programs.run(peer, &durable, &["cycle", &tasks.to_string()])?;
                samples.add_fields(&format!("durable.{peer}_{tasks}"), &result)?;
            }
        }
        for waiters in WAITERS {
            hand_over(&durable, programs, waiters, &mut samples)?;
        }
        crowd(&quick, &mut samples)?;
    }
    hold(&quick, &mut samples)?;
    Ok(samples.into_value())
}

/// A server that is not in the way: with time to compile itself, and memory.
fn start(is_durable: bool) -> ZooKeeper {
    let setup = Setup::new().optimized().line("maxSessionTimeout=60000");
    if is_durable { setup.durable() } else { setup }.start()
}

/// Takes and gives back locks that nobody else wants.
fn cycles(disk: &str, server: &ZooKeeper, tasks: usize, samples: &mut Samples) -> Result<()> {
    for peer in IN_RUST {
        let result = on_threads(async {
            let connection = Connection::open(peer, &server.url(), 1).await?;
            cycle::measure(connection.contenders(tasks)?, SPAN).await
        });
        let name = format!("{disk}.{peer}_{tasks}");
        samples.add_fields(&name, &result.with_context(|| name.clone())?)?;
    }
    Ok(())
}

/// Passes a lock around between so many, each with a connection of its own.
fn hand_over(
    server: &ZooKeeper,
    programs: &Programs<'_>,
    waiters: usize,
    samples: &mut Samples,
) -> Result<()> {
    for peer in ["lockfast", "zookeeper-client"] {
        let result = on_threads(async {
            let all = Contender::each_with_a_connection(peer, &server.url(), waiters + 1).await?;
            handover::measure(all, Some(HOLD), SPAN).await
        });
        let name = format!("held.{peer}_{waiters}");
        samples.add_fields(&name, &result.with_context(|| name.clone())?)?;
    }
    for peer in IN_OTHERS {
        let result = programs.run(peer, server, &["handover", &waiters.to_string(), "held"])?;
        samples.add_fields(&format!("held.{peer}_{waiters}"), &result)?;
    }
    Ok(())
}

/// Serves lines of one process in which all wait before the first has its turn.
fn crowd(server: &ZooKeeper, samples: &mut Samples) -> Result<()> {
    for waiters in CROWDS {
        let name = format!("crowd_{waiters}");
        let served = on_threads(line::serve(&server.url(), waiters));
        samples.add_fields(&name, &served.with_context(|| name.clone())?)?;
    }
    Ok(())
}

/// Holds many locks at once, and tells what that costs.
fn hold(server: &ZooKeeper, samples: &mut Samples) -> Result<()> {
    on_threads(async {
        let before = server.count("zk_num_alive_connections");
        let connection = Connection::open("lockfast", &server.url(), 1).await?;
        let mut held = Vec::new();
        let mut free = connection.contenders(LEASES)?;
        while !free.is_empty() {
            let some = free.split_off(free.len().saturating_sub(TASKS[1]));
            let taking = some.into_iter().map(|mut contender| {
                tokio::spawn(async move {
                    ensure!(contender.acquire().await?, "a free lock was not to be had");
                    anyhow::Ok(contender)
                })
            });
            for taken in taking.collect::<Vec<_>>() {
                held.push(taken.await??);
            }
        }
        let (asked, used) = (server.count("zk_packets_received"), processor_time()?);
        tokio::time::sleep(RENEW_SPAN).await;
        let used = processor_time()?.saturating_sub(used);
        let asked = server.count("zk_packets_received") - asked;
        samples.add("hold.core_percent", used.as_secs_f64() / RENEW_SPAN.as_secs_f64() * 100.0);
        samples.add("hold.requests_per_s", asked as f64 / RENEW_SPAN.as_secs_f64());
        let connections = server.count("zk_num_alive_connections").saturating_sub(before);
        samples.add("hold.connections", connections as f64);
        Ok(())
    })
}

/// What this process has used of the processors so far.
fn processor_time() -> Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The name of the program may hold anything, but ends with the last parenthesis.
    let (_, fields) = stat.rsplit_once(") ").context("no fields")?;
    let mut ticks = fields.split(' ').skip(11).take(2);
    let mut next = || anyhow::Ok(ticks.next().context("a field is missing")?.parse::<u64>()?);
    // Linux counts in hundredths of a second here.
    Ok(Duration::from_millis((next()? + next()?) * 10))
}
