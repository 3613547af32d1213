//! What all claims of a connection share: the sessions, one for each length of lease, and the table
//! of claims.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockfast_core::view::brief;
use lockfast_core::{ConnectContext, ErrorKind, HolderId, LockName, LossCause, Moment};
use tokio::sync;

use crate::claim::Claim;
use crate::config::Config;
use crate::crowd::Crowds;
use crate::failure::{self, Failure};
use crate::layout::Line;
use crate::wire::{Dialer, Limits, Proof, Session, Status};

/// How long the session of those who wait lasts, where the servers allow it and less where several
/// decide: with the tick by which they round it up, a dead waiter is gone within 2 s.
const WAITING: Duration = Duration::from_millis(1250);
/// How long a lock can be used at least that a node of that session has.
const BRIEF_MIN: Duration = Duration::from_millis(500);
/// The servers' unit of time as they come.
const TICK: Duration = Duration::from_secs(2);
/// How long the session of a stream of events lasts, where the servers allow it.
const EVENTS: Duration = Duration::from_secs(10);
/// The configuration of the ensemble, as the servers tell it.
pub(crate) const ENSEMBLE_NODE: &str = "/zookeeper/config";

/// A connection to an ensemble.
pub(crate) struct Store {
    pub(crate) dialer: Arc<Dialer>,
    pub(crate) context: ConnectContext,
    pub(crate) limits: Limits,
    /// By who decides and how long they last.
    sessions: Mutex<HashMap<(Proof, Duration), Arc<Slot>>>,
    pub(crate) crowds: Arc<Crowds>,
    pub(crate) claims: Mutex<HashMap<HolderId, Arc<Claim>>>,
}

type Slot = sync::Mutex<Opened>;

/// What became of the last try to open a session.
#[derive(Default)]
struct Opened {
    session: Option<Arc<Session>>,
    /// When it failed, and why: all who waited for it share that.
    failure: Option<(Moment, Failure)>,
}

impl Store {
    /// Finds out what the servers allow, and whether the chroot is there.
    pub(crate) async fn connect(dialer: Dialer, context: ConnectContext) -> Result<Self, Failure> {
        let dialer = Arc::new(dialer);
        let limits = dialer.find_limits().await?;
        let store = Self {
            dialer,
            context,
            limits,
            sessions: Mutex::default(),
            crowds: Arc::default(),
            claims: Mutex::default(),
        };
        let session = store.open_session().await?;
        // Servers have this node since they can do what locks need. Newer ones do not show it to everybody.
        match session.exists_at(ENSEMBLE_NODE).await {
            Ok(true) => {}
            Ok(false) => return Err(failure::of_age()),
            Err(failure) if failure.handling.is_no_auth() => {}
            Err(failure) => return Err(failure),
        }
        let chroot = &store.config().chroot;
        if !chroot.is_empty() && !session.exists_at(chroot).await? {
            return Err(Failure::new(ErrorKind::InvalidConfig, no_chroot(chroot)));
        }
        Ok(store)
    }

    pub(crate) fn config(&self) -> &Config {
        &self.dialer.config
    }

    /// The shortest and the longest lease, with its lock-delay.
    pub(crate) fn ttl_limits(&self) -> (Duration, Duration) {
        self.ttl_limits_of(self.dialer.proof())
    }

    fn ttl_limits_of(&self, proof: Proof) -> (Duration, Duration) {
        let (Limits { least, most }, slack) = (self.limits, self.slack(proof));
        (least.saturating_sub(slack), most.saturating_sub(slack))
    }

    /// The servers' unit of time, as the address says it or as far as it can be known.
    fn tick(&self) -> Duration {
        self.config().tick.unwrap_or_else(|| guess_tick(self.limits))
    }

    /// By how much a session must outlast a lease, because a follower tells the leader late that it
    /// has heard from us: half a tick between its reports, an eighth between our contacts, and an
    /// eighth for what is slow. Nothing where one server decides alone.
    fn slack(&self, proof: Proof) -> Duration {
        match proof {
            Proof::Any => Duration::ZERO,
            Proof::Change => self.tick() * 3 / 4,
        }
    }

    /// The line of a lock: see [`Crowds::list`].
    pub(crate) fn list(
        &self,
        session: &Arc<Session>,
        name: &LockName,
    ) -> impl Future<Output = Result<Arc<Line>, Failure>> + Send + use<> {
        self.crowds.list(&self.context.runtime, session, name)
    }

    /// Whether the servers allow leases that last so long with their lock-delay.
    pub(crate) fn check_length(&self, lasts: Duration) -> Result<(), Failure> {
        self.check_length_of(self.dialer.proof(), lasts)
    }

    fn check_length_of(&self, proof: Proof, lasts: Duration) -> Result<(), Failure> {
        let (least, most) = self.ttl_limits_of(proof);
        if lasts < least || lasts > most {
            let message = format!(
                "a lease and its lock-delay of {} together; the servers allow {} to {} (2 to 20 \
                 ticks unless minSessionTimeout and maxSessionTimeout are set)",
                brief(lasts),
                brief(least),
                brief(most)
            );
            return Err(Failure::new(ErrorKind::InvalidTtl, message));
        }
        Ok(())
    }

    /// Whether a session is the one for leases that last so long, or the nearest that is allowed.
    pub(crate) fn fits(&self, session: &Session, lasts: Duration) -> bool {
        let wanted = whole_millis(lasts + self.slack(session.proof));
        let is_longer = session.timeout > wanted;
        let is_odd = || self.check_length_of(session.proof, lasts).is_err();
        session.timeout == wanted || (is_longer && is_odd())
    }

    /// The session for leases that last so long with their lock-delay.
    pub(crate) async fn holding(&self, lasts: Duration) -> Result<Arc<Session>, Failure> {
        let proof = self.dialer.proof();
        self.check_length_of(proof, lasts)?;
        self.session(proof, whole_millis(lasts + self.slack(proof))).await
    }

    /// The session of those who wait, and for questions.
    pub(crate) async fn waiting(&self) -> Result<Arc<Session>, Failure> {
        let proof = self.dialer.proof();
        self.session(proof, self.waiting_timeout(proof)).await
    }

    /// How long a lock may be used that a node of a session has, counted from before a contact that
    /// the leader has answered.
    pub(crate) fn lasting(&self, session: &Session) -> Duration {
        session.timeout.saturating_sub(self.slack(session.proof))
    }

    /// A session of one's own, for a stream of events.
    pub(crate) async fn open_session(&self) -> Result<Session, Failure> {
        let timeout = EVENTS.clamp(self.limits.least, self.limits.most);
        self.open(self.dialer.proof(), timeout).await
    }

    async fn open(&self, proof: Proof, timeout: Duration) -> Result<Session, Failure> {
        let beat = self.beat(proof);
        Session::open(&self.dialer, &self.context.runtime, timeout, beat, proof).await
    }

    /// How often the servers hear from a session: on an ensemble often enough that a follower has it
    /// in each of its reports to the leader, which are two in a tick.
    fn beat(&self, proof: Proof) -> Duration {
        match proof {
            Proof::Any => self.limits.least / 4,
            Proof::Change => self.tick() / 8,
        }
    }

    /// How long the session of those who wait lasts.
    fn waiting_timeout(&self, proof: Proof) -> Duration {
        let slack = self.slack(proof);
        let timeout = WAITING.saturating_sub(slack / 2).max(slack + BRIEF_MIN);
        whole_millis(timeout).clamp(self.limits.least, self.limits.most)
    }

    async fn session(&self, proof: Proof, timeout: Duration) -> Result<Arc<Session>, Failure> {
        let slot = Arc::clone(lock(&self.sessions).entry((proof, timeout)).or_default());
        let asked = Moment::now();
        let mut slot = slot.lock().await;
        if let Some(session) = &slot.session
            && session.status() != Status::Ended
        {
            return Ok(Arc::clone(session));
        }
        if let Some((at, failure)) = &slot.failure
            && asked.has_passed(*at)
        {
            return Err(failure.clone());
        }
        let opened = self.open(proof, timeout).await;
        slot.failure = opened.as_ref().err().map(|failure| (Moment::now(), failure.clone()));
        let session = Arc::new(opened?);
        if session.timeout != timeout {
            let message = format!(
                "asked for a session of {}, the server gives {}: its limits have changed, connect \
                 again",
                brief(timeout),
                brief(session.timeout)
            );
            return Err(Failure::new(ErrorKind::InvalidTtl, message));
        }
        let (ending, number) = (session.over(), session.number());
        let losses = self.context.losses.clone();
        self.context.runtime.spawn(async move {
            if ending.await {
                losses.session_ended(number, LossCause::SessionEnded);
            }
        });
        slot.session = Some(Arc::clone(&session));
        Ok(session)
    }

    /// Closes the sessions that no claim uses and that were not used for the last round either.
    pub(crate) fn close_idle(&self, idle: &mut Vec<(Proof, Duration)>) {
        let mut sessions = lock(&self.sessions);
        let is_idle = |slot: &Arc<Slot>| {
            Arc::strong_count(slot) == 1
                && slot.try_lock().is_ok_and(|slot| {
                    slot.session.as_ref().is_none_or(|session| Arc::strong_count(session) == 1)
                })
        };
        let now: Vec<(Proof, Duration)> =
            sessions.iter().filter(|(_, slot)| is_idle(slot)).map(|(which, _)| *which).collect();
        for which in now.iter().filter(|which| idle.contains(which)) {
            sessions.remove(which);
        }
        *idle = now;
    }

    /// Ends everything: the servers delete what our sessions made.
    pub(crate) fn close(&self) {
        lock(&self.claims).drain().for_each(|(_, claim)| claim.abort());
        lock(&self.sessions).clear();
    }
}

/// What sessions can last tells the unit: 2 to 20 of it, unless that is set. The larger of what both
/// limits say is safe, but a longest session that was set to more says nothing.
pub(crate) fn guess_tick(limits: Limits) -> Duration {
    (limits.least / 2).max((limits.most / 20).min(TICK))
}

pub(crate) fn no_chroot(chroot: &str) -> String {
    format!(
        "the node {chroot} does not exist; create it, as with \"zkCli.sh create {chroot}\", or give \
         another path in the URL"
    )
}

/// Sessions last whole milliseconds.
fn whole_millis(span: Duration) -> Duration {
    let millis = span.as_nanos().div_ceil(1_000_000);
    Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
}

/// A poisoned lock has nothing half done in it here.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tick_is_not_guessed_too_short() {
        let table = [
            // As they come; then with the shortest, the longest or both set.
            ((4000, 40_000), 2000),
            ((1000, 10_000), 500),
            ((200, 40_000), 2000),
            ((200, 10_000), 500),
            ((4000, 600_000), 2000),
            ((1000, 600_000), 2000),
            ((10_000, 40_000), 5000),
        ];
        for ((least, most), tick) in table {
            let [least, most, tick] = [least, most, tick].map(Duration::from_millis);
            assert_eq!(guess_tick(Limits { least, most }), tick);
        }
    }

    #[test]
    fn sessions_last_whole_milliseconds() {
        assert_eq!(whole_millis(Duration::from_micros(1_500_001)), Duration::from_millis(1501));
        assert_eq!(whole_millis(Duration::from_millis(1500)), Duration::from_millis(1500));
    }
}
