//! The connection on which we are woken. MySQL pushes nothing, so it waits in a procedure that
//! whoever has something for us interrupts, and that then tells us what there is.

use std::sync::Arc;
use std::time::Duration;

use lockfast_core::lobby::Claim as _;
use lockfast_core::{Moment, Retry, jitter};

use crate::claim::Claim;
use crate::failure::{Failure, Remedy};
use crate::store::Store;
use crate::wire::{Answer, Argument, Wire};

/// How long one call listens. A connection that is dead without a word is noticed after that.
const LISTEN: Duration = Duration::from_secs(10);
/// No call that waited was as short.
const BRIEF: Duration = Duration::from_millis(10);
/// How often it is tried whether we can be woken.
const TRIALS_MAX: usize = 10;
/// How often a waiter looks while nobody could tell it: often enough not to miss an offer.
const POLL_DEAF: Duration = Duration::from_millis(500);
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);

impl Store {
    /// Listens for ever. While it cannot, those who wait look by themselves.
    pub(crate) async fn listen(self: Arc<Self>) {
        let mut pause = PAUSE_MIN;
        let mut read_us = 0;
        loop {
            self.lobby.set_poll(POLL_DEAF);
            let failure = match self.dialer.dial().await {
                Ok(wire) => {
                    pause = PAUSE_MIN;
                    let failure = self.listen_on(wire, &mut read_us).await;
                    self.feeds.miss();
                    failure
                }
                Err(failure) => failure,
            };
            tracing::debug!(failure = failure.message(), "the listening connection broke");
            tokio::time::sleep(pause.mul_f64(0.5 + jitter())).await;
            pause = match failure.retry() {
                Retry::Later => (pause * 2).min(PAUSE_MAX),
                Retry::Never => PAUSE_MAX,
            };
        }
    }

    /// Listens until the connection is of no use any more.
    async fn listen_on(self: &Arc<Self>, mut wire: Wire, read_us: &mut u64) -> Failure {
        let limit = self.dialer.config().request_timeout;
        if let Err(failure) = wire.evict(&format!("lockfast:l:{}", self.who), limit).await {
            return failure;
        }
        // From the first call on we can be found.
        let first = self.listen_once(&mut wire, read_us, Duration::ZERO).await;
        if let Some(failure) = first.err().filter(|failure| !is_interruption(failure)) {
            return failure;
        }
        let trial = self.runtime.spawn(Arc::clone(self).try_to_be_woken());
        let failure = loop {
            let start = Moment::now();
            match self.listen_once(&mut wire, read_us, LISTEN).await {
                // Our other connection is not there, so there is nothing to wait for.
                Ok(()) if Moment::now().since(start) < BRIEF => tokio::time::sleep(BRIEF).await,
                Ok(()) => {}
                // Interrupted, which is how we are woken on some servers.
                Err(failure) if is_interruption(&failure) => {}
                Err(failure) => break failure,
            }
        };
        trial.abort();
        failure
    }

    /// Reads what there is and what comes within a while; `read_us` says what was read before.
    async fn listen_once(
        &self,
        wire: &mut Wire,
        read_us: &mut u64,
        time: Duration,
    ) -> Result<(), Failure> {
        let arguments = vec![
            Argument::from(&self.who),
            Argument::from(*read_us),
            Argument::from(time.as_secs()),
        ];
        let limit = time + self.dialer.config().request_timeout;
        let pass_on = |row: Answer| {
            *read_us = row.number(1).unwrap_or(*read_us);
            let mails = String::from_utf8_lossy(row.bytes(0).unwrap_or_default());
            mails.lines().for_each(|line| self.hear(line, self.clock()));
        };
        wire.follow("CALL lockfast_listen(?, ?, ?)", arguments, limit, pass_on).await
    }

    /// Finds out whether the server lets anybody wake us.
    async fn try_to_be_woken(self: Arc<Self>) {
        // One that is between two calls cannot be woken, and need not be.
        for _ in 0..TRIALS_MAX {
            match self.ask("CALL lockfast_rouse(?)", vec![Argument::from(&self.who)]).await {
                Ok(reply) => {
                    let row = reply.rows.first();
                    let fact = |at| row.and_then(|row| row.number(at)) == Some(1);
                    let (is_refused, is_found) = (fact(0), fact(1));
                    if is_found && !is_refused {
                        return self.lobby.set_poll(Claim::POLL);
                    }
                }
                Err(_) => tokio::time::sleep(PAUSE_MAX).await,
            }
            tokio::time::sleep(PAUSE_MIN).await;
        }
        tracing::warn!(
            "the server does not let waiters be woken, so they look twice a second; one user must \
             own all procedures of the schema"
        );
    }
}

/// Whether the connection is as good as before.
fn is_interruption(failure: &Failure) -> bool {
    matches!(failure.handling, Remedy::Repeat | Remedy::RepeatInDoubt)
}
