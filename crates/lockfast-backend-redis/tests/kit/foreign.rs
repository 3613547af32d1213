//! Programs that take locks on Redis without Lockfast.

use std::path::{Path, PathBuf};
use std::process::Command;

use lockfast_faults::foreign::Foreign;
use lockfast_faults::program;
use lockfast_faults::redis::Redis;

/// Which program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    RedisCli,
    RedisPy,
    NodeRedlock4,
    NodeRedlock5,
}

/// Starts a program that takes its locks on this server.
pub fn start(kind: Kind, redis: &Redis) -> Foreign {
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
    Foreign::start(&mut command)
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
