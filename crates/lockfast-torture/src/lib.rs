//! A fleet of processes that takes and loses locks while faults happen, and a referee outside the
//! fleet that judges what was recorded.
//!
//! | looking for | it is in |
//! |---|---|
//! | what is recorded | [`history`] |
//! | which faults there are, and when they happen | [`fault`], [`schedule`] |
//! | who starts, breaks and ends everything | [`director`] |
//! | who takes the locks | [`worker`] |
//! | the way between the two | [`route`] |
//! | servers that are started for a run | [`rig`] |
//! | who judges it | [`referee`], [`judge`] |

pub mod director;
pub mod fault;
pub mod history;
pub mod judge;
pub mod merge;
pub mod recorder;
pub mod referee;
mod report;
pub mod rig;
pub mod route;
pub mod schedule;
pub mod summary;
pub mod worker;
