//! Under the timing assumption, fences rise in the order in which holds begin.

use lockfast_sim::invariant::rising_fences::RISING_FENCES;
use lockfast_sim::{Flaw, Setup};

use crate::{assert_broken, assert_holds, assert_nothing_met};

#[test]
fn three_nodes() {
    assert_holds(Setup::timed(3, 2), RISING_FENCES);
    assert_holds(
        Setup { clients: 3, proposals: 1, fence_max: 3, ..Setup::timed(3, 2) },
        RISING_FENCES,
    );
}

#[test]
fn five_nodes() {
    assert_holds(Setup { fence_max: 2, ..Setup::timed(5, 3) }, RISING_FENCES);
    assert_holds(
        Setup { clients: 3, proposals: 1, fence_max: 3, ..Setup::timed(5, 3) },
        RISING_FENCES,
    );
}

#[test]
fn also_when_a_client_begins_anew_and_takes_what_it_has() {
    assert_holds(Setup { adopt: true, fence_max: 2, ..Setup::timed(3, 2) }, RISING_FENCES);
}

#[test]
fn also_with_renewals_forgetful_nodes_and_locking_again() {
    let busy = Setup { proposals: 1, renewals: 1, fence_max: 2, ..Setup::timed(3, 3) };
    assert_holds(Setup { forgetful: 2, relock: true, ..busy }, RISING_FENCES);
}

#[test]
fn chance_meets_nothing_in_a_world_too_big_to_search() {
    let big = Setup { clients: 3, proposals: 2, fence_max: 6, ..Setup::timed(5, 3) };
    assert_nothing_met(Setup { adopt: true, renewals: 1, relock: true, ..big }, RISING_FENCES);
}

#[test]
fn not_if_a_late_undo_takes_a_later_grant() {
    assert_broken(Setup { flaw: Flaw::BlindUndo, ..Setup::timed(3, 2) }, RISING_FENCES);
}
