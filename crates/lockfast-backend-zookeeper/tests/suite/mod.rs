//! What the suite cannot check on this store, with the reasons.

const NO_DETACHING: &str = "a lease ends with the session of the process that has it";
const NO_FLOOR: &str = "the servers choose the number of a transaction, which is the fence";
const NO_TTL_NODES: &str = "nodes with a time to live are switched off in servers as they come";
const OWN_SESSION: &str = "only the process that has the session can renew";

/// The cases that cannot run.
pub(crate) const IGNORED: &[(&str, &str)] = &[
    ("fencing::never_wraps", NO_FLOOR),
    ("fencing::rises_above_the_floor", NO_FLOOR),
    ("lease::that_nobody_keeps_is_kept_by_its_id", NO_DETACHING),
    ("process::a_detached_lease_outlives_its_process", NO_DETACHING),
    ("release::of_a_detached_lease_is_asked_for", NO_DETACHING),
    ("release::works_from_any_connection", OWN_SESSION),
    ("shared_state::refreshes_are_computed_once", NO_TTL_NODES),
    ("shared_state::refreshes_tell_why_they_failed", NO_TTL_NODES),
    ("shared_state::refreshes_give_the_last_value_meanwhile", NO_TTL_NODES),
    ("shared_state::refreshes_stop_when_their_lock_is_lost", NO_TTL_NODES),
    ("values::end_by_themselves", NO_TTL_NODES),
];
