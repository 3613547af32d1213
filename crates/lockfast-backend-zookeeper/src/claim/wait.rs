//! How a claim waits for its turn: it watches those whose end can let it in, and nobody else.

use std::sync::Arc;
use std::time::Duration;

use lockfast_core::queue::Standing;
use lockfast_core::{Mode, Moment, jitter};
use tokio::sync::Notify;
use tokio::time::sleep;

use super::{Gone, Place, Turn, Worker};
use crate::failure::Fate;
use crate::layout::{Contender, Line};
use crate::record::Record;

/// How often a claim looks although nothing was told, once or up to twice that: a net, not the way.
const POLL: Duration = Duration::from_secs(10);

/// After so many answers that were late a brief grant is told as it is.
const CONFIRMATIONS_MAX: usize = 5;

/// Whom a claim waits for.
pub(super) struct Ahead {
    paths: Vec<String>,
    /// Whether the lock is the claim's when they are gone, without looking at the others. That stays
    /// so: nobody gets ahead of a number.
    is_all: bool,
    /// Whether that holds as soon as the one it waits for has the lock.
    is_all_when_held: bool,
}

/// What a look at those ahead showed.
enum Look {
    /// The turn has come; the moment is before the servers were asked.
    Turn(Moment),
    /// Some are gone: who else is there is not known.
    Unclear,
    Wait,
}

impl Worker {
    /// Waits for the turn of a claim that has its place in the session of those who wait. The
    /// answer is a moment before that session was seen to live.
    pub(super) async fn wait(&self, place: &Place, mut ahead: Ahead) -> Result<Moment, Turn> {
        let watcher = Arc::new(Notify::new());
        loop {
            match self.look(place, &mut ahead, &watcher).await? {
                Look::Turn(from) => return self.confirm_turn(place, from).await,
                Look::Wait => {}
                Look::Unclear => match self.look_at_all(place).await? {
                    (from, None) => return self.confirm_turn(place, from).await,
                    (_, Some(found)) => {
                        ahead = found;
                        continue;
                    }
                },
            }
            self.sleep(place, &watcher).await;
            self.check(place).await?;
        }
    }

    /// Whom the claim waits for, if its own node is there; nobody when its turn has come.
    pub(super) fn ahead(&self, place: &Place, line: &Line) -> Option<Option<Ahead>> {
        let Standing::Waits { watch } = line.standing(line.position(place.node())?) else {
            return Some(None);
        };
        let lock_path = self.lock_path();
        let is_permit = matches!(self.claim.mode, Mode::Permit { .. });
        let is_exclusive = watch.len() == 1 && line.claims[watch.start].mode == Mode::Exclusive;
        let path = |claim: &Contender| format!("{lock_path}/{}", claim.node);
        Some(Some(Ahead {
            is_all: watch == (0..1) && !is_permit,
            is_all_when_held: is_exclusive && !is_permit,
            paths: line.claims[watch].iter().map(path).collect(),
        }))
    }

    /// An exclusive claim waits for the one just before it.
    pub(super) fn behind(&self, node: &str) -> Ahead {
        let mode = Contender::read(node.to_owned()).map(|claim| claim.mode);
        Ahead {
            is_all: false,
            is_all_when_held: mode == Some(Mode::Exclusive),
            paths: vec![format!("{}/{node}", self.lock_path())],
        }
    }

    /// Reads those ahead and the claim's own node, in one round.
    async fn look(
        &self,
        place: &Place,
        ahead: &mut Ahead,
        watcher: &Arc<Notify>,
    ) -> Result<Look, Turn> {
        let session = &place.session;
        let from = Moment::now();
        let others: Vec<_> =
            ahead.paths.iter().map(|path| session.get(path, Some(watcher))).collect();
        let own = session.get(&place.path, None);
        // What a follower answers does not prove that the leader knows the session.
        let syncing = (!self.store.is_alone()).then(|| session.sync());
        let mut is_unclear = false;
        for other in others {
            match other.await {
                Ok((data, _)) => {
                    let is_held = Record::read(&data).is_some_and(|record| record.held);
                    ahead.is_all |= ahead.is_all_when_held && is_held;
                }
                Err(failure) if failure.handling == Fate::Ended => return Err(Turn::Again),
                Err(_) => is_unclear = true,
            }
        }
        let is_known = match syncing {
            Some(syncing) => syncing.await.is_ok(),
            None => true,
        };
        match own.await {
            Ok((_, stat)) if stat.owner == session.id => {}
            // Somebody else deleted it.
            Ok(_) => return Err(Turn::Again),
            Err(failure) if failure.handling.is_no_node() => return Err(Turn::Again),
            Err(failure) if failure.handling == Fate::Ended => return Err(Turn::Again),
            Err(_) => return Ok(Look::Unclear),
        }
        Ok(match is_unclear {
            true if ahead.is_all && is_known && ahead.paths.len() == 1 => Look::Turn(from),
            true => Look::Unclear,
            false => Look::Wait,
        })
    }

    /// Reads the whole line: whom to wait for next, or that the turn has come.
    async fn look_at_all(&self, place: &Place) -> Result<(Moment, Option<Ahead>), Turn> {
        loop {
            place.session.settled().await;
            let from = Moment::now();
            let syncing = (!self.store.is_alone()).then(|| place.session.sync());
            let line = self.list(place).await?;
            if let Some(syncing) = syncing {
                match syncing.await.map_err(|failure| failure.handling) {
                    Ok(()) => {}
                    Err(Fate::Ended) => return Err(Turn::Again),
                    Err(_) => continue,
                }
            }
            if let Err(error) = line.check() {
                self.leave(place).await;
                return Err(self.refuse(error));
            }
            return Ok((from, self.ahead(place, &line).ok_or(Turn::Again)?));
        }
    }

    /// When the answers took so long that little of the brief grant would be left: a later moment at
    /// which the session of those who wait lived. The turn does not pass meanwhile.
    pub(super) async fn confirm_turn(&self, place: &Place, from: Moment) -> Result<Moment, Turn> {
        let enough = self.store.waiting_lasts() / 2;
        let mut from = from;
        for _ in 0..CONFIRMATIONS_MAX {
            if Moment::now().since(from) < enough {
                break;
            }
            place.session.settled().await;
            let asked = Moment::now();
            match place.session.sync().await.map_err(|failure| failure.handling) {
                Ok(()) => from = asked,
                Err(Fate::Ended) => return Err(Turn::Again),
                Err(_) => {}
            }
        }
        Ok(from)
    }

    /// Until something happens.
    async fn sleep(&self, place: &Place, watcher: &Notify) {
        let end = self.claim.state().wait.until();
        let waiting = async {
            match end {
                Some(end) => sleep(end.remaining(Moment::now())).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = watcher.notified() => {}
            () = self.claim.notice.notified() => {}
            () = waiting => {}
            () = place.session.ended() => {}
            () = sleep(POLL.mul_f64(1.0 + jitter())) => {}
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
