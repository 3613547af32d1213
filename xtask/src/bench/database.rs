//! Locks in a database, against the same lease row by the bare driver.

use std::fmt::Write as _;

use anyhow::Result;

use super::peer::{Samples, measure_store};
use super::{ratio, thousands};

/// What is aimed at on one kind of database.
struct Targets {
    many_tasks: &'static str,
    handover: &'static str,
}

/// Measures everything on PostgreSQL; the text between this section's marks.
pub(super) fn run_postgres() -> Result<String> {
    let targets = Targets { many_tasks: "≥ 3, aim 4.5", handover: "≤ 3, aim 2" };
    tables(&measure_store("postgres")?, &targets)
}

/// Measures everything on MariaDB; the text between this section's marks.
pub(super) fn run_mysql() -> Result<String> {
    tables(&measure_store("mysql")?, &Targets { many_tasks: "≥ 2, aim 4", handover: "–" })
}

fn tables(samples: &Samples, targets: &Targets) -> Result<String> {
    let mut text = String::new();
    cycles(samples, targets, &mut text)?;
    handovers(samples, targets, &mut text)?;
    costs(samples, &mut text)?;
    Ok(text)
}

fn cycles(samples: &Samples, targets: &Targets, text: &mut String) -> Result<()> {
    text.push_str(
        "Free locks, cycles a second:\n\n| case | Lockfast | by hand | ratio | target |\n\
         |---|---|---|---|---|\n",
    );
    for (title, server, tasks, target) in [
        ("1 task, every commit on disk", "durable", 1, "≥ 0.9"),
        ("1 task, no disk", "quick", 1, "≥ 0.9"),
        ("64 tasks, every commit on disk", "durable", 64, targets.many_tasks),
        ("64 tasks, no disk", "quick", 64, "–"),
    ] {
        let ours = samples.get(&format!("{server}.lockfast_{tasks}.cycles_per_s"))?;
        let by_hand = samples.get(&format!("{server}.by-hand_{tasks}.cycles_per_s"))?;
        let _ = writeln!(
            text,
            "| {title} | {} | {} | {} | {target} |",
            thousands(ours.median()),
            thousands(by_hand.median()),
            ratio(&ours.over(&by_hand)),
        );
    }
    Ok(())
}

fn handovers(samples: &Samples, targets: &Targets, text: &mut String) -> Result<()> {
    text.push_str(
        "\nHand-over with 32 waiters:\n\n| case | p50 | p99 | a commit by hand, p50 | ratio | target |\n\
         |---|---|---|---|---|---|\n",
    );
    for (title, server, how, target) in [
        (
            "one process, held for 5 ms, every commit on disk",
            "durable",
            "held_shared",
            targets.handover,
        ),
        ("one process, held for 5 ms, no disk", "quick", "held_shared", "–"),
        ("one process, passed on at once, every commit on disk", "durable", "greedy_shared", "–"),
        ("one process, passed on at once, no disk", "quick", "greedy_shared", "–"),
        ("33 of them, held for 5 ms, every commit on disk", "durable", "held_apart", "–"),
        ("33 of them, held for 5 ms, no disk", "quick", "held_apart", "–"),
        ("33 of them, passed on at once, every commit on disk", "durable", "greedy_apart", "–"),
        ("33 of them, passed on at once, no disk", "quick", "greedy_apart", "–"),
    ] {
        let p50 = samples.get(&format!("{server}.{how}.p50_us"))?;
        let p99 = samples.get(&format!("{server}.{how}.p99_us"))?;
        let commit = samples.get(&format!("{server}.by-hand_1.acquire_p50_us"))?;
        let _ = writeln!(
            text,
            "| {title} | {} µs | {} µs | {} µs | {} | {target} |",
            thousands(p50.median()),
            thousands(p99.median()),
            thousands(commit.median()),
            ratio(&p50.over(&commit)),
        );
    }
    Ok(())
}

fn costs(samples: &Samples, text: &mut String) -> Result<()> {
    let greedy = |who: &str, what: &str| samples.get(&format!("quick.greedy_{who}.{what}"));
    let each = |who: &str| Ok(greedy(who, "statements")?.over(&greedy(who, "taken")?));
    let (shared, apart): (Result<_>, Result<_>) = (each("shared"), each("apart"));
    text.push_str("\n| what it costs the server | figure | target |\n|---|---|---|\n");
    let renewals = samples.get("renew.statements_per_10k")?;
    let connections = samples.get("renew.connections")?;
    let fairness = greedy("apart", "most_over_least")?;
    for (what, sample, digits, target) in [
        ("statements for each hand-over, one process", &shared?, 2, "≤ 2"),
        ("statements for each hand-over, 33 of them", &apart?, 2, "≤ 2"),
        ("most/least hand-overs of a waiter", &fairness, 2, "–"),
        ("statements for 10 000 renewals", &renewals, 0, "≤ 20"),
        ("connections while 10 000 locks are held", &connections, 0, "–"),
    ] {
        let _ = writeln!(text, "| {what} | {:.digits$} | {target} |", sample.median());
    }
    Ok(())
}
