//! A renewal that begins after somebody got a hold with a greater fence never succeeds: what is
//! lost stays lost. It needs no assumption about time.

use super::Invariant;
use crate::state::State;

/// See the module.
pub const LOST_STAYS_LOST: Invariant =
    Invariant { name: "a hold that was followed by a greater one is not renewed", holds };

fn holds(state: &State) -> bool {
    !state.revived
}
