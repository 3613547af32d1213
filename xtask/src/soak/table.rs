//! The table of `docs/guarantees.md`: what torture came to on each store.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};

use super::run::Outcome;
use crate::page;
use crate::tree;

/// The page with the table, and what its marks name.
const PAGE: &str = "docs/guarantees.md";
const COMMAND: &str = "cargo xtask soak";

/// How the table calls each store of `--with`, in the order of its rows.
const LABELS: &[(&str, &str)] = &[
    ("embedded", "`embedded:`"),
    ("redis", "`redis:`, every write on disk"),
    ("redis-replicas", "`redis:`, a replica that has every grant"),
    ("redlock", "`redlock:`, three nodes"),
    ("postgres", "`postgres:`, synchronous standby"),
    ("mariadb", "MariaDB"),
    ("mysql", "MySQL"),
    ("etcd", "`etcd:`, one server"),
    ("etcd-cluster", "`etcd:`, three members"),
    ("zookeeper", "`zookeeper:`, one server"),
    ("zookeeper-ensemble", "`zookeeper:`, three servers"),
    ("redis-failover", "`redis:` with a failover and no quarantine"),
];

const HEAD: &str = "\
| store | grants | faults | processes killed | two held it, or too many | fences that did not rise | \
stale writes through a gate | late writes refused | left at the end | losses | the last was told, from the \
deadline | longest wait while it was free |
|---|---|---|---|---|---|---|---|---|---|---|---|
";

/// How long a row is about, unless it says otherwise.
const MINUTES: f64 = 10.0;

/// What can be left at the end, and how that is said.
const LEFT: [(&str, &str); 3] = [
    ("held_at_end", "held"),
    ("waited_for_at_end", "waited for"),
    ("process_left", "processes left by `run`"),
];

/// What came of all runs on a store.
#[derive(Debug, Default)]
pub(super) struct Sum {
    pub(super) minutes: f64,
    pub(super) failed: Vec<u64>,
    granted: u64,
    faults: u64,
    killed: u64,
    pub(super) overlaps: u64,
    fences: u64,
    stale: u64,
    refused: u64,
    left: [u64; 3],
    losses: u64,
    /// In nanoseconds before the deadline.
    told: Option<i64>,
    free_wait: u64,
}

impl Sum {
    pub(super) fn add(&mut self, seed: u64, minutes: f64, outcome: &Outcome) {
        let found = |kind, ruling| outcome.count(&["found", kind, ruling]);
        self.minutes += minutes;
        self.failed.extend(outcome.failure.is_some().then_some(seed));
        self.granted += outcome.count(&["counts", "granted"]);
        self.faults += outcome.faults();
        self.killed += outcome.count(&["counts", "workers_killed"]);
        self.overlaps += outcome.count(&["counts", "overlaps"]);
        self.fences += found("fence_not_rising", "broken") + found("fence_not_rising", "allowed");
        self.stale += outcome.count(&["writes", "stale_admitted"]);
        self.refused += outcome.count(&["writes", "refused"]);
        for (left, (kind, _)) in self.left.iter_mut().zip(LEFT) {
            *left += found(kind, "broken");
        }
        self.losses += outcome.count(&["losses", "count"]);
        let told = outcome.verdict["losses"]["shortest_before_deadline"].as_i64();
        self.told = self.told.into_iter().chain(told).min();
        self.free_wait = self.free_wait.max(outcome.count(&["free_wait", "longest_counted"]));
    }

    /// The row of the table, without the end of its line.
    fn row(&self, label: &str) -> String {
        let numbers = [
            self.granted,
            self.faults,
            self.killed,
            self.overlaps,
            self.fences,
            self.stale,
            self.refused,
        ];
        let mut cells = vec![format!("{label}{}", about_time(self.minutes))];
        cells.extend(numbers.map(grouped));
        cells.push(self.describe_left());
        cells.push(grouped(self.losses));
        cells.push(self.told.map_or_else(|| "—".to_owned(), from_deadline));
        cells.push(format!("{:.1} s", self.free_wait as f64 / 1e9));
        format!("| {} |", cells.join(" | "))
    }

    fn describe_left(&self) -> String {
        let left = self.left.iter().zip(LEFT).filter(|(count, _)| **count > 0);
        let words: Vec<_> =
            left.map(|(count, (_, it))| format!("{} {it}", grouped(*count))).collect();
        if words.is_empty() { "nothing".to_owned() } else { words.join(", ") }
    }
}

/// Every store has a label, before hours are spent on it.
pub(super) fn check_labels(stores: &[String]) -> Result<()> {
    let is_known = |store: &&String| LABELS.iter().all(|(name, _)| name != store);
    match stores.iter().find(is_known) {
        None => Ok(()),
        Some(store) => {
            bail!("the table has no name for {store}; add one to xtask/src/soak/table.rs")
        }
    }
}

/// The rows of stores that were run, below their head.
pub(super) fn show(sums: &BTreeMap<String, Sum>) -> String {
    let rows = LABELS.iter().filter_map(|(store, label)| Some(sums.get(*store)?.row(label)));
    rows.fold(HEAD.to_owned(), |text, row| text + &row + "\n")
}

/// Writes the rows of stores that were run into the page, and leaves the others.
pub(super) fn write(sums: &BTreeMap<String, Sum>) -> Result<()> {
    let text = std::fs::read_to_string(tree::root()?.join(PAGE))?;
    let old = page::section(&text, COMMAND).with_context(|| format!("{PAGE} lacks its marks"))?;
    page::write(PAGE, COMMAND, &merged(old, sums)?)
}

/// The table with the rows of stores that were run in place of those that it had.
fn merged(old: &str, sums: &BTreeMap<String, Sum>) -> Result<String> {
    let mut rows: BTreeMap<usize, String> = BTreeMap::new();
    for row in old.lines().skip(HEAD.lines().count()) {
        let place = LABELS.iter().position(|(_, label)| is_of(row, label));
        let place = place.with_context(|| format!("{PAGE} has a row of no known store: {row}"))?;
        rows.insert(place, row.to_owned());
    }
    for (place, (store, label)) in LABELS.iter().enumerate() {
        if let Some(sum) = sums.get(*store) {
            rows.insert(place, sum.row(label));
        }
    }
    Ok(rows.values().fold(HEAD.to_owned(), |text, row| text + row + "\n"))
}

/// Whether a row is about that store, for whatever time.
fn is_of(row: &str, label: &str) -> bool {
    let rest = row.strip_prefix("| ").and_then(|row| row.strip_prefix(label));
    let Some((time, _)) = rest.and_then(|rest| rest.split_once(" |")) else { return false };
    time.is_empty() || time.starts_with(", ") && time.ends_with(" minutes")
}

fn about_time(minutes: f64) -> String {
    let tenths = (minutes * 10.0).round();
    if tenths == MINUTES * 10.0 { String::new() } else { format!(", {} minutes", tenths / 10.0) }
}

fn from_deadline(before_ns: i64) -> String {
    let word = if before_ns < 0 { "after" } else { "before" };
    format!("{} ms {word}", (before_ns.unsigned_abs() + 500_000) / 1_000_000)
}

/// With a space between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use serde_json::{Value, json};

    use super::*;

    fn outcome(verdict: Value) -> Outcome {
        Outcome { directory: PathBuf::new(), said: String::new(), failure: None, verdict }
    }

    fn one_run() -> Outcome {
        outcome(json!({
            "counts": {
                "granted": 21_417, "overlaps": 23, "workers_killed": 37,
                "faults": { "kill": 100, "cut": 6 },
            },
            "found": {
                "fence_not_rising": { "broken": 0, "allowed": 1, "revoked": 5 },
                "held_at_end": { "broken": 1, "allowed": 0, "revoked": 0 },
            },
            "writes": { "refused": 36, "stale_admitted": 0 },
            "losses": { "count": 557, "shortest_before_deadline": -4_600_000 },
            "free_wait": { "longest_counted": 1_260_000_000_u64 },
        }))
    }

    fn sums(store: &str, minutes: f64) -> BTreeMap<String, Sum> {
        let mut sum = Sum::default();
        sum.add(3, minutes, &one_run());
        sum.add(7, minutes, &one_run());
        BTreeMap::from([(store.to_owned(), sum)])
    }

    #[test]
    fn a_row_has_what_all_runs_came_to() {
        let row = "| `embedded:` | 42 834 | 212 | 74 | 46 | 2 | 0 | 72 | 2 held | 1 114 | 5 ms after | \
                   1.3 s |\n";
        assert_eq!(show(&sums("embedded", 5.0)), format!("{HEAD}{row}"));
        let mut none = Sum::default();
        none.add(1, 2.5, &outcome(Value::Null));
        let row = "| MySQL, 2.5 minutes | 0 | 0 | 0 | 0 | 0 | 0 | 0 | nothing | 0 | — | 0.0 s |\n";
        let sums = BTreeMap::from([("mysql".to_owned(), none)]);
        assert_eq!(show(&sums), format!("{HEAD}{row}"));
        assert_eq!(from_deadline(2_000_000), "2 ms before");
    }

    /// Every run counts: the latest that was told, and the longest wait.
    #[test]
    fn the_worst_of_all_runs_is_shown() {
        let mut sum = Sum::default();
        for (told, wait) in [(5_000_000, 1), (-9_000_000, 3), (-1_000_000, 2)] {
            let verdict = json!({
                "losses": { "shortest_before_deadline": told },
                "free_wait": { "longest_counted": wait * 1_000_000_000_i64 },
            });
            sum.add(1, 1.0, &outcome(verdict));
        }
        assert!(sum.row("x").ends_with("| 9 ms after | 3.0 s |"), "{}", sum.row("x"));
    }

    #[test]
    fn rows_of_other_stores_stay_and_the_order_is_kept() {
        let rest = " | 1 | 2 |";
        let page = format!(
            "{HEAD}| `embedded:`{rest}\n| `redis:`, every write on disk, 3 minutes{rest}\n\
             | `redis:` with a failover and no quarantine{rest}\n"
        );
        let text = merged(&page, &sums("redis", 10.0)).unwrap();
        let first = |row: &str| row.split(" | ").next().unwrap().to_owned();
        let stores: Vec<_> = text.lines().skip(2).map(first).collect();
        assert_eq!(
            stores,
            [
                "| `embedded:`",
                "| `redis:`, every write on disk, 20 minutes",
                "| `redis:` with a failover and no quarantine",
            ]
        );
        assert!(text.contains(&format!("| `embedded:`{rest}\n")), "{text}");
        let text = merged(&text, &sums("mariadb", 5.0)).unwrap();
        assert_eq!(first(text.lines().nth(4).unwrap()), "| MariaDB");
        assert!(merged(&format!("{HEAD}| `mongo:`{rest}\n"), &BTreeMap::new()).is_err());
    }

    /// What was written by hand has the form that is written by the command.
    #[test]
    fn the_page_is_understood() {
        let text = std::fs::read_to_string(tree::root().unwrap().join(PAGE)).unwrap();
        let section = page::section(&text, COMMAND).unwrap();
        assert_eq!(merged(section, &BTreeMap::new()).unwrap(), section);
    }

    #[test]
    fn a_store_without_a_name_in_the_table_is_told() {
        assert!(check_labels(&["redis".to_owned(), "mysql".to_owned()]).is_ok());
        assert!(check_labels(&["mongo".to_owned()]).is_err());
    }
}
