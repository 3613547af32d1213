//! The answers of many nodes to one batch of renewals. A node that is silent must not cost the
//! leases on the others their time, so that it is waited for only a while longer than they took.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use lockfast_core::{ErrorKind, Moment};
use tokio::sync::oneshot;
use tokio::time::Sleep;

use crate::batch::Renewal;
use crate::wire::{Failure, failure};

/// The lease engine allows a sixth of the ttl and 5 s at most for all of it, unless it is told
/// otherwise.
const GRACE_MAX: Duration = Duration::from_millis(2500);

type Answer = oneshot::Receiver<Result<Vec<Renewal>, Failure>>;

/// One answer for each lease, in their order.
pub(super) async fn collect(
    answers: Vec<Answer>,
    start: Moment,
    shortest_ttl: Duration,
) -> Result<Vec<Renewal>, Failure> {
    let grace = (shortest_ttl / 12).min(GRACE_MAX);
    let mut tally = Tally { renewals: vec![None; answers.len()], answers, alarm: None };
    poll_fn(|context| tally.poll(context, start, grace)).await;
    let silent = || {
        let message = "the lock's master did not answer while others did";
        Renewal::Unanswered(Failure::new(ErrorKind::Unreachable, message))
    };
    let is_answered = tally.has_answer();
    let mut renewals = tally.renewals.into_iter().map(|it| it.unwrap_or_else(silent));
    match renewals.next() {
        Some(Renewal::Unanswered(failure)) if !is_answered => Err(failure),
        first => Ok(first.into_iter().chain(renewals).collect()),
    }
}

struct Tally {
    answers: Vec<Answer>,
    renewals: Vec<Option<Renewal>>,
    alarm: Option<Pin<Box<Sleep>>>,
}

impl Tally {
    /// Whether any node has answered for any lease.
    fn has_answer(&self) -> bool {
        let is_answer = |it: &&Renewal| !matches!(it, Renewal::Unanswered(_));
        self.renewals.iter().flatten().find(is_answer).is_some()
    }

    /// Ready when there is nothing more to wait for.
    fn poll(&mut self, context: &mut Context<'_>, start: Moment, grace: Duration) -> Poll<()> {
        let mut is_complete = true;
        for (renewal, answer) in self.renewals.iter_mut().zip(&mut self.answers) {
            if renewal.is_none() {
                match Pin::new(answer).poll(context) {
                    Poll::Ready(answer) => *renewal = Some(read(answer)),
                    Poll::Pending => is_complete = false,
                }
            }
        }
        if is_complete {
            return Poll::Ready(());
        }
        if self.alarm.is_none() && self.has_answer() {
            let took = Moment::now().since(start);
            self.alarm = Some(Box::pin(tokio::time::sleep(grace.max(took))));
        }
        match &mut self.alarm {
            Some(alarm) => alarm.as_mut().poll(context),
            None => Poll::Pending,
        }
    }
}

fn read(answer: Result<Result<Vec<Renewal>, Failure>, oneshot::error::RecvError>) -> Renewal {
    let gone = || Failure::new(ErrorKind::Unreachable, "a node left the cluster");
    match answer {
        Ok(Ok(mut renewals)) => {
            renewals.pop().unwrap_or_else(|| Renewal::Unanswered(failure::of_nonsense("nothing")))
        }
        Ok(Err(failure)) => Renewal::Unanswered(failure),
        Err(_) => Renewal::Unanswered(gone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_millis(600);

    fn failure() -> Failure {
        Failure::new(ErrorKind::Unreachable, "it is down")
    }

    #[tokio::test]
    async fn a_silent_node_does_not_hold_up_the_others() {
        let (first, one) = oneshot::channel();
        let (_silent, two) = oneshot::channel();
        let (third, three) = oneshot::channel();
        let start = Moment::now();
        first.send(Ok(vec![Renewal::Renewed])).unwrap();
        third.send(Err(failure())).unwrap();
        let all = collect(vec![one, two, three], start, TTL).await.unwrap();
        let took = Moment::now().since(start);
        assert!(took >= TTL / 12 && took < TTL / 3, "{took:?}");
        assert_eq!(all[0], Renewal::Renewed);
        assert!(matches!(&all[1], Renewal::Unanswered(it) if it.message().contains("others did")));
        assert_eq!(all[2], Renewal::Unanswered(failure()));
    }

    #[tokio::test]
    async fn a_slow_cluster_is_waited_for() {
        let (first, one) = oneshot::channel();
        let (second, two) = oneshot::channel();
        tokio::spawn(async move {
            tokio::time::sleep(TTL / 4).await;
            first.send(Ok(vec![Renewal::Renewed])).unwrap();
            tokio::time::sleep(TTL / 8).await;
            second.send(Ok(vec![Renewal::Renewed])).unwrap();
        });
        let all = collect(vec![one, two], Moment::now(), TTL).await.unwrap();
        assert_eq!(all, [Renewal::Renewed, Renewal::Renewed]);
    }

    #[tokio::test]
    async fn when_nobody_answers_that_is_the_error() {
        let (first, one) = oneshot::channel();
        let (second, two) = oneshot::channel::<Result<Vec<Renewal>, Failure>>();
        first.send(Err(failure())).unwrap();
        drop(second);
        assert_eq!(collect(vec![one, two], Moment::now(), TTL).await, Err(failure()));
    }
}
