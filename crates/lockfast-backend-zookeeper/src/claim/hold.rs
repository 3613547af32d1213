//! How a claim has the lock: until it is given back, taken away or not renewed.

use std::sync::Arc;
use std::time::Duration;

use lockfast_core::{Grant, LossCause, Moment};
use tokio::time::sleep;

use super::enter::Adopted;
use super::leave::Deleted;
use super::{Gone, Phase, Place, Worker};
use crate::crowd::Outlook;
use crate::failure::Fate;
use crate::record::Record;
use crate::wire::{NodeWatcher, Session};

/// Only a lock that is held for longer than this watches its own node.
const WATCH_AFTER: Duration = Duration::from_millis(20);
/// Only the node of a claim that has the lock for longer than this moves to the session of its
/// leases, unless a renewal asks for it before.
const MOVE_AFTER: Duration = Duration::from_millis(20);
const RETRY_AFTER: Duration = Duration::from_millis(20);

impl Worker {
    /// The claim was first when it came.
    pub(super) async fn hold(&self, place: Place, from: Moment) -> Gone {
        self.store.crowds.note(&self.claim.name, Outlook::Free);
        self.begin(&place, from);
        self.grant(Grant::new(place.fence, from).in_session(place.session.number()));
        self.keep(place).await
    }

    /// A claim that waited has its turn. It may use the lock at once, for as long as the session of
    /// those who wait certainly lives, and moves to the session of its leases meanwhile. With a
    /// lock-delay it moves first: the session of those who wait has none.
    pub(super) async fn take_over(&self, place: Place, from: Moment) -> Gone {
        let brief = self.store.lasting(&place.session);
        let end = from + brief;
        if self.claim.state().lock_delay.is_zero() {
            self.claim.phase.send_replace(Phase::Brief);
            self.grant(Grant::new(place.fence, from).lasting(brief));
            self.stay_brief(&place).await;
        }
        loop {
            if self.claim.is_leaving() {
                return self.give_back(&place).await.into_gone();
            }
            if let Ok(session) = self.store.holding(self.claim.lasts()).await
                && let Some(gone) = self.take_over_in(&place, session).await
            {
                return gone;
            }
            if end.has_passed(Moment::now()) {
                self.leave(&place).await;
                return Gone::Lost(LossCause::SessionEnded);
            }
            sleep(RETRY_AFTER).await;
        }
    }

    /// Waits until something is wanted of the claim, or for so long that it should move.
    async fn stay_brief(&self, place: &Place) {
        let asked = async {
            while !self.claim.is_asked() {
                self.claim.notice.notified().await;
            }
        };
        tokio::select! {
            biased;
            () = asked => {}
            () = place.session.ended() => {}
            () = sleep(MOVE_AFTER) => {}
        }
    }

    /// How it ended in the session of its leases; `None` when it could not move there, because that
    /// is over, for example, which was not known yet.
    async fn take_over_in(&self, place: &Place, session: Arc<Session>) -> Option<Gone> {
        let from = Moment::now();
        let moved = Place { session: Arc::clone(&session), waits: false, ..place.clone() };
        Some(tokio::select! {
            biased;
            adopted = self.adopt(place, &session, true) => match adopted {
                Ok(Adopted::Yes) => {
                    self.begin(&moved, from);
                    self.tell_move(&moved);
                    // Whoever is not answered yet has it in full.
                    self.grant(Grant::new(place.fence, from).in_session(session.number()));
                    self.keep(moved).await
                }
                Ok(Adopted::Gone) => Gone::Lost(LossCause::Forgotten),
                Ok(Adopted::Revoked(reason)) => {
                    self.leave(place).await;
                    Gone::Lost(LossCause::Revoked { reason })
                }
                Err(_) => return None,
            },
            // Either session can delete the node, and a move that comes later finds none to move. That
            // of those who wait was heard from just now; should it be over, the node may have moved.
            () = self.asked_to_leave() => match self.give_back(place).await {
                Deleted::Yes => Gone::Released,
                in_vain => match self.give_back(&moved).await {
                    Deleted::No => in_vain.into_gone(),
                    deleted => deleted.into_gone(),
                },
            },
        })
    }

    pub(super) async fn asked_to_leave(&self) {
        while !self.claim.is_leaving() {
            self.claim.notice.notified().await;
        }
    }

    fn begin(&self, place: &Place, from: Moment) {
        let lasts = self.claim.lasts();
        self.claim.state().until = from + lasts;
        self.depend_on(&place.session);
        let held = Phase::Held { session: Arc::clone(&place.session) };
        self.claim.phase.send_replace(held);
    }

    /// The lease ends with another session from now on.
    fn tell_move(&self, place: &Place) {
        if self.claim.state().is_told {
            self.store.context.losses.moved(self.claim.holder, place.session.number());
        }
    }

    async fn keep(&self, mut place: Place) -> Gone {
        let watcher = Arc::new(NodeWatcher::default());
        let mut is_watched = false;
        loop {
            let until = self.claim.state().until;
            let must_look = tokio::select! {
                () = self.claim.notice.notified() => false,
                () = watcher.notified() => true,
                () = sleep(WATCH_AFTER), if !is_watched => true,
                () = place.session.ended() => return Gone::Lost(LossCause::SessionEnded),
                () = sleep(until.remaining(Moment::now())) => false,
            };
            if self.claim.is_leaving() {
                return self.give_back(&place).await.into_gone();
            }
            if must_look {
                is_watched = true;
                if let Some(cause) = self.look_at_own(&place, &watcher).await {
                    return Gone::Lost(cause);
                }
            }
            if let Some(gone) = self.serve_repeat(&mut place).await {
                return gone;
            }
            if self.claim.state().until.has_passed(Moment::now()) {
                self.leave(&place).await;
                return Gone::Lost(LossCause::Forgotten);
            }
        }
    }

    /// Watches the claim's own node: why it is lost, if it is.
    async fn look_at_own(&self, place: &Place, watcher: &Arc<NodeWatcher>) -> Option<LossCause> {
        match place.session.get(&place.path, Some(watcher)).await {
            Ok((data, _)) => {
                let reason = Record::read(&data)?.reason?;
                self.leave(place).await;
                Some(LossCause::Revoked { reason })
            }
            Err(failure) if failure.handling.is_no_node() => Some(LossCause::Forgotten),
            Err(failure) if failure.handling == Fate::Ended => Some(LossCause::SessionEnded),
            Err(_) => {
                // It is looked at again when the session has a connection.
                place.session.settled().await;
                watcher.wake();
                None
            }
        }
    }

    /// Moves to the session that lasts as long as a renewal asks, and answers a repeated acquisition.
    async fn serve_repeat(&self, place: &mut Place) -> Option<Gone> {
        let lasts = self.claim.lasts();
        if !self.store.fits(&place.session, lasts) {
            let from = Moment::now();
            match self.store.holding(lasts).await {
                Ok(session) => match self.adopt(place, &session, true).await {
                    Ok(Adopted::Yes) => {
                        place.session = session;
                        self.begin(place, from);
                        self.tell_move(place);
                    }
                    Ok(Adopted::Gone) => return Some(Gone::Lost(LossCause::Forgotten)),
                    Ok(Adopted::Revoked(reason)) => {
                        self.leave(place).await;
                        return Some(Gone::Lost(LossCause::Revoked { reason }));
                    }
                    Err(_) => {}
                },
                Err(failure) => self.claim.answer(Err(failure.to_error())),
            }
        }
        if self.claim.state().asker.is_some() {
            let from = Moment::now();
            match place.session.confirm().await {
                Ok(()) => {
                    let lasts = self.claim.lasts();
                    self.claim.state().until = from + lasts;
                    self.grant(Grant::new(place.fence, from).in_session(place.session.number()));
                }
                Err(failure) if failure.handling == Fate::Ended => {
                    return Some(Gone::Lost(LossCause::SessionEnded));
                }
                Err(failure) => self.claim.answer(Err(failure.to_error())),
            }
        }
        None
    }
}
