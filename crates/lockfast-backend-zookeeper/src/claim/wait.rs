//! How a claim waits for its turn: it watches those whose end can let it in, and nobody else.

use std::sync::Arc;
use std::time::Duration;

use lockfast_core::queue::Standing;
use lockfast_core::{Mode, Moment, jitter};
use tokio::time::sleep;

use super::{Gone, Place, Turn, Worker};
use crate::crowd::Outlook;
use crate::failure::{Failure, Fate, code};
use crate::layout::{Contender, Line};
use crate::record::Record;
use crate::wire::NodeWatcher;

/// How often a claim looks although nothing was told, once or up to twice that: a net, not the way.
const POLL: Duration = Duration::from_secs(10);
/// How many of a process do so. More take turns, so that a long line costs no more than this.
const POLLERS: usize = 100;

/// After so many answers that were late a brief grant is told as it is.
const CONFIRMATIONS_MAX: usize = 5;

/// Whom a claim waits for.
pub(super) struct Ahead {
    paths: Vec<String>,
    /// Whether the lock is the claim's when they are gone, without looking at the others. That stays
    /// so: nobody gets ahead of a number.
    is_all: bool,
    /// Whether that holds as soon as the one it waits for has the lock: an exclusive claim of
    /// Lockfast, whose node then says so and does not move any more once it was changed.
    is_all_when_held: bool,
}

/// What the servers tell while a claim waits.
struct Watchers {
    ahead: Arc<NodeWatcher>,
    own: Arc<NodeWatcher>,
}

impl Watchers {
    fn new(ahead: &Ahead) -> Self {
        let watcher = match ahead.is_all_when_held {
            true => NodeWatcher::of_end(),
            false => NodeWatcher::default(),
        };
        Self { ahead: Arc::new(watcher), own: Arc::default() }
    }

    /// Whether the one ahead is gone for good, while the claim's own node was there: no node moves
    /// after it was changed. What happened to the own node before was told before. That it had the
    /// lock is not told: others can write to the node of one that waits.
    fn tell_end(&self, ahead: &Ahead) -> bool {
        ahead.is_all_when_held && self.ahead.is_changed_and_deleted() && !self.own.is_told()
    }
}

/// What a look at those ahead showed.
enum Look {
    /// The turn has come.
    Turn,
    /// Some are gone: who else is there is not known.
    Unclear,
    Wait,
    /// The connection broke.
    Repeat,
}

/// What the servers know of a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Node,
    Nothing,
    Unknown,
}

impl Worker {
    /// Waits for the turn of a claim that has its place in the session of those who wait. The
    /// answer is a moment before that session was seen to live.
    pub(super) async fn wait(&self, place: &Place, mut ahead: Ahead) -> Result<Moment, Turn> {
        self.store.crowds.note(&self.claim.name, Outlook::Wanted);
        loop {
            let watchers = Watchers::new(&ahead);
            let mut look = self.look(place, &mut ahead, &watchers).await?;
            if matches!(look, Look::Wait) {
                self.sleep(place, &watchers).await;
                if watchers.tell_end(&ahead) {
                    look = if self.is_next(&ahead) { Look::Turn } else { Look::Unclear };
                }
            }
            match look {
                Look::Turn => return self.confirm_turn(place).await,
                Look::Unclear => match self.look_at_all(place).await? {
                    None => return self.confirm_turn(place).await,
                    Some(found) => ahead = found,
                },
                Look::Wait => {}
                Look::Repeat => place.session.settled().await,
            }
            self.check(place).await?;
        }
    }

    /// Whether nobody else is ahead: those ahead are all, or the one had the lock, as this process
    /// knows of its own.
    fn is_next(&self, ahead: &Ahead) -> bool {
        let (crowds, name) = (&self.store.crowds, &self.claim.name);
        ahead.is_all || ahead.paths.iter().all(|path| crowds.has_given_back(name, path))
    }

    /// Whom the claim waits for, if its own node is there; nobody when its turn has come.
    pub(super) fn ahead(&self, place: &Place, line: &Line) -> Option<Option<Ahead>> {
        let Standing::Waits { watch } = line.standing(line.position(place.node())?) else {
            return Some(None);
        };
        let lock_path = self.lock_path();
        let is_permit = matches!(self.claim.mode, Mode::Permit { .. });
        let is_told = watch.len() == 1 && tells_hold(&line.claims[watch.start]);
        let path = |claim: &Contender| format!("{lock_path}/{}", claim.node);
        Some(Some(Ahead {
            is_all: watch == (0..1) && !is_permit,
            is_all_when_held: is_told && !is_permit,
            paths: line.claims[watch].iter().map(path).collect(),
        }))
    }

    /// An exclusive claim waits for the one just before it.
    pub(super) fn behind(&self, node: &str) -> Ahead {
        Ahead {
            is_all: false,
            is_all_when_held: Contender::read(node.to_owned()).as_ref().is_some_and(tells_hold),
            paths: vec![format!("{}/{node}", self.lock_path())],
        }
    }

    /// Reads those ahead and the claim's own node, in one round.
    async fn look(
        &self,
        place: &Place,
        ahead: &mut Ahead,
        watchers: &Watchers,
    ) -> Result<Look, Turn> {
        let session = &place.session;
        let others: Vec<_> =
            ahead.paths.iter().map(|path| session.get(path, Some(&watchers.ahead))).collect();
        let end = (ahead.is_all_when_held && ahead.paths.len() == 1)
            .then(|| session.watch_end(&ahead.paths[0], &watchers.ahead));
        let own = session.get(&place.path, Some(&watchers.own));
        let mut found = Vec::with_capacity(others.len() + 2);
        for other in others {
            let read = other.await;
            if let Ok((data, _)) = &read {
                let is_held = Record::read(data).is_some_and(|record| record.held);
                ahead.is_all |= ahead.is_all_when_held && is_held;
            }
            found.push(self.judge(place, read).await?);
        }
        if let Some(end) = end {
            found.push(self.judge(place, end.await).await?);
        }
        match own.await {
            Ok((_, stat)) if stat.owner != session.id => return Err(Turn::Again),
            Err(failure) if failure.handling.is_no_node() => return Err(Turn::Again),
            own => found.push(self.judge(place, own).await?),
        }
        Ok(if found.contains(&Found::Unknown) {
            Look::Repeat
        } else if !found.contains(&Found::Nothing) {
            Look::Wait
        } else if ahead.is_all && ahead.paths.len() == 1 {
            Look::Turn
        } else {
            Look::Unclear
        })
    }

    /// What an answer shows. Only a node that is not there is gone: whatever else the servers answer
    /// says nothing about it, and a claim that cannot see who is ahead cannot wait.
    async fn judge<T>(&self, place: &Place, answer: Result<T, Failure>) -> Result<Found, Turn> {
        let Err(failure) = answer else { return Ok(Found::Node) };
        match failure.handling {
            Fate::Refused(code::NO_NODE) => Ok(Found::Nothing),
            Fate::Broken => Ok(Found::Unknown),
            Fate::Ended => Err(Turn::Again),
            _ => {
                self.leave(place).await;
                Err(self.refuse(failure.to_error()))
            }
        }
    }

    /// Reads the whole line: whom to wait for next, or that the turn has come.
    async fn look_at_all(&self, place: &Place) -> Result<Option<Ahead>, Turn> {
        let line = self.list(place).await?;
        if let Err(error) = line.check() {
            self.leave(place).await;
            return Err(self.refuse(error));
        }
        self.ahead(place, &line).ok_or(Turn::Again)
    }

    /// A moment at which the session of those who wait was alive. What a server tells of the line
    /// can be old, but not wrong: nobody gets ahead of a number, so the turn does not pass while that
    /// session lives. When so much time has passed that little of the brief grant would be left, the
    /// servers are asked.
    pub(super) async fn confirm_turn(&self, place: &Place) -> Result<Moment, Turn> {
        let enough = self.store.lasting(&place.session) / 2;
        for _ in 0..CONFIRMATIONS_MAX {
            if Moment::now().since(place.session.alive_at()) < enough {
                break;
            }
            place.session.settled().await;
            let confirmed = place.session.confirm().await;
            if confirmed.is_err_and(|failure| failure.handling == Fate::Ended) {
                return Err(Turn::Again);
            }
        }
        Ok(place.session.alive_at())
    }

    /// Until something happens.
    async fn sleep(&self, place: &Place, watchers: &Watchers) {
        let end = self.claim.state().wait.until();
        let waiting = async {
            match end {
                Some(end) => sleep(end.remaining(Moment::now())).await,
                None => std::future::pending().await,
            }
        };
        let turns = 1 + self.crowd_size() / POLLERS;
        tokio::select! {
            () = watchers.ahead.notified() => {}
            () = watchers.own.notified() => {}
            () = self.claim.notice.notified() => {}
            () = waiting => {}
            () = place.session.ended() => {}
            () = sleep(POLL.mul_f64((1.0 + jitter()) * turns as f64)) => {}
        }
    }

    /// Whether there is still a reason to wait.
    async fn check(&self, place: &Place) -> Result<(), Turn> {
        let (is_leaving, is_open) = {
            let state = self.claim.state();
            (state.is_leaving, state.wait.is_open())
        };
        if is_leaving {
            self.leave(place).await;
            return Err(Turn::Over(Gone::Unheld));
        }
        if !is_open && self.claim.state().asker.is_some() {
            let line = self.list(place).await?;
            self.leave(place).await;
            return match line.check() {
                Ok(()) => Err(self.refuse_as_taken(place, &line).await),
                Err(error) => Err(self.refuse(error)),
            };
        }
        Ok(())
    }
}

/// Whether such a claim tells that it has the lock, by what its node holds.
fn tells_hold(claim: &Contender) -> bool {
    claim.mode == Mode::Exclusive && claim.is_ours()
}
