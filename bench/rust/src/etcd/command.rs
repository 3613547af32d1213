//! A command under a lock: `lockfast run` beside `etcdctl lock`, each a process of its own.

use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::samples::Samples;

/// How often one command after the other is run for a free lock.
const FREE: usize = 20;
/// How many commands want one lock at the same time.
const CROWD: usize = 16;

/// Measures both commands on the etcd server at `address`.
pub(super) fn measure(
    samples: &mut Samples,
    name: &str,
    lockfast: &str,
    address: &str,
) -> Result<()> {
    for peer in ["lockfast", "etcdctl"] {
        let start = |lock: &str| start(peer, lockfast, address, lock);
        // The first is there to bring the program into memory.
        finish(start("warm-up")?)?;
        let begun = Instant::now();
        for _ in 0..FREE {
            finish(start("free")?)?;
        }
        let each_ms = begun.elapsed().as_secs_f64() * 1000.0 / FREE as f64;
        samples.add(&format!("{name}.command_{peer}.free_ms"), each_ms);
        let begun = Instant::now();
        let crowd: Vec<Child> = (0..CROWD).map(|_| start("crowd")).collect::<Result<_>>()?;
        crowd.into_iter().try_for_each(finish)?;
        let each_ms = begun.elapsed().as_secs_f64() * 1000.0 / CROWD as f64;
        samples.add(&format!("{name}.command_{peer}.crowd_ms"), each_ms);
    }
    Ok(())
}

fn start(peer: &str, lockfast: &str, address: &str, lock: &str) -> Result<Child> {
    let mut command = match peer {
        "lockfast" => {
            let mut command = Command::new(lockfast);
            command.args(["--on", &format!("etcd://{address}"), "run", lock, "--", "true"]);
            command
        }
        _ => {
            let mut command = Command::new("etcdctl");
            command.env("ETCDCTL_API", "3");
            command.args(["--endpoints", address, "lock", lock, "true"]);
            command
        }
    };
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().with_context(|| format!("{command:?} does not start"))
}

fn finish(mut child: Child) -> Result<()> {
    let status = child.wait()?;
    ensure!(status.success(), "a command under a lock ended with {status}");
    Ok(())
}
