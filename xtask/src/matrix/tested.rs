//! Which cases of the suite show that a store has a primitive. Where the matrix calls one supported,
//! they run on that store.

use super::{PAGE, Store};
use crate::tidy::Finding;
use crate::tree::{File, Tree};

/// A primitive, and the cases that use it.
struct Shown {
    primitive: &'static str,
    cases: &'static [&'static str],
}

const SHOWN: &[Shown] = &[
    shown("Mutex", &["exclusion::one_holder_at_a_time", "primitives::a_mutex_is_exclusive"]),
    shown(
        "RwLock",
        &["shared::holders_are_together", "primitives::a_rwlock_has_readers_or_a_writer"],
    ),
    shown(
        "RwLock with downgrade",
        &["downgrade::lets_readers_in_up_to_the_next_writer", "writer::becomes_a_reader"],
    ),
    shown("Semaphore", &["permits::are_all_given_out", "primitives::a_semaphore_has_permits"]),
    shown(
        "MultiLock",
        &["primitives::a_multi_lock_is_all_or_nothing", "primitives::multi_locks_do_not_deadlock"],
    ),
    shown("Leader", &["leader::one_leads_and_the_terms_rise"]),
    shown("Leader with observe", &["leader::is_seen_by_those_who_only_look"]),
    shown("Once", &["once::runs_in_one_place"]),
    shown("Once with at_least", &["once::is_kept_for_at_least"]),
    shown("SharedValue", &["values::lose_no_update", "shared_state::updates_are_all_counted"]),
    shown("SharedValue that ends", &["values::end_by_themselves"]),
    shown("Latch", &["shared_state::latches_open_when_counted_down"]),
    shown("Barrier", &["shared_state::barriers_let_all_go_together"]),
    shown("Refresh", &["refresh::are_computed_once"]),
    shown(
        "detached lease",
        &[
            "release::of_a_detached_lease_is_asked_for",
            "lease::that_nobody_keeps_is_kept_by_its_id",
        ],
    ),
    shown("lock-delay", &["lock_delay::keeps_the_lock_after_expiry"]),
    shown("floor", &["fencing::rises_above_the_floor"]),
    shown(
        "watch",
        &["watch::tells_of_a_hand_over", "watch::tells_of_an_expiry", "watch::tells_who_gave_up"],
    ),
    shown("re-entrance", &["reentrance::ends_with_its_last_guard"]),
];

const fn shown(primitive: &'static str, cases: &'static [&'static str]) -> Shown {
    Shown { primitive, cases }
}

/// The suites of stores that are not `tests/conformance.rs` of the backend of that name.
const SUITES: &[(&str, &str)] = &[
    ("memory:", "crates/lockfast-backend-embedded/tests/conformance_memory.rs"),
    ("embedded:", "crates/lockfast-backend-embedded/tests/conformance_embedded.rs"),
    ("postgres:?mode=advisory", "crates/lockfast-backend-postgres/tests/conformance_advisory.rs"),
    ("postgres:?mode=shedlock", "crates/lockfast-backend-postgres/tests/conformance_shedlock.rs"),
    ("mysql:?mode=shedlock", "crates/lockfast-backend-mysql/tests/conformance_shedlock.rs"),
];

fn cases(primitive: &str) -> &'static [&'static str] {
    SHOWN.iter().find(|shown| shown.primitive == primitive).map_or(&[], |shown| shown.cases)
}

/// The groups of the suite that use a primitive, quoted.
pub(super) fn groups(primitive: &str) -> Vec<String> {
    let group = |case: &&str| format!("`{}`", case.split("::").next().unwrap_or(case));
    let mut groups: Vec<String> = cases(primitive).iter().map(group).collect();
    groups.dedup();
    groups
}

/// Cases that are gone, and what is called supported though its cases do not run.
pub(super) fn findings(tree: &Tree, stores: &[Store]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for case in SHOWN.iter().flat_map(|shown| shown.cases).filter(|case| !exists(tree, case)) {
        findings.push(Finding::of("xtask/src/matrix/tested.rs", format!("no case is {case}")));
    }
    for store in stores {
        let Some(ignored) = ignored(tree, &store.url) else {
            findings.push(Finding::of(PAGE, format!("`{}` has no suite", store.url)));
            continue;
        };
        for primitive in store.primitives.iter().filter(|it| it.refusal.is_none()) {
            let cases = cases(&primitive.name);
            let is_ignored = |case: &&str| ignored.contains(&format!("\"{case}\""));
            if cases.is_empty() || cases.iter().any(is_ignored) {
                let message = format!(
                    "`{}` is said to have {}, but the suite does not show it there",
                    store.url, primitive.name
                );
                findings.push(Finding::of(PAGE, message));
            }
        }
    }
    findings
}

/// Whether the suite has this case.
fn exists(tree: &Tree, case: &str) -> bool {
    let Some((group, name)) = case.split_once("::") else { return false };
    let quoted = format!("(\"{name}\"");
    ["cases", "scenarios"].iter().any(|folder| {
        let path = format!("crates/lockfast-conformance/src/{folder}/{group}.rs");
        tree.file(&path).is_some_and(|file| file.text.contains(&quoted))
    })
}

/// The text of a store's suite and of its modules, which lists the cases that it cannot run.
fn ignored(tree: &Tree, url: &str) -> Option<String> {
    let own = SUITES.iter().find(|(store, _)| *store == url).map(|(_, path)| (*path).to_owned());
    let scheme = url.split(':').next().unwrap_or(url);
    let usual = format!("crates/lockfast-backend-{scheme}/tests/conformance.rs");
    let suite = tree.file(&own.unwrap_or(usual))?;
    let mut text = suite.text.clone();
    for module in modules(tree, suite) {
        text.push_str(&module.text);
    }
    Some(text)
}

fn modules<'a>(tree: &'a Tree, suite: &'a File) -> impl Iterator<Item = &'a File> {
    let folder = suite.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let names = suite.text.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
    names.filter_map(move |name| tree.file(&format!("{folder}/{name}/mod.rs")))
}

#[cfg(test)]
mod tests {
    use super::super::tests::two_stores;
    use super::*;

    #[test]
    fn what_is_supported_is_tested() {
        let tree = Tree::load().unwrap();
        let real = findings(&tree, &two_stores());
        let shown: Vec<String> = real.iter().map(ToString::to_string).collect();
        assert!(shown.is_empty(), "{shown:?}");
    }

    #[test]
    fn a_store_that_ignores_the_case_is_found() {
        let mut stores = two_stores();
        // It says that it has what its suite cannot run.
        stores[1].primitives[1].refusal = None;
        let found = findings(&Tree::load().unwrap(), &stores);
        assert!(found[0].to_string().contains("`redlock:` is said to have SharedValue"));
        stores[1].url = "nosuch:".to_owned();
        let found = findings(&Tree::load().unwrap(), &stores);
        assert!(found[0].to_string().ends_with("`nosuch:` has no suite"));
    }

    #[test]
    fn groups_are_named_once() {
        assert_eq!(groups("MultiLock"), ["`primitives`"]);
        assert_eq!(groups("Mutex"), ["`exclusion`", "`primitives`"]);
        assert!(groups("Mitex").is_empty());
    }
}
