//! Measurements by name, round by round, and what each is taken on: a runtime of its own.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use crate::contender::{Connection, Contender};
use crate::{cycle, handover};

/// How often everything is measured, in turns.
pub(crate) const ROUNDS: usize = 5;

/// How long each time.
const SPAN: Duration = Duration::from_secs(1);

/// Runs a measurement on the runtime that suits so many tasks best.
pub(crate) fn on_runtime<T>(
    tasks: usize,
    measurement: impl Future<Output = Result<T>>,
) -> Result<T> {
    let runtime: Runtime = match tasks {
        1 => Builder::new_current_thread().enable_all().build()?,
        _ => Builder::new_multi_thread().worker_threads(2).enable_all().build()?,
    };
    let result = runtime.block_on(measurement);
    // What a library left running need not be waited for.
    runtime.shutdown_background();
    result
}

/// Measurements by name.
#[derive(Default)]
pub(crate) struct Samples(BTreeMap<String, Vec<f64>>);

impl Samples {
    pub(crate) fn add(&mut self, name: &str, value: f64) {
        self.0.entry(name.to_owned()).or_default().push(value);
    }

    /// Adds the fields of a result, as `NAME.FIELD`.
    pub(crate) fn add_fields(&mut self, name: &str, result: &Value) -> Result<()> {
        for (field, value) in result.as_object().context("no object")? {
            self.add(&format!("{name}.{field}"), value.as_f64().context("no number")?);
        }
        Ok(())
    }

    /// Lets so many tasks take and give back locks of their own. `before` is called when all are
    /// connected.
    pub(crate) fn cycle(
        &mut self,
        name: &str,
        (peer, url, sessions): (&str, &str, usize),
        tasks: usize,
        before: impl FnOnce(),
    ) -> Result<()> {
        let result = on_runtime(tasks, async {
            let connection = Connection::open(peer, url, sessions).await?;
            before();
            cycle::measure(connection.contenders(tasks)?, SPAN).await
        });
        self.add_fields(name, &result.with_context(|| name.to_owned())?)
    }

    /// Passes one lock around between so many waiters and one holder, who share a connection or
    /// have one each. `before` is called when all are connected.
    pub(crate) fn hand_over(
        &mut self,
        name: &str,
        (url, is_shared): (&str, bool),
        waiters: usize,
        hold: Option<Duration>,
        before: impl FnOnce(),
    ) -> Result<()> {
        let result = on_runtime(waiters + 1, async {
            let contenders = match is_shared {
                true => {
                    let connection = Connection::open("lockfast", url, 1).await?;
                    let contender = |_| connection.contender("lock:shared".to_owned());
                    (0..=waiters).map(contender).collect::<Result<_>>()?
                }
                false => Contender::each_with_a_connection("lockfast", url, waiters + 1).await?,
            };
            before();
            handover::measure(contenders, hold, SPAN).await
        });
        self.add_fields(name, &result.with_context(|| name.to_owned())?)
    }

    pub(crate) fn into_value(self) -> Value {
        json!(self.0)
    }
}
