//! Fences rise in the order in which holds begin. It needs Redlock's timing assumption.

use super::Invariant;
use crate::state::State;

/// See the module.
pub const RISING_FENCES: Invariant =
    Invariant { name: "fences rise in the order of acquisition", holds };

fn holds(state: &State) -> bool {
    !state.fell
}
