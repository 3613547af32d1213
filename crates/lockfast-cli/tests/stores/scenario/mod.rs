//! The scenarios, by what they are about.

mod contention;
mod crash;
mod doctor;
mod elect;
mod exits;
mod fence;
mod loss;
mod modes;
mod names;
mod nesting;
mod once;
mod refresh;
mod scripts;
mod signals;
mod waiting;

use crate::stage::Stage;

/// One scenario.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) play: fn(&Stage<'_>),
}

/// Scenarios that belong together.
struct Group {
    name: &'static str,
    scenarios: &'static [Scenario],
}

/// Those that take long begin first, so that the last one does not run alone.
const GROUPS: &[Group] = &[
    crash::GROUP,
    elect::GROUP,
    once::GROUP,
    refresh::GROUP,
    contention::GROUP,
    waiting::GROUP,
    signals::GROUP,
    loss::GROUP,
    nesting::GROUP,
    fence::GROUP,
    modes::GROUP,
    names::GROUP,
    exits::GROUP,
    scripts::GROUP,
    doctor::GROUP,
];

const fn scenario(name: &'static str, play: fn(&Stage<'_>)) -> Scenario {
    Scenario { name, play }
}

/// Every scenario with its group's name.
pub(crate) fn all() -> impl Iterator<Item = (&'static str, &'static Scenario)> {
    GROUPS.iter().flat_map(|group| group.scenarios.iter().map(|scenario| (group.name, scenario)))
}
