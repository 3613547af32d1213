//! The suite that every store passes, with the server's own advisory locks. A fresh store is a
//! database, because all schemas of one share these. What such a lock cannot do is listed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    reason = "a panic is how a test fails, and the kit is shared"
)]

mod kit;

use std::process::ExitCode;

use lockfast_conformance::Suite;
use lockfast_faults::postgres::{Postgres, Setup};

const NO_EXPIRY: &str = "a session lock does not end by its ttl, only with its session";
const NO_DELAY: &str = "an advisory lock is free as soon as its connection ends";
const NO_OWN_FENCE: &str = "the server does not say which session has which fence";
const NO_PERMITS: &str = "an advisory lock has no permits";
const NO_EVENTS: &str = "the server does not tell of its advisory locks";
const NO_REASON: &str = "an operator ends the session, and the server tells no reason";
const NO_DETACHING: &str =
    "an advisory lock ends with its connection, so it cannot outlive the process";
const NO_VALUES: &str = "an advisory lock is a lock and nothing else; values are in tables";
const OWN_SESSION: &str = "only the process that has the session can release or renew it";

const IGNORED: &[(&str, &str)] = &[
    ("deadline::comes_sooner_with_a_shorter_ttl", NO_EXPIRY),
    ("deadline::frees_the_lock", NO_EXPIRY),
    ("deadline::is_not_after_the_store_lets_go", NO_EXPIRY),
    ("deadline::of_a_waiter_is_not_after_the_store_lets_go", NO_EXPIRY),
    ("deadline::starts_again_with_a_renewal", NO_EXPIRY),
    ("deadline::starts_again_with_a_repetition", NO_EXPIRY),
    ("downgrade::does_not_prolong_the_lease", NO_EXPIRY),
    ("downgrade::after_the_end_changes_nothing", NO_EXPIRY),
    ("downgrade::is_refused_where_permits_are_used", NO_PERMITS),
    ("downgrade::leaves_a_lease_that_can_be_revoked", NO_OWN_FENCE),
    ("fencing::rises_across_expiry", NO_EXPIRY),
    ("inspect::gives_no_secret_away", NO_EVENTS),
    ("inspect::lists_only_what_is_wanted", NO_EXPIRY),
    ("inspect::shows_holders_and_waiters", NO_OWN_FENCE),
    ("leader::is_seen_by_those_who_only_look", NO_EVENTS),
    ("lease::is_lengthened_by_the_store", NO_EXPIRY),
    ("lease::of_a_waiter_may_be_as_long_as_any", NO_EXPIRY),
    ("lease::that_nobody_keeps_is_kept_by_its_id", NO_DETACHING),
    ("lock_delay::does_not_matter_after_a_release", NO_DELAY),
    ("lock_delay::is_kept_by_renewals", NO_DELAY),
    ("lock_delay::keeps_the_lock_after_expiry", NO_DELAY),
    ("loss::before_its_guard_is_there_is_not_forgotten", NO_REASON),
    ("loss::by_revocation_is_told_with_the_reason", NO_REASON),
    ("loss::does_not_touch_the_next_holder", NO_EXPIRY),
    ("loss::stops_the_body_of_run", NO_EXPIRY),
    ("permits::and_exclusive_holders_exclude_each_other", NO_PERMITS),
    ("permits::are_all_given_out", NO_PERMITS),
    ("permits::are_never_more_than_the_limit", NO_PERMITS),
    ("permits::have_one_limit", NO_PERMITS),
    ("permits::that_expire_let_the_next_in", NO_PERMITS),
    ("primitives::a_semaphore_has_permits", NO_PERMITS),
    ("process::a_detached_lease_outlives_its_process", NO_DETACHING),
    ("process::a_stopped_holder_loses_its_lease", NO_EXPIRY),
    ("process::that_dies_leaves_its_barrier", NO_VALUES),
    ("process::that_dies_has_counted", NO_VALUES),
    ("process::that_dies_leaves_a_refresh_to_the_next", NO_VALUES),
    ("release::after_expiry_does_not_free_the_next", NO_EXPIRY),
    ("release::of_a_detached_lease_is_asked_for", NO_DETACHING),
    ("release::works_from_any_connection", OWN_SESSION),
    ("renewal::after_expiry_creates_nothing", NO_EXPIRY),
    ("renewal::by_another_holder_changes_nothing", NO_EXPIRY),
    (
        "renewal::of_a_large_batch_keeps_all",
        "each lock has a connection, and a server has not as many as the case has locks",
    ),
    ("revoke::is_told_to_the_holder", NO_REASON),
    ("shared::holders_that_expire_let_a_writer_in", NO_EXPIRY),
    ("shared::waiters_enter_together", OWN_SESSION),
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
    (
        "waiting::not_at_all_answers_at_once",
        "a session says who it is in 63 bytes, without the label's free text",
    ),
    ("watch::tells_of_a_hand_over", NO_EVENTS),
    ("watch::tells_of_a_revocation", NO_EVENTS),
    ("watch::tells_of_an_expiry", NO_EVENTS),
    ("watch::tells_who_gave_up", NO_EVENTS),
];

fn start() -> Postgres {
    let postgres = Setup::new().set("max_connections", "400").start();
    kit::create_role(&postgres);
    postgres
}

fn fresh_url(postgres: &Postgres, store: usize) -> String {
    let database = format!("store_{store}");
    postgres.create_database(&database);
    kit::make_schema_in(postgres, &database, kit::SCHEMA);
    format!("postgres://{}@{}/{database}?mode=advisory", kit::ROLE, postgres.address())
}

fn main() -> ExitCode {
    let connect = lockfast_backend_postgres::connect;
    Suite { name: "postgres_advisory", start, fresh_url, connect, ignored: IGNORED }.run()
}
