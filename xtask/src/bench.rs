//! How fast Lockfast is, as ratios to what the machine can do at best, all in one run. With
//! `--write` the table goes into `docs/performance.md`.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::step::{Step, timed};
use crate::tree;

const PAGE: &str = "docs/performance.md";
const BEGIN: &str = "<!-- begin: cargo xtask bench -->";
const END: &str = "<!-- end: cargo xtask bench -->";
const LEASES: u32 = 100_000;

/// Measures and prints the table.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let write = match arguments {
        [] => false,
        [argument] if argument == "--write" => true,
        _ => bail!("bench takes nothing but --write"),
    };
    build()?;
    let table = measure()?.table();
    println!("\n{table}");
    if write { write_page(&table) } else { Ok(()) }
}

fn build() -> Result<()> {
    timed("build", || {
        Step::cargo(&["build", "--release", "--locked", "-p", "lockfast-cli"]).run()?;
        let examples = ["-p", "lockfast", "-p", "lockfast-backend-embedded", "--examples"];
        Step::cargo(&[&["build", "--release", "--locked"], &examples[..]].concat()).run()
    })
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
    handover_us: f64,
    handover_p99_us: f64,
    core_percent: f64,
}

fn measure() -> Result<Figures> {
    let store = std::env::temp_dir().join(format!("lockfast-bench-{}", std::process::id()));
    let embedded = format!("embedded:{}", store.display());
    let figures = timed("measurements, about a minute and a half", || {
        let bare = example("bare_mutex", &[])?;
        let raw = example("raw_sqlite", &[])?;
        let handover = example("handover", &[&embedded])?;
        let leases = LEASES.to_string();
        let renew =
            lockfast("memory:", &["bench", "renew", "--leases", &leases, "--seconds", "40"])?;
        Ok(Figures {
            bare_1: number(&bare, "cycles_1_per_s")?,
            bare_64: number(&bare, "cycles_64_per_s")?,
            memory_1: cycles("memory:", "1")?,
            memory_64: cycles("memory:", "64")?,
            full_commits: number(&raw, "commits_full_per_s")?,
            normal_commits: number(&raw, "commits_normal_per_s")?,
            wake_us: number(&raw, "wake_p50_us")?,
            embedded_1: cycles(&embedded, "1")?,
            embedded_64: cycles(&embedded, "64")?,
            handover_us: number(&handover, "p50_us")?,
            handover_p99_us: number(&handover, "p99_us")?,
            core_percent: number(&renew, "core_percent")?,
        })
    });
    std::fs::remove_dir_all(&store)?;
    figures
}

fn cycles(url: &str, tasks: &str) -> Result<f64> {
    let bench = lockfast(url, &["bench", "cycle", "--tasks", tasks, "--seconds", "5"])?;
    number(&bench, "cycles_per_s")
}

fn lockfast(url: &str, arguments: &[&str]) -> Result<Value> {
    built("lockfast", &[&["--on", url, "--json"], arguments].concat())
}

fn example(name: &str, arguments: &[&str]) -> Result<Value> {
    built(&format!("examples/{name}"), arguments)
}

/// Runs a program that was built for release, which prints JSON.
fn built(program: &str, arguments: &[&str]) -> Result<Value> {
    let path = tree::target()?.join("release").join(program);
    let step = Step::program(&path.to_string_lossy(), arguments);
    serde_json::from_str(&step.read()?).with_context(|| format!("{step} printed no JSON"))
}

fn number(value: &Value, name: &str) -> Result<f64> {
    value[name].as_f64().with_context(|| format!("there is no {name} in {value}"))
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
        for (tasks, ours) in [("1 task", self.embedded_1), ("64 tasks", self.embedded_64)] {
            for (by_hand, how) in [(full, "durable (FULL)"), (normal, "not synced (NORMAL)")] {
                let against = format!("two raw SQLite commits, {how}: {}", rate(by_hand));
                row(&format!("`embedded:`, {tasks}"), rate(ours), against, times(ours / by_hand));
            }
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

fn times(ratio: f64) -> String {
    if ratio < 0.1 { format!("{ratio:.3} ×") } else { format!("{ratio:.2} ×") }
}

fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

fn write_page(table: &str) -> Result<()> {
    let path = tree::root()?.join(PAGE);
    let page = std::fs::read_to_string(&path).with_context(|| format!("{PAGE} is not there"))?;
    let (before, rest) = page.split_once(BEGIN).with_context(|| format!("{PAGE} lacks {BEGIN}"))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("{PAGE} lacks {END}"))?;
    std::fs::write(&path, format!("{before}{BEGIN}\n{table}{END}{after}"))?;
    println!("written to {PAGE}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        for (number, expected) in [(7.0, "7"), (1234.0, "1 234"), (1_234_567.0, "1 234 567")] {
            assert_eq!(thousands(number), expected);
        }
    }
}
