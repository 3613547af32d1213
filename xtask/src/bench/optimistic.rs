//! Updates of a value by comparing versions, against the same updates under a lock.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::plot::{Line, Panel, plot};
use super::sample::Sample;
use super::{OPTIMISTIC, Section, figures, thousands, times};
use crate::page;
use crate::step::timed;

const PICTURE: &str = "docs/optimistic.svg";
const STORES: [&str; 7] = ["memory", "embedded", "redis", "postgres", "mysql", "etcd", "zookeeper"];
const CLIENTS: [usize; 3] = [1, 8, 64];
const VALUES: [usize; 2] = [1, 1000];

/// Measures everything; the section and its picture.
pub(super) fn run() -> Result<Section> {
    figures::build()?;
    let mut measured = Vec::new();
    for store in STORES {
        measured.push((store, timed(store, || figures::measure("optimistic", store))?));
    }
    let text = format!("{}\n{}", page::measured(OPTIMISTIC)?, tables(&measured)?);
    Ok(Section { text, picture: Some((PICTURE, picture(&measured)?)) })
}

/// What one store did with so many values and clients.
struct Case {
    optimistic: Sample,
    locked: Sample,
    tries: Sample,
}

impl Case {
    fn read(figures: &Value, values: usize, clients: usize) -> Result<Self> {
        let sample = |name: &str| read_sample(figures, &format!("{values}.{clients}.{name}"));
        Ok(Self {
            optimistic: sample("optimistic.per_s")?,
            locked: sample("locked.per_s")?,
            tries: sample("optimistic.tries")?,
        })
    }
}

fn read_sample(figures: &Value, name: &str) -> Result<Sample> {
    let rounds = figures[name].as_array().with_context(|| format!("nothing is named {name}"))?;
    let mut sample = Sample::default();
    for round in rounds {
        sample.add(round.as_f64().with_context(|| format!("{name} holds {round}"))?);
    }
    Ok(sample)
}

fn tables(measured: &[(&str, Value)]) -> Result<String> {
    let mut text = String::from(
        "| store | values | clients | optimistic, updates a second | tries for each | under a \
         lock, updates a second | ratio |\n|---|---|---|---|---|---|---|\n",
    );
    let mut refusals = String::new();
    for (store, measured) in measured {
        if let Some(refusal) = measured["refused"].as_str() {
            let _ = writeln!(refusals, "\nNot measured on `{store}:`: {refusal}.");
            continue;
        }
        let label = figures::label(store, &format!("{store}:"));
        for values in VALUES {
            for clients in CLIENTS {
                let case = Case::read(measured, values, clients)?;
                let ratio = case.optimistic.over(&case.locked);
                let _ = writeln!(
                    text,
                    "| {label} | {} | {clients} | {} | {:.2} | {} | **{}** ± {:.0} % |",
                    thousands(values as f64),
                    thousands(case.optimistic.median()),
                    case.tries.median(),
                    thousands(case.locked.median()),
                    times(ratio.median()),
                    ratio.spread(),
                );
            }
        }
    }
    let link = PICTURE.trim_start_matches("docs/");
    let shows = "Updates a second by the number of clients, optimistic and under a lock";
    Ok(format!("![{shows}]({link})\n\n{text}{refusals}"))
}

fn picture(measured: &[(&str, Value)]) -> Result<String> {
    let mut panels = Vec::new();
    for (store, measured) in measured {
        if measured["refused"].is_string() {
            continue;
        }
        let mut lines = Vec::new();
        for (values, dashed) in [(VALUES[0], false), (VALUES[1], true)] {
            let cases: Vec<Case> = CLIENTS
                .iter()
                .map(|clients| Case::read(measured, values, *clients))
                .collect::<Result<_>>()?;
            let line = |class, sample: fn(&Case) -> &Sample| {
                let points = cases.iter().map(|case| sample(case).median()).collect();
                Line { class, dashed, points }
            };
            lines.push(line("first", |case| &case.optimistic));
            lines.push(line("second", |case| &case.locked));
        }
        let title = figures::label(store, &format!("{store}:")).replace('`', "");
        panels.push(Panel { title, lines });
    }
    let legend = [
        ("first", false, "optimistic, 1 value"),
        ("second", false, "under a lock, 1 value"),
        ("first", true, "optimistic, 1 000 values"),
        ("second", true, "under a lock, 1 000 values"),
    ];
    Ok(plot("Updates a second by the number of clients", &CLIENTS, &legend, &panels))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, json};

    fn figures() -> Value {
        let mut map = Map::new();
        for values in VALUES {
            for clients in CLIENTS {
                let start = format!("{values}.{clients}");
                map.insert(format!("{start}.optimistic.per_s"), json!([2000.0, 4000.0, 3000.0]));
                map.insert(format!("{start}.locked.per_s"), json!([1000.0, 2000.0, 1500.0]));
                map.insert(format!("{start}.optimistic.tries"), json!([1.0, 1.5, 1.25]));
            }
        }
        Value::Object(map)
    }

    #[test]
    fn a_row_for_each_case_and_a_line_for_what_was_refused() {
        let refused = json!({ "refused": "it has no values: a test says so" });
        let measured = [("memory", figures()), ("mysql", refused)];
        let text = tables(&measured).unwrap();
        let row = "| `memory:` | 1 000 | 64 | 3 000 | 1.25 | 1 500 | **2.00 ×** ± 0 % |\n";
        assert!(text.contains(row), "{text}");
        assert_eq!(text.matches("| `memory:` |").count(), 6);
        assert!(text.ends_with("\nNot measured on `mysql:`: it has no values: a test says so.\n"));
        let picture = picture(&measured).unwrap();
        assert_eq!(picture.matches("<polyline").count(), 4);
    }

    /// Whoever reads the figures of a store that stands for two servers sees which one it was.
    #[test]
    fn the_server_behind_a_store_is_named() {
        let measured = [("mysql", figures()), ("zookeeper", figures())];
        let text = tables(&measured).unwrap();
        assert_eq!(text.matches("\n| `mysql:` (MariaDB) | ").count(), 6, "{text}");
        assert_eq!(text.matches("\n| `zookeeper:` | ").count(), 6, "{text}");
        assert!(picture(&measured).unwrap().contains(">mysql: (MariaDB)</text>"));
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = tables(&[("memory", json!({}))]).unwrap_err().to_string();
        assert_eq!(error, "nothing is named 1.1.optimistic.per_s");
    }
}
