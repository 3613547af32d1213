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
    ("process::that_dies_leaves_a_refresh_to_the_next", NO_TTL_NODES),
    ("release::of_a_detached_lease_is_asked_for", NO_DETACHING),
    ("release::works_from_any_connection", OWN_SESSION),
    ("refresh::are_computed_once", NO_TTL_NODES),
    ("refresh::tell_why_they_failed", NO_TTL_NODES),
    ("refresh::give_the_last_value_meanwhile", NO_TTL_NODES),
    ("refresh::stop_when_their_lock_is_lost", NO_TTL_NODES),
    ("refresh::store_what_took_longer_than_the_last_value", NO_TTL_NODES),
    ("refresh::do_not_press_a_store", NO_TTL_NODES),
    ("refresh::go_on_when_many_waited_for_one_who_left", NO_TTL_NODES),
    ("refresh::are_fresh_for_a_short_time", NO_TTL_NODES),
    ("refresh::cost_one_read_while_they_are_fresh", NO_TTL_NODES),
    ("refresh::invalidations_are_not_undone_by_who_computes", NO_TTL_NODES),
    ("values::end_by_themselves", NO_TTL_NODES),
];
