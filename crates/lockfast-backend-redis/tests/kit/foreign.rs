//! Programs that take locks on Redis without Lockfast, each as a child that is driven by lines:
//!
//! | line | answers |
//! |---|---|
//! | `acquire NAME TTL_MS WAIT_MS` | `granted`, `taken` |
//! | `extend TTL_MS` | `extended`, `refused` |
//! | `release` | `released`, `refused` |

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lockfast_conformance::fault::child::Child;
use lockfast_conformance::fault::program;
use lockfast_conformance::fault::redis::Redis;

/// An interpreter starts and answers within this, also on a busy machine.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

/// Which program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    RedisCli,
    RedisPy,
    NodeRedlock4,
    NodeRedlock5,
}

/// A running program.
#[derive(Debug)]
pub struct Foreign {
    child: Child,
}

impl Foreign {
    pub fn start(kind: Kind, redis: &Redis) -> Self {
        let port = redis.port().to_string();
        let mut command = match kind {
            Kind::RedisCli => {
                program::find("redis-cli");
                script("sh", "clients/redis_cli.sh")
            }
            Kind::RedisPy => {
                let python = find_installed("python/bin/python");
                let mut command = Command::new(python);
                command.arg(beside("clients/redis_py.py"));
                command
            }
            Kind::NodeRedlock4 | Kind::NodeRedlock5 => {
                let mut command = script("node", "clients/node_redlock.js");
                command.env("NODE_PATH", find_installed("node/node_modules"));
                command
            }
        };
        command.arg(port);
        match kind {
            Kind::NodeRedlock4 => command.arg("4"),
            Kind::NodeRedlock5 => command.arg("5"),
            Kind::RedisCli | Kind::RedisPy => &mut command,
        };
        let foreign = Self { child: Child::spawn(&mut command).unwrap() };
        assert_eq!(foreign.answer(), "ready");
        foreign
    }

    /// Takes the lock if it is free.
    pub fn try_acquire(&mut self, name: &str, ttl: Duration) -> bool {
        self.begin_acquire(name, ttl, Duration::ZERO);
        self.was_granted()
    }

    /// Begins to take the lock, trying until it is free; [`Foreign::was_granted`] waits for it.
    pub fn begin_acquire(&mut self, name: &str, ttl: Duration, wait: Duration) {
        let line = format!("acquire {name} {} {}", ttl.as_millis(), wait.as_millis());
        self.child.send(&line).unwrap();
    }

    /// What came of [`Foreign::begin_acquire`].
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

fn script(interpreter: &str, file: &str) -> Command {
    let mut command = Command::new(program::find(interpreter));
    command.arg(beside(file));
    command
}

/// A file that `cargo xtask setup` makes under `target/foreign-clients/`.
fn find_installed(file: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = root.join("target/foreign-clients").join(file);
    assert!(path.exists(), "{} is missing; run: cargo xtask setup", path.display());
    path
}

/// A file beside these tests.
fn beside(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(file)
}
