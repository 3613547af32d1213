//! One run of `lockfast torture`, and what came of it.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::tree;

/// The codes of a run in which nothing was found, and in which only that was found which the store
/// does not promise to prevent.
const KEPT: i32 = 0;
const ALLOWED: i32 = 1;

/// Where locks are granted twice by design: a replica takes over without the last grants. A run may
/// find that or not: whether anybody holds a lock at the moment of a promotion is left to chance, and a
/// brief run has one promotion or none. That a long one finds it is asked in `soak`.
pub(crate) const OVERLAPS: &str = "redis-failover";

/// What a run leaves of itself that programs read.
const VERDICT: &str = "verdict.json";

/// What a run is to be.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// As in `--with`.
    pub(crate) store: String,
    /// From which its schedule of faults follows.
    pub(crate) seed: u64,
    pub(crate) minutes: f64,
    /// Further arguments.
    pub(crate) more: Vec<String>,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Where its history, verdict and report are.
    pub(crate) directory: PathBuf,
    /// All that it printed.
    pub(crate) said: String,
    /// Why it failed, if it did.
    pub(crate) failure: Option<String>,
    /// Its verdict, if it came to one.
    pub(crate) verdict: Value,
}

impl Run {
    /// Runs the command, with what it records in a new directory of `into`.
    pub(crate) fn carry_out(&self, lockfast: &Path, into: &Path) -> Result<Outcome> {
        let directory = into.join(format!("{}-{}", self.store, self.seed));
        // Of an earlier run with the same seed.
        tree::remove_if_there(&directory)?;
        fs::create_dir_all(into)?;
        let mut command = Command::new(lockfast);
        command.args(self.arguments()).arg("--out").arg(&directory).current_dir(tree::root()?);
        let output = command.output().with_context(|| format!("{lockfast:?} cannot be started"))?;
        let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
        said.push_str(&String::from_utf8_lossy(&output.stderr));
        let verdict = read_verdict(&directory);
        let failure = match (output.status.code(), &verdict) {
            (Some(KEPT), Ok(_)) => None,
            (Some(ALLOWED), Ok(_)) if self.store == OVERLAPS => None,
            (Some(KEPT), Err(error)) => Some(format!("{error:#}")),
            _ => Some(format!("it ended with {}", output.status)),
        };
        Ok(Outcome { directory, said, failure, verdict: verdict.unwrap_or(Value::Null) })
    }

    fn arguments(&self) -> Vec<String> {
        let (seed, minutes) = (self.seed.to_string(), self.minutes.to_string());
        let own = ["torture", "--with", &self.store, "--seed", &seed, "--minutes", &minutes];
        own.into_iter().map(str::to_owned).chain(self.more.iter().cloned()).collect()
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lockfast {}", self.arguments().join(" "))
    }
}

impl Outcome {
    /// A number of the verdict, by the names on the way to it; 0 if it is not there.
    pub(crate) fn number(&self, path: &[&str]) -> f64 {
        let value = path.iter().fold(&self.verdict, |value, name| &value[*name]);
        value.as_f64().unwrap_or(0.0)
    }

    /// The same, of what is counted.
    pub(crate) fn count(&self, path: &[&str]) -> u64 {
        path.iter().fold(&self.verdict, |value, name| &value[*name]).as_u64().unwrap_or(0)
    }

    /// The figures of the verdict in a line.
    pub(crate) fn figures(&self) -> String {
        let seconds = |path: &[&str]| self.number(path) / 1e9;
        format!(
            "{} holds, {} faults, {} overlaps, {} stale writes refused, {} losses, take-over {:.1} \
             s, wait while free {:.1} s",
            self.count(&["counts", "granted"]),
            self.faults(),
            self.count(&["counts", "overlaps"]),
            self.count(&["writes", "refused"]),
            self.count(&["losses", "count"]),
            seconds(&["take_over", "took_without_outages"]),
            seconds(&["free_wait", "longest_counted"]),
        )
    }

    /// How many faults there were.
    pub(crate) fn faults(&self) -> u64 {
        let faults = self.verdict["counts"]["faults"].as_object();
        faults.map_or(0, |faults| faults.values().filter_map(Value::as_u64).sum())
    }

    /// Removes all that was recorded but the verdict, which is small.
    pub(crate) fn keep_verdict(&self) -> Result<()> {
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                fs::remove_dir_all(entry.path())?;
            } else if entry.file_name() != VERDICT {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

fn read_verdict(directory: &Path) -> Result<Value> {
    let path = directory.join(VERDICT);
    let text =
        fs::read_to_string(&path).with_context(|| format!("{} is missing", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is no JSON", path.display()))
}

/// The stores that the command can start, as it lists them itself.
pub(crate) fn stores(lockfast: &Path) -> Result<Vec<String>> {
    let asked = ["torture", "--with", "no-such-store", "--plan"];
    let output = Command::new(lockfast).args(asked).output();
    let output = output.with_context(|| format!("{lockfast:?} cannot be started"))?;
    stores_in(&String::from_utf8_lossy(&output.stderr))
}

fn stores_in(refusal: &str) -> Result<Vec<String>> {
    let Some((_, list)) = refusal.split_once("there is ") else {
        bail!("lockfast torture lists no stores: {refusal}");
    };
    let list = list.lines().next().unwrap_or_default();
    Ok(list.split(',').map(|name| name.trim().to_owned()).collect())
}

/// A seed that nobody has chosen.
pub(crate) fn fresh_seed() -> Result<u64> {
    let mut bytes = [0; 4];
    let mut source = fs::File::open("/dev/urandom")?;
    std::io::Read::read_exact(&mut source, &mut bytes)?;
    Ok(u64::from(u32::from_ne_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_stores_are_those_that_the_command_lists() {
        let refusal = "lockfast: --with \"no-such-store\" is not known; there is embedded, redis\n";
        assert_eq!(stores_in(refusal).unwrap(), ["embedded", "redis"]);
        assert!(stores_in("lockfast: unknown command").is_err());
    }

    #[test]
    fn a_run_is_shown_as_it_is_typed() {
        let more = vec!["--ttl".to_owned(), "8s".to_owned()];
        let run = Run { store: "redis".to_owned(), seed: 7, minutes: 0.25, more };
        let shown = "lockfast torture --with redis --seed 7 --minutes 0.25 --ttl 8s";
        assert_eq!(run.to_string(), shown);
    }

    #[test]
    fn figures_are_read_from_the_verdict() {
        let verdict = json!({
            "counts": { "granted": 12, "overlaps": 1, "faults": { "kill": 2, "cut": 3 } },
            "free_wait": { "longest_counted": 2_500_000_000_u64 },
        });
        let outcome =
            Outcome { directory: PathBuf::new(), said: String::new(), failure: None, verdict };
        assert_eq!(outcome.faults(), 5);
        assert!(outcome.figures().starts_with("12 holds, 5 faults, 1 overlaps, 0 stale"));
        assert!(outcome.figures().ends_with("wait while free 2.5 s"));
    }

    #[test]
    fn of_a_run_that_passed_the_verdict_is_kept() {
        let directory = std::env::temp_dir().join(format!("xtask-verdict-{}", std::process::id()));
        fs::create_dir_all(directory.join("logs")).unwrap();
        for file in [VERDICT, "history.jsonl", "logs/server.log"] {
            fs::write(directory.join(file), "{}").unwrap();
        }
        let (said, verdict) = (String::new(), Value::Null);
        let outcome = Outcome { directory, said, failure: None, verdict };
        outcome.keep_verdict().unwrap();
        let left: Vec<_> = fs::read_dir(&outcome.directory).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
        assert!(read_verdict(&outcome.directory).is_ok());
        fs::remove_dir_all(&outcome.directory).unwrap();
    }
}
