//! What a hold wrote is never overwritten by an older hold, one with a smaller fence.

use super::Invariant;
use crate::state::State;

/// See the module.
pub const NO_OLDER_WRITE: Invariant =
    Invariant { name: "no write is overwritten by an older hold", holds };

fn holds(state: &State) -> bool {
    !state.guarded.older_written
}
