//! Who asks the server: one task with one connection, one request after the other, so that a release
//! is never overtaken by what was asked before it. A connection that is given up is ended at the server
//! before the next one is used, for the same reason.

use std::time::Duration;

use lockfast_core::failure::Handling;
use lockfast_core::{Error, ErrorKind, Failure, LockName, Moment, Result};
use tokio::sync::{mpsc, oneshot};

use super::{Change, Row, Table};

/// What is to be done about a request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// It is told.
    Tell,
    /// Nothing of it was done: the same again.
    Repeat,
    /// The connection is of no use any more. Whether it was done is not known; it may be asked again.
    Reconnect,
}

/// One step: a change and then a look, or one of them.
pub(super) struct Step {
    pub(super) change: Option<Change>,
    pub(super) look: Look,
    /// For how long the server may be silent.
    pub(super) limit: Duration,
    pub(super) is_repeatable: bool,
}

/// What is looked at.
pub(super) enum Look {
    Nothing,
    At(LockName),
    /// Everything that is held.
    All,
}

/// What came of a step.
pub(super) struct Said {
    /// Before the change was sent.
    pub(super) from: Moment,
    pub(super) is_changed: bool,
    pub(super) rows: Vec<Row>,
    /// Whether it was asked more than once, and may have been done the first time.
    pub(super) is_repeated: bool,
}

struct Ask {
    step: Step,
    asker: oneshot::Sender<Result<Said>>,
}

/// Where to ask. The task ends when this is dropped and everything is answered.
pub(super) struct Desk(mpsc::UnboundedSender<Ask>);

impl Desk {
    /// Lets a task of the present runtime ask on the connection of `table`.
    pub(super) fn open(table: impl Table) -> Self {
        let (asks, asked) = mpsc::unbounded_channel();
        tokio::spawn(serve(table, asked));
        Self(asks)
    }

    /// Asks; what is asked earlier is done earlier.
    pub(super) fn ask(&self, step: Step) -> Answer {
        let (asker, answer) = oneshot::channel();
        // If it is closed, so is the answer.
        let _ = self.0.send(Ask { step, asker });
        Answer(answer)
    }
}

/// An answer that is on its way.
pub(super) struct Answer(oneshot::Receiver<Result<Said>>);

impl Answer {
    pub(super) async fn receive(self) -> Result<Said> {
        let closed = || Error::new(ErrorKind::Unreachable, "the connection was closed");
        self.0.await.unwrap_or_else(|_| Err(closed()))
    }
}

async fn serve<T: Table>(mut table: T, mut asked: mpsc::UnboundedReceiver<Ask>) {
    let mut is_connected = true;
    while let Some(Ask { step, asker }) = asked.recv().await {
        let is_acquisition = matches!(step.change, Some(Change::Take { .. }));
        if is_acquisition && asker.is_closed() {
            continue;
        }
        let said = work(&mut table, &mut is_connected, &step).await;
        let _ = asker.send(said.map_err(|failure| failure.to_error()));
    }
    table.close().await;
}

async fn work<T: Table>(
    table: &mut T,
    is_connected: &mut bool,
    step: &Step,
) -> std::result::Result<Said, Failure<T::Handling>> {
    let start = Moment::now();
    let mut is_repeated = false;
    loop {
        if !*is_connected {
            let connected = table.connect().await;
            connected.map_err(|failure| if is_repeated { in_doubt(&failure) } else { failure })?;
            *is_connected = true;
        }
        let failure = match take_step(table, step).await {
            Ok(said) => return Ok(Said { is_repeated, ..said }),
            Err(failure) => failure,
        };
        let remedy = T::remedy(&failure);
        if remedy == Remedy::Reconnect {
            *is_connected = false;
        }
        // Who asks has a limit too, and asks again.
        let is_late = Moment::now().since(start) > step.limit / 2;
        let may_repeat = match remedy {
            Remedy::Tell => false,
            Remedy::Repeat => true,
            Remedy::Reconnect => step.is_repeatable,
        };
        if is_late || !may_repeat {
            return Err(if is_repeated { in_doubt(&failure) } else { failure });
        }
        is_repeated |= remedy == Remedy::Reconnect;
    }
}

/// What is told when an earlier try may have been done, whatever keeps the next one from being made:
/// whoever asked must not take it for undone.
fn in_doubt<H: Handling>(failure: &Failure<H>) -> Failure<H> {
    let message = format!("the answer was lost, and then: {}", failure.message());
    Failure::new(ErrorKind::Unreachable, message)
}

async fn take_step<T: Table>(
    table: &mut T,
    step: &Step,
) -> std::result::Result<Said, Failure<T::Handling>> {
    let from = Moment::now();
    let is_changed = match &step.change {
        Some(change) => table.change(change, step.limit).await?,
        None => false,
    };
    let looked = match &step.look {
        Look::Nothing => Ok(Vec::new()),
        Look::At(name) => table.look(Some(name.as_str()), step.limit).await,
        Look::All => table.look(None, step.limit).await,
    };
    let rows = looked.map_err(|failure| match T::remedy(&failure) {
        Remedy::Tell if is_changed => in_doubt(&failure),
        _ => failure,
    })?;
    Ok(Said { from, is_changed, rows, is_repeated: false })
}
