//! Redlock without fences has the flaws it is known for, and the model finds them.

use lockfast_sim::invariant::exclusion::EXCLUSION;
use lockfast_sim::invariant::no_lost_update::NO_LOST_UPDATE;
use lockfast_sim::{Flaw, Gate, Setup, Step};

use crate::{assert_broken, assert_holds};

#[test]
fn a_paused_holder_overwrites_what_the_next_one_wrote() {
    let plain = Setup { flaw: Flaw::NoFences, gate: Gate::Unchecked, ..Setup::new(3, 2) };
    assert_broken(plain, NO_LOST_UPDATE);
    assert_broken(Setup { fence_max: 2, ..plain }, NO_LOST_UPDATE);
}

#[test]
fn the_paused_holder_does_so_also_when_every_clock_is_right() {
    let plain = Setup { flaw: Flaw::NoFences, gate: Gate::Unchecked, ..Setup::timed(3, 2) };
    let way = assert_broken(Setup { proposals: 1, fence_max: 2, ..plain }, NO_LOST_UPDATE);
    assert!(way.iter().any(|step| matches!(step, Step::End { .. } | Step::Release { .. })));
}

#[test]
fn a_node_that_restarts_empty_gives_two_holders() {
    let plain = Setup { flaw: Flaw::NoFences, proposals: 1, fence_max: 2, ..Setup::timed(3, 2) };
    assert_holds(plain, EXCLUSION);
    let way = assert_broken(Setup { forgetful: 1, ..plain }, EXCLUSION);
    assert!(way.iter().any(|step| matches!(step, Step::Forget { .. })));
}

#[test]
fn fences_and_the_open_step_mend_the_paused_holder() {
    assert_holds(
        Setup { gate: Gate::Opened, proposals: 1, fence_max: 2, ..Setup::timed(3, 2) },
        NO_LOST_UPDATE,
    );
}
