//! The suite bites: every deliberately broken store fails the case that its defect breaks, and the
//! same store without the defect passes it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]
#![allow(dead_code, reason = "other tests use the rest of the reference store")]

mod reference;

use std::time::Duration;

use lockfast_conformance::Verdict;
use lockfast_core::Feature;
use reference::Reference;
use reference::defect::Defect;
use reference::store::Limits;

/// A defect may show as a hang, which need not be waited out.
const TIME_LIMIT: Duration = Duration::from_secs(8);

#[test]
fn every_defect_is_found() {
    // Cases fail by panicking, which is what is wanted here and would fill the screen.
    std::panic::set_hook(Box::new(|_| {}));
    let unfound: Vec<String> = std::thread::scope(|scope| {
        let controls: Vec<_> = Defect::TABLE
            .chunks(Defect::TABLE.len().div_ceil(4))
            .map(|share| scope.spawn(|| share.iter().filter_map(run_control).collect::<Vec<_>>()))
            .collect();
        controls.into_iter().flat_map(|control| control.join().expect("no panic")).collect()
    });
    let _ = std::panic::take_hook();
    assert!(unfound.is_empty(), "\n{}", unfound.join("\n"));
}

fn run_control((defect, expected): &(Defect, &str)) -> Option<String> {
    let run = |defect| {
        lockfast_conformance::run(Reference::with(defect), TIME_LIMIT, |case| case == *expected)
    };
    let broken = run(Some(*defect));
    match broken.verdict(expected) {
        Some(Verdict::Failed(_)) => {}
        other => return Some(format!("{defect:?}: {expected} says {other:?}")),
    }
    let whole = run(None);
    match whole.verdict(expected) {
        Some(Verdict::Passed) => None,
        other => Some(format!("{expected} fails without the defect: {other:?}")),
    }
}

/// Nothing renews the lease of a job, so that what nobody tells has to be looked for.
#[test]
fn a_job_is_stopped_although_nobody_tells_of_its_loss() {
    const CASE: &str = "once::is_stopped_when_it_is_taken_away";
    let untold = Reference::with(Some(Defect::RevokeIsUntold));
    let report = lockfast_conformance::run(untold, TIME_LIMIT, |case| case == CASE);
    assert!(matches!(report.verdict(CASE), Some(Verdict::Passed)), "{report}");
}

#[test]
fn a_pinned_list_that_does_not_match_fails() {
    let unknown = Reference::with(None).ignoring(&[("queue::no_such_case", "a typing error")]);
    let report = lockfast_conformance::run(unknown, TIME_LIMIT, |case| case.contains("no_such"));
    let failures: Vec<_> = report.failures().collect();
    assert_eq!(failures.len(), 1, "{report}");
    assert!(failures[0].1.contains("is no case"), "{report}");

    let unlisted = "process::workers_never_overlap";
    let missing = Reference::with(None).ignoring(&[]);
    let report = lockfast_conformance::run(missing, TIME_LIMIT, |case| case == unlisted);
    let Some(Verdict::Failed(message)) = report.verdict(unlisted) else {
        panic!("it needs several processes: {report}");
    };
    assert!(message.contains("list \"process::workers_never_overlap\""), "{message}");

    let listed =
        lockfast_conformance::run(Reference::with(None), TIME_LIMIT, |case| case == unlisted);
    assert!(matches!(listed.verdict(unlisted), Some(Verdict::Ignored(_))), "{listed}");
}

#[test]
fn a_case_that_uses_what_the_store_lacks_fails_unless_it_is_listed() {
    const UNLISTED: &str = "permits::are_all_given_out";
    let lacking = Limits { lacks: &[(Feature::Permits, "the test says so")], ..Limits::NONE };
    let store = Reference::with(None).limited(lacking);
    let report = lockfast_conformance::run(store, TIME_LIMIT, |case| case == UNLISTED);
    let Some(Verdict::Failed(message)) = report.verdict(UNLISTED) else {
        panic!("it uses permits: {report}");
    };
    assert!(message.contains("no permits (the test says so)"), "{message}");
    let store = Reference::with(None).limited(lacking).ignoring(&[(UNLISTED, "listed")]);
    let report = lockfast_conformance::run(store, TIME_LIMIT, |case| case == UNLISTED);
    assert!(matches!(report.verdict(UNLISTED), Some(Verdict::Ignored(_))), "{report}");
}

/// What is refused by the library is refused whatever the store is like; what reaches a store is not.
#[test]
fn a_store_that_serves_what_it_lacks_is_found() {
    const EVERYTHING: &[(Feature, &str)] = &[
        (Feature::Shared, "the test says so"),
        (Feature::Downgrade, "the test says so"),
        (Feature::Permits, "the test says so"),
        (Feature::LockDelay, "the test says so"),
        (Feature::Detached, "the test says so"),
        (Feature::Floor, "the test says so"),
        (Feature::Line, "the test says so"),
        (Feature::Values, "the test says so"),
        (Feature::ValueExpiry, "the test says so"),
        (Feature::Events, "the test says so"),
    ];
    let limits = Limits { lacks: EVERYTHING, ..Limits::NONE };
    let run = |defect| {
        let store = Reference::with(defect).limited(limits);
        lockfast_conformance::run(store, TIME_LIMIT, |case| case.starts_with("refusals::"))
    };
    let honest = run(None);
    assert_eq!(honest.failures().count(), 0, "{honest}");
    assert_eq!(honest.verdicts.len(), 11, "{honest}");
    let served = run(Some(Defect::ServesWhatItLacks));
    let found: Vec<&str> = served.failures().map(|(case, _)| case).collect();
    let expected = ["of_downgrades", "of_values", "of_values_that_end", "of_events"];
    assert_eq!(found, expected.map(|case| format!("refusals::{case}")), "{served}");
}
