//! Locks on several independent Redis servers, against rslock on the same servers.

use std::fmt::Write as _;

use anyhow::Result;

use super::peer::{Samples, measure_store};
use super::{ratio, thousands};

/// Measures everything; the text between this section's marks.
pub(super) fn run() -> Result<String> {
    let samples = measure_store("redlock")?;
    let mut text = String::new();
    cycles(&samples, &mut text)?;
    faults(&samples, &mut text)?;
    Ok(text)
}

fn cycles(samples: &Samples, text: &mut String) -> Result<()> {
    text.push_str(
        "Free locks:\n\n| servers, tasks | Lockfast, with fence | rslock, without | ratio | target | \
         p50 in cycles on one Redis | aim |\n|---|---|---|---|---|---|---|\n",
    );
    let single = samples.get("single_1.p50_us")?;
    for (case, title, target, aim) in [
        ("3_1", "3, 1 task", "≥ 1.15", Some("≤ 1.0")),
        ("5_1", "5, 1 task", "≥ 1.2", Some("≤ 1.3")),
        ("5_64", "5, 64 tasks", "≥ 1.5, aim 3", None),
    ] {
        let ours = samples.get(&format!("lockfast_{case}.cycles_per_s"))?;
        let theirs = samples.get(&format!("rslock_{case}.cycles_per_s"))?;
        let p50 = samples.get(&format!("lockfast_{case}.p50_us"))?;
        // With many tasks a p50 tells how many there are, not how far the servers are.
        let in_cycles = aim.map_or("–".to_owned(), |_| ratio(&p50.over(&single)));
        let _ = writeln!(
            text,
            "| {title} | {} cycles/s | {} cycles/s | {} | {target} | {in_cycles} | {} |",
            thousands(ours.median()),
            thousands(theirs.median()),
            ratio(&ours.over(&theirs)),
            aim.unwrap_or("–"),
        );
    }
    Ok(())
}

fn faults(samples: &Samples, text: &mut String) -> Result<()> {
    text.push_str(
        "\nOne of five servers is in trouble:\n\n| case | with it | without | ratio | target |\n\
         |---|---|---|---|---|\n",
    );
    for (title, faulty, well, target) in [
        ("dead, 1 task, cycles/s", "dead_1.cycles_per_s", "lockfast_5_1.cycles_per_s", "≥ 0.9"),
        ("dead, 64 tasks, cycles/s", "dead_64.cycles_per_s", "lockfast_5_64.cycles_per_s", "≥ 0.9"),
        (
            "200 ms late, acquisition p50 in µs",
            "late.acquire_p50_us",
            "through_proxy.acquire_p50_us",
            "about 1",
        ),
    ] {
        let (faulty, well) = (samples.get(faulty)?, samples.get(well)?);
        let _ = writeln!(
            text,
            "| {title} | {} | {} | {} | {target} |",
            thousands(faulty.median()),
            thousands(well.median()),
            ratio(&faulty.over(&well)),
        );
    }
    Ok(())
}
