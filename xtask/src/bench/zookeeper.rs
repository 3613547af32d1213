//! Locks on ZooKeeper, against the locks of zookeeper-client, Curator and kazoo on the same server.

use std::fmt::Write as _;

use anyhow::Result;

use super::peer::{Samples, measure_zookeeper};
use super::{ratio, thousands};

/// The others, what they are called on the page, and what is aimed at against them.
const CYCLES: &[(&str, &str, &str)] = &[
    ("zookeeper-client", "zookeeper-client, its deletion waited for", "≥ 1.0"),
    ("zookeeper-client-background", "zookeeper-client as it is", "≥ 1.0"),
    ("curator", "Curator", "≥ 1.3"),
    ("kazoo", "kazoo", "≥ 1.3"),
];
const HANDOVERS: &[(&str, &str, &str)] = &[
    ("zookeeper-client", "zookeeper-client", "≥ 1.0"),
    ("curator", "Curator", "≥ 1.3"),
    ("kazoo", "kazoo", "≥ 1.3"),
];

/// Measures everything; the text between this section's marks.
pub(super) fn run() -> Result<String> {
    let samples = measure_zookeeper()?;
    let mut text = String::new();
    cycles(&samples, &mut text)?;
    handovers(&samples, &mut text)?;
    costs(&samples, &mut text)?;
    Ok(text)
}

fn cycles(samples: &Samples, text: &mut String) -> Result<()> {
    text.push_str(
        "Free locks, cycles a second:\n\n| case | Lockfast | other | ratio | target |\n\
         |---|---|---|---|---|\n",
    );
    for (title, server, tasks, others) in [
        ("1 task, every change on disk", "durable", 1, CYCLES),
        ("64 tasks, every change on disk", "durable", 64, CYCLES),
        ("1 task, no disk", "quick", 1, &CYCLES[..2]),
        ("64 tasks, no disk", "quick", 64, &CYCLES[..2]),
    ] {
        let ours = samples.get(&format!("{server}.lockfast_{tasks}.cycles_per_s"))?;
        for (peer, name, target) in others {
            let theirs = samples.get(&format!("{server}.{peer}_{tasks}.cycles_per_s"))?;
            let _ = writeln!(
                text,
                "| {title} | {} | {name}: {} | {} | {target} |",
                thousands(ours.median()),
                thousands(theirs.median()),
                ratio(&ours.over(&theirs)),
            );
        }
    }
    Ok(())
}

fn handovers(samples: &Samples, text: &mut String) -> Result<()> {
    text.push_str(
        "\nHand-over, held for 2 ms, every change on disk; the ratio is that of the p50, theirs over \
         ours:\n\n| waiters | Lockfast, p50, p99 | other, p50, p99 | ratio | target |\n\
         |---|---|---|---|---|\n",
    );
    for waiters in [1, 8, 32] {
        let get = |peer: &str, what: &str| samples.get(&format!("held.{peer}_{waiters}.{what}"));
        let (p50, p99) = (get("lockfast", "p50_us")?, get("lockfast", "p99_us")?);
        for (peer, name, target) in HANDOVERS {
            let (their_p50, their_p99) = (get(peer, "p50_us")?, get(peer, "p99_us")?);
            let _ = writeln!(
                text,
                "| {waiters} | {} µs, {} µs | {name}: {} µs, {} µs | {} | {target} |",
                thousands(p50.median()),
                thousands(p99.median()),
                thousands(their_p50.median()),
                thousands(their_p99.median()),
                ratio(&their_p50.over(&p50)),
            );
        }
    }
    Ok(())
}

fn costs(samples: &Samples, text: &mut String) -> Result<()> {
    let (few, many) = (samples.get("crowd_10.p50_us")?, samples.get("crowd_5000.p50_us")?);
    let core = samples.get("hold.core_percent")?.median();
    let requests = samples.get("hold.requests_per_s")?.median();
    let connections = samples.get("hold.connections")?.median();
    let (few_us, many_us) = (thousands(few.median()), thousands(many.median()));
    let _ = writeln!(
        text,
        "\n| what it costs | figure | target |\n|---|---|---|\n\
         | hand-over while 5 000 of one process wait, p50, against 10 who wait | {many_us} µs, \
         {few_us} µs, {} | the same |\n\
         | 10 000 locks held by one process: processor time of it | {core:.1} % of a core | < 2 % |\n\
         | the same: requests a second | {requests:.1} | – |\n\
         | the same: connections | {connections:.0} | – |",
        ratio(&many.over(&few)),
    );
    Ok(())
}
