//! No update is lost: the data show every update that the gate has taken. It needs the gate's open
//! step, and no assumption about time.

use super::Invariant;
use crate::state::State;

/// See the module.
pub const NO_LOST_UPDATE: Invariant = Invariant { name: "no update is lost", holds };

fn holds(state: &State) -> bool {
    state.guarded.shown == state.guarded.taken
}
