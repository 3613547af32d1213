//! The signals that are passed on, and those that this process was told to ignore.

use std::io;

use rustix::process::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// Everything that `run` passes on to its command.
const PASSED: [Signal; 6] =
    [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];

/// The passed signals as they arrive. A signal that was ignored when this process started (as
/// under `nohup`) stays ignored, here and in the command.
pub(crate) struct Signals {
    streams: Vec<(Signal, Stream)>,
}

impl Signals {
    /// Starts to listen.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub(crate) fn listen() -> io::Result<Self> {
        let ignored = ignored_signals();
        let mut streams = Vec::with_capacity(PASSED.len());
        for passed in PASSED {
            let number = passed.as_raw();
            if ignored & (1 << (number - 1)) == 0 {
                streams.push((passed, signal(SignalKind::from_raw(number))?));
            }
        }
        Ok(Self { streams })
    }

    /// The next signal.
    ///
    /// # Cancel safety
    /// Safe: no signal is lost.
    pub(crate) async fn next(&mut self) -> Signal {
        std::future::poll_fn(|context| {
            for (passed, stream) in &mut self.streams {
                if stream.poll_recv(context).is_ready() {
                    return std::task::Poll::Ready(*passed);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }
}

/// The mask of ignored signals; bit 0 is signal 1.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

/// The word for a signal that people know.
pub(crate) fn name_of(signal: Signal) -> String {
    let known = [
        (Signal::TERM, "SIGTERM"),
        (Signal::INT, "SIGINT"),
        (Signal::HUP, "SIGHUP"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::USR1, "SIGUSR1"),
        (Signal::USR2, "SIGUSR2"),
    ];
    known
        .iter()
        .find(|(one, _)| *one == signal)
        .map_or_else(|| format!("signal {}", signal.as_raw()), |(_, name)| (*name).to_owned())
}
