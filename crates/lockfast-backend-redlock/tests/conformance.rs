//! The suite that every store passes, on three real servers and with the rights that the README names.
//! A fresh store is a prefix that nobody has used.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod kit;

use std::process::ExitCode;

use kit::{Redis, Setup, rights};
use lockfast_conformance::Suite;

const ONE_HOLDER: &str = "nodes that do not know each other grant a lock to one holder at a time";
const NO_ORDER: &str = "nobody orders those who wait: they try again when they are called";

const NO_VALUES: &str =
    "nodes that know nothing of each other have no write that is the last on all of them";

const IGNORED: &[(&str, &str)] = &[
    ("downgrade::keeps_the_fence_and_the_lease", ONE_HOLDER),
    ("downgrade::does_not_prolong_the_lease", ONE_HOLDER),
    ("downgrade::lets_readers_in_up_to_the_next_writer", ONE_HOLDER),
    ("downgrade::lets_nobody_overtake_a_writer_that_waits", ONE_HOLDER),
    ("downgrade::never_lets_a_writer_in_beside_readers", ONE_HOLDER),
    ("downgrade::can_be_repeated", ONE_HOLDER),
    ("downgrade::is_how_it_is_held_from_then_on", ONE_HOLDER),
    ("downgrade::by_another_holder_changes_nothing", ONE_HOLDER),
    ("downgrade::after_the_end_changes_nothing", ONE_HOLDER),
    ("downgrade::is_refused_where_permits_are_used", ONE_HOLDER),
    ("downgrade::leaves_a_lease_that_can_be_revoked", ONE_HOLDER),
    ("writer::becomes_a_reader", ONE_HOLDER),
    ("writer::that_became_a_reader_is_kept", ONE_HOLDER),
    ("writer::without_an_answer_asks_again", ONE_HOLDER),
    ("writer::that_stops_asking_leaves_nothing", ONE_HOLDER),
    ("writer::is_checked_before_anything_is_touched", ONE_HOLDER),
    ("writer::with_other_guards_stays_one", ONE_HOLDER),
    ("writer::that_has_lost_its_lease_asks_nothing", ONE_HOLDER),
    ("exclusion::readers_and_writers_exclude_each_other", ONE_HOLDER),
    ("fencing::is_shared_by_nobody", ONE_HOLDER),
    ("inspect::shows_holders_and_waiters", ONE_HOLDER),
    ("permits::and_exclusive_holders_exclude_each_other", ONE_HOLDER),
    ("permits::are_all_given_out", ONE_HOLDER),
    ("permits::are_never_more_than_the_limit", ONE_HOLDER),
    ("permits::have_one_limit", ONE_HOLDER),
    ("permits::that_expire_let_the_next_in", ONE_HOLDER),
    ("primitives::a_rwlock_has_readers_or_a_writer", ONE_HOLDER),
    ("primitives::a_semaphore_has_permits", ONE_HOLDER),
    ("process::that_dies_leaves_its_barrier", NO_VALUES),
    ("process::that_dies_has_counted", NO_VALUES),
    ("process::that_dies_leaves_a_refresh_to_the_next", NO_VALUES),
    ("queue::is_first_come_first_served", NO_ORDER),
    ("release::grants_the_next_in_the_same_step", NO_ORDER),
    ("retry::in_another_mode_is_refused", ONE_HOLDER),
    ("revoke::takes_it_from_all_holders", ONE_HOLDER),
    ("shared::holders_are_together", ONE_HOLDER),
    ("shared::holders_that_expire_let_a_writer_in", ONE_HOLDER),
    ("shared::holders_do_not_starve_a_writer", ONE_HOLDER),
    ("shared::holders_wait_for_a_writer_that_waits", ONE_HOLDER),
    ("shared::waiters_enter_together", ONE_HOLDER),
    ("shared_state::updates_are_all_counted", NO_VALUES),
    ("shared_state::updates_tell_of_a_conflict", NO_VALUES),
    ("shared_state::updates_whose_answer_is_lost_happen_once", NO_VALUES),
    ("shared_state::latches_open_when_counted_down", NO_VALUES),
    ("shared_state::latches_are_counted_by_many_at_once", NO_VALUES),
    ("shared_state::latches_refuse_what_does_not_go_together", NO_VALUES),
    ("shared_state::barriers_let_all_go_together", NO_VALUES),
    ("shared_state::barriers_do_not_count_who_left", NO_VALUES),
    ("shared_state::barriers_do_not_count_one_twice", NO_VALUES),
    ("shared_state::barriers_outlast_places_that_are_taken_away", NO_VALUES),
    ("shared_state::barriers_take_many", NO_VALUES),
    ("shared_state::waits_outlast_a_store_that_fails", NO_VALUES),
    ("refresh::are_computed_once", NO_VALUES),
    ("refresh::tell_why_they_failed", NO_VALUES),
    ("refresh::give_the_last_value_meanwhile", NO_VALUES),
    ("refresh::stop_when_their_lock_is_lost", NO_VALUES),
    ("refresh::store_what_took_longer_than_the_last_value", NO_VALUES),
    ("refresh::do_not_press_a_store", NO_VALUES),
    ("refresh::go_on_when_many_waited_for_one_who_left", NO_VALUES),
    ("refresh::are_fresh_for_a_short_time", NO_VALUES),
    ("refresh::are_as_fresh_as_the_reader_wants", NO_VALUES),
    ("refresh::cost_one_read_while_they_are_fresh", NO_VALUES),
    ("refresh::invalidations_are_not_undone_by_who_computes", NO_VALUES),
    ("values::and_locks_are_apart", NO_VALUES),
    ("values::are_kept_to_the_byte", NO_VALUES),
    ("values::are_written_by_comparing_versions", NO_VALUES),
    ("values::end_by_themselves", NO_VALUES),
    ("values::know_a_repetition", NO_VALUES),
    ("values::lose_no_update", NO_VALUES),
    ("values::never_have_an_old_version_again", NO_VALUES),
    ("values::that_change_are_told", NO_VALUES),
];

fn start() -> [Redis; 3] {
    let line = format!("user locks on >word {}", rights("~store-*"));
    std::array::from_fn(|_| Setup::new().line(&line).start())
}

fn fresh_url(servers: &[Redis; 3], store: usize) -> String {
    let nodes = servers.each_ref().map(|server| server.address().to_string());
    // A machine that runs all cases at once is slower than what the default is made for.
    format!("redlock://locks:word@{}?prefix=store-{store}:&node_timeout=1s", nodes.join(","))
}

fn main() -> ExitCode {
    let connect = lockfast_backend_redlock::connect;
    Suite { name: "redlock", start, fresh_url, connect, ignored: IGNORED }.run()
}
