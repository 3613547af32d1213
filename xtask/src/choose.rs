//! All stores side by side, for whoever has to choose: figures of one run on one machine, what a
//! failover can lose, and what it costs to run. `crates/lockfast-cli/examples/figures` measures, on
//! servers that it starts.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::bench::{figures, thousands};
use crate::page;
use crate::step::timed;

/// The page with the table.
pub(crate) const PAGE: &str = "docs/choosing.md";
/// What its marks say.
pub(crate) const COMMAND: &str = "cargo xtask choose";

/// A store that can be chosen.
struct Store {
    /// As `examples/figures` knows it.
    name: &'static str,
    url: &'static str,
    failover: &'static str,
    cost: &'static str,
}

const STORES: &[Store] = &[
    Store {
        name: "memory",
        url: "memory:",
        failover: "there is none: the locks end with the process",
        cost: "nothing",
    },
    Store {
        name: "embedded",
        url: "embedded:",
        failover: "there is none: one machine; a crash loses no grant that anybody can still hold",
        cost: "a directory on a local disk",
    },
    Store {
        name: "redis",
        url: "redis:",
        failover: "the last grants, so that two may hold a lock for a while; fewer with \
                   `min_replicas`, and none with `on_data_loss=quarantine`, which then grants \
                   nothing for a while",
        cost: "one more process, small; a replica and three sentinels to fail over",
    },
    Store {
        name: "redlock",
        url: "redlock:",
        failover: "nothing while a minority is down; grants, if nodes forget or their clocks jump",
        cost: "three to five Redis servers that know nothing of each other",
    },
    Store {
        name: "postgres",
        url: "postgres:",
        failover: "nothing to a standby that every commit waits for; the last grants to any other, \
                   while the fence still rises",
        cost: "the database you have: a schema, and two connections for each process",
    },
    Store {
        name: "advisory",
        url: "postgres:?mode=advisory",
        failover: "all locks: they end with their connections",
        cost: "the database you have: and a connection for each lock that is held or waited for",
    },
    Store {
        name: "mysql",
        url: "mysql:",
        failover: "nothing to a replica that every commit waits for; the last grants to any other, \
                   while the fence still rises",
        cost: "the database you have: a schema, and two connections for each process",
    },
    Store {
        name: "etcd",
        url: "etcd:",
        failover: "nothing while a majority lives",
        cost: "three members with fast disks, and compaction to look after",
    },
    Store {
        name: "zookeeper",
        url: "zookeeper:",
        failover: "nothing while a majority lives",
        cost: "three servers with Java and fast disks",
    },
];

/// Measures and prints the table, or writes it; `--blank` writes it without figures.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let (options, names): (Vec<&str>, Vec<&str>) =
        arguments.iter().map(String::as_str).partition(|argument| argument.starts_with("--"));
    let stores = chosen(&names)?;
    match options[..] {
        ["--blank"] if names.is_empty() => return page::write(PAGE, COMMAND, &blank()),
        [] => {}
        ["--write"] if names.is_empty() => {}
        _ => bail!("choose takes --write or --blank, for all stores only, or names of stores"),
    }
    figures::build()?;
    let mut measured = Vec::new();
    for store in stores {
        let figures = timed(store.url, || figures::measure("choose", store.name))?;
        measured.push((store, Figures::read(&figures).with_context(|| store.url.to_owned())?));
    }
    let rows: Vec<_> = measured.iter().map(|(store, figures)| (*store, Some(figures))).collect();
    let text = format!("{}\n{}", page::measured(COMMAND)?, table(&rows));
    println!("\n{text}");
    if options.is_empty() { Ok(()) } else { page::write(PAGE, COMMAND, &text) }
}

fn chosen(names: &[&str]) -> Result<Vec<&'static Store>> {
    let known: Vec<&str> = STORES.iter().map(|store| store.name).collect();
    if let Some(name) = names.iter().find(|name| !known.contains(name)) {
        bail!("there is no store {name:?}; there is {}", known.join(", "));
    }
    Ok(STORES.iter().filter(|store| names.is_empty() || names.contains(&store.name)).collect())
}

/// The table before anything was measured.
pub(crate) fn blank() -> String {
    let rows: Vec<_> = STORES.iter().map(|store| (store, None)).collect();
    format!("{}\n{}", page::not_measured(COMMAND), table(&rows))
}

/// The stores that a text has no row of with the words of this command.
pub(crate) fn missing_from(text: &str) -> impl Iterator<Item = &'static str> {
    STORES.iter().map(|store| (store.url, store.start(), store.end())).filter_map(
        move |(url, start, end)| {
            let is_there = |line: &str| line.starts_with(&start) && line.ends_with(&end);
            (!text.lines().any(is_there)).then_some(url)
        },
    )
}

impl Store {
    fn start(&self) -> String {
        format!("| {} |", figures::label(self.name, self.url))
    }

    fn end(&self) -> String {
        format!("| {} | {} |", self.failover, self.cost)
    }
}

/// What was measured on one store.
struct Figures {
    free_p50_us: f64,
    cycles_per_s: f64,
    handover_p50_us: f64,
    /// None where no other process can take over.
    takeover_s: Option<f64>,
    ttl_s: f64,
}

impl Figures {
    fn read(value: &Value) -> Result<Self> {
        let number = |name: &str| {
            value[name].as_f64().with_context(|| format!("there is no {name} in {value}"))
        };
        Ok(Self {
            free_p50_us: number("free_p50_us")?,
            cycles_per_s: number("cycles_per_s")?,
            handover_p50_us: number("handover_p50_us")?,
            takeover_s: value["takeover_s"].as_f64(),
            ttl_s: number("ttl_s")?,
        })
    }

    fn cells(&self) -> String {
        let takeover = match self.takeover_s {
            None => "–".to_owned(),
            Some(seconds) if seconds < 0.1 => {
                format!("{:.0} ms of {} s", seconds * 1000.0, self.ttl_s)
            }
            Some(seconds) => format!("{seconds:.1} s of {} s", self.ttl_s),
        };
        format!(
            " {} | {} | {} | {takeover} ",
            micros(self.free_p50_us),
            thousands(self.cycles_per_s),
            micros(self.handover_p50_us),
        )
    }
}

fn micros(us: f64) -> String {
    if us < 10.0 { format!("{us:.1} µs") } else { format!("{} µs", thousands(us)) }
}

fn table(rows: &[(&Store, Option<&Figures>)]) -> String {
    let mut text = String::from(
        "| store | free lock, p50 | 64 tasks, cycles a second | hand-over, p50 | take-over after \
         `kill -9`, of a ttl | what a failover can lose | what it costs to run |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for (store, figures) in rows {
        let cells = figures.map_or_else(|| " – | – | – | – ".to_owned(), Figures::cells);
        let _ = writeln!(text, "{}{cells}{}", store.start(), store.end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn figures_become_a_row() {
        let figures = json!({
            "free_p50_us": 3.21, "cycles_per_s": 12_345.6, "handover_p50_us": 1234.5,
            "takeover_s": 1.94, "ttl_s": 2.0,
        });
        let figures = Figures::read(&figures).unwrap();
        assert_eq!(figures.cells(), " 3.2 µs | 12 346 | 1 234 µs | 1.9 s of 2 s ");
        let text = table(&[(&STORES[0], Some(&figures))]);
        assert!(text.contains("| `memory:` | 3.2 µs |"), "{text}");
        let alone = Figures { takeover_s: None, ..figures };
        assert!(alone.cells().ends_with("| – "));
        assert!(Figures::read(&json!({})).is_err());
    }

    #[test]
    fn a_row_that_is_missing_is_named() {
        assert_eq!(missing_from(&blank()).count(), 0);
        let without = blank().replace("`redlock:`", "`redlocks:`");
        assert_eq!(missing_from(&without).collect::<Vec<_>>(), ["redlock:"]);
    }

    #[test]
    fn options_and_names_are_checked() {
        assert!(run(&["--wrtie".into()]).is_err());
        assert!(run(&["mongo".into()]).is_err());
        assert!(run(&["--write".into(), "redis".into()]).is_err());
        assert_eq!(chosen(&["etcd"]).unwrap()[0].url, "etcd:");
    }
}
