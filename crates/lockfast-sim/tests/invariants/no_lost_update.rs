//! With the gate's open step no update is lost, whatever clocks do; without it one is.

use lockfast_sim::invariant::no_lost_update::NO_LOST_UPDATE;
use lockfast_sim::{Gate, Setup, Step};

use crate::{assert_broken, assert_holds, assert_nothing_met};

fn opened(nodes: usize, quorum: usize) -> Setup {
    Setup { gate: Gate::Opened, ..Setup::new(nodes, quorum) }
}

#[test]
fn three_nodes() {
    assert_holds(opened(3, 2), NO_LOST_UPDATE);
    assert_holds(Setup { clients: 3, proposals: 1, fence_max: 3, ..opened(3, 2) }, NO_LOST_UPDATE);
}

#[test]
fn five_nodes() {
    assert_holds(opened(5, 3), NO_LOST_UPDATE);
}

#[test]
fn five_nodes_and_three_clients() {
    assert_holds(Setup { clients: 3, proposals: 1, fence_max: 3, ..opened(5, 3) }, NO_LOST_UPDATE);
}

#[test]
fn also_with_as_many_forgetful_nodes_as_are_allowed() {
    assert_holds(Setup { forgetful: 2, fence_max: 2, ..opened(3, 3) }, NO_LOST_UPDATE);
}

#[test]
fn chance_meets_nothing_in_a_world_too_big_to_search() {
    let big = Setup { clients: 3, proposals: 2, fence_max: 6, adopt: true, ..opened(5, 3) };
    assert_nothing_met(big, NO_LOST_UPDATE);
}

#[test]
fn not_without_the_open_step() {
    let way = assert_broken(Setup { gate: Gate::Checked, ..opened(3, 2) }, NO_LOST_UPDATE);
    // The old holder's write is taken between the new holder's read and write.
    assert!(
        matches!(way[..], [.., Step::Write { client: old }, Step::Write { client: new }] if old != new)
    );
}

#[test]
fn not_with_one_forgetful_node_too_many() {
    assert_broken(Setup { forgetful: 1, ..opened(3, 2) }, NO_LOST_UPDATE);
}
