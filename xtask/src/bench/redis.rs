//! Locks on a Redis server, against other libraries on the same server and against probes that do
//! nothing but what a lock cannot do without.

use std::fmt::Write as _;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::peer::{self, Peer};
use super::sample::Sample;
use super::server::Server;
use super::{build_lockfast, lockfast_on, lockfast_path, number, ratio, thousands};
use crate::step::timed;

const ROUNDS: usize = 5;
const SECONDS: &str = "1";
const CORE: &str = "0";
const WAITERS: [usize; 3] = [1, 8, 32];
const IDLE_WAITERS: usize = 8;
const IDLE_SPAN: Duration = Duration::from_secs(10);
const LEASES: usize = 10_000;
const RENEW_SPAN: Duration = Duration::from_secs(20);
/// Nearly as many as the server's tables then have room for, or the empty room would count.
const LOCKS: usize = 32_000;

/// Measures everything; the text between this section's marks.
pub(super) fn run() -> Result<String> {
    build_lockfast()?;
    peer::install()?;
    let server = Server::start(None)?;
    let on_one_core = Server::start(Some(CORE))?;
    let mut text = String::new();
    timed("free locks", || cycles(&server, &on_one_core, &mut text))?;
    drop(on_one_core);
    timed("hand-over", || handovers(&server, &mut text))?;
    timed("costs", || costs(&server, &mut text))?;
    Ok(text)
}

/// One row of the table of free locks.
struct CycleCase {
    title: &'static str,
    tasks: u32,
    core: Option<&'static str>,
    target: &'static str,
}

const CYCLE_CASES: [CycleCase; 3] = [
    CycleCase { title: "1 task, one core", tasks: 1, core: Some(CORE), target: "≥ 0.95" },
    CycleCase { title: "1 task", tasks: 1, core: None, target: "–" },
    CycleCase { title: "64 tasks", tasks: 64, core: None, target: "≥ 1.4" },
];

fn cycles(server: &Server, on_one_core: &Server, text: &mut String) -> Result<()> {
    const PEERS: [Peer; 3] = [Peer::Rslock, Peer::RslockCurrent, Peer::Bare];
    let mut ours: [Sample; 3] = Default::default();
    let mut theirs: [[Sample; 3]; 3] = Default::default();
    for _ in 0..ROUNDS {
        for (row, case) in CYCLE_CASES.iter().enumerate() {
            let server = if case.core.is_some() { on_one_core } else { server };
            let (port, tasks) = (server.port(), case.tasks.to_string());
            server.clear()?;
            let words = ["bench", "cycle", "--tasks", &tasks, "--seconds", SECONDS];
            let result = lockfast_on(case.core, &server.url(), &words)?;
            ours[row].add(number(&result, "cycles_per_s")?);
            for (column, peer) in PEERS.iter().enumerate() {
                server.clear()?;
                let result = peer.measure(case.core, &["cycle", &port, &tasks, SECONDS])?;
                theirs[row][column].add(number(&result, "cycles_per_s")?);
            }
        }
    }
    text.push_str(
        "Free locks, cycles a second:\n\n\
         | case | Lockfast, with fence | rslock, without | ratio | target | rslock on a \
         current-thread runtime | ratio | bare socket |\n|---|---|---|---|---|---|---|---|\n",
    );
    for (row, case) in CYCLE_CASES.iter().enumerate() {
        let [rslock, current, bare] = &theirs[row];
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            case.title,
            thousands(ours[row].median()),
            thousands(rslock.median()),
            ratio(&ours[row].over(rslock)),
            case.target,
            thousands(current.median()),
            ratio(&ours[row].over(current)),
            thousands(bare.median()),
        );
    }
    Ok(())
}

const HANDOVER_PEERS: [Peer; 6] = [
    Peer::Lockfast,
    Peer::Probe,
    Peer::PythonRedisLock,
    Peer::Rslock,
    Peer::RedisPy,
    Peer::NodeRedlock,
];

/// What was measured of one peer and one number of waiters.
#[derive(Default)]
struct Handover {
    held_p50: Sample,
    held_p99: Sample,
    greedy_p50: Sample,
    rate: Sample,
    script_calls: Sample,
    most_over_least: Sample,
}

fn handovers(server: &Server, text: &mut String) -> Result<()> {
    let mut found: [[Handover; 6]; 3] = Default::default();
    for _ in 0..ROUNDS {
        for (row, waiters) in WAITERS.iter().enumerate() {
            for (column, peer) in HANDOVER_PEERS.iter().enumerate() {
                hand_over(server, *peer, *waiters, &mut found[row][column])?;
            }
        }
    }
    write_held(&found, text);
    write_greedy(&found, text);
    Ok(())
}

fn hand_over(server: &Server, peer: Peer, waiters: usize, found: &mut Handover) -> Result<()> {
    let (port, waiters) = (server.port(), waiters.to_string());
    server.clear()?;
    let held = peer.measure(None, &["handover", &port, &waiters, "held", SECONDS])?;
    found.held_p50.add(number(&held, "p50_us")? / 1000.0);
    found.held_p99.add(number(&held, "p99_us")? / 1000.0);
    server.clear()?;
    let greedy = peer.measure(None, &["handover", &port, &waiters, "greedy", SECONDS])?;
    found.greedy_p50.add(number(&greedy, "p50_us")? / 1000.0);
    found.rate.add(number(&greedy, "handovers_per_s")?);
    found.most_over_least.add(number(&greedy, "most_over_least")?);
    found.script_calls.add(server.calls("evalsha")? / number(&greedy, "acquired")?);
    Ok(())
}

fn write_held(found: &[[Handover; 6]; 3], text: &mut String) {
    text.push_str(
        "\nHand-over of a lock that is held for 2 ms, p50 / p99 in ms:\n\n\
         | waiters | Lockfast | probe | p50 ratio, target ≤ 1.5 | python-redis-lock | rslock | \
         redis-py | node-redlock |\n|---|---|---|---|---|---|---|---|\n",
    );
    for (waiters, row) in WAITERS.iter().zip(found) {
        let [ours, probe, others @ ..] = row;
        let _ = write!(text, "| {waiters} | {} | {} ", shown(ours), shown(probe));
        let _ = write!(text, "| {} |", ratio(&ours.held_p50.over(&probe.held_p50)));
        for other in others {
            let _ = write!(text, " {} |", shown(other));
        }
        text.push('\n');
    }
}

fn shown(handover: &Handover) -> String {
    format!("{} / {}", millis(handover.held_p50.median()), millis(handover.held_p99.median()))
}

fn write_greedy(found: &[[Handover; 6]; 3], text: &mut String) {
    text.push_str(
        "\nThe same lock passed on at once, by contenders that come back at once:\n\n\
         | waiters | hand-overs/s: Lockfast | probe | p50 ratio | script calls each, target ≤ 2 | \
         most/least: Lockfast, target ≤ 1.05 | probe | python-redis-lock | rslock | redis-py | \
         node-redlock |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for (waiters, row) in WAITERS.iter().zip(found) {
        let [ours, probe, ..] = row;
        let _ = write!(
            text,
            "| {waiters} | {} | {} | {} | {:.2} |",
            thousands(ours.rate.median()),
            thousands(probe.rate.median()),
            ratio(&ours.greedy_p50.over(&probe.greedy_p50)),
            ours.script_calls.median(),
        );
        for handover in row {
            let _ = write!(text, " {:.2} |", handover.most_over_least.median());
        }
        text.push('\n');
    }
}

fn costs(server: &Server, text: &mut String) -> Result<()> {
    text.push_str(
        "\nWhat locks cost the server:\n\n| what | Lockfast | against | target |\n|---|---|---|---|\n",
    );
    let (ours, rslock) = (idle(server, Peer::Lockfast)?, idle(server, Peer::Rslock)?);
    let _ = writeln!(
        text,
        "| commands a second of a waiter | {ours:.2} | rslock: {rslock:.1} | ≤ 0.2 |"
    );
    let renewal = renew(server)?;
    let _ = writeln!(
        text,
        "| 10 000 renewals, round trips | {:.0} | a script for 100 keys: 100 | ≤ 100 |\n\
         | 10 000 renewals, server CPU | {:.0} ms | a script for 100 keys: {:.0} ms | {:.2} ×, \
         target ≤ 2 × |",
        renewal.round_trips,
        renewal.cpu_ms,
        renewal.by_hand_ms,
        renewal.cpu_ms / renewal.by_hand_ms,
    );
    let (ours, bare) = (memory(server, Peer::Lockfast)?, memory(server, Peer::Bare)?);
    let _ = writeln!(
        text,
        "| memory of a held lock | {ours:.0} bytes | `SET NX PX`, without fence and label: \
         {bare:.0} bytes | ≤ 190 |"
    );
    Ok(())
}

/// Commands a second that one waiter sends while the lock stays taken.
fn idle(server: &Server, peer: Peer) -> Result<f64> {
    server.clear()?;
    let _waiters = peer.stay("wait", &server.port(), IDLE_WAITERS)?;
    let commands = server.client_commands(IDLE_SPAN)?;
    Ok(commands as f64 / IDLE_WAITERS as f64 / IDLE_SPAN.as_secs_f64())
}

/// Bytes that one held lock takes.
fn memory(server: &Server, peer: Peer) -> Result<f64> {
    server.clear()?;
    let before = server.memory()?;
    let _holders = peer.stay("hold", &server.port(), LOCKS)?;
    Ok((server.memory()? - before) / LOCKS as f64)
}

/// What 10 000 renewals cost.
struct Renewal {
    round_trips: f64,
    cpu_ms: f64,
    by_hand_ms: f64,
}

fn renew(server: &Server) -> Result<Renewal> {
    let mut by_hand = Sample::default();
    for _ in 0..ROUNDS {
        server.clear()?;
        by_hand.add(peer::renew_by_hand(&server.port(), LEASES, 3)?);
    }
    let idle_cpu = idle_cpu(server)?;
    server.clear()?;
    let (leases, seconds) = (LEASES.to_string(), (RENEW_SPAN.as_secs() + 5).to_string());
    let words = ["bench", "renew", "--leases", &leases, "--seconds", &seconds];
    let mut command = Command::new(lockfast_path()?);
    command.args(["--on", &server.url(), "--json"]).args(words).stdout(Stdio::null());
    let mut running = command.spawn().context("lockfast cannot be started")?;
    wait_for_keys(server)?;
    let (calls, renewals, cpu) =
        (server.calls("evalsha")?, server.calls("pexpire")?, server.cpu()?);
    sleep(RENEW_SPAN);
    let renewals = server.calls("pexpire")? - renewals;
    let calls = server.calls("evalsha")? - calls;
    let cpu = server.cpu()? - cpu - idle_cpu * RENEW_SPAN.as_secs_f64();
    if !running.wait()?.success() {
        bail!("lockfast bench renew failed");
    }
    let scale = 1e4 / renewals;
    Ok(Renewal {
        round_trips: calls * scale,
        cpu_ms: cpu * 1000.0 * scale,
        by_hand_ms: by_hand.median(),
    })
}

/// The part of a core that the server uses while it only has those locks.
fn idle_cpu(server: &Server) -> Result<f64> {
    const SPAN: Duration = Duration::from_secs(5);
    server.clear()?;
    let _holders = Peer::Bare.stay("hold", &server.port(), LEASES)?;
    let before = server.cpu()?;
    sleep(SPAN);
    Ok((server.cpu()? - before) / SPAN.as_secs_f64())
}

fn wait_for_keys(server: &Server) -> Result<()> {
    for _ in 0..1000 {
        if server.keys()? >= LEASES as f64 {
            return Ok(());
        }
        sleep(Duration::from_millis(20));
    }
    bail!("{LEASES} leases were not taken within 20 s")
}

fn millis(number: f64) -> String {
    if number < 10.0 { format!("{number:.2}") } else { format!("{number:.0}") }
}
