//! The suite itself is right: the plainest store that keeps the contract passes every case.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]
#![allow(dead_code, reason = "the store that is right has no defect")]

mod reference;

use std::process::ExitCode;

fn main() -> ExitCode {
    lockfast_conformance::main(reference::Reference::with(None))
}
