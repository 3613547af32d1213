//! Counting states that differ only in names as one loses none of them, and chance can find what
//! a search finds.

use std::collections::HashSet;

use lockfast_sim::invariant::unique_fences::UNIQUE_FENCES;
use lockfast_sim::model::Redlock;
use lockfast_sim::state::State;
use lockfast_sim::{Gate, Setup, exhaust, roam};
use stateright::{Checker, Model, Representative, StateRecorder};

fn collect_states(setup: Setup) -> HashSet<State> {
    let (recorder, states) = StateRecorder::new_with_accessor();
    let model = Redlock { setup, invariant: UNIQUE_FENCES };
    model.checker().visitor(recorder).spawn_bfs().join();
    states().into_iter().collect()
}

#[test]
fn every_state_is_there_under_some_name() {
    let small = Setup { proposals: 1, fence_max: 2, ..Setup::new(3, 2) };
    for setup in [
        Setup { gate: Gate::Opened, ..small },
        Setup { clients: 3, ..small },
        Setup { proposals: 1, fence_max: 2, ..Setup::timed(3, 2) },
    ] {
        let all = collect_states(Setup { symmetric: false, ..setup });
        let reduced = collect_states(setup);
        let named: HashSet<State> = all.iter().map(Representative::representative).collect();
        println!("{} states, {} up to names", all.len(), reduced.len());
        assert_eq!(named, reduced, "{setup:?}");
    }
}

#[test]
fn the_shortest_way_is_as_long_and_leads_there() {
    let setup = Setup { forgetful: 1, fence_max: 2, ..Setup::new(3, 2) };
    let [reduced, full] = [true, false].map(|symmetric| {
        let found = exhaust(Setup { symmetric, ..setup }, UNIQUE_FENCES).expect("a setup");
        found.broken_by.expect("one forgetful node too many")
    });
    assert_eq!(reduced.len(), full.len());
    let model = Redlock { setup: Setup { symmetric: false, ..setup }, invariant: UNIQUE_FENCES };
    let end = reduced.iter().try_fold(State::new(&setup), |state, step| {
        model.next_steps(&state).into_iter().find(|(next, _)| next == step).map(|(_, then)| then)
    });
    assert!(!(UNIQUE_FENCES.holds)(&end.expect("every step can be taken")));
}

#[test]
fn chance_finds_a_flaw_and_finds_it_again() {
    let flawed = Setup { forgetful: 1, clients: 3, ..Setup::new(5, 3) };
    let found = |seed| roam(flawed, UNIQUE_FENCES, seed, 120, 200_000).expect("a setup").broken_by;
    assert!(found(1).is_some());
    assert_eq!(found(1), found(1));
}

#[test]
fn a_setup_that_cannot_be_is_refused() {
    for (setup, message) in [
        (Setup::new(6, 4), "the number of nodes is 6; allowed are 1 to 5"),
        (Setup::new(3, 4), "the quorum is 4; allowed are 1 to 3"),
        (
            Setup { clients: 4, ..Setup::new(3, 2) },
            "the number of clients is 4; allowed are 1 to 3",
        ),
        (
            Setup { proposals: 5, ..Setup::new(3, 2) },
            "the number of proposals is 5; allowed are 1 to 4",
        ),
        (Setup { fence_max: 9, ..Setup::new(3, 2) }, "the greatest fence is 9; allowed are 1 to 7"),
        (
            Setup { forgetful: 4, ..Setup::new(3, 2) },
            "the number of forgetful nodes is 4; allowed are 0 to 3",
        ),
    ] {
        assert_eq!(exhaust(setup, UNIQUE_FENCES).err().as_deref(), Some(message));
    }
}
