//! The stores without a server, against what the machine can do at best.

use std::fmt::Write as _;

use anyhow::Result;

use super::{built, cycles, lockfast, number, thousands, times};
use crate::step::{Step, timed};

const LEASES: u32 = 100_000;

/// Measures everything; the text between this section's marks.
pub(super) fn run() -> Result<String> {
    timed("build", || {
        let examples = ["-p", "lockfast", "-p", "lockfast-backend-embedded", "--examples"];
        Step::cargo(&[&["build", "--release", "--locked"], &examples[..]].concat()).run()
    })?;
    Ok(measure()?.table())
}

/// What was measured, in the units of its name.
struct Figures {
    bare_1: f64,
    bare_64: f64,
    memory_1: f64,
    memory_64: f64,
    full_commits: f64,
    normal_commits: f64,
    wake_us: f64,
    embedded_1: f64,
    embedded_64: f64,
    synced_1: f64,
    synced_64: f64,
    handover_us: f64,
    handover_p99_us: f64,
    core_percent: f64,
}

fn measure() -> Result<Figures> {
    let store = std::env::temp_dir().join(format!("lockfast-bench-{}", std::process::id()));
    let embedded = format!("embedded:{}", store.display());
    let synced = format!("{embedded}?sync=full");
    let figures = timed("measurements, about two minutes", || {
        let bare = example("bare_mutex", &[])?;
        let raw = example("raw_sqlite", &[])?;
        let (embedded_1, embedded_64) = (cycles(&embedded, 1, 5)?, cycles(&embedded, 64, 5)?);
        let (synced_1, synced_64) = (cycles(&synced, 1, 5)?, cycles(&synced, 64, 5)?);
        let raw_again = example("raw_sqlite", &[])?;
        // A disk is not equally fast all the time; what flatters us least counts.
        let commits = |name| anyhow::Ok(number(&raw, name)?.max(number(&raw_again, name)?));
        let handover = example("handover", &[&embedded])?;
        let leases = LEASES.to_string();
        let renew =
            lockfast("memory:", &["bench", "renew", "--leases", &leases, "--seconds", "40"])?;
        Ok(Figures {
            bare_1: number(&bare, "cycles_1_per_s")?,
            bare_64: number(&bare, "cycles_64_per_s")?,
            memory_1: cycles("memory:", 1, 5)?,
            memory_64: cycles("memory:", 64, 5)?,
            full_commits: commits("commits_full_per_s")?,
            normal_commits: commits("commits_normal_per_s")?,
            wake_us: number(&raw, "wake_p50_us")?.min(number(&raw_again, "wake_p50_us")?),
            embedded_1,
            embedded_64,
            synced_1,
            synced_64,
            handover_us: number(&handover, "p50_us")?,
            handover_p99_us: number(&handover, "p99_us")?,
            core_percent: number(&renew, "core_percent")?,
        })
    });
    std::fs::remove_dir_all(&store)?;
    figures
}

fn example(name: &str, arguments: &[&str]) -> Result<serde_json::Value> {
    built(&format!("examples/{name}"), arguments)
}

impl Figures {
    fn table(&self) -> String {
        let mut text = String::from("| case | figure | against | ratio |\n|---|---|---|---|\n");
        let mut row = |case: &str, figure: String, against: String, ratio: String| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "| {case} | {figure} | {against} | {ratio} |");
        };
        let rate = |per_s: f64| format!("{} cycles/s", thousands(per_s));
        // A cycle is two operations, so two commits by hand.
        let (full, normal) = (self.full_commits / 2.0, self.normal_commits / 2.0);
        for (tasks, ours, bare) in
            [("1 task", self.memory_1, self.bare_1), ("64 tasks", self.memory_64, self.bare_64)]
        {
            let against = format!("entry of a map of bare mutexes: {}", rate(bare));
            row(&format!("`memory:`, {tasks}"), rate(ours), against, times(ours / bare));
        }
        for (case, ours, by_hand, how) in [
            ("`embedded:`, 1 task", self.embedded_1, full, "durable (FULL)"),
            ("`embedded:`, 1 task", self.embedded_1, normal, "not synced (NORMAL)"),
            ("`embedded:`, 64 tasks", self.embedded_64, full, "durable (FULL)"),
            ("`embedded:`, 64 tasks", self.embedded_64, normal, "not synced (NORMAL)"),
            ("`embedded:?sync=full`, 1 task", self.synced_1, full, "durable (FULL)"),
            ("`embedded:?sync=full`, 64 tasks", self.synced_64, full, "durable (FULL)"),
        ] {
            let against = format!("two raw SQLite commits, {how}: {}", rate(by_hand));
            row(case, rate(ours), against, times(ours / by_hand));
        }
        for (commits, how) in [(self.full_commits, "FULL"), (self.normal_commits, "NORMAL")] {
            let by_hand = 1e6 / commits + self.wake_us;
            let ours =
                format!("p50 {:.0} µs, p99 {:.0} µs", self.handover_us, self.handover_p99_us);
            let against = format!("one raw commit ({how}) and one wake-up: {by_hand:.0} µs");
            let ratio = times(self.handover_us / by_hand);
            row("`embedded:`, hand-over between two processes", ours, against, ratio);
        }
        let case = format!("keeper, {} leases of 30 s on `memory:`", thousands(f64::from(LEASES)));
        row(&case, format!("{:.1} % of a core", self.core_percent), "–".into(), "–".into());
        text
    }
}
