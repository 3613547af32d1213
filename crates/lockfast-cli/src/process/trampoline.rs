//! The last step before the command: a process that becomes it.
//!
//! The guard starts `lockfast __exec …` instead of the command, because what must happen between
//! fork and exec cannot be done from outside: asking the kernel to kill this process when the
//! guard dies, and taking the terminal.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};

use super::terminal;
use crate::exit::{Failure, INTERNAL, NOT_EXECUTABLE, NOT_FOUND};
use crate::output::Output;

/// The hidden command that runs it.
pub(crate) const COMMAND: &str = "__exec";

/// The arguments that come before the command's path, its name and its own arguments.
pub(crate) fn arguments(guard: Pid, takes_terminal: bool, output: &Output) -> [OsString; 4] {
    [
        COMMAND.into(),
        guard.as_raw_pid().to_string().into(),
        if takes_terminal { "terminal" } else { "plain" }.into(),
        output.form().into(),
    ]
}

/// Becomes the command. Returns an exit code only when that failed.
pub(crate) fn main(arguments: &[OsString]) -> u8 {
    let output = Output::of_form(arguments.get(2).map(OsString::as_os_str));
    let [guard, terminal_or_not, _form, path, name, rest @ ..] = arguments else {
        output.fail(&Failure::new(INTERNAL, "__exec is not for people"));
        return INTERNAL;
    };
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        output.fail(&Failure::internal("the command cannot be tied to its guard", error));
        return INTERNAL;
    }
    // The guard may have died before the line above.
    let parent = getppid().map_or(0, Pid::as_raw_pid).to_string();
    if OsStr::new(&parent) != guard {
        return INTERNAL;
    }
    if terminal_or_not == "terminal"
        && let Err(error) = terminal::give_to(std::io::stdin(), getpid())
    {
        output.warn(&format!("the command does not get the terminal: {error}"));
    }
    let error = Command::new(path).arg0(name).args(rest).exec();
    let shown = lockfast_core::error::quote(&name.to_string_lossy());
    let code = match error.kind() {
        std::io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    };
    let message = format!("the command {shown} cannot be executed: {error}");
    output.fail(&Failure::new(code, message));
    code
}
