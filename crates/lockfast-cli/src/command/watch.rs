//! `lockfast watch`: what happens to locks, as it happens.

use lockfast::{Locker, WatchEvent};
use serde_json::json;

use crate::args::{Global, Watch};
use crate::exit::{self, Failure, Outcome, UNAVAILABLE};
use crate::output::{Output, timestamp};
use crate::plan::{self, Store};
use crate::process::signals::Signals;

/// Prints events until it is interrupted.
///
/// # Errors
/// When the store cannot be watched (any more), or nobody reads.
///
/// # Cancel safety
/// Safe: it only looks.
pub(crate) async fn run(args: &Watch, global: &Global, output: &Output) -> Outcome {
    let only = args.name.as_deref().map(plan::name).transpose()?;
    let store = Store::choose(global, output)?;
    let locker = store.connect(Locker::builder()).await?;
    let mut events = locker.watch().await?;
    let mut signals =
        Signals::listen().map_err(|error| Failure::internal("no signal handlers", error))?;
    if output.is_terminal() {
        output.note("watching; end with Ctrl-C");
    }
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            signal = signals.next() => return Ok(exit::of_signal(signal.as_raw())),
        };
        let Some(event) = event else {
            return Err(Failure::new(UNAVAILABLE, "the store has stopped telling events"));
        };
        if only.as_ref().is_none_or(|name| *name == event.name) {
            print(&event, output)?;
        }
    }
}

fn print(event: &WatchEvent, output: &Output) -> Result<(), Failure> {
    let at = timestamp(event.at);
    if output.json() {
        let label = event.label.as_ref();
        return output.value(&json!({
            "at": at,
            "name": event.name.as_str(),
            "event": event.kind.as_str(),
            "fence": event.fence.map(|fence| fence.get()),
            "program": label.map(|label| label.program.as_str()),
            "pid": label.map(|label| label.pid),
            "host": label.map(|label| label.host.as_str()),
            "label": label.and_then(|label| label.text.as_deref()),
        }));
    }
    let mut line = format!("{at} {:<9} {}", event.kind.as_str(), event.name);
    if let Some(fence) = event.fence {
        line.push_str(&format!(" fence {fence}"));
    }
    if let Some(label) = &event.label {
        line.push_str(&format!(" {label}"));
    }
    output.line(&line)
}
