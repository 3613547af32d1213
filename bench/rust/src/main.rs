//! What others make of the same servers, and what the servers themselves can do at best.
//!
//! ```text
//! peers cycle PEER PORT TASKS SECONDS             take and give back free locks
//! peers handover PEER PORT WAITERS HOW SECONDS    pass one lock around; HOW is held or greedy
//! peers line PORT WAITERS                         serve a line of our waiters of one process
//! peers wait PEER PORT WAITERS                    wait for one lock that stays taken
//! peers hold PEER PORT LOCKS                      hold so many locks
//! peers renew PORT LEASES ROUNDS                  renew by a script for 100 keys
//! peers redlock | postgres | mysql                everything about that store, on servers of its own
//! peers etcd LOCKFAST                             the same, also with the command at that path
//! peers zookeeper PYTHON SCRIPT CLASSES           the same, with kazoo by a Python that has it and with
//!                                                 Curator by a program that was compiled there
//! ```
//!
//! A PEER whose name ends in `-current` goes round on a current-thread runtime.
//! PORT is that of a Redis server; the URL of any store can stand in its place. Each prints one line
//! of JSON. `wait` and `hold` then stay as they are until their input ends.

mod bare;
mod by_hand;
mod contender;
mod cycle;
mod database;
mod etcd;
mod handover;
mod line;
mod probe;
mod recipe;
mod redlock;
mod samples;
mod zookeeper;

use std::io::Read as _;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use contender::{Connection, Contender};
use zookeeper::Programs;

/// How the name of a peer ends that is to run on a current-thread runtime.
const CURRENT: &str = "-current";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["cycle", "bare", port, tasks, seconds] => {
            bare::cycle(number(port)?, number(tasks)?, span(seconds)?)?
        }
        ["renew", port, leases, rounds] => {
            bare::renew(number(port)?, number(leases)?, number(rounds)?)?
        }
        ["redlock"] => redlock::measure()?,
        ["etcd", lockfast] => etcd::measure(lockfast)?,
        [kind @ ("postgres" | "mysql")] => database::measure(kind)?,
        ["zookeeper", python, script, classes] => {
            zookeeper::measure(&Programs { python, script, classes })?
        }
        ["hold", "bare", port, locks] => bare::hold(number(port)?, number(locks)?)?,
        // Not as most people run a library, but on the runtime that suits one task best.
        ["cycle", peer, port, tasks, seconds] if peer.ends_with(CURRENT) => {
            let peer = peer.trim_end_matches(CURRENT);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(run(&["cycle", peer, port, tasks, seconds]))?
        }
        _ => {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(2).enable_all().build()?.block_on(run(&words))?
        }
    };
    println!("{result}");
    // Connections and threads of libraries need not be ended one by one.
    std::process::exit(0)
}

async fn run(words: &[&str]) -> Result<Value> {
    match *words {
        ["cycle", peer, port, tasks, seconds] => {
            let tasks: usize = number(tasks)?;
            let sessions = tasks.min(database::SESSIONS);
            let connection = Connection::open(peer, &store(port), sessions).await?;
            cycle::measure(connection.contenders(tasks)?, span(seconds)?).await
        }
        ["handover", peer, port, waiters, how, seconds] => {
            let hold = match how {
                "held" => Some(Duration::from_millis(2)),
                "greedy" => None,
                _ => bail!("a lock is passed around held or greedy, not {how}"),
            };
            // One has it, so many wait.
            let count = number::<usize>(waiters)? + 1;
            let contenders = Contender::each_with_a_connection(peer, &store(port), count).await?;
            handover::measure(contenders, hold, span(seconds)?).await
        }
        ["line", port, waiters] => line::serve(&store(port), number(waiters)?).await,
        ["wait", peer, port, waiters] => wait(peer, &store(port), number(waiters)?).await,
        ["hold", peer, port, locks] => hold(peer, &store(port), number(locks)?).await,
        _ => bail!("see the head of main.rs for what can be asked"),
    }
}

fn store(port_or_url: &str) -> String {
    match port_or_url.parse::<u16>() {
        Ok(port) => format!("redis://127.0.0.1:{port}"),
        Err(_) => port_or_url.to_owned(),
    }
}

async fn wait(peer: &str, url: &str, waiters: usize) -> Result<Value> {
    let mut all = Contender::each_with_a_connection(peer, url, waiters + 1).await?;
    let mut first = all.pop().context("nobody to hold it")?;
    first.acquire_for_long().await?;
    for mut contender in all {
        tokio::spawn(async move { while !contender.acquire().await.unwrap_or(true) {} });
    }
    // Until all have asked and been told to wait.
    tokio::time::sleep(Duration::from_secs(2)).await;
    stay()?;
    Ok(json!({}))
}

async fn hold(peer: &str, url: &str, locks: usize) -> Result<Value> {
    let mut all = Connection::open(peer, url, 1).await?.contenders(locks)?;
    for contender in &mut all {
        contender.acquire().await?;
    }
    stay()?;
    Ok(json!({}))
}

/// Says that all is as it was asked for, and keeps it until the input ends.
fn stay() -> Result<()> {
    println!("{}", json!({ "ready": true }));
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T> {
    text.parse().ok().with_context(|| format!("{text:?} is not a number that fits"))
}

fn span(seconds: &str) -> Result<Duration> {
    Ok(Duration::from_secs_f64(number(seconds)?))
}

/// Measured times, sorted.
struct Latencies(Vec<u64>);

impl Latencies {
    fn new(mut nanos: Vec<u64>) -> Self {
        nanos.sort_unstable();
        Self(nanos)
    }

    /// In microseconds.
    fn percentile(&self, percent: usize) -> f64 {
        let at = (self.0.len() * percent / 100).min(self.0.len().saturating_sub(1));
        self.0.get(at).map_or(0.0, |nanos| *nanos as f64 / 1000.0)
    }
}
