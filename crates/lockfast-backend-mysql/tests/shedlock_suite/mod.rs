//! The suite that every store passes, in the table of ShedLock, by a user with no more than the rights
//! that the README names. A fresh store is a table, with room for the names of the suite and told apart
//! byte by byte. What such a table cannot do is listed.
#![allow(unreachable_pub, reason = "what is shared is public, whoever uses it")]

use std::process::ExitCode;

use lockfast_conformance::Suite;
use lockfast_faults::mysql::Mysql;

use crate::kit;

const NO_LINE: &str =
    "nobody sees who waits for a row of ShedLock, and waiters look for themselves";
const NO_SHARING: &str = "a row of ShedLock has one owner";
const NO_PERMITS: &str = "a row of ShedLock has one owner";
const NO_FLOOR: &str = "a row that a Java program takes over forgets a floor";
const NO_EVENTS: &str = "nobody tells of changes in the table of ShedLock";
const NO_VALUES: &str = "the table of ShedLock has no column for a value";

const IGNORED: &[(&str, &str)] = &[
    ("downgrade::keeps_the_fence_and_the_lease", NO_SHARING),
    ("downgrade::does_not_prolong_the_lease", NO_SHARING),
    ("downgrade::lets_readers_in_up_to_the_next_writer", NO_SHARING),
    ("downgrade::lets_nobody_overtake_a_writer_that_waits", NO_SHARING),
    ("downgrade::never_lets_a_writer_in_beside_readers", NO_SHARING),
    ("downgrade::can_be_repeated", NO_SHARING),
    ("downgrade::is_how_it_is_held_from_then_on", NO_SHARING),
    ("downgrade::by_another_holder_changes_nothing", NO_SHARING),
    ("downgrade::after_the_end_changes_nothing", NO_SHARING),
    ("downgrade::is_refused_where_permits_are_used", NO_SHARING),
    ("downgrade::leaves_a_lease_that_can_be_revoked", NO_SHARING),
    ("writer::becomes_a_reader", NO_SHARING),
    ("writer::that_became_a_reader_is_kept", NO_SHARING),
    ("writer::without_an_answer_asks_again", NO_SHARING),
    ("writer::that_stops_asking_leaves_nothing", NO_SHARING),
    ("writer::is_checked_before_anything_is_touched", NO_SHARING),
    ("writer::with_other_guards_stays_one", NO_SHARING),
    ("writer::that_has_lost_its_lease_asks_nothing", NO_SHARING),
    ("acquisition::dropped_during_the_hand_over_is_undone", NO_LINE),
    ("acquisition::dropped_while_waiting_in_a_long_outage_is_undone", NO_LINE),
    ("cancellation::of_a_waiter_during_the_hand_over", NO_LINE),
    ("cancellation::of_a_waiter_that_asks_again", NO_LINE),
    ("cancellation::of_a_waiter_that_was_just_granted", NO_LINE),
    ("cancellation::works_outside_any_runtime", NO_LINE),
    ("deadline::comes_sooner_with_a_shorter_ttl", NO_LINE),
    ("deadline::of_a_waiter_is_not_after_the_store_lets_go", NO_LINE),
    ("deadline::of_a_waiter_starts_before_it_hears", NO_LINE),
    ("deadline::starts_again_with_a_renewal", NO_LINE),
    ("exclusion::readers_and_writers_exclude_each_other", NO_SHARING),
    ("fencing::is_shared_by_nobody", NO_SHARING),
    ("fencing::never_wraps", NO_FLOOR),
    ("fencing::rises_above_the_floor", NO_FLOOR),
    ("fencing::rises_in_hand_overs", NO_LINE),
    ("inspect::gives_no_secret_away", NO_EVENTS),
    ("inspect::lists_only_what_is_wanted", NO_LINE),
    ("inspect::shows_holders_and_waiters", NO_SHARING),
    ("leader::campaigns_that_are_dropped_leave_nothing", NO_LINE),
    ("leader::is_seen_by_those_who_only_look", NO_EVENTS),
    ("leader::one_leads_and_the_terms_rise", NO_LINE),
    ("leader::that_is_cut_off_is_told_in_time", NO_LINE),
    ("leader::that_is_deposed_is_told_and_stands_again", NO_LINE),
    ("leader::that_resigns_is_followed_at_once", NO_LINE),
    ("lease::of_a_waiter_may_be_as_long_as_any", NO_LINE),
    ("loss::before_its_guard_is_there_is_not_forgotten", NO_LINE),
    ("permits::and_exclusive_holders_exclude_each_other", NO_PERMITS),
    ("permits::are_all_given_out", NO_PERMITS),
    ("permits::are_never_more_than_the_limit", NO_PERMITS),
    ("permits::have_one_limit", NO_PERMITS),
    ("permits::that_expire_let_the_next_in", NO_PERMITS),
    ("primitives::a_multi_lock_is_not_given_out_in_part", NO_LINE),
    ("primitives::a_rwlock_has_readers_or_a_writer", NO_SHARING),
    ("primitives::a_semaphore_has_permits", NO_PERMITS),
    ("process::a_killed_holder_frees_its_lock", NO_LINE),
    ("process::a_killed_waiter_delays_nobody", NO_LINE),
    ("process::a_stopped_holder_loses_its_lease", NO_LINE),
    ("process::that_dies_leaves_its_barrier", NO_VALUES),
    ("process::that_dies_has_counted", NO_VALUES),
    ("process::that_dies_leaves_a_refresh_to_the_next", NO_VALUES),
    ("process::that_dies_is_followed_as_leader", NO_LINE),
    ("process::waiters_of_other_processes_are_woken", NO_LINE),
    ("queue::is_first_come_first_served", NO_LINE),
    ("queue::skips_a_waiter_that_gave_up", NO_LINE),
    ("queue::wakes_and_does_not_poll", NO_LINE),
    ("queue::wakes_one_waiter_per_release", NO_LINE),
    ("reentrance::is_one_grant_in_the_store", NO_LINE),
    ("reentrance::that_is_cancelled_is_not_counted", NO_LINE),
    ("refresh::are_computed_once", NO_VALUES),
    ("refresh::are_fresh_for_a_short_time", NO_VALUES),
    ("refresh::are_as_fresh_as_the_reader_wants", NO_VALUES),
    ("refresh::cost_one_read_while_they_are_fresh", NO_VALUES),
    ("refresh::do_not_press_a_store", NO_VALUES),
    ("refresh::give_the_last_value_meanwhile", NO_VALUES),
    ("refresh::go_on_when_many_waited_for_one_who_left", NO_VALUES),
    ("refresh::invalidations_are_not_undone_by_who_computes", NO_VALUES),
    ("refresh::stop_when_their_lock_is_lost", NO_VALUES),
    ("refresh::store_what_took_longer_than_the_last_value", NO_VALUES),
    ("refresh::tell_why_they_failed", NO_VALUES),
    ("release::grants_the_next_in_the_same_step", NO_LINE),
    ("release::removes_a_waiting_claim", NO_LINE),
    ("renewal::of_a_waiting_claim_grants_nothing", NO_LINE),
    ("retry::in_another_mode_is_refused", NO_SHARING),
    ("retry::of_a_release_frees_nobody_else", NO_LINE),
    ("retry::of_a_waiter_is_one_claim", NO_LINE),
    ("revoke::lets_the_next_in", NO_LINE),
    ("revoke::takes_it_from_all_holders", NO_SHARING),
    ("shared::holders_are_together", NO_SHARING),
    ("shared::holders_do_not_starve_a_writer", NO_SHARING),
    ("shared::holders_that_expire_let_a_writer_in", NO_SHARING),
    ("shared::holders_wait_for_a_writer_that_waits", NO_LINE),
    ("shared::waiters_enter_together", NO_SHARING),
    ("shared_state::barriers_do_not_count_one_twice", NO_VALUES),
    ("shared_state::barriers_do_not_count_who_left", NO_VALUES),
    ("shared_state::barriers_let_all_go_together", NO_VALUES),
    ("shared_state::barriers_outlast_places_that_are_taken_away", NO_VALUES),
    ("shared_state::barriers_take_many", NO_VALUES),
    ("shared_state::latches_are_counted_by_many_at_once", NO_VALUES),
    ("shared_state::latches_open_when_counted_down", NO_VALUES),
    ("shared_state::latches_refuse_what_does_not_go_together", NO_VALUES),
    ("shared_state::updates_are_all_counted", NO_VALUES),
    ("shared_state::updates_tell_of_a_conflict", NO_VALUES),
    ("shared_state::updates_whose_answer_is_lost_happen_once", NO_VALUES),
    ("shared_state::waits_outlast_a_store_that_fails", NO_VALUES),
    ("values::and_locks_are_apart", NO_VALUES),
    ("values::are_kept_to_the_byte", NO_VALUES),
    ("values::are_written_by_comparing_versions", NO_VALUES),
    ("values::end_by_themselves", NO_VALUES),
    ("values::know_a_repetition", NO_VALUES),
    ("values::lose_no_update", NO_VALUES),
    ("values::never_have_an_old_version_again", NO_VALUES),
    ("values::that_change_are_told", NO_VALUES),
    ("waiting::ends_with_the_grant", NO_LINE),
    ("waiting::not_at_all_answers_at_once", NO_LINE),
    ("watch::tells_of_a_hand_over", NO_EVENTS),
    ("watch::tells_of_a_revocation", NO_EVENTS),
    ("watch::tells_of_an_expiry", NO_LINE),
    ("watch::tells_who_gave_up", NO_EVENTS),
];

fn start() -> Mysql {
    let server = kit::setup().option("--max-connections=500").start();
    server.sql("CREATE USER locks IDENTIFIED BY 'word'");
    server
}

fn fresh_url(server: &Mysql, store: usize) -> String {
    let table = format!("shedlock_{store}");
    server.sql(&format!(
        "CREATE TABLE lockfast.{table}(name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin \
         NOT NULL, lock_until TIMESTAMP(3) NOT NULL, locked_at TIMESTAMP(3) NOT NULL DEFAULT \
         CURRENT_TIMESTAMP(3), locked_by VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL, \
         PRIMARY KEY (name)); GRANT SELECT, INSERT, UPDATE ON lockfast.{table} TO locks"
    ));
    format!("{}?mode=shedlock&table={table}", kit::url_at(server.address()))
}

/// Runs the suite.
pub fn run(name: &'static str) -> ExitCode {
    let connect = lockfast_backend_mysql::connect;
    Suite { name, start, fresh_url, connect, ignored: IGNORED }.run()
}
