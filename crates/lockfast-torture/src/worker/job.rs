//! The command of a `lockfast run`: it uses the lock for as long as it lives, and records that.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use lockfast_core::Moment;
use lockfast_faults::ledger::Ledger;

use crate::history::{Event, What};
use crate::recorder::Recorder;

/// The hidden command by which it is started.
pub const COMMAND: &str = "__torture-job";

/// Between two lines that say that it lives.
const INTERVAL: Duration = Duration::from_millis(20);

/// The process of the command.
pub fn main(arguments: &[OsString]) -> ExitCode {
    match work(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn work(arguments: &[OsString]) -> io::Result<()> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidInput, "not started by a worker");
    let [directory, claim, ttl, held] = arguments else { return Err(wrong()) };
    let number = |text: &OsString| text.to_str().and_then(|text| text.parse().ok());
    let number = |text: &OsString| number(text).ok_or_else(wrong);
    let (claim, ttl, held): (u64, u64, u64) = (number(claim)?, number(ttl)?, number(held)?);
    let fence = number(&std::env::var_os("LOCKFAST_FENCE").ok_or_else(wrong)?)?;
    let name = std::env::var("LOCKFAST_NAME").map_err(|_| wrong())?;
    let directory = Path::new(directory);
    let recorder = Recorder::open(directory, &file_name(claim), None)?;
    recorder.record(What::RunStarted { claim, pid: std::process::id() });
    // Its lease was taken or renewed by now, so it ends by itself before this.
    let deadline = |at: Moment| at.host_ns() + ttl;
    recorder.record_if(|at| Some(What::Granted { claim, fence, deadline: deadline(at) }));
    let gate = Ledger::at(&directory.join(format!("{name}.gate")))?;
    let count = gate.count(fence)?;
    recorder.record(What::Wrote {
        claim,
        fence,
        admitted: count.admitted,
        highest: count.highest,
        number: count.number,
    });
    let end = Moment::now() + Duration::from_nanos(held);
    while !end.has_passed(Moment::now()) {
        std::thread::sleep(end.remaining(Moment::now()).min(INTERVAL));
        recorder.record_if(|at| Some(What::Still { claim, deadline: deadline(at) }));
    }
    let how = "release".to_owned();
    recorder.record_if(|at| {
        let deadline = deadline(at);
        Some(What::Ended { claim, how, cause: None, last: None, deadline, kept: None })
    });
    recorder.finish()
}

fn file_name(claim: u64) -> String {
    format!("job-{claim}.jsonl")
}

/// The process id of the command of a `run`, if it was started.
pub(crate) fn pid_of(directory: &Path, claim: u64) -> Option<u32> {
    started(&directory.join(file_name(claim))).map(|(_, pid)| pid)
}

/// The claim and the process id of a command, from what it recorded.
pub(crate) fn started(path: &Path) -> Option<(u64, u32)> {
    let text = std::fs::read_to_string(path).ok()?;
    let event: Event = serde_json::from_str(text.lines().next()?).ok()?;
    match event.what {
        What::RunStarted { claim, pid } => Some((claim, pid)),
        _ => None,
    }
}

/// Whether the command of a `run` is there, and not another process with its id.
pub(crate) fn is_running(pid: u32, claim: u64) -> bool {
    let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let has = |word: &[u8]| arguments.split(|byte| *byte == 0).any(|argument| argument == word);
    has(COMMAND.as_bytes()) && has(claim.to_string().as_bytes())
}
