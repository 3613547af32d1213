//! What a shell asks while somebody types: the names of locks, and of the stores in the config file.
//! It is called by the scripts of `lockfast completions` with the words up to the cursor.

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use clap::CommandFactory as _;
use lockfast::Locker;
use lockfast_core::error::is_printable;

use crate::args::{Args, Global};
use crate::config;
use crate::exit::Failure;
use crate::output::{Output, write_out};
use crate::plan::Store;
use crate::words::Scan;

/// The hidden command.
pub(crate) const COMMAND: &str = "__complete";

/// How long somebody who pressed a key waits at most.
const PATIENCE: Duration = Duration::from_secs(1);

/// More names than anybody reads.
const NAMES_MAX: usize = 200;

/// Prints what the last word can become, a line each. Nothing is said about anything that fails:
/// there is no place for it beside what is being typed.
pub(crate) fn main(words: &[OsString]) -> u8 {
    let mut command = Args::command();
    command.build();
    let Some((current, before)) = words.split_last() else { return 0 };
    let mut scan = Scan::new(&command);
    if before.iter().any(|word| scan.read(word).is_err()) {
        return 0;
    }
    // Of --on=VALUE only the value is completed, and the rest is as it was typed.
    let (expected, typed, current) = match (scan.split(current), scan.expects(current)) {
        (Some((option, typed, value)), _) => (option, typed, OsStr::new(value)),
        (None, Some(expected)) => (expected, "", current.as_os_str()),
        (None, None) => return 0,
    };
    let global = Global::with(scan.value("on"), scan.value("config"));
    let found = match expected.get_id().as_str() {
        "on" => config::load(global.config.as_deref()).map(|it| it.stores.into_keys().collect()),
        // The name of a value is not that of its lock.
        "name" if scan.command() != "refresh" => names(&global, current),
        _ => return 0,
    };
    let start = current.to_string_lossy();
    let fitting = found.unwrap_or_default().into_iter().filter(|name: &String| {
        // A shell would take a line break for the end of a name, and this command a - for an option.
        let is_no_option = scan.is_escaped() || !name.starts_with('-');
        name.starts_with(&*start) && is_printable(name) && is_no_option
    });
    let lines: String = fitting.map(|name| format!("{typed}{name}\n")).collect();
    write_out(&lines).map_or_else(|failure| failure.code(), |()| 0)
}

/// The locks that are held or waited for and whose names start so.
fn names(global: &Global, start: &OsStr) -> Result<Vec<String>, Failure> {
    let Some(start) = start.to_str() else { return Ok(Vec::new()) };
    let store = Store::choose(global, &Output::new(false, true))?;
    if store.is_missing() {
        return Ok(Vec::new());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::internal("no runtime", error))?;
    let look = async {
        let locker = store.connect(Locker::builder()).await?;
        Ok::<_, Failure>(locker.list(start, None, NAMES_MAX).await?)
    };
    let found = runtime.block_on(async { tokio::time::timeout(PATIENCE, look).await });
    // What still hangs must not keep the shell waiting.
    runtime.shutdown_background();
    let locks = found.unwrap_or_else(|_| Ok(Vec::new()))?;
    Ok(locks.into_iter().map(|lock| lock.name.to_string()).collect())
}
