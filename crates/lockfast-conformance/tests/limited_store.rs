//! The suite keeps to the limits of a store: one that keeps leases of whole seconds within narrow
//! limits, and refuses every other, passes the cases that it is not listed for.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]
#![allow(dead_code, reason = "the store that is right has no defect")]

mod reference;

use std::process::ExitCode;
use std::time::Duration;

use lockfast_core::TtlLimits;
use reference::store::Limits;

const WHOLE_SECONDS: TtlLimits = TtlLimits {
    min: Duration::from_secs(2),
    max: Duration::from_secs(40),
    step: Duration::from_secs(1),
    because: "a test",
};

fn main() -> ExitCode {
    let limits = Limits { ttl: WHOLE_SECONDS, ..Limits::NONE };
    lockfast_conformance::main(reference::Reference::with(None).limited(limits))
}
