//! A renewal that begins after a hold with a greater fence has begun never succeeds, whatever
//! clocks do.

use lockfast_sim::invariant::lost_stays_lost::LOST_STAYS_LOST;
use lockfast_sim::{Flaw, Setup};

use crate::{assert_broken, assert_holds};

fn renewing(nodes: usize, quorum: usize) -> Setup {
    Setup { renewals: 1, relock: true, ..Setup::new(nodes, quorum) }
}

#[test]
fn three_nodes() {
    assert_holds(renewing(3, 2), LOST_STAYS_LOST);
}

#[test]
fn five_nodes() {
    assert_holds(Setup { fence_max: 2, ..renewing(5, 3) }, LOST_STAYS_LOST);
}

#[test]
fn also_with_as_many_forgetful_nodes_as_are_allowed() {
    assert_holds(Setup { forgetful: 2, fence_max: 2, ..renewing(3, 3) }, LOST_STAYS_LOST);
}

#[test]
fn also_when_a_client_begins_anew_and_takes_what_it_has() {
    assert_holds(Setup { adopt: true, fence_max: 3, ..renewing(3, 2) }, LOST_STAYS_LOST);
}

#[test]
fn not_if_a_renewal_counts_a_later_proposal() {
    let flawed = Setup { adopt: true, fence_max: 3, ..renewing(3, 2) };
    assert_broken(Setup { flaw: Flaw::BlindRenewal, ..flawed }, LOST_STAYS_LOST);
}

#[test]
fn not_if_a_renewal_takes_the_lock_where_it_is_free() {
    assert_broken(Setup { flaw: Flaw::CreatingRenewal, ..renewing(3, 2) }, LOST_STAYS_LOST);
}
