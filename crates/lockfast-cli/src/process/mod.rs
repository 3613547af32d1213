//! Processes of the operating system: finding commands, the tree below us, signals, the terminal.

pub(crate) mod capture;
pub(crate) mod descriptor;
mod interpreter;
pub(crate) mod lookup;
pub(crate) mod signals;
pub(crate) mod terminal;
pub(crate) mod timer;
pub(crate) mod token;
pub(crate) mod trampoline;
pub(crate) mod tree;
