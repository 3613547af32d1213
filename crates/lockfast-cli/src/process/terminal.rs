//! Whose turn it is to use the terminal.
//!
//! An interactive command must be in the terminal's foreground group, or its first read stops it.

use std::io;
use std::os::fd::AsFd;

use nix::sys::signal::{SigSet, Signal};
use rustix::process::{Pid, getpgrp};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

/// Whether `fd` is the terminal of our session.
pub(crate) fn is_in_session(fd: impl AsFd) -> bool {
    tcgetpgrp(fd).is_ok()
}

/// Whether `fd` is our terminal and we are its foreground group.
pub(crate) fn is_ours(fd: impl AsFd) -> bool {
    tcgetpgrp(fd).is_ok_and(|foreground| foreground == getpgrp())
}

/// Gives the terminal to a process group of this session, also from the background.
///
/// # Errors
/// When it is not our terminal, or the group is gone.
pub(crate) fn give_to(fd: impl AsFd, group: Pid) -> io::Result<()> {
    // Whoever does this from the background is stopped by SIGTTOU unless it is blocked. The mask
    // goes back at once, because the command would inherit it.
    let mut blocked = SigSet::empty();
    blocked.add(Signal::SIGTTOU);
    let before = blocked.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK)?;
    let given = tcsetpgrp(fd, group);
    before.thread_set_mask()?;
    Ok(given?)
}

/// Gives the terminal to `group` if `from` has it.
pub(crate) fn pass_on(fd: impl AsFd, from: Pid, group: Pid) {
    if tcgetpgrp(&fd).is_ok_and(|foreground| foreground == from) {
        // Without the terminal the caller's shell still works; it takes it back itself.
        let _ = give_to(&fd, group);
    }
}
