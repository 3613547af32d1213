//! One file for each command. Each takes what was typed and answers an exit code or a failure.

pub(crate) mod acquire;
pub(crate) mod bench;
pub(crate) mod complete;
pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod elect;
pub(crate) mod env;
pub(crate) mod fence;
pub(crate) mod force_release;
mod job;
pub(crate) mod list;
pub(crate) mod man;
pub(crate) mod migrate;
pub(crate) mod once;
pub(crate) mod refresh;
pub(crate) mod release;
pub(crate) mod renew;
pub(crate) mod run;
pub(crate) mod show;
pub(crate) mod torture;
pub(crate) mod view;
pub(crate) mod waiting;
pub(crate) mod watch;
