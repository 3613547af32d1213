//! The one suite that every Lockfast store passes.
//!
//! A store implements [`Harness`] and calls [`main`] from a test binary without libtest; each
//! rule of the contract is then a trial, `<harness>::<group>::<case>`. The rule is the doc comment
//! of the case's function and is printed when a store breaks it.
//!
//! | looking for | it is in |
//! |---|---|
//! | what a store lends the suite | [`Harness`], or [`Suite`] for one on servers |
//! | rules of the bare store | `cases/` |
//! | rules of the lease engine on that store | `scenarios/` |
//! | what every store does when the way to its server fails | [`way`] |
//! | random stories, and the rule of the queue against what a store answers | [`model`] |
//! | short ways to hold, lose and be refused a lock | [`shorthand`] |
//! | the overlap checker | [`history`] |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "this crate is a test suite: a panic is how a case fails"
)]

mod actor;
mod arena;
mod case;
mod cases;
mod harness;
pub mod model;
mod report;
mod scenarios;
pub mod shorthand;
mod stepper;
mod suite;
pub mod way;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};

pub use harness::Harness;
pub use lockfast_faults::history;
pub use lockfast_faults::seed::{Dice, SEED_VARIABLE, Seed};
pub use report::{Report, Verdict};
pub use suite::Suite;

use case::{Case, Group, Needs};

/// No case takes this long unless it hangs.
const CASE_TIME_LIMIT: Duration = Duration::from_secs(60);

/// Most cases wait most of the time, so more of them than cores can run at once.
const CASES_AT_ONCE: usize = 4;

/// One line of the plan: a case of the suite, or a fault in the pinned list.
struct Planned {
    name: String,
    step: Step,
}

enum Step {
    Run { case: Case, rule: String },
    Ignore { reason: &'static str },
    Refuse { message: String },
}

/// Runs the suite as a test binary: `harness = false` in the manifest, and
/// `fn main() -> ExitCode { lockfast_conformance::main(MyHarness) }`.
///
/// The binary starts itself again as the child processes that some cases kill.
pub fn main(harness: impl Harness) -> ExitCode {
    let harness: Arc<dyn Harness> = Arc::new(harness);
    if let Some(code) = play_child(harness.as_ref()) {
        return code;
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(CASES_AT_ONCE);
    let seed = Seed::of_run();
    if !arguments.list {
        announce(seed);
    }
    let trials =
        plan(harness.as_ref()).into_iter().map(|planned| trial(planned, &harness, seed)).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Plays the part of a child process, if this process was started as one by a case. A program that
/// calls [`run`] calls this first and ends with the code that it returns.
pub fn play_child(harness: &dyn Harness) -> Option<ExitCode> {
    actor::play(harness)
}

#[allow(clippy::print_stdout, reason = "test binaries print to stdout")]
fn announce(seed: Seed) {
    println!("random choices follow from {SEED_VARIABLE}={}", seed.0);
}

fn trial(planned: Planned, harness: &Arc<dyn Harness>, seed: Seed) -> Trial {
    let name = format!("{}::{}", harness.name(), planned.name);
    let seed = seed.of(&planned.name);
    let harness = Arc::clone(harness);
    match planned.step {
        Step::Run { case, rule } => Trial::test(name, move || {
            case.run_on(&harness, seed, CASE_TIME_LIMIT)
                .map_err(|message| Failed::from(format!("{message}\nthe rule: {rule}")))
        }),
        Step::Ignore { reason } => {
            Trial::test(name, || Ok(())).with_ignored_flag(true).with_kind(reason)
        }
        Step::Refuse { message } => Trial::test(name, || Err(Failed::from(message))),
    }
}

/// Runs the cases that `select` wants, one after the other, and reports; for tests of the suite
/// itself and for programs that are not test binaries. The cases that need several processes start
/// this program again: see [`play_child`].
pub fn run(harness: impl Harness, time_limit: Duration, select: impl Fn(&str) -> bool) -> Report {
    let harness: Arc<dyn Harness> = Arc::new(harness);
    let seed = Seed::of_run();
    let mut report = Report::default();
    for planned in plan(harness.as_ref()) {
        if !select(&planned.name) {
            continue;
        }
        let verdict = match planned.step {
            Step::Run { case, .. } => {
                match case.run_on(&harness, seed.of(&planned.name), time_limit) {
                    Ok(()) => Verdict::Passed,
                    Err(message) => Verdict::Failed(message),
                }
            }
            Step::Ignore { reason } => Verdict::Ignored(reason.into()),
            Step::Refuse { message } => Verdict::Failed(message),
        };
        report.verdicts.push((planned.name, verdict));
    }
    report
}

/// Every case of the suite with its rule, in order.
pub fn rules() -> Vec<(String, String)> {
    groups()
        .flat_map(|group| {
            group.cases.iter().map(move |case| {
                let rule = group.rule_of(case.name).unwrap_or_default();
                (format!("{}::{}", group.name, case.name), rule)
            })
        })
        .collect()
}

fn groups() -> impl Iterator<Item = &'static Group> {
    cases::GROUPS.iter().chain(scenarios::GROUPS).copied()
}

/// Compares the suite with the harness's pinned list.
fn plan(harness: &dyn Harness) -> Vec<Planned> {
    let mut plan = Vec::new();
    for group in groups() {
        for case in group.cases {
            let name = format!("{}::{}", group.name, case.name);
            let pinned = harness.ignored().iter().find(|(known, _)| *known == name);
            let step = match pinned {
                Some((_, reason)) => Step::Ignore { reason },
                None if case.needs == Needs::Processes && !harness.shared_between_processes() => {
                    Step::Refuse {
                        message: format!(
                            "it needs several processes, which this store does not reach; list \
                             \"{name}\" in Harness::ignored with the reason"
                        ),
                    }
                }
                None => {
                    Step::Run { case: *case, rule: group.rule_of(case.name).unwrap_or_default() }
                }
            };
            plan.push(Planned { name, step });
        }
    }
    let known: Vec<String> = plan.iter().map(|planned| planned.name.clone()).collect();
    for (name, _) in harness.ignored() {
        if !known.iter().any(|known| known == name) {
            plan.push(Planned {
                name: format!("pinned::{name}"),
                step: Step::Refuse {
                    message: format!("Harness::ignored lists \"{name}\", which is no case"),
                },
            });
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_quotes_its_promise_once() {
        let rules = rules();
        for (case, rule) in &rules {
            let quotes_promise = rule.starts_with('P')
                && rule[1..].starts_with(|character: char| character.is_ascii_digit());
            assert!(quotes_promise, "{case}: the rule is {rule:?}");
            assert!(rule.ends_with('.'), "{case}: {rule:?} is no sentence");
        }
        let mut names: Vec<_> = rules.iter().map(|(case, _)| case).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), rules.len(), "a case is listed twice");
    }
}
