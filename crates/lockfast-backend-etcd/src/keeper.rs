//! One stream on which all leases of this process are kept alive.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use lockfast_core::{ErrorKind, Moment};
use tokio::sync::{mpsc, oneshot};

use crate::failure::{self, Failure, Fate};
use crate::session::Session;
use crate::store::{Store, lock};
use crate::wire::{KeepAliveRequest, KeepAliveResponse, RangeRequest, Stream};

/// How often it is looked which leases are due.
const TICK: Duration = Duration::from_millis(100);
/// An answer that takes longer comes over a connection of no use.
const SILENCE_MIN: Duration = Duration::from_millis(500);

/// How soon a question is asked again whose stream ended.
const PAUSE: Duration = Duration::from_millis(50);

type Asker = oneshot::Sender<Result<(), Failure>>;

/// Somebody wants a lease to be prolonged, and to know.
pub(crate) struct Ask {
    session: Arc<Session>,
    asker: Option<Asker>,
}

/// A question to prolong a lease, on its way.
struct Question {
    session: Arc<Session>,
    sent: Moment,
    asker: Option<Asker>,
}

/// What was answered and does not count yet, each with the term in which it was.
///
/// A member that does not know yet that it leads no more prolongs leases all the same, and nobody
/// else knows of it. So an answer counts only after a read that most of the members took part in,
/// and that was answered in the same term of the leader: then no other led when it was given.
#[derive(Default)]
struct Unproved {
    /// What was answered before the read was sent that is under way.
    before: Vec<(Question, u64)>,
    since: Vec<(Question, u64)>,
}

impl Unproved {
    /// A read is sent. Returns whether it proves anything.
    fn read(&mut self) -> bool {
        self.before = std::mem::take(&mut self.since);
        !self.before.is_empty()
    }

    /// The read was answered in a term: what was answered in the same before it counts. Returns
    /// what has to be asked once more.
    fn prove(&mut self, term: u64) -> Vec<Question> {
        let mut again = Vec::new();
        for (question, answered) in std::mem::take(&mut self.before) {
            if answered != term {
                again.push(question);
                continue;
            }
            question.session.prolonged(question.sent);
            if let Some(asker) = question.asker {
                let _ = asker.send(Ok(()));
            }
        }
        again
    }
}

/// One stream, and what was asked over it.
struct Beat {
    stream: Stream<KeepAliveRequest, KeepAliveResponse>,
    /// What was sent and not yet answered, for each lease.
    pending: HashMap<i64, VecDeque<Question>>,
    unproved: Unproved,
}

impl Beat {
    fn new(stream: Stream<KeepAliveRequest, KeepAliveResponse>) -> Self {
        Self { stream, pending: HashMap::new(), unproved: Unproved::default() }
    }

    fn send(&mut self, session: &Arc<Session>, asker: Option<Asker>) {
        let question = Question { session: Arc::clone(session), sent: Moment::now(), asker };
        session.ask(question.sent);
        self.pending.entry(session.id).or_default().push_back(question);
        // A stream that is closed ends the next look at it.
        let _ = self.stream.questions.send(KeepAliveRequest { id: session.id });
    }

    /// Takes note of an answer.
    fn hear(&mut self, store: &Store, answer: &KeepAliveResponse) {
        let Some(pending) = self.pending.get_mut(&answer.id) else { return };
        let Some(question) = pending.pop_front() else { return };
        if pending.is_empty() {
            self.pending.remove(&answer.id);
        }
        if answer.ttl > 0 {
            let term = answer.header.as_ref().map_or(0, |header| header.raft_term);
            return self.unproved.since.push((question, term));
        }
        // One that is being ended is taken note of when that is done.
        if !question.session.is_closing() {
            store.session_lost(&question.session);
        }
        if let Some(asker) = question.asker {
            let _ = asker.send(Err(lost()));
        }
    }

    /// A read was answered in a term.
    fn prove(&mut self, term: u64) {
        for question in self.unproved.prove(term) {
            self.send(&question.session, question.asker);
        }
    }

    /// Whether an answer is missing for so long that none will come.
    fn is_silent(&self, store: &Store, now: Moment) -> bool {
        let limit = store.link.dialer.config().request_timeout;
        self.pending.values().filter_map(VecDeque::front).any(|question| {
            let patience = (question.session.ttl / 2).max(SILENCE_MIN);
            now.since(question.sent) > patience.min(limit)
        })
    }
}

fn lost() -> Failure {
    Failure::new(ErrorKind::Unreachable, "the cluster has ended the lease").with(Fate::NoLease)
}

/// Why one stream does not serve any more.
enum Ended {
    /// With its connection.
    Broken(Failure),
    /// The cluster does not answer, or the server has ended it: the connection may be well.
    Silent,
}

impl Store {
    /// Lets a lease last its time from now on, at least.
    pub(crate) async fn prolong(&self, session: &Arc<Session>) -> Result<(), Failure> {
        let config = self.link.dialer.config();
        let end = Moment::now() + config.request_timeout;
        loop {
            if session.is_over() {
                return Err(lost());
            }
            // If there is no connection, it is told why.
            self.link.current().await?;
            let (asker, answer) = oneshot::channel();
            // Nobody listens only when the store is closed.
            let _ = self.asks.send(Ask { session: Arc::clone(session), asker: Some(asker) });
            match answer.await {
                Ok(answer) => return answer,
                // The stream ended, and there is another by now or soon.
                Err(_) if !end.has_passed(Moment::now()) => tokio::time::sleep(PAUSE).await,
                Err(_) => {
                    let limit = config.request_timeout;
                    let message = format!("the leases could not be kept alive for {limit:?}");
                    return Err(Failure::new(ErrorKind::Unreachable, message));
                }
            }
        }
    }

    /// Asks whether a lease is still there. Nobody waits for the answer.
    pub(crate) fn ask_about(&self, session: &Arc<Session>) {
        let _ = self.asks.send(Ask { session: Arc::clone(session), asker: None });
    }

    /// The term of the leader that most of the members agree on.
    async fn read_term(&self) -> Result<u64, Failure> {
        let known = lock(&self.readable).clone();
        let sent = Moment::now();
        let request = match known.or_else(|| self.claims.any_key()) {
            Some(key) => RangeRequest { key, keys_only: true, ..RangeRequest::default() },
            // No lock was asked for yet.
            None => self.link.dialer.glance(),
        };
        let answer = self.link.range(request).await;
        if matches!(&answer, Err(failure) if failure.kind() == ErrorKind::Permission) {
            // Another may do.
            *lock(&self.readable) = None;
        }
        let header = answer?.header.unwrap_or_default();
        self.pulses.note(sent, header.revision);
        Ok(header.raft_term)
    }

    /// Keeps all leases alive, for ever.
    pub(crate) async fn keep_alive(self: Arc<Self>, mut asks: mpsc::UnboundedReceiver<Ask>) {
        loop {
            let (number, connection) = self.link.wait().await;
            let beat = Beat::new(connection.keep_alive());
            let ended = self.beat(number, beat, &mut asks).await;
            // Those who asked while there was no stream ask again.
            while asks.try_recv().is_ok() {}
            match ended {
                Ended::Silent => {
                    self.link.check(number, &connection).await;
                    tokio::time::sleep(PAUSE).await;
                }
                Ended::Broken(failure) => {
                    tracing::debug!(failure = failure.message(), "leases are not kept alive");
                    self.link.give_up(number);
                    self.link.ended(number).await;
                }
            }
        }
    }

    /// Serves one stream until it breaks.
    async fn beat(
        &self,
        number: u64,
        mut beat: Beat,
        asks: &mut mpsc::UnboundedReceiver<Ask>,
    ) -> Ended {
        for session in self.sessions.all() {
            beat.send(&session, None);
        }
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let ended = self.link.ended(number);
        tokio::pin!(ended);
        let mut reading = None;
        loop {
            if reading.is_none() && beat.unproved.read() {
                reading = Some(Box::pin(self.read_term()));
            }
            tokio::select! {
                biased;
                answer = beat.stream.next() => match answer {
                    Ok(answer) => beat.hear(self, &answer),
                    Err(failure) if failure.handling == Fate::Broken => {
                        return Ended::Broken(failure);
                    }
                    Err(_) => return Ended::Silent,
                },
                ask = asks.recv() => match ask {
                    Some(ask) => beat.send(&ask.session, ask.asker),
                    None => return Ended::Broken(failure::of_closing()),
                },
                term = ready(&mut reading) => {
                    reading = None;
                    match term {
                        Ok(term) => beat.prove(term),
                        // Those who asked ask again, or are told why not.
                        Err(_) => beat.unproved.before.clear(),
                    }
                },
                _ = ticks.tick() => {
                    let now = Moment::now();
                    for session in self.sessions.all() {
                        if session.is_due(now) {
                            beat.send(&session, None);
                        }
                    }
                    if beat.is_silent(self, now) {
                        return Ended::Silent;
                    }
                },
                () = &mut ended => return Ended::Broken(failure::of_closing()),
            }
        }
    }
}

/// Ends with the future that there is; never, when there is none.
async fn ready<F: Future + Unpin>(future: &mut Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Class;

    /// A question about a new lease that was sent a second after it was made.
    fn question() -> (Question, oneshot::Receiver<Result<(), Failure>>) {
        let (made, second) = (Moment::now(), Duration::from_secs(1));
        let session = Arc::new(Session::new(1, Class::Waiting, 2 * second, made));
        let (asker, told) = oneshot::channel();
        (Question { session, sent: made + second, asker: Some(asker) }, told)
    }

    #[test]
    fn an_answer_counts_when_a_read_after_it_was_answered_in_its_term() {
        let mut unproved = Unproved::default();
        let (asked, mut told) = question();
        let (session, sent) = (Arc::clone(&asked.session), asked.sent);
        assert!(!unproved.read(), "there is nothing to prove");
        unproved.since.push((asked, 7));
        assert!(
            unproved.prove(7).is_empty() && told.try_recv().is_err(),
            "that read was before it"
        );
        assert!(unproved.read());
        assert!(unproved.prove(7).is_empty());
        assert!(matches!(told.try_recv(), Ok(Ok(()))));
        assert_eq!(session.from(), sent);
    }

    #[test]
    fn an_answer_of_a_leader_that_was_replaced_does_not_count() {
        let mut unproved = Unproved::default();
        let (asked, mut told) = question();
        let (session, made) = (Arc::clone(&asked.session), asked.session.from());
        unproved.since.push((asked, 7));
        assert!(unproved.read());
        let again = unproved.prove(8);
        assert_eq!(again.len(), 1, "it is asked once more");
        assert_eq!(session.from(), made);
        assert!(told.try_recv().is_err());
    }
}
