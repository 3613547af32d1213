//! No two holds share a fence, whatever clocks do.

use lockfast_sim::invariant::unique_fences::UNIQUE_FENCES;
use lockfast_sim::{Flaw, Setup};

use crate::{assert_broken, assert_holds, assert_nothing_met};

#[test]
fn three_nodes() {
    assert_holds(Setup::new(3, 2), UNIQUE_FENCES);
    assert_holds(Setup { proposals: 3, fence_max: 6, ..Setup::new(3, 2) }, UNIQUE_FENCES);
    assert_holds(Setup { clients: 3, fence_max: 3, ..Setup::new(3, 2) }, UNIQUE_FENCES);
}

#[test]
fn five_nodes() {
    assert_holds(Setup::new(5, 3), UNIQUE_FENCES);
    assert_holds(
        Setup { clients: 3, proposals: 1, fence_max: 3, ..Setup::new(5, 3) },
        UNIQUE_FENCES,
    );
}

#[test]
fn also_an_even_number_of_nodes() {
    assert_holds(Setup::new(2, 2), UNIQUE_FENCES);
    assert_holds(Setup::new(4, 3), UNIQUE_FENCES);
}

#[test]
fn also_when_a_client_begins_anew_and_takes_what_it_has() {
    assert_holds(Setup { adopt: true, ..Setup::new(3, 2) }, UNIQUE_FENCES);
    assert_holds(
        Setup { adopt: true, undo: true, fence_max: 2, ..Setup::new(3, 2) },
        UNIQUE_FENCES,
    );
}

#[test]
fn also_with_undo_renewals_and_nodes_that_are_locked_again() {
    let busy = Setup { undo: true, renewals: 1, relock: true, ..Setup::new(3, 2) };
    assert_holds(busy, UNIQUE_FENCES);
    assert_holds(Setup { forgetful: 2, fence_max: 2, quorum: 3, ..busy }, UNIQUE_FENCES);
}

#[test]
fn chance_meets_nothing_in_a_world_too_big_to_search() {
    let big = Setup { clients: 3, proposals: 2, fence_max: 6, ..Setup::new(5, 3) };
    let big = Setup { undo: true, adopt: true, renewals: 1, relock: true, ..big };
    assert_nothing_met(big, UNIQUE_FENCES);
    assert_nothing_met(Setup { quorum: 4, forgetful: 2, ..big }, UNIQUE_FENCES);
}

#[test]
fn not_without_a_majority() {
    assert_eq!(Setup::new(4, 2).forgetful_bound(), None);
    assert_broken(Setup::new(4, 2), UNIQUE_FENCES);
}

#[test]
fn not_if_a_node_takes_a_fence_twice() {
    assert_broken(Setup { flaw: Flaw::EqualFences, ..Setup::new(3, 2) }, UNIQUE_FENCES);
}

#[test]
fn not_if_a_client_adds_up_different_proposals() {
    assert_broken(Setup { flaw: Flaw::MixedCount, ..Setup::new(3, 2) }, UNIQUE_FENCES);
}
