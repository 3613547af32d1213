//! Every machine has the same crontab, and one run of the job is enough. Here three processes of this
//! machine are started at the same time: one runs the job, the others skip it and say who has it.
//!
//! ```text
//! cargo run --example cron_job
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use lockfast::Ran;
use lockfast::blocking::Locker;

/// What cron starts.
pub(crate) fn report(store: &str) -> lockfast::Result<String> {
    let job = Locker::connect(store)?
        .once("nightly-report", Duration::from_secs(600))? // it never takes longer
        .at_least(Duration::from_secs(60)); // and cron is never so late
    let ran = job.run(|lease| format!("written with fence {}", lease.fence()))?;
    Ok(match ran {
        Ran::Done(report) => report,
        Ran::Skipped(refusal) => format!("skipped: {refusal}"),
    })
}

/// Starts the job in three processes, each of which is told the store; what each of them said.
pub(crate) fn start_three(
    directory: &Path,
    job: impl Fn(&str) -> Command,
) -> std::io::Result<Vec<String>> {
    let store = format!("embedded:{}", directory.display());
    let start = |_| job(&store).stdout(Stdio::piped()).spawn();
    let running: Vec<_> = (0..3).map(start).collect::<std::io::Result<_>>()?;
    let finish = |process: std::process::Child| {
        let said = process.wait_with_output()?.stdout;
        Ok(String::from_utf8_lossy(&said).into_owned())
    };
    running.into_iter().map(finish).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Some(store) = std::env::args().nth(1) {
        println!("{}", report(&store)?);
        return Ok(());
    }
    let (directory, program) = (tempfile::tempdir()?, std::env::current_exe()?);
    let job = |store: &str| {
        let mut command = Command::new(&program);
        command.arg(store);
        command
    };
    for said in start_three(directory.path(), job)? {
        print!("{said}");
    }
    Ok(())
}
