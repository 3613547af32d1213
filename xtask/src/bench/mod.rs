//! How fast Lockfast is, as ratios to what the machine and other libraries can do, all in one run.
//! Each part makes one section of `docs/performance.md`, which `--write` puts there.

pub(crate) mod chart;
mod database;
mod etcd;
pub(crate) mod figures;
mod local;
mod optimistic;
mod peer;
mod plot;
mod primitives;
mod redis;
mod redlock;
mod sample;
mod server;
mod zookeeper;

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::step::{Step, timed};
use crate::{page, tree};
use sample::Sample;

/// The page with all sections.
pub(crate) const PAGE: &str = "docs/performance.md";
/// What the marks of the comparison of optimistic updates and locks say.
pub(crate) const OPTIMISTIC: &str = "cargo xtask bench optimistic";

/// A section of the page.
struct Part {
    name: &'static str,
    /// What its marks on the page say.
    mark: &'static str,
    run: fn() -> Result<Section>,
}

/// What a part makes.
struct Section {
    /// What stands between its marks.
    text: String,
    /// A picture beside the page, with its path.
    picture: Option<(&'static str, String)>,
}

impl From<String> for Section {
    fn from(text: String) -> Self {
        Self { text, picture: None }
    }
}

const PARTS: &[Part] = &[
    part("local", "cargo xtask bench", || Ok(local::run()?.into())),
    part("redis", chart::REDIS, || {
        let text = redis::run()?;
        let picture = Some((chart::PICTURE, chart::picture(&text)?));
        Ok(Section { text, picture })
    }),
    part("redlock", "cargo xtask bench redlock", || Ok(redlock::run()?.into())),
    part("postgres", "cargo xtask bench postgres", || Ok(database::run_postgres()?.into())),
    part("mysql", "cargo xtask bench mysql", || Ok(database::run_mysql()?.into())),
    part("etcd", "cargo xtask bench etcd", || Ok(etcd::run()?.into())),
    part("zookeeper", "cargo xtask bench zookeeper", || Ok(zookeeper::run()?.into())),
    part("optimistic", OPTIMISTIC, optimistic::run),
    part("primitives", primitives::MARK, || Ok(primitives::run()?.into())),
];

const fn part(name: &'static str, mark: &'static str, run: fn() -> Result<Section>) -> Part {
    Part { name, mark, run }
}

/// Measures and prints the tables.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let is_write = |argument: &&String| argument.as_str() == "--write";
    let (writes, names): (Vec<_>, Vec<_>) = arguments.iter().partition(is_write);
    let parts = chosen(&names)?;
    for part in parts {
        let Section { text, picture } = (part.run)()?;
        println!("\n{text}");
        if writes.is_empty() {
            continue;
        }
        page::write(PAGE, part.mark, &text)?;
        if let Some((path, picture)) = picture {
            std::fs::write(tree::root()?.join(path), picture)?;
            println!("written to {path}");
        }
    }
    Ok(())
}

fn chosen(names: &[&String]) -> Result<Vec<&'static Part>> {
    if names.is_empty() {
        return Ok(PARTS.iter().collect());
    }
    let known: Vec<&str> = PARTS.iter().map(|part| part.name).collect();
    let find = |name: &&String| {
        let found = PARTS.iter().find(|part| part.name == name.as_str());
        found.with_context(|| format!("bench takes {} and --write, not {name:?}", known.join(", ")))
    };
    names.iter().map(find).collect()
}

/// Acquisitions and releases a second of so many tasks, each with a lock of its own.
fn cycles(url: &str, tasks: u32, seconds: u32) -> Result<f64> {
    let (tasks, seconds) = (tasks.to_string(), seconds.to_string());
    let bench = lockfast(url, &["bench", "cycle", "--tasks", &tasks, "--seconds", &seconds])?;
    number(&bench, "cycles_per_s")
}

fn lockfast(url: &str, arguments: &[&str]) -> Result<Value> {
    lockfast_on(None, url, arguments)
}

/// Runs the command that was built for release, on this core alone if one is named.
fn lockfast_on(core: Option<&str>, url: &str, arguments: &[&str]) -> Result<Value> {
    let path = lockfast_path()?;
    let path = path.to_string_lossy();
    let pinned = core.map(|core| ["taskset", "-c", core]);
    let mut line: Vec<&str> = pinned.iter().flatten().copied().collect();
    line.extend([&path, "--on", url, "--json"]);
    line.extend(arguments);
    read_json(&Step::program(line[0], &line[1..]))
}

/// Builds the command for release.
fn build_lockfast() -> Result<()> {
    timed("build", || Step::cargo(&["build", "--release", "--locked", "-p", "lockfast-cli"]).run())
}

fn lockfast_path() -> Result<PathBuf> {
    Ok(tree::target()?.join("release/lockfast"))
}

/// Runs a program that was built for release, which prints JSON.
fn built(program: &str, arguments: &[&str]) -> Result<Value> {
    let path = tree::target()?.join("release").join(program);
    read_json(&Step::program(&path.to_string_lossy(), arguments))
}

fn read_json(step: &Step) -> Result<Value> {
    serde_json::from_str(&step.read()?).with_context(|| format!("{step} printed no JSON"))
}

fn number(value: &Value, name: &str) -> Result<f64> {
    value[name].as_f64().with_context(|| format!("there is no {name} in {value}"))
}

/// A ratio of two samples.
fn ratio(sample: &Sample) -> String {
    format!("**{:.2} ×** ± {:.0} %", sample.median(), sample.spread())
}

fn times(ratio: f64) -> String {
    if ratio < 0.1 { format!("{ratio:.3} ×") } else { format!("{ratio:.2} ×") }
}

pub(crate) fn thousands(number: f64) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        for (number, expected) in [(7.0, "7"), (1234.0, "1 234"), (1_234_567.0, "1 234 567")] {
            assert_eq!(thousands(number), expected);
        }
    }

    #[test]
    fn a_part_that_is_not_there_is_refused() {
        assert_eq!(chosen(&[]).unwrap().len(), PARTS.len());
        let error = chosen(&[&"rediss".to_owned()]).map(|_| ()).unwrap_err().to_string();
        assert!(PARTS.iter().all(|part| error.contains(part.name)), "{error}");
    }
}
