//! A child process that can be killed, stopped and continued, by its pid and no other, and that
//! talks in lines.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use lockfast_core::Moment;
use rustix::process::{Pid, Signal, kill_process};

use super::pause;

/// A running child. Dropping it kills it and waits for its end.
#[derive(Debug)]
pub struct Child {
    child: std::process::Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Child {
    /// Starts a command with its input and output connected to this process.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = child.stdin.take();
        let (sender, lines) = channel();
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Self { child, stdin, lines })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a line.
    ///
    /// # Errors
    /// When it has closed its input.
    pub fn send(&mut self, line: &str) -> io::Result<()> {
        match &mut self.stdin {
            Some(stdin) => writeln!(stdin, "{line}"),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// The rest of the first line that starts with `word`; other lines are skipped.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] when none comes within `bound`, and
    /// [`io::ErrorKind::UnexpectedEof`] when the child ended instead.
    pub fn wait_for(&self, word: &str, bound: Duration) -> io::Result<String> {
        let start = Moment::now();
        loop {
            let left = (start + bound).remaining(Moment::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    if let Some(rest) = line.strip_prefix(word) {
                        return Ok(rest.trim().to_owned());
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    let message = format!("no line \"{word}\" within {bound:?}");
                    return Err(io::Error::new(io::ErrorKind::TimedOut, message));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let message = format!("the child ended before it said \"{word}\"");
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
                }
            }
        }
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Kills it (SIGKILL) and waits for its end.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        self.child.wait()
    }

    /// Asks it to end, as an interrupt at the terminal does (SIGINT).
    ///
    /// # Errors
    /// When it has ended.
    pub fn interrupt(&self) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), Signal::INT)?)
    }

    /// Stops it (SIGSTOP) and returns when it has stopped.
    ///
    /// # Errors
    /// When it has ended.
    pub fn stop(&self) -> io::Result<()> {
        pause::stop(self.pid())
    }

    /// Lets it continue (SIGCONT).
    ///
    /// # Errors
    /// When it has ended.
    pub fn resume(&self) -> io::Result<()> {
        pause::resume(self.pid())
    }

    /// Closes its input and waits for its end; kills it after `bound`.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] when it had to be killed.
    pub fn finish(&mut self, bound: Duration) -> io::Result<ExitStatus> {
        self.stdin = None;
        let start = Moment::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Moment::now().since(start) > bound {
                self.kill()?;
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It has ended already, or there is nothing more to be done about it.
        let _ = self.kill();
    }
}
