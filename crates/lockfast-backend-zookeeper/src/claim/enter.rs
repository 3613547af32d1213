//! How a claim gets its place in the line.

use std::sync::Arc;

use lockfast_core::{Error, ErrorKind, Fence, Mode, Moment};

use super::{Gone, Place, Turn, Worker};
use crate::crowd::Outlook;
use crate::failure::{Failure, Fate, code};
use crate::layout::{Line, claim_prefix, is_beyond_order};
use crate::record::Record;
use crate::wire::{NodeKind, Session, Stat};

/// Who else is there when a claim is made.
pub(super) enum Seen {
    /// An exclusive claim has this node just before it.
    Before(String),
    Line(Arc<Line>),
}

/// What became of a node that was to be one of another session.
pub(super) enum Adopted {
    Yes,
    /// There is none any more.
    Gone,
    /// An operator takes it away, for this reason.
    Revoked(String),
}

impl Worker {
    /// Makes the claim's node and sees who else is there. The moment is before that was sent.
    pub(super) async fn enter(&self) -> Result<(Place, Seen, Moment), Turn> {
        let entrance = tokio::select! {
            entrance = self.find_entrance() => entrance,
            () = self.asked_to_leave() => return Err(Turn::Over(Gone::Unheld)),
        };
        let (session, waits) = match entrance {
            Ok(entrance) => entrance,
            Err(failure) => return Err(self.refuse(failure.to_error())),
        };
        self.depend_on(&session);
        let prefix = self.prefix(&session);
        let lock_path = self.lock_path();
        loop {
            if self.claim.is_leaving() {
                return Err(Turn::Over(Gone::Unheld));
            }
            let from = Moment::now();
            let data = self.record(None, false);
            // The server does them in this order, so the list has the new node.
            let creating = session.create(
                &format!("{lock_path}/{prefix}"),
                &data,
                NodeKind::EphemeralSequential,
            );
            // Whoever most likely waits behind another of this process may do without one.
            let may_need_none = waits && self.is_behind_others();
            let listing = (!may_need_none).then(|| self.store.list(&session, &self.claim.name));
            let (path, stat, listing) = match creating.await {
                Ok((path, stat)) => (path, stat, listing),
                Err(failure) => match failure.handling {
                    Fate::Refused(code::NO_NODE) => {
                        self.make_lock_node(&session).await?;
                        continue;
                    }
                    // Whether it was made is not known.
                    Fate::Broken => match self.find_own(&session, &prefix).await? {
                        // A list that was asked for before may be older.
                        Some((path, stat)) => (path, stat, None),
                        None => continue,
                    },
                    Fate::Ended => return Err(Turn::Again),
                    _ => return Err(self.refuse(failure.to_error())),
                },
            };
            let fence = match read_fence(&stat) {
                Ok(fence) => fence,
                Err(error) => {
                    self.delete(&session, &path, false).await;
                    return Err(self.refuse(error));
                }
            };
            let place = Place { path, fence, session: Arc::clone(&session), waits };
            if is_beyond_order(place.node()) {
                return Err(self.start_line_anew(&place).await);
            }
            let before = self.member.as_ref().and_then(|member| member.enter(place.node()));
            let seen = match (listing, before) {
                (None, Some(before)) if may_need_none => Seen::Before(before),
                (None, _) => Seen::Line(self.list(&place).await?),
                (Some(listing), _) => Seen::Line(match listing.await {
                    Ok(line) => line,
                    Err(_) => self.list(&place).await?,
                }),
            };
            return Ok((place, seen, from));
        }
    }

    /// The session in which the claim is made, and whether it is that of those who wait. A claim that
    /// has to wait is to be made there: until it has moved there, it would delay others for its ttl
    /// if the process died. One that need not is made in the session of its leases.
    async fn find_entrance(&self) -> Result<(Arc<Session>, bool), Failure> {
        let lasts = self.claim.lasts();
        self.store.check_length(lasts)?;
        let is_free = match self.store.crowds.outlook(&self.claim.name) {
            _ if self.is_behind_others() => false,
            _ if !self.claim.state().wait.is_open() => true,
            Some(Outlook::Free) => true,
            Some(Outlook::Wanted) if self.claim.mode == Mode::Exclusive => false,
            _ => {
                // Who finds it free has the session that it needs then.
                let (holding, is_free) = tokio::join!(self.store.holding(lasts), self.look_ahead());
                holding?;
                is_free
            }
        };
        match is_free {
            true => Ok((self.store.holding(lasts).await?, false)),
            false => Ok((self.store.waiting().await?, true)),
        }
    }

    /// Whether the lock would be the claim's if it came now. When that cannot be seen, it is not.
    async fn look_ahead(&self) -> bool {
        let Ok(session) = self.store.waiting().await else { return false };
        match self.store.list(&session, &self.claim.name).await {
            Ok(line) => line.admits(self.claim.mode),
            Err(failure) => failure.handling.is_no_node(),
        }
    }

    /// Whether the claim most likely has to wait for another of this process.
    fn is_behind_others(&self) -> bool {
        let may_wait = self.claim.mode == Mode::Exclusive && self.claim.state().wait.is_open();
        may_wait && self.crowd_size() > 1
    }

    fn prefix(&self, session: &Session) -> String {
        let claim = &self.claim;
        let is_trying = !claim.state().wait.is_open();
        let exclusive = self.store.config().exclusive;
        claim_prefix(session.id, claim.holder, claim.mode, exclusive, is_trying)
    }

    /// Makes the node of the lock. The server deletes it some time after its last claim.
    async fn make_lock_node(&self, session: &Session) -> Result<(), Turn> {
        let made = session.create(&self.lock_path(), b"", NodeKind::Container).await;
        let Err(failure) = made else { return Ok(()) };
        match failure.handling {
            Fate::Refused(code::NODE_EXISTS) | Fate::Broken => Ok(()),
            Fate::Ended => Err(Turn::Again),
            Fate::Refused(code::NO_NODE) => {
                let message = "the node that holds the locks was deleted; create it again";
                let failure = Failure::new(ErrorKind::InvalidConfig, message);
                Err(self.refuse(failure.to_error()))
            }
            _ => Err(self.refuse(failure.to_error())),
        }
    }

    /// Deletes the node of the lock, whose server has no numbers left, as soon as nobody is in line:
    /// the next one counts from zero.
    async fn start_line_anew(&self, place: &Place) -> Turn {
        self.leave(place).await;
        let Err(failure) = place.session.delete(&self.lock_path()).await else {
            return Turn::Again;
        };
        match failure.handling {
            Fate::Refused(code::NO_NODE) | Fate::Broken | Fate::Ended => Turn::Again,
            Fate::Refused(code::NOT_EMPTY) => {
                let message = "the numbers of its claims are used up, and start anew as soon as \
                               nobody has it or waits for it; try again";
                self.refuse(Failure::new(ErrorKind::Unreachable, message).to_error())
            }
            _ => self.refuse(failure.to_error()),
        }
    }

    /// Looks for a node that may have been made before the connection broke. When the session has a
    /// connection again, the servers take nothing any more that was sent on an earlier one, and
    /// what they took is seen after they have agreed once more.
    async fn find_own(
        &self,
        session: &Arc<Session>,
        prefix: &str,
    ) -> Result<Option<(String, Stat)>, Turn> {
        let lock_path = self.lock_path();
        loop {
            session.settled().await;
            let (syncing, listing) =
                (session.confirm(), self.store.list(session, &self.claim.name));
            let found = match (syncing.await, listing.await) {
                (Ok(()), Ok(line)) => {
                    let own = line.claims.iter().find(|claim| claim.node.starts_with(prefix));
                    let Some(own) = own else { return Ok(None) };
                    let path = format!("{lock_path}/{}", own.node);
                    session.get(&path, None).await.map(|(_, stat)| (path, stat))
                }
                (Err(failure), _) | (_, Err(failure)) => Err(failure),
            };
            let failure = match found {
                Ok(found) => return Ok(Some(found)),
                Err(failure) => failure,
            };
            match failure.handling {
                Fate::Refused(code::NO_NODE) => return Ok(None),
                Fate::Broken => {}
                Fate::Ended => return Err(Turn::Again),
                _ => return Err(self.refuse(failure.to_error())),
            }
        }
    }

    /// The line, as the session of the claim's place sees it.
    pub(super) async fn list(&self, place: &Place) -> Result<Arc<Line>, Turn> {
        loop {
            place.session.settled().await;
            let failure = match self.store.list(&place.session, &self.claim.name).await {
                Ok(line) => return Ok(line),
                Err(failure) => failure,
            };
            match failure.handling {
                Fate::Broken => {}
                Fate::Ended => return Err(Turn::Again),
                Fate::Refused(code::NO_NODE) => {
                    // The server may only not know it yet.
                    self.leave(place).await;
                    return Err(Turn::Again);
                }
                _ => {
                    self.leave(place).await;
                    return Err(self.refuse(failure.to_error()));
                }
            }
        }
    }

    /// Moves the claim to the session of those who wait, which the servers end sooner when the
    /// process dies. It keeps its place: the node has the same name.
    pub(super) async fn queue(&self, place: Place) -> Result<Place, Turn> {
        if place.waits {
            return Ok(place);
        }
        let waiting = match self.store.waiting().await {
            Ok(waiting) => waiting,
            Err(failure) => {
                self.leave(&place).await;
                return Err(self.refuse(failure.to_error()));
            }
        };
        let failure = match self.adopt(&place, &waiting, false).await {
            Ok(Adopted::Yes) => {
                self.depend_on(&waiting);
                return Ok(Place { session: waiting, waits: true, ..place });
            }
            Ok(Adopted::Gone) => return Err(Turn::Again),
            // It does not have what is taken away.
            Ok(Adopted::Revoked(_)) => {
                self.leave(&place).await;
                return Err(Turn::Again);
            }
            Err(failure) => failure,
        };
        self.leave(&place).await;
        match failure.handling {
            Fate::Ended => Err(Turn::Again),
            _ => Err(self.refuse(failure.to_error())),
        }
    }

    /// Makes the claim's node one of `session`, unless it is taken away.
    pub(super) async fn adopt(
        &self,
        place: &Place,
        session: &Arc<Session>,
        held: bool,
    ) -> Result<Adopted, Failure> {
        let data = self.record(Some(place), held);
        loop {
            match session.adopt(&place.path, &data).await {
                Ok(()) => return Ok(Adopted::Yes),
                Err(failure) => match failure.handling {
                    Fate::Refused(code::NO_NODE) => return Ok(Adopted::Gone),
                    // Somebody wrote to it, or whether it moved is not known.
                    Fate::Refused(code::BAD_VERSION) | Fate::Broken => {}
                    _ => return Err(failure),
                },
            }
            session.settled().await;
            let (syncing, reading) = (session.confirm(), session.get(&place.path, None));
            let read = match syncing.await {
                Ok(()) => reading.await,
                Err(failure) => Err(failure),
            };
            match read {
                Ok((data, stat)) => {
                    if let Some(reason) = Record::read(&data).and_then(|record| record.reason) {
                        return Ok(Adopted::Revoked(reason));
                    }
                    if stat.owner == session.id {
                        return Ok(Adopted::Yes);
                    }
                    if stat.version != 0 {
                        // Another program wrote something else: as if it had deleted the node.
                        self.leave(place).await;
                        return Ok(Adopted::Gone);
                    }
                }
                Err(failure) => match failure.handling {
                    Fate::Refused(code::NO_NODE) => return Ok(Adopted::Gone),
                    Fate::Broken => {}
                    _ => return Err(failure),
                },
            }
        }
    }
}

fn read_fence(stat: &Stat) -> Result<Fence, Error> {
    let number = u64::try_from(stat.created).unwrap_or(0);
    Fence::new(number).map_err(|error| error.with_backend("zookeeper"))
}
