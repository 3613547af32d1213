//! The stores without a server, against what the machine can do at best.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;

use super::sample::Sample;
use super::{build_lockfast, built, cycles, lockfast, number, thousands, times};
use crate::step::{Step, timed};

const ROUNDS: usize = 5;
const LEASES: u32 = 100_000;

/// Measures everything; the text between this section's marks.
pub(super) fn run() -> Result<String> {
    build_lockfast()?;
    timed("build of what it is compared with", || {
        let examples = ["-p", "lockfast", "-p", "lockfast-backend-embedded", "--examples"];
        Step::cargo(&[&["build", "--release", "--locked"], &examples[..]].concat()).run()
    })?;
    let figures = timed("measurements, about two minutes", measure)?;
    Ok(figures.table())
}

/// What was measured.
#[derive(Default)]
struct Figures {
    memory: Cycles,
    /// Entries of a map of bare mutexes.
    bare: Cycles,
    normal: Embedded,
    full: Embedded,
    core_percent: f64,
}

/// Cycles a second of one task and of 64.
#[derive(Default)]
struct Cycles {
    one: Sample,
    many: Sample,
}

/// The embedded store in one setting, and commits by hand in the same setting.
#[derive(Default)]
struct Embedded {
    cycles: Cycles,
    handover_us: Sample,
    handover_p99_us: Sample,
    /// Two commits by hand for each cycle.
    raw_cycles: Sample,
    raw_handover_us: Sample,
}

fn measure() -> Result<Figures> {
    let dir = std::env::temp_dir().join(format!("lockfast-bench-{}", std::process::id()));
    let mut figures = Figures::default();
    let measured = (0..ROUNDS).try_for_each(|_| figures.add_round(&dir));
    std::fs::remove_dir_all(&dir)?;
    measured?;
    let leases = LEASES.to_string();
    let renew = lockfast("memory:", &["bench", "renew", "--leases", &leases, "--seconds", "30"])?;
    figures.core_percent = number(&renew, "core_percent")?;
    Ok(figures)
}

fn example(name: &str, arguments: &[&str]) -> Result<serde_json::Value> {
    built(&format!("examples/{name}"), arguments)
}

impl Figures {
    fn add_round(&mut self, dir: &Path) -> Result<()> {
        std::fs::create_dir_all(dir)?;
        // What a build left to be written would slow down whoever syncs first.
        Step::program("sync", &[]).run()?;
        let bare = example("bare_mutex", &[])?;
        self.bare.one.add(number(&bare, "cycles_1_per_s")?);
        self.bare.many.add(number(&bare, "cycles_64_per_s")?);
        self.memory.add_round("memory:")?;
        // On the same file system, and right before ours.
        let raw = example("raw_sqlite", &[&dir.to_string_lossy()])?;
        for (embedded, name) in [(&mut self.full, "full"), (&mut self.normal, "normal")] {
            let store = dir.join(name);
            embedded.add_round(&format!("embedded:{}?sync={name}", store.display()))?;
            embedded.raw_cycles.add(number(&raw, &format!("commits_{name}_per_s"))? / 2.0);
            embedded.raw_handover_us.add(number(&raw, &format!("hand_over_{name}_p50_us"))?);
        }
        Ok(())
    }

    fn table(&self) -> String {
        let mut text =
            String::from("| case | figure | against | ratio | target |\n|---|---|---|---|---|\n");
        let mut row = |case: &str, figure: String, against: String, ratio: String, target: &str| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "| {case} | {figure} | {against} | {ratio} | {target} |");
        };
        for (tasks, ours, bare) in [
            ("1 task", &self.memory.one, &self.bare.one),
            ("64 tasks", &self.memory.many, &self.bare.many),
        ] {
            let against = format!("entry of a map of bare mutexes: {}", rate(bare));
            row(&format!("`memory:`, {tasks}"), rate(ours), against, ratio(ours, bare), "–");
        }
        let (full, normal) = (&self.full, &self.normal);
        for (case, ours, by_hand, how, targets) in [
            ("`embedded:?sync=full`", full, full, "durable (FULL)", ["≥ 0.8", "≥ 10", "≤ 2"]),
            ("`embedded:`", normal, full, "durable (FULL)", ["≥ 0.8", "≥ 10", "≤ 2"]),
            ("`embedded:`", normal, normal, "not synced (NORMAL)", ["–", "–", "–"]),
        ] {
            let Cycles { one, many } = &ours.cycles;
            let raw = &by_hand.raw_cycles;
            let against = format!("two raw SQLite commits, {how}: {}", rate(raw));
            row(
                &format!("{case}, 1 task"),
                rate(one),
                against.clone(),
                ratio(one, raw),
                targets[0],
            );
            row(&format!("{case}, 64 tasks"), rate(many), against, ratio(many, raw), targets[1]);
            let raw = &by_hand.raw_handover_us;
            row(
                &format!("{case}, hand-over between two processes"),
                ours.handover(),
                format!("a raw commit, {how}, that wakes another: p50 {:.0} µs", raw.median()),
                ratio(&ours.handover_us, raw),
                targets[2],
            );
        }
        let case = format!("keeper, {} leases of 30 s on `memory:`", thousands(f64::from(LEASES)));
        let figure = format!("{:.1} % of a core", self.core_percent);
        row(&case, figure, "–".into(), "–".into(), "< 5 %");
        text
    }
}

impl Cycles {
    fn add_round(&mut self, url: &str) -> Result<()> {
        self.one.add(cycles(url, 1, 1)?);
        self.many.add(cycles(url, 64, 1)?);
        Ok(())
    }
}

impl Embedded {
    fn add_round(&mut self, url: &str) -> Result<()> {
        self.cycles.add_round(url)?;
        let handover = example("handover", &[url])?;
        self.handover_us.add(number(&handover, "p50_us")?);
        self.handover_p99_us.add(number(&handover, "p99_us")?);
        Ok(())
    }

    fn handover(&self) -> String {
        let (p50, p99) = (self.handover_us.median(), self.handover_p99_us.median());
        format!("p50 {p50:.0} µs, p99 {p99:.0} µs")
    }
}

fn rate(per_s: &Sample) -> String {
    format!("{} cycles/s", thousands(per_s.median()))
}

fn ratio(ours: &Sample, theirs: &Sample) -> String {
    let ratio = ours.over(theirs);
    format!("{} ± {:.0} %", times(ratio.median()), ratio.spread())
}
