//! What a hold wrote is never overwritten by one with a smaller fence, if the gate checks.

use lockfast_sim::invariant::no_older_write::NO_OLDER_WRITE;
use lockfast_sim::{Gate, Setup};

use crate::{assert_broken, assert_holds};

#[test]
fn a_gate_that_checks_is_enough() {
    for gate in [Gate::Checked, Gate::Opened] {
        assert_holds(Setup { gate, ..Setup::new(3, 2) }, NO_OLDER_WRITE);
        assert_holds(Setup { gate, fence_max: 2, ..Setup::new(5, 3) }, NO_OLDER_WRITE);
    }
}

#[test]
fn a_fence_that_nobody_checks_protects_nothing() {
    assert_broken(Setup { gate: Gate::Unchecked, ..Setup::new(3, 2) }, NO_OLDER_WRITE);
}
