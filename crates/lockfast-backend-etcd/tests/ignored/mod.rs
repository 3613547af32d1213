//! The cases of the suite that etcd cannot run, and why.
#![allow(unreachable_pub, reason = "what is shared is public, whoever uses it")]

const NO_DOWNGRADE: &str = "the mode of a key never changes";

pub const CASES: &[(&str, &str)] = &[
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
    ("fencing::rises_above_the_floor", "a fence is a revision, which nobody can raise"),
    ("fencing::never_wraps", "the same: a floor is refused when the lock is made"),
];
