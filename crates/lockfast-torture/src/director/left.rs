//! What is left at the end, when nothing should be.

use std::path::PathBuf;
use std::time::Duration;

use lockfast::{LockView, Moment};

use super::stage::Stage;
use super::{Failure, Options};
use crate::history::What;
use crate::worker::{attendant, job};

/// Between two looks.
const INTERVAL: Duration = Duration::from_millis(50);

/// How much longer than the longest lease anything may be left, on a busy machine.
const SLACK: Duration = Duration::from_secs(3);

/// How long a store that does not answer is asked again.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// More locks than a run has.
const LIMIT: usize = 100;

/// Waits until nothing is left, or should not be any more.
pub(super) async fn look(stage: &Stage, options: &Options) -> Result<What, Failure> {
    // Leases are extended to one and a half times the ttl at most.
    let (start, bound) = (Moment::now(), options.terms.ttl * 3 / 2 + SLACK);
    loop {
        let waited = Moment::now().since(start);
        let processes = processes(options)?;
        match stage.locker.list(&stage.prefix, None, LIMIT).await {
            Ok(locks) => {
                let named = |has: fn(&LockView) -> bool| {
                    locks
                        .iter()
                        .filter(|lock| has(lock))
                        .map(|lock| lock.name.to_string())
                        .collect()
                };
                let held: Vec<String> = named(|lock| !lock.holders.is_empty());
                let waited_for: Vec<String> = named(|lock| lock.waiting > 0);
                let is_clean = held.is_empty() && waited_for.is_empty() && processes.is_empty();
                if (is_clean && runs_have_ended(options)?) || waited > bound {
                    return Ok(What::Left { held, waited_for, processes });
                }
            }
            Err(error) if waited > bound.max(ANSWER_MAX) => return Err(error.into()),
            Err(_) => {}
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// The commands of `lockfast run` that are still there.
fn processes(options: &Options) -> Result<Vec<u32>, Failure> {
    let started = files(options, "job-")?.into_iter().filter_map(|path| job::started(&path));
    let running = started.filter(|(claim, pid)| job::is_running(*pid, *claim));
    Ok(running.map(|(_, pid)| pid).collect())
}

/// Whether what became of every `lockfast run` is recorded, also of those whose worker was killed.
fn runs_have_ended(options: &Options) -> Result<bool, Failure> {
    Ok(files(options, "run-")?.iter().all(|path| attendant::has_ended(path)))
}

fn files(options: &Options, start: &str) -> Result<Vec<PathBuf>, Failure> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(&options.directory)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(start) {
            paths.push(entry.path());
        }
    }
    Ok(paths)
}
