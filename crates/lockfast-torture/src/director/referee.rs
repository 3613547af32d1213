//! The process that judges: it is started with the run, counts along, and concludes when it is over.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout};
use tokio::sync::watch;

use crate::judge::{Counts, Verdict};
use crate::referee::{COMMAND, VERDICT};

/// A running referee.
pub(super) struct Referee {
    child: Child,
    counts: watch::Receiver<Option<Counts>>,
    verdict: PathBuf,
}

impl Referee {
    /// Starts it on the directory of a history that is about to begin.
    pub(super) fn start(directory: &Path) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        // A group of its own: an interrupt at the terminal is for the director.
        command.arg(COMMAND).arg(directory).process_group(0);
        // It ends with its input too, so that it does not outlive us.
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = tokio::process::Command::from(command).spawn()?;
        let (sender, counts) = watch::channel(None);
        if let Some(output) = child.stdout.take() {
            tokio::spawn(listen(output, sender));
        }
        Ok(Self { child, counts, verdict: directory.join(VERDICT) })
    }

    /// What it has counted so far.
    pub(super) fn counts(&self) -> Option<Counts> {
        self.counts.borrow().clone()
    }

    /// Waits for its verdict, when the end of the run is recorded.
    pub(super) async fn conclude(mut self) -> io::Result<Verdict> {
        // Waiting would close its input, and it would not wait for the end.
        let input = self.child.stdin.take();
        let status = self.child.wait().await?;
        drop(input);
        if !status.success() {
            return Err(io::Error::other(format!("the referee ended with {status}")));
        }
        Ok(serde_json::from_slice(&std::fs::read(&self.verdict)?)?)
    }
}

async fn listen(output: ChildStdout, counts: watch::Sender<Option<Counts>>) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Ok(counted) = serde_json::from_str(&line) {
            counts.send_replace(Some(counted));
        }
    }
}
