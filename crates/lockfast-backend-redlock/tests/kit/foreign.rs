//! node-redlock, which takes locks on several servers without Lockfast.

use std::path::{Path, PathBuf};
use std::process::Command;

use lockfast_faults::foreign::Foreign;
use lockfast_faults::program;

use super::Nodes;

/// Starts node-redlock of major version 4 or 5.
pub fn start(version: &str, nodes: &Nodes) -> Foreign {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let modules: PathBuf = root.join("target/foreign-clients/node/node_modules");
    assert!(modules.exists(), "{} is missing; run: cargo xtask setup", modules.display());
    let ports: Vec<String> = nodes.0.iter().map(|node| node.port().to_string()).collect();
    let mut command = Command::new(program::find("node"));
    command
        .arg(root.join("crates/lockfast-backend-redis/tests/clients/node_redlock.js"))
        .args([&ports.join(","), version])
        .env("NODE_PATH", modules);
    Foreign::start(&mut command)
}
