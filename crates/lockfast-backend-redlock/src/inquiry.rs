//! Any other question to nodes, and their answers side by side.

use std::sync::Mutex;
use std::time::Duration;

use lockfast_core::ErrorKind;
use tokio::sync::oneshot;

use crate::store::lock;
use crate::wire::{Failure, Pipeline, Reply};

/// What a node answered to a question.
pub(crate) type Answer = Result<Vec<Reply>, Failure>;

/// A question.
pub(crate) struct Inquiry {
    pub(crate) write: Box<dyn Fn(&mut Pipeline) + Send + Sync>,
    /// How long a node may take.
    pub(crate) limit: Duration,
    tally: Mutex<Tally>,
}

struct Tally {
    answers: Vec<Option<Answer>>,
    asker: Option<oneshot::Sender<Vec<Answer>>>,
}

impl Inquiry {
    /// A question to so many nodes, and its answers.
    pub(crate) fn new(
        nodes: usize,
        limit: Duration,
        write: impl Fn(&mut Pipeline) + Send + Sync + 'static,
    ) -> (Self, oneshot::Receiver<Vec<Answer>>) {
        let (asker, answers) = oneshot::channel();
        let tally = Tally { answers: (0..nodes).map(|_| None).collect(), asker: Some(asker) };
        (Self { write: Box::new(write), limit, tally: Mutex::new(tally) }, answers)
    }

    /// Whether nobody wants the answer any more.
    pub(crate) fn is_moot(&self) -> bool {
        lock(&self.tally).asker.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    /// Whether this node has yet to answer.
    pub(crate) fn waits_for(&self, node: usize) -> bool {
        matches!(lock(&self.tally).answers.get(node), Some(None))
    }

    /// Takes an answer down; the last one sends them all.
    pub(crate) fn answer(&self, node: usize, answer: Answer) {
        let mut tally = lock(&self.tally);
        if let Some(slot) = tally.answers.get_mut(node).filter(|slot| slot.is_none()) {
            *slot = Some(answer);
        }
        if tally.answers.iter().all(Option::is_some)
            && let Some(asker) = tally.asker.take()
        {
            let answers = std::mem::take(&mut tally.answers);
            let missing = || Err(Failure::new(ErrorKind::Internal, "no answer"));
            drop(asker.send(answers.into_iter().map(|it| it.unwrap_or_else(missing)).collect()));
        }
    }
}
