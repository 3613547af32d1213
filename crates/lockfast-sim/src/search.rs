//! The ways through a model: all of it, or as far as seeded chance leads.

use stateright::{Checker, Model, Path, Representative};

use crate::invariant::Invariant;
use crate::model::Redlock;
use crate::setup::Setup;
use crate::state::State;
use crate::step::Step;

/// What a search has found.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How many states it has looked at: different ones if it was exhaustive.
    pub states: usize,
    /// How many steps the longest way has that it took.
    pub depth: usize,
    /// The steps to a state that breaks the invariant: the fewest if the search was exhaustive.
    pub broken_by: Option<Vec<Step>>,
}

/// Looks at every state that can be reached, nearest first, until one breaks the invariant.
pub fn exhaust(setup: Setup, invariant: Invariant) -> Result<Outcome, String> {
    setup.check()?;
    // One thread, because only then is the first way found one of the shortest.
    let checker = Redlock { setup, invariant }.checker().spawn_bfs().join();
    Ok(Outcome {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        broken_by: checker.discovery(invariant.name).map(|path| unfold(checker.model(), path)),
    })
}

/// The same way with everybody keeping one name: the states of a search that counts those as one
/// that differ in names are renamed at each step, which nobody can read.
fn unfold(model: &Redlock, path: Path<State, Step>) -> Vec<Step> {
    if !model.setup.symmetric {
        return path.into_actions();
    }
    let named = Redlock { setup: Setup { symmetric: false, ..model.setup }, ..*model };
    let mut state = State::new(&model.setup);
    let mut way = Vec::new();
    for reduced in path.into_states().into_iter().skip(1) {
        let next = named.next_steps(&state);
        let Some((step, then)) =
            next.into_iter().find(|(_, then)| then.representative() == reduced)
        else {
            break;
        };
        way.push(step);
        state = then;
    }
    way
}

/// Takes random ways of at most `length` steps, the same for the same seed, until it has looked at
/// so many states or at one that breaks the invariant. It shows that something is broken, never
/// that nothing is.
pub fn roam(
    setup: Setup,
    invariant: Invariant,
    seed: u64,
    length: usize,
    states: usize,
) -> Result<Outcome, String> {
    setup.check()?;
    // Nobody is renamed on a single way: nothing is gained, and it reads better.
    let model = Redlock { setup: Setup { symmetric: false, ..setup }, invariant };
    let mut chance = Chance(seed);
    let mut outcome = Outcome { states: 0, depth: 0, broken_by: None };
    while outcome.states < states && outcome.broken_by.is_none() {
        let mut way = Vec::new();
        let mut state = State::new(&setup);
        while way.len() < length {
            let Some((step, next)) = choose(&model, &state, &mut chance) else {
                break;
            };
            way.push(step);
            state = next;
            outcome.states += 1;
            if !(invariant.holds)(&state) {
                outcome.broken_by = Some(way.clone());
                break;
            }
        }
        outcome.depth = outcome.depth.max(way.len());
    }
    Ok(outcome)
}

/// Any step that changes something, each as likely as the others.
fn choose(model: &Redlock, state: &State, chance: &mut Chance) -> Option<(Step, State)> {
    let mut steps = Vec::new();
    model.actions(state, &mut steps);
    while !steps.is_empty() {
        let step = steps.swap_remove(chance.below(steps.len()));
        if let Some(next) = model.next_state(state, step) {
            return Some((step, next));
        }
    }
    None
}

/// SplitMix64: few lines, and the same numbers on every machine and with every version.
struct Chance(u64);

impl Chance {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % count.max(1) as u64) as usize
    }
}
