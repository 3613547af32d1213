//! The rules of the bare store, one group a file.

mod cancellation;
mod deadline;
mod downgrade;
mod exclusion;
mod fencing;
mod inspect;
mod lock_delay;
mod names;
mod permits;
mod queue;
mod release;
mod renewal;
mod retry;
mod revoke;
mod shared;
mod values;
mod waiting;
mod watch;

use crate::case::Group;

pub(crate) const GROUPS: &[&Group] = &[
    &exclusion::GROUP,
    &fencing::GROUP,
    &deadline::GROUP,
    &retry::GROUP,
    &renewal::GROUP,
    &release::GROUP,
    &cancellation::GROUP,
    &queue::GROUP,
    &waiting::GROUP,
    &shared::GROUP,
    &downgrade::GROUP,
    &permits::GROUP,
    &lock_delay::GROUP,
    &names::GROUP,
    &inspect::GROUP,
    &revoke::GROUP,
    &watch::GROUP,
    &values::GROUP,
];
