//! No two holds share a fence. It needs no assumption about time.

use super::Invariant;
use crate::state::State;

/// See the module.
pub const UNIQUE_FENCES: Invariant = Invariant { name: "no two holds share a fence", holds };

fn holds(state: &State) -> bool {
    let held = |at: usize| state.clients.get(at).map_or(0, |client| client.held);
    let shared = |a: usize, b: usize| held(a) != 0 && held(a) == held(b);
    !shared(0, 1) && !shared(0, 2) && !shared(1, 2)
}
