//! Where the suite runs, and what it cannot check on this store, with the reasons.

use lockfast_faults::zookeeper::{Access, Kind, Session};

const NO_DETACHING: &str = "a lease ends with the session of the process that has it";
const NO_DOWNGRADE: &str = "the mode is a part of the name of the node";
const NO_FLOOR: &str = "the servers choose the number of a transaction, which is the fence";
const NO_TTL_NODES: &str = "nodes with a time to live are switched off in servers as they come";
const OWN_SESSION: &str = "only the process that has the session can renew";

/// Who uses the store, as `user:password`.
pub(crate) const USER: &str = "app:word";

/// Makes a place for locks as the store's page says it.
pub(crate) fn make_place(session: &mut Session, chroot: &str) {
    const README: &str = include_str!("../../README.md");
    let (_, rights) = README.split_once(" auth::").expect("the README's rights");
    let rights = rights.split_whitespace().next().expect("the end of the README's rights");
    session.introduce(USER);
    let access = Access { rights, scheme: "auth", id: "" };
    session.try_create(chroot, b"", Kind::Persistent, &[access]).expect("a new place");
}

/// The cases that cannot run.
pub(crate) const IGNORED: &[(&str, &str)] = &[
    ("downgrade::keeps_the_fence_and_the_lease", NO_DOWNGRADE),
    ("downgrade::does_not_prolong_the_lease", NO_DOWNGRADE),
    ("downgrade::lets_readers_in_up_to_the_next_writer", NO_DOWNGRADE),
    ("downgrade::lets_nobody_overtake_a_writer_that_waits", NO_DOWNGRADE),
    ("downgrade::never_lets_a_writer_in_beside_readers", NO_DOWNGRADE),
    ("downgrade::can_be_repeated", NO_DOWNGRADE),
    ("downgrade::is_how_it_is_held_from_then_on", NO_DOWNGRADE),
    ("downgrade::by_another_holder_changes_nothing", NO_DOWNGRADE),
    ("downgrade::after_the_end_changes_nothing", NO_DOWNGRADE),
    ("downgrade::is_refused_where_permits_are_used", NO_DOWNGRADE),
    ("downgrade::leaves_a_lease_that_can_be_revoked", NO_DOWNGRADE),
    ("writer::becomes_a_reader", NO_DOWNGRADE),
    ("writer::that_became_a_reader_is_kept", NO_DOWNGRADE),
    ("writer::without_an_answer_asks_again", NO_DOWNGRADE),
    ("writer::that_stops_asking_leaves_nothing", NO_DOWNGRADE),
    ("writer::is_checked_before_anything_is_touched", NO_DOWNGRADE),
    ("writer::with_other_guards_stays_one", NO_DOWNGRADE),
    ("writer::that_has_lost_its_lease_asks_nothing", NO_DOWNGRADE),
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
    ("refresh::are_as_fresh_as_the_reader_wants", NO_TTL_NODES),
    ("refresh::cost_one_read_while_they_are_fresh", NO_TTL_NODES),
    ("refresh::invalidations_are_not_undone_by_who_computes", NO_TTL_NODES),
    ("values::end_by_themselves", NO_TTL_NODES),
];
