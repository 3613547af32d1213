//! What a recorder of metrics and a subscriber of `tracing` are told, against the list of metrics
//! and the tables of the guide.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockfast::backend::observe::{METRICS, MetricKind, span};
use lockfast::{Locker, LossCause};
use metrics_exporter_prometheus::PrometheusBuilder;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt as _};

const GUIDE: &str = include_str!("../../../docs/guides/observability.md");
const NAME: &str = "a-name-that-is-no-label";
const BOUND: Duration = Duration::from_secs(30);

/// Events and spans by what they are called: the level and the fields of each.
type Heard = BTreeMap<String, (String, BTreeSet<String>)>;

/// Listens to the engine.
#[derive(Clone, Default)]
struct Ear(Arc<Mutex<Heard>>);

#[derive(Default)]
struct Fields {
    message: String,
    names: BTreeSet<String>,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => drop(self.names.insert(name.to_owned())),
        }
    }
}

impl Ear {
    fn note(&self, name: String, level: &tracing::Level, names: BTreeSet<String>) {
        self.0.lock().unwrap().insert(name, (level.to_string().to_lowercase(), names));
    }
}

impl<S: Subscriber> Layer<S> for Ear {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() == "lockfast::telemetry" {
            let mut fields = Fields::default();
            event.record(&mut fields);
            self.note(fields.message, event.metadata().level(), fields.names);
        }
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        if attributes.metadata().target().starts_with("lockfast::") {
            let mut fields = Fields::default();
            attributes.record(&mut fields);
            let name = attributes.metadata().name().to_owned();
            self.note(name, attributes.metadata().level(), fields.names);
        }
    }
}

/// The rows of the guide's table of events, as they would be heard.
fn documented() -> Heard {
    let (_, table) = GUIDE.split_once("| event | level | fields |\n|---|---|---|\n").unwrap();
    let rows = table.lines().map_while(|line| line.strip_prefix("| `"));
    rows.map(|row| {
        let mut cells = row.split(" | ");
        let name = cells.next().unwrap().trim_end_matches('`').to_owned();
        let level = cells.next().unwrap().to_owned();
        let fields = cells.next().unwrap().trim_end_matches(" |").split(", ");
        (name, (level, fields.map(|field| field.replace('`', "")).collect()))
    })
    .collect()
}

/// One of everything that can happen in memory: granted, taken, cancelled, released, lost.
async fn live(locker: &Locker) -> lockfast::Result<()> {
    let mutex = locker.mutex(NAME)?;
    let guard = mutex.acquire().await?;
    assert!(!mutex.try_acquire().await?.is_acquired());
    let waiting = tokio::time::timeout(Duration::from_millis(10), mutex.acquire());
    assert!(waiting.await.is_err(), "somebody has it");
    guard.release().await?;
    let guard = mutex.acquire().await?;
    locker.revoke(NAME, "maintenance").await?;
    assert!(matches!(guard.lost().await, LossCause::Revoked { .. }));
    Ok(())
}

#[tokio::test]
async fn what_happens_is_counted_and_told_as_documented() -> lockfast::Result<()> {
    let page = PrometheusBuilder::new().install_recorder().unwrap();
    let ear = Ear::default();
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(ear.clone()))
        .unwrap();
    let locker = Locker::connect("memory:").await?;

    // Everything is there before it happens, so that the first time is a rise.
    let first = page.render();
    for metric in METRICS.iter().filter(|metric| !metric.description.contains("only of redlock")) {
        let kind = match metric.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "summary",
        };
        let help = format!("# HELP {} {}\n", metric.name, metric.description);
        assert!(first.contains(&help), "no {help} in {first}");
        assert!(first.contains(&format!("# TYPE {} {kind}\n", metric.name)), "{first}");
        let (label, values) = metric.label.unwrap_or(("backend", &["memory"]));
        for value in values {
            let series = format!("{label}=\"{value}\"");
            let is_series = |line: &str| line.starts_with(metric.name) && line.contains(&series);
            assert!(first.lines().any(is_series), "no {} with {series}", metric.name);
        }
    }

    live(&locker).await?;
    // A loss is recorded by a task of its own.
    let lost = "lockfast_losses_total{backend=\"memory\",cause=\"revoked\"} 1";
    let counted = async {
        while !page.render().contains(lost) || !ear.0.lock().unwrap().contains_key("lease lost") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(BOUND, counted).await.unwrap();
    let last = page.render();
    assert!(last.contains("cause=\"expired\"} 0"), "{last}");
    assert!(!last.contains(NAME), "a lock's name is no label: {last}");

    let mut heard = ear.0.lock().unwrap().clone();
    let (level, fields) = heard.remove(span::ACQUIRE).unwrap();
    assert_eq!(
        (level.as_str(), fields.into_iter().collect::<Vec<_>>().join(" ")),
        ("debug", "backend lock".into())
    );
    let documented = documented();
    for name in ["granted", "taken", "acquisition cancelled", "released", "lease lost"] {
        assert!(heard.contains_key(name), "no {name:?} in {heard:?}");
    }
    for (name, how) in heard {
        assert_eq!(documented.get(&name), Some(&how), "{name}");
    }
    Ok(())
}
