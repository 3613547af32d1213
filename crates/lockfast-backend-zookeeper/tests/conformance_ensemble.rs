//! The suite that every store passes, on three servers that decide together and with the rights that the
//! README names. A fresh store is a chroot
//! that nobody has used.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod suite;

use std::process::ExitCode;
use std::time::Duration;

use lockfast_conformance::Suite;
use lockfast_faults::zookeeper::{Ensemble, MEMBERS, Setup};

/// With this unit of time P9 holds, also where the machine is a little late.
const TICK: Duration = Duration::from_millis(200);

fn start() -> Ensemble {
    Ensemble::start_of(|| {
        // The suite asks for leases and lock-delays of minutes. Where the machine is late, neither
        // the shortest leases nor members are given up.
        let setup = Setup::new().tick(TICK).line("minSessionTimeout=1000");
        setup.line("maxSessionTimeout=100000000").line("initLimit=100").line("syncLimit=50")
    })
}

fn fresh_url(ensemble: &Ensemble, store: usize) -> String {
    let chroot = format!("/store_{store}");
    suite::make_place(&mut ensemble.session(0), &chroot);
    // Clients find it wherever they connect to.
    (0..MEMBERS).for_each(|place| ensemble.session(place).sync());
    let url = ensemble.url().replace("://", &format!("://{}@", suite::USER));
    format!("{url}{chroot}?tick={}ms", TICK.as_millis())
}

fn main() -> ExitCode {
    let connect = lockfast_backend_zookeeper::connect;
    Suite { name: "ensemble", start, fresh_url, connect, ignored: suite::IGNORED }.run()
}
