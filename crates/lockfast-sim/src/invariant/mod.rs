//! What must hold in every state that can be reached, one invariant a file.

pub mod exclusion;
pub mod lost_stays_lost;
pub mod no_lost_update;
pub mod no_older_write;
pub mod rising_fences;
pub mod unique_fences;

use crate::state::State;

/// Something that every state must satisfy.
#[derive(Clone, Copy, Debug)]
pub struct Invariant {
    /// What it says.
    pub name: &'static str,
    /// Whether a state satisfies it.
    pub holds: fn(&State) -> bool,
}
