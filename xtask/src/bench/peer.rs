//! The programs under `bench/`: other libraries and bare probes, installed under `target/`.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::read_json;
use super::sample::Sample;
use crate::step::{Step, timed};
use crate::{setup, tree};

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    Lockfast,
    Probe,
    Bare,
    Rslock,
    RslockCurrent,
    RedisPy,
    PythonRedisLock,
    NodeRedlock,
}

impl Peer {
    /// What the programs call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Lockfast => "lockfast",
            Self::Probe => "probe",
            Self::Bare => "bare",
            Self::Rslock => "rslock",
            Self::RslockCurrent => "rslock-current",
            Self::RedisPy => "redis-py",
            Self::PythonRedisLock => "python-redis-lock",
            Self::NodeRedlock => "node-redlock",
        }
    }

    /// Runs one measurement, on this core alone if one is named.
    pub(super) fn measure(self, core: Option<&str>, arguments: &[&str]) -> Result<Value> {
        let folder = folder()?;
        let root = tree::root()?;
        let (what, rest) = arguments.split_first().context("nothing to measure")?;
        let mut line: Vec<String> = Vec::new();
        if let Some(core) = core {
            line.extend(["taskset", "-c", core].map(str::to_owned));
        }
        match self {
            Self::RedisPy | Self::PythonRedisLock => {
                line.push(text(folder.join("venv/bin/python")));
                line.push(text(root.join("bench/python/peers.py")));
            }
            Self::NodeRedlock => {
                line.push("node".to_owned());
                line.push(text(root.join("bench/node/peers.js")));
            }
            _ => line.push(text(program()?)),
        }
        line.extend([(*what).to_owned(), self.name().to_owned()]);
        line.extend(rest.iter().map(ToString::to_string));
        let words: Vec<&str> = line.iter().map(String::as_str).collect();
        let modules = text(folder.join("node/node_modules"));
        read_json(&Step::program(words[0], &words[1..]).with_env("NODE_PATH", &modules))
    }

    /// Starts what stays as it is until this value is dropped: waiters, or holders.
    pub(super) fn stay(self, what: &str, port: &str, count: usize) -> Result<Staying> {
        let mut command = Command::new(program()?);
        command.args([what, self.name(), port, &count.to_string()]);
        Staying::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()))
    }
}

/// A program that stays as it is until this value is dropped.
pub(super) struct Staying(Child);

impl Staying {
    fn start(command: &mut Command) -> Result<Self> {
        let child = command.spawn().with_context(|| format!("{command:?} cannot be started"))?;
        let mut staying = Self(child);
        let output = staying.0.stdout.take().context("its output is not ours")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        if !line.contains("ready") {
            bail!("{command:?} ended before it was ready");
        }
        Ok(staying)
    }
}

impl Drop for Staying {
    fn drop(&mut self) {
        // It may have ended by itself; either way there is nothing left to do about it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Renews so many leases by a script written by hand; server CPU for 10 000 of them in ms.
pub(super) fn renew_by_hand(port: &str, leases: usize, rounds: usize) -> Result<f64> {
    let path = text(program()?);
    let step = Step::program(&path, &["renew", port, &leases.to_string(), &rounds.to_string()]);
    super::number(&read_json(&step)?, "server_cpu_ms_per_10k")
}

/// Has everything about a store measured, on servers of its own: samples by name.
pub(super) fn measure_store(kind: &str) -> Result<Samples> {
    build()?;
    measure_words(&[kind])
}

/// The same on etcd, also with the command that was built for release.
pub(super) fn measure_etcd() -> Result<Samples> {
    super::build_lockfast()?;
    build()?;
    measure_words(&["etcd", &text(super::lockfast_path()?)])
}

/// The same on ZooKeeper, with the libraries in Python and Java that have its locks.
pub(super) fn measure_zookeeper() -> Result<Samples> {
    build()?;
    install_python()?;
    install_java()?;
    let (root, folder) = (tree::root()?, folder()?);
    let python = text(folder.join("venv/bin/python"));
    let script = text(root.join("bench/python/peers.py"));
    measure_words(&["zookeeper", &python, &script, &text(folder.join("java"))])
}

fn measure_words(words: &[&str]) -> Result<Samples> {
    let path = text(program()?);
    let title = format!("{}, a few minutes", words[0]);
    Ok(Samples(timed(&title, || read_json(&Step::program(&path, words)))?))
}

/// Samples by name, as the peers print them.
pub(super) struct Samples(Value);

impl Samples {
    /// The sample of that name.
    pub(super) fn get(&self, name: &str) -> Result<Sample> {
        let values = self.0[name].as_array().with_context(|| format!("nothing is named {name}"))?;
        let mut sample = Sample::default();
        for value in values {
            sample.add(value.as_f64().with_context(|| format!("{name} holds {value}"))?);
        }
        Ok(sample)
    }
}

fn build() -> Result<()> {
    timed("peers in Rust", || {
        let built = text(folder()?.join("rust"));
        let manifest = "bench/rust/Cargo.toml";
        Step::cargo(&["build", "--release", "--manifest-path", manifest, "--target-dir", &built])
            .run()
    })
}

/// Installs and builds all of them.
pub(super) fn install() -> Result<()> {
    let folder = folder()?;
    build()?;
    install_python()?;
    timed("peers in JavaScript", || {
        let node = folder.join("node");
        std::fs::create_dir_all(&node)?;
        let manifest = "package.json";
        std::fs::copy(tree::root()?.join("bench/node").join(manifest), node.join(manifest))?;
        let quiet = ["--silent", "--no-package-lock", "--no-audit", "--no-fund"];
        Step::program("npm", &[&["install", "--prefix", &text(node)], &quiet[..]].concat()).run()
    })
}

fn install_python() -> Result<()> {
    let folder = folder()?;
    timed("peers in Python", || {
        let venv = text(folder.join("venv"));
        if !folder.join("venv/bin/pip").is_file() {
            Step::program("python3", &["-m", "venv", &venv]).run()?;
        }
        let pip = text(folder.join("venv/bin/pip"));
        Step::program(&pip, &["install", "-q", "-r", "bench/python/requirements.txt"]).run()
    })
}

fn install_java() -> Result<()> {
    let (from, to) = (tree::root()?.join("bench/java"), folder()?.join("java"));
    timed("peers in Java", || setup::compile_with_curator(&from, "CuratorPeer.java", &to))
}

fn folder() -> Result<PathBuf> {
    Ok(tree::target()?.join("bench"))
}

fn program() -> Result<PathBuf> {
    Ok(folder()?.join("rust/release/peers"))
}

fn text(path: PathBuf) -> String {
    path.to_string_lossy().into_owned()
}
