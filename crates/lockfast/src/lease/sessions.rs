//! Which leases end together with which session of a store: a session's end finds its leases
//! without looking at any other.

use std::collections::{HashMap, HashSet};

use lockfast_core::{HolderId, LossCause, SessionId};

/// How many sessions that have ended are remembered in any case.
const ENDED_MIN: usize = 64;

/// The sessions of a store.
#[derive(Default)]
pub(crate) struct Sessions {
    members: HashMap<SessionId, HashSet<HolderId>>,
    /// Those that have ended, because a grant may be on its way that was made before the end.
    ended: HashMap<SessionId, Ended>,
    /// How many of them were left when some were last forgotten.
    kept: usize,
}

struct Ended {
    cause: LossCause,
    /// How many had asked for a lock by then.
    asked: u64,
}

impl Sessions {
    /// A holder's lease is in a session.
    ///
    /// # Errors
    /// Why the session has ended, if it has.
    pub(crate) fn join(&mut self, session: SessionId, holder: HolderId) -> Result<(), LossCause> {
        if let Some(ended) = self.ended.get(&session) {
            return Err(ended.cause.clone());
        }
        self.members.entry(session).or_default().insert(holder);
        Ok(())
    }

    /// A holder's lease is not in a session any more.
    pub(crate) fn leave(&mut self, session: SessionId, holder: HolderId) {
        if let Some(members) = self.members.get_mut(&session) {
            members.remove(&holder);
            if members.is_empty() {
                self.members.remove(&session);
            }
        }
    }

    /// A session ended, when so many had asked for a lock. Returns those who were in it.
    pub(crate) fn end(
        &mut self,
        session: SessionId,
        cause: LossCause,
        asked: u64,
    ) -> HashSet<HolderId> {
        self.ended.entry(session).or_insert(Ended { cause, asked });
        self.members.remove(&session).unwrap_or_default()
    }

    /// How many sessions that have ended are remembered.
    pub(crate) fn ended_count(&self) -> usize {
        self.ended.len()
    }

    /// How many may be before some are forgotten, which costs a look at all holders: so seldom that
    /// it costs next to nothing for each.
    pub(crate) fn keep_max(&self, holders: usize) -> usize {
        ENDED_MIN.max(2 * self.kept).max(holders)
    }

    /// Forgets the sessions that ended before the first of those who ask now had asked: none of
    /// them can be granted anything in those.
    pub(crate) fn forget_ended_before(&mut self, first_asking: Option<u64>) {
        self.ended.retain(|_, ended| first_asking.is_some_and(|number| number <= ended.asked));
        self.kept = self.ended.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAUSE: LossCause = LossCause::SessionEnded;

    fn holder(number: u16) -> HolderId {
        let mut id = [0; 16];
        id[..2].copy_from_slice(&number.to_be_bytes());
        HolderId::from_bytes(id)
    }

    /// Ten thousand leases of one session end in one step that looks at no other.
    #[test]
    fn the_end_of_a_session_finds_exactly_its_leases() {
        const LEASES: u16 = 10_000;
        let mut sessions = Sessions::default();
        for number in 0..2 * LEASES {
            let session = SessionId(u64::from(number % 2));
            sessions.join(session, holder(number)).unwrap();
        }
        sessions.leave(SessionId(0), holder(0));
        let ended = sessions.end(SessionId(0), CAUSE, 0);
        assert_eq!(ended.len(), usize::from(LEASES) - 1);
        assert!((1..LEASES).all(|number| ended.contains(&holder(2 * number))));
        assert!(sessions.end(SessionId(0), CAUSE, 0).is_empty(), "they ended once");
        assert_eq!(sessions.end(SessionId(1), CAUSE, 0).len(), usize::from(LEASES));
        assert!(sessions.members.is_empty());
    }

    #[test]
    fn who_comes_after_the_end_is_told() {
        let mut sessions = Sessions::default();
        sessions.join(SessionId(7), holder(1)).unwrap();
        sessions.end(SessionId(7), CAUSE, 0);
        assert_eq!(sessions.join(SessionId(7), holder(2)), Err(CAUSE));
        assert_eq!(sessions.join(SessionId(8), holder(2)), Ok(()));
    }

    #[test]
    fn an_end_is_remembered_while_somebody_asks_who_asked_before_it() {
        let mut sessions = Sessions::default();
        for (session, asked) in [(1, 10), (2, 20), (3, 30)] {
            sessions.end(SessionId(session), CAUSE, asked);
        }
        sessions.forget_ended_before(Some(20));
        let is_known = [1, 2, 3].map(|session| sessions.ended.contains_key(&SessionId(session)));
        assert_eq!(is_known, [false, true, true]);
        sessions.forget_ended_before(None);
        assert_eq!(sessions.ended_count(), 0);
    }

    #[test]
    fn what_is_remembered_is_bounded_by_those_who_hold_or_ask() {
        let mut sessions = Sessions::default();
        let mut looks = 0;
        for session in 0..10_000 {
            sessions.end(SessionId(session), CAUSE, session);
            if sessions.ended_count() > sessions.keep_max(100) {
                looks += 1;
                sessions.forget_ended_before(Some(session));
            }
            assert!(sessions.ended_count() <= 101);
        }
        assert!(looks <= 100, "{looks} looks at all holders");
    }
}
