//! The dashboard, the alerts and the runbook against the metrics and commands that there are. They are
//! read by other programs, so nobody would notice a name that does not exist.
#![cfg(test)]

use std::collections::BTreeSet;

use saphyr::{LoadableYamlNode as _, Yaml};
use serde_json::Value;

use crate::metrics::observe::{METRICS, Metric, MetricKind, label};
use crate::tree::Tree;

const DASHBOARD: &str = "deploy/grafana/lockfast.json";
const RULES: &str = "deploy/prometheus/lockfast.rules.yml";
const RUNBOOK: &str = "docs/runbook.md";
/// Labels that Prometheus and its exporters add.
const LABELS_ADDED: [&str; 4] = ["job", "instance", "le", "quantile"];
const SEVERITIES: [&str; 3] = ["critical", "warning", "info"];

#[derive(Debug, Default)]
struct Alert {
    name: String,
    expression: String,
    severity: String,
    runbook: String,
    is_explained: bool,
}

/// All expressions of a dashboard, also those of its variables.
fn expressions(value: &Value) -> Vec<String> {
    match value {
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(name, value)| match value.as_str() {
                Some(text) if name == "expr" || name == "definition" => vec![text.to_owned()],
                _ => expressions(value),
            })
            .collect(),
        Value::Array(values) => values.iter().flat_map(expressions).collect(),
        _ => Vec::new(),
    }
}

fn alerts(text: &str) -> Vec<Alert> {
    let documents = Yaml::load_from_str(text).unwrap();
    let groups = documents[0].as_mapping_get("groups").and_then(Yaml::as_sequence).unwrap();
    let rules = groups.iter().flat_map(|group| {
        group.as_mapping_get("rules").and_then(Yaml::as_sequence).expect("a group has rules")
    });
    rules.map(read_alert).collect()
}

fn read_alert(rule: &Yaml<'_>) -> Alert {
    let text = |path: &[&str]| {
        let found = path.iter().try_fold(rule, |node, key| node.as_mapping_get(key));
        found.and_then(Yaml::as_str).unwrap_or_default().to_owned()
    };
    Alert {
        name: text(&["alert"]),
        expression: text(&["expr"]),
        severity: text(&["labels", "severity"]),
        runbook: text(&["annotations", "runbook"]),
        is_explained: !text(&["annotations", "summary"]).is_empty()
            && !text(&["annotations", "description"]).is_empty(),
    }
}

/// What is wrong with an expression, as far as it is about our metrics.
fn flaws(expression: &str) -> Vec<String> {
    let mut flaws = Vec::new();
    for pair in ["()", "{}", "[]"] {
        if expression.matches(&pair[..1]).count() != expression.matches(&pair[1..]).count() {
            flaws.push(format!("{pair} is not closed"));
        }
    }
    let names = series(expression);
    if names.is_empty() {
        flaws.push("it uses no metric of ours".into());
    }
    for (name, matchers) in &names {
        match metric_of(name) {
            Some(metric) => flaws.extend(label_flaws(metric, matchers)),
            None => flaws.push(format!("there is no metric {name}")),
        }
    }
    let kinds: Vec<&Metric> = names.iter().filter_map(|(name, _)| metric_of(name)).collect();
    for (at, _) in expression.match_indices(" by (") {
        let grouped = expression[at + 5..].split(')').next().unwrap_or_default();
        for word in grouped.split(", ") {
            if !LABELS_ADDED.contains(&word) && !kinds.iter().any(|metric| has_label(metric, word))
            {
                flaws.push(format!("no metric has the label {word}"));
            }
        }
    }
    flaws
}

/// The names of our metrics in an expression, each with what its braces hold.
fn series(expression: &str) -> Vec<(&str, &str)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    expression
        .match_indices("lockfast_")
        .filter(|(at, _)| !expression[..*at].ends_with(is_part))
        .map(|(at, _)| {
            let rest = &expression[at..];
            let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            let matchers = rest[end..].strip_prefix('{').and_then(|rest| rest.split('}').next());
            (&rest[..end], matchers.unwrap_or_default())
        })
        .collect()
}

/// The metric that Prometheus shows under this name. Times have one name of their own, as a summary,
/// and three with an end.
fn metric_of(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| {
        let end = name.strip_prefix(metric.name);
        match metric.kind {
            MetricKind::Counter | MetricKind::Gauge => end == Some(""),
            MetricKind::Histogram => {
                end.is_some_and(|end| ["", "_bucket", "_sum", "_count"].contains(&end))
            }
        }
    })
}

fn has_label(metric: &Metric, name: &str) -> bool {
    name == label::BACKEND || metric.label.is_some_and(|(label, _)| label == name)
}

fn label_flaws(metric: &Metric, matchers: &str) -> Vec<String> {
    let mut flaws = Vec::new();
    for matcher in matchers.split(',').map(str::trim).filter(|matcher| !matcher.is_empty()) {
        let end = matcher.find(['=', '!']).unwrap_or(matcher.len());
        let (name, rest) = matcher.split_at(end);
        if LABELS_ADDED.contains(&name) || name == label::BACKEND {
            continue;
        }
        let Some((_, known)) = metric.label.filter(|(label, _)| *label == name) else {
            flaws.push(format!("{} has no label {name}", metric.name));
            continue;
        };
        let values = rest.trim_start_matches(['=', '!', '~']).trim_matches('"');
        for value in values.split('|').filter(|value| !known.contains(value)) {
            flaws.push(format!("{name} of {} is never {value:?}", metric.name));
        }
    }
    flaws
}

fn load(tree: &Tree, path: &str) -> String {
    tree.file(path).unwrap_or_else(|| panic!("there is no {path}")).text.clone()
}

#[test]
fn the_dashboard_uses_metrics_that_exist_and_all_of_them() {
    let dashboard: Value = serde_json::from_str(&load(&Tree::load().unwrap(), DASHBOARD)).unwrap();
    let all = expressions(&dashboard);
    assert!(all.len() > METRICS.len(), "{all:?}");
    for expression in &all {
        assert!(flaws(expression).is_empty(), "{expression}: {:?}", flaws(expression));
    }
    let used: BTreeSet<&str> = all
        .iter()
        .flat_map(|expression| series(expression))
        .filter_map(|(name, _)| metric_of(name))
        .map(|metric| metric.name)
        .collect();
    for Metric { name, .. } in METRICS {
        assert!(used.contains(name), "the dashboard does not show {name}");
    }
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().filter_map(|panel| panel["id"].as_u64()).collect();
    assert_eq!(ids.len(), panels.len(), "each panel has an id of its own");
}

#[test]
fn alerts_use_metrics_that_exist_and_have_a_section_in_the_runbook() {
    let tree = Tree::load().unwrap();
    let alerts = alerts(&load(&tree, RULES));
    assert!(alerts.len() >= 5, "{alerts:?}");
    for alert in &alerts {
        let Alert { name, expression, severity, runbook, is_explained } = alert;
        assert!(name.starts_with("Lockfast") && *is_explained, "{alert:?}");
        assert!(flaws(expression).is_empty(), "{name}: {:?}", flaws(expression));
        assert!(SEVERITIES.contains(&severity.as_str()), "{name}: {severity:?}");
        assert_eq!(*runbook, format!("{RUNBOOK}#{}", name.to_lowercase()), "{name}");
    }
    let page = load(&tree, RUNBOOK);
    let sections: Vec<&str> = page.split("\n## ").skip(1).collect();
    let titles: Vec<&str> = sections.iter().filter_map(|section| section.lines().next()).collect();
    let names: Vec<&str> = alerts.iter().map(|alert| alert.name.as_str()).collect();
    assert_eq!(titles, names, "a section for each alert, in their order");
    for section in sections {
        for part in ["**Meaning.**", "**Check.**", "**Do.**", "`lockfast "] {
            assert!(section.contains(part), "no {part} in {section}");
        }
    }
}

#[test]
fn the_runbook_names_commands_that_exist() {
    let tree = Tree::load().unwrap();
    let page = load(&tree, RUNBOOK);
    let commands = page.split("`lockfast ").skip(1);
    let words: BTreeSet<&str> =
        commands.filter_map(|rest| rest.split([' ', '`', '\n']).next()).collect();
    assert!(words.contains("doctor"), "{words:?}");
    for word in words {
        let file = format!("crates/lockfast-cli/src/command/{}.rs", word.replace('-', "_"));
        assert!(tree.file(&file).is_some(), "there is no lockfast {word}");
    }
}

#[test]
fn what_does_not_exist_is_found() {
    for (expression, flaw) in [
        ("rate(lockfast_loses_total[5m])", "there is no metric lockfast_loses_total"),
        ("lockfast_losses_total_count", "there is no metric lockfast_losses_total_count"),
        ("lockfast_losses_total{cause=\"stolen\"}", "is never \"stolen\""),
        ("lockfast_losses_total{cause!~\"expired|eaten\"}", "is never \"eaten\""),
        ("lockfast_losses_total{outcome=\"failed\"}", "has no label outcome"),
        ("sum by (lock) (lockfast_leases_held)", "no metric has the label lock"),
        ("sum(lockfast_leases_held", "() is not closed"),
        ("up", "it uses no metric of ours"),
    ] {
        assert!(
            flaws(expression).join("\n").contains(flaw),
            "{expression}: {:?}",
            flaws(expression)
        );
    }
    for good in [
        "lockfast_wait_seconds{quantile=\"0.99\"}",
        "sum by (backend, le) (rate(lockfast_wait_seconds_bucket{job=~\"$job\"}[5m]))",
        "lockfast_losses_total{cause!~\"data_lost|revoked\"}",
    ] {
        assert!(flaws(good).is_empty(), "{good}: {:?}", flaws(good));
    }
    let alert = &alerts("groups:\n- name: a\n  rules:\n  - alert: B\n    expr: up\n")[0];
    assert_eq!((alert.name.as_str(), alert.is_explained), ("B", false));
    assert!(Yaml::load_from_str("groups: [").is_err());
}
