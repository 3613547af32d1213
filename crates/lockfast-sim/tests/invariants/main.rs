//! Searches of fenced Redlock, one invariant a file: where it must hold, and that the model finds
//! the way when a rule is broken. The first line of each file says what is claimed.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "this is a test")]

mod exclusion;
mod forgetful_bound;
mod lost_stays_lost;
mod no_lost_update;
mod no_older_write;
mod plain_redlock;
mod reduction;
mod rising_fences;
mod unique_fences;

use lockfast_sim::{Invariant, Setup, Step, exhaust, roam};

/// Nothing that can happen breaks the invariant, and what can happen includes that everybody gets
/// the lock: a model in which nobody gets anything would keep every promise.
#[track_caller]
fn assert_holds(setup: Setup, invariant: Invariant) {
    let found = exhaust(setup, invariant).expect("a setup that can be built");
    println!("{} states, {} steps deep: {}", found.states, found.depth, invariant.name);
    assert_eq!(found.broken_by, None, "{}: {setup:?}", invariant.name);
    assert_everybody_can_hold(setup);
}

#[track_caller]
fn assert_everybody_can_hold(setup: Setup) {
    const SOMEBODY_WAITS: [Invariant; 4] = [
        Invariant { name: "impossible", holds: |_| false },
        Invariant { name: "fewer than 1", holds: |state| count_holds(state) < 1 },
        Invariant { name: "fewer than 2", holds: |state| count_holds(state) < 2 },
        Invariant { name: "fewer than 3", holds: |state| count_holds(state) < 3 },
    ];
    let found = exhaust(setup, SOMEBODY_WAITS[setup.clients]).expect("a setup that can be built");
    assert!(found.broken_by.is_some(), "not everybody can get the lock: {setup:?}");
}

fn count_holds(state: &lockfast_sim::state::State) -> usize {
    state.clients.iter().filter(|client| client.held > 0).count()
}

/// There is a way to break the invariant, which is returned.
#[track_caller]
fn assert_broken(setup: Setup, invariant: Invariant) -> Vec<Step> {
    let found = exhaust(setup, invariant).expect("a setup that can be built");
    let Some(way) = found.broken_by else {
        panic!("nothing breaks {:?} in {} states: {setup:?}", invariant.name, found.states);
    };
    println!("{} states: broken in {} steps: {way:?}", found.states, way.len());
    way
}

/// Chance finds nothing in so many steps, where a search of everything would take too long.
#[track_caller]
fn assert_nothing_met(setup: Setup, invariant: Invariant) {
    for seed in 1..=4 {
        let found = roam(setup, invariant, seed, 120, 50_000).expect("a setup that can be built");
        assert_eq!(found.broken_by, None, "seed {seed}, {}: {setup:?}", invariant.name);
    }
}
