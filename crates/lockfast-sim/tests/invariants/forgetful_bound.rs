//! 2q − N − 1 nodes may forget everything, as often as they like; one more, and two holds share a
//! fence.

use lockfast_sim::invariant::rising_fences::RISING_FENCES;
use lockfast_sim::invariant::unique_fences::UNIQUE_FENCES;
use lockfast_sim::{Setup, Step};

use crate::{assert_broken, assert_holds};

const SIZES: [(usize, usize, usize); 9] = [
    // nodes, quorum, how many may forget
    (1, 1, 0),
    (2, 2, 1),
    (3, 2, 0),
    (3, 3, 2),
    (4, 3, 1),
    (4, 4, 3),
    (5, 3, 0),
    (5, 4, 2),
    (5, 5, 4),
];

#[test]
fn that_many_keep_fences_unique_and_one_more_does_not() {
    for (nodes, quorum, forgetful) in SIZES {
        let within = Setup { forgetful, proposals: 1, fence_max: 2, ..Setup::new(nodes, quorum) };
        assert_eq!(within.forgetful_bound(), Some(forgetful));
        assert_holds(within, UNIQUE_FENCES);
        let way = assert_broken(Setup { forgetful: forgetful + 1, ..within }, UNIQUE_FENCES);
        let forgotten = way.iter().filter(|step| matches!(step, Step::Forget { .. })).count();
        assert_eq!(forgotten, forgetful + 1, "each of the shared nodes forgets once: {way:?}");
    }
}

#[test]
fn that_many_keep_fences_rising_in_time_and_one_more_does_not() {
    for (nodes, quorum, forgetful) in SIZES {
        let within = Setup { forgetful, proposals: 1, fence_max: 2, ..Setup::timed(nodes, quorum) };
        let within = Setup { undo: false, ..within };
        assert_holds(within, RISING_FENCES);
        assert_broken(Setup { forgetful: forgetful + 1, ..within }, RISING_FENCES);
    }
}

#[test]
fn also_when_clients_propose_again() {
    for (nodes, quorum) in [(3, 3), (4, 3)] {
        let size = Setup::new(nodes, quorum);
        let forgetful = size.forgetful_bound().expect("a majority");
        assert_holds(Setup { forgetful, fence_max: 2, ..size }, UNIQUE_FENCES);
    }
}
