//! No two clients believe at one moment that they hold the lock. It needs Redlock's timing
//! assumption; fences do not help it.

use super::Invariant;
use crate::state::State;

/// See the module.
pub const EXCLUSION: Invariant = Invariant { name: "no two holders at one moment", holds };

fn holds(state: &State) -> bool {
    state.clients.iter().filter(|client| client.is_alive()).count() <= 1
}
