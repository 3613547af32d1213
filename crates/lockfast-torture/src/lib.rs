//! A fleet of processes that takes and loses locks while faults happen, and a referee outside the
//! fleet that judges what was recorded.

pub mod history;
pub mod judge;
pub mod rig;
