//! Under the timing assumption, no two clients believe at one moment that they hold the lock.

use lockfast_sim::invariant::exclusion::EXCLUSION;
use lockfast_sim::{Flaw, Setup};

use crate::{assert_broken, assert_holds, assert_nothing_met};

#[test]
fn three_nodes_with_retries_and_releases() {
    assert_holds(Setup::timed(3, 2), EXCLUSION);
}

#[test]
fn five_nodes() {
    assert_holds(Setup { fence_max: 2, ..Setup::timed(5, 3) }, EXCLUSION);
}

#[test]
fn also_with_renewals_that_overtake_proposals() {
    assert_holds(Setup { renewals: 1, fence_max: 3, ..Setup::timed(3, 2) }, EXCLUSION);
}

#[test]
fn also_with_as_many_forgetful_nodes_as_are_allowed_and_locking_again() {
    let busy = Setup { proposals: 1, renewals: 1, fence_max: 2, ..Setup::timed(4, 3) };
    assert_holds(Setup { forgetful: 1, relock: true, ..busy }, EXCLUSION);
}

#[test]
fn also_when_a_client_begins_anew_and_takes_what_it_has() {
    assert_holds(Setup { adopt: true, fence_max: 3, ..Setup::timed(3, 2) }, EXCLUSION);
}

#[test]
fn chance_meets_nothing_in_a_world_too_big_to_search() {
    let big = Setup { clients: 3, proposals: 2, fence_max: 6, ..Setup::timed(5, 3) };
    assert_nothing_met(Setup { adopt: true, renewals: 1, relock: true, ..big }, EXCLUSION);
}

#[test]
fn not_if_a_late_undo_takes_a_later_grant() {
    assert_broken(Setup { flaw: Flaw::BlindUndo, ..Setup::timed(3, 2) }, EXCLUSION);
}

#[test]
fn not_if_a_client_takes_what_it_has_told_nodes_to_undo() {
    let flawed = Setup { adopt: true, flaw: Flaw::UndoneAdopted, ..Setup::timed(3, 2) };
    assert_broken(Setup { fence_max: 2, ..flawed }, EXCLUSION);
}

#[test]
fn not_if_a_late_request_shortens_a_grant() {
    let flawed = Setup { renewals: 1, flaw: Flaw::Shortening, ..Setup::timed(3, 2) };
    assert_broken(Setup { undo: false, fence_max: 3, ..flawed }, EXCLUSION);
}

#[test]
fn not_if_a_renewal_counts_an_earlier_proposal() {
    let flawed = Setup { renewals: 1, flaw: Flaw::BlindRenewal, ..Setup::timed(3, 2) };
    assert_broken(Setup { fence_max: 3, ..flawed }, EXCLUSION);
}

#[test]
fn not_with_one_forgetful_node_too_many() {
    assert_broken(Setup { forgetful: 1, fence_max: 2, ..Setup::timed(3, 2) }, EXCLUSION);
}
