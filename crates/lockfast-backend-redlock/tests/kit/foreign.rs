//! node-redlock, which takes locks on several servers without Lockfast: a child that is driven by
//! lines (`acquire NAME TTL_MS WAIT_MS`, `extend TTL_MS`, `release`).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lockfast_conformance::fault::child::Child;
use lockfast_conformance::fault::program;

use super::Nodes;

/// An interpreter starts and answers within this, also on a busy machine.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

/// A running node-redlock.
#[derive(Debug)]
pub struct NodeRedlock {
    child: Child,
}

impl NodeRedlock {
    /// Of major version 4 or 5.
    pub fn start(version: &str, nodes: &Nodes) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let modules: PathBuf = root.join("target/foreign-clients/node/node_modules");
        assert!(modules.exists(), "{} is missing; run: cargo xtask setup", modules.display());
        let ports: Vec<String> = nodes.0.iter().map(|node| node.port().to_string()).collect();
        let mut command = Command::new(program::find("node"));
        command
            .arg(root.join("crates/lockfast-backend-redis/tests/clients/node_redlock.js"))
            .args([&ports.join(","), version])
            .env("NODE_PATH", modules);
        let started = Self { child: Child::spawn(&mut command).unwrap() };
        assert_eq!(started.answer(), "ready");
        started
    }

    /// Takes the lock if it is free.
    pub fn try_acquire(&mut self, name: &str, ttl: Duration) -> bool {
        self.begin_acquire(name, ttl, Duration::ZERO);
        self.was_granted()
    }

    /// Begins to take the lock, trying until it is free.
    pub fn begin_acquire(&mut self, name: &str, ttl: Duration, wait: Duration) {
        let line = format!("acquire {name} {} {}", ttl.as_millis(), wait.as_millis());
        self.child.send(&line).unwrap();
    }

    /// What came of [`NodeRedlock::begin_acquire`].
    pub fn was_granted(&self) -> bool {
        match self.answer().as_str() {
            "granted" => true,
            "taken" => false,
            other => panic!("{other}"),
        }
    }

    /// Whether it still had the lock that it last took, and has it longer now.
    pub fn extend(&mut self, ttl: Duration) -> bool {
        self.child.send(&format!("extend {}", ttl.as_millis())).unwrap();
        self.answer() == "extended"
    }

    /// Whether it still had the lock that it last took, and gave it back.
    pub fn release(&mut self) -> bool {
        self.child.send("release").unwrap();
        self.answer() == "released"
    }

    /// Kills it, as a crash does.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    fn answer(&self) -> String {
        self.child.wait_for("answer", ANSWER_TIME_MAX).unwrap()
    }
}
