//! Locks on etcd, beside a key by hand, the server's own lock and the least that passes a lock on:
//! with every write on disk and without.

mod command;
mod peer;
mod wire;

use std::time::Duration;

use anyhow::{Context as _, Result};
use lockfast_faults::etcd::{Etcd, Setup};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::contender::{Connection, Contender};
use crate::samples::{ROUNDS, Samples, on_runtime};
use crate::{cycle, handover, line};

pub(crate) use peer::{Session, Taker};

const TASKS: [usize; 2] = [1, 64];
const WAITERS: [usize; 2] = [1, 32];
const HOLD: Duration = Duration::from_millis(2);
const SPAN: Duration = Duration::from_secs(1);

/// How long the lines are that must be served alike.
const LINES: [usize; 2] = [10, 5_000];

const LEASES: usize = 10_000;
/// A lease of 30 s is renewed every 10 s, so within this twice.
const HOLD_SPAN: Duration = Duration::from_secs(20);

/// How many free locks are taken to count what they cost the cluster.
const COUNTED: usize = 500;

/// What the server counts: writes of the cluster's log, and streams that keep leases alive.
const WRITES: &str = "etcd_server_proposals_committed_total";
const STREAMS: &str = "grpc_server_started_total{grpc_method=\"LeaseKeepAlive\",\
     grpc_service=\"etcdserverpb.Lease\",grpc_type=\"bidi_stream\"}";

/// Measures everything, round by round; `lockfast` is the path of the command.
pub(crate) fn measure(lockfast: &str) -> Result<Value> {
    let mut samples = Samples::default();
    for _ in 0..ROUNDS {
        // A fresh server each time: what the last one has deleted stays in its history.
        for (name, server) in
            [("durable", Setup::new().durable().start()), ("quick", Etcd::start())]
        {
            let url = server.url();
            for tasks in TASKS {
                for peer in ["lockfast", "by-hand", "own-lease", "lock-rpc"] {
                    let name = format!("{name}.{peer}_{tasks}");
                    // Also one task runs on the runtime that `#[tokio::main]` gives.
                    let gone_round = on_runtime(TASKS[1], cycle(peer, &url, tasks));
                    samples.add_fields(&name, &gone_round.with_context(|| name.clone())?)?;
                }
            }
            for waiters in WAITERS {
                for (peer, is_shared) in
                    [("lockfast", true), ("probe", true), ("lockfast", false), ("lock-rpc", false)]
                {
                    let who = if is_shared { "shared" } else { "apart" };
                    let name = format!("{name}.{peer}_{who}_{waiters}");
                    let passed = on_runtime(waiters + 1, pass(peer, &url, waiters, is_shared));
                    samples.add_fields(&name, &passed.with_context(|| name.clone())?)?;
                }
            }
            command::measure(&mut samples, name, lockfast, &server.address().to_string())?;
        }
        let server = Etcd::start();
        for peer in ["lockfast", "by-hand", "own-lease", "lock-rpc"] {
            let writes = on_runtime(TASKS[1], count_writes(peer, &server))?;
            samples.add(&format!("quick.{peer}.writes"), writes);
        }
        for line in LINES {
            let name = format!("quick.line_{line}");
            let served = on_runtime(line, line::serve(&server.url(), line));
            samples.add_fields(&name, &served.with_context(|| name.clone())?)?;
        }
    }
    hold_many(&mut samples)?;
    Ok(samples.into_value())
}

/// Lets so many tasks take and give back locks of their own.
async fn cycle(peer: &str, url: &str, tasks: usize) -> Result<Value> {
    let connection = Connection::open(peer, url, 1).await?;
    cycle::measure(connection.contenders(tasks)?, SPAN).await
}

/// Passes one lock around between so many waiters and one holder.
async fn pass(peer: &str, url: &str, waiters: usize, is_shared: bool) -> Result<Value> {
    let contenders = if is_shared {
        let connection = Connection::open(peer, url, 1).await?;
        let contender = |_| connection.contender("lock:shared".to_owned());
        (0..=waiters).map(contender).collect::<Result<_>>()?
    } else {
        Contender::each_with_a_connection(peer, url, waiters + 1).await?
    };
    handover::measure(contenders, Some(HOLD), SPAN).await
}

/// How many writes of the cluster's log a free lock costs, once there is a lease.
async fn count_writes(peer: &str, server: &Etcd) -> Result<f64> {
    let connection = Connection::open(peer, &server.url(), 1).await?;
    let mut contender = connection.contender(format!("counted-{peer}"))?;
    contender.acquire().await?;
    contender.release().await?;
    let before = metric(server, WRITES)?;
    for _ in 0..COUNTED {
        contender.acquire().await?;
        contender.release().await?;
    }
    Ok((metric(server, WRITES)? - before) / COUNTED as f64)
}

fn metric(server: &Etcd, name: &str) -> Result<f64> {
    server.metric(name).with_context(|| format!("the server does not count {name}"))
}

/// Holds many locks at once, and sees what that costs this process.
fn hold_many(samples: &mut Samples) -> Result<()> {
    let server = Etcd::start();
    on_runtime(LEASES, async {
        let connection = Connection::open("lockfast", &server.url(), 1).await?;
        let mut taking = JoinSet::new();
        for mut contender in connection.contenders(LEASES)? {
            taking.spawn(async move { contender.acquire().await.map(|_| contender) });
        }
        let mut held = Vec::new();
        while let Some(contender) = taking.join_next().await {
            held.push(contender??);
        }
        let before = cpu_seconds()?;
        tokio::time::sleep(HOLD_SPAN).await;
        let used = cpu_seconds()? - before;
        samples.add("hold.core_percent", used / HOLD_SPAN.as_secs_f64() * 100.0);
        samples.add("hold.streams", metric(&server, STREAMS)?);
        for contender in &mut held {
            contender.release().await?;
        }
        Ok(())
    })
}

/// The CPU time that this process has used.
fn cpu_seconds() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit_once(") ").context("no name")?.1.split(' ').collect();
    let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
    // The kernel counts in hundredths for programs, whatever it does itself.
    Ok(ticks / 100.0)
}
