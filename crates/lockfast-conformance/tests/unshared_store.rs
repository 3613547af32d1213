//! The cases with several processes bite: a store that says it is shared between processes and is
//! not fails every one of them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]
#![allow(dead_code, reason = "this store's only defect is what it says of itself")]

mod reference;

use std::process::ExitCode;
use std::time::Duration;

use libtest_mimic::{Arguments, Trial};
use lockfast_conformance::{Verdict, play_child, rules, run};
use reference::Reference;

/// Most of these cases fail by waiting for what never comes, which need not be waited out.
const TIME_LIMIT: Duration = Duration::from_secs(6);

fn main() -> ExitCode {
    let unshared = || Reference::with(None).claiming_to_be_shared();
    if let Some(code) = play_child(&unshared()) {
        return code;
    }
    let trial = Trial::test("a_store_that_is_not_shared_fails_every_case", move || {
        std::panic::set_hook(Box::new(|_| {}));
        let cases = rules().into_iter().map(|(case, _)| case);
        let controls: Vec<_> = cases
            .filter(|case| case.starts_with("process::"))
            .map(|case| {
                std::thread::spawn(move || {
                    let report = run(unshared(), TIME_LIMIT, |name| name == case);
                    (!matches!(report.verdict(&case), Some(Verdict::Failed(_)))).then_some(case)
                })
            })
            .collect();
        let unfound: Vec<String> =
            controls.into_iter().filter_map(|control| control.join().unwrap()).collect();
        let _ = std::panic::take_hook();
        if unfound.is_empty() {
            return Ok(());
        }
        Err(format!("passed without sharing anything: {unfound:?}").into())
    });
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit_code()
}
