//! The same store through the lease engine, as callers use it: what the engine promises on top
//! must hold on every store.

mod acquisition;
mod leader;
mod lease;
mod loss;
mod once;
mod primitives;
mod process;
mod reentrance;
mod refresh;
mod refusals;
mod shared_state;
mod writer;

use std::time::Duration;

use lockfast::{Locker, Mutex, Options};

use crate::arena::Arena;
use crate::case::Group;

pub(crate) const GROUPS: &[&Group] = &[
    &acquisition::GROUP,
    &leader::GROUP,
    &lease::GROUP,
    &loss::GROUP,
    &once::GROUP,
    &primitives::GROUP,
    &process::GROUP,
    &reentrance::GROUP,
    &refresh::GROUP,
    &refusals::GROUP,
    &shared_state::GROUP,
    &writer::GROUP,
];

const LONG_TTL: Duration = Duration::from_secs(60);

/// A lease that cannot expire within a case, so that whatever frees it is no expiry.
fn long_lease(arena: &Arena) -> Options {
    Options::default().ttl(arena.ttl(LONG_TTL)).retries(10)
}

/// A lease that is meant to expire, and the time that requests have on a busy machine.
fn short_lease(arena: &Arena) -> (Duration, Options) {
    let ttl = arena.ttl(Duration::from_secs(1));
    let options = Options::default().ttl(ttl).request_timeout(ttl * 3 / 10).retries(10);
    (ttl, options)
}

fn mutex(locker: &Locker, options: &Options) -> Mutex {
    locker.mutex("a").expect("a valid name").with_options(options.clone())
}
