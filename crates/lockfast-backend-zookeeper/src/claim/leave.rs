//! How a claim ends.

use std::time::Duration;

use tokio::time::sleep;

use super::{Gone, Place, Worker};
use crate::failure::{Fate, code};
use crate::wire::Session;

/// Until a server that refuses a deletion for the moment is asked again.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// What became of the deletion of a claim's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deleted {
    Yes,
    /// There was none any more.
    No,
    /// There is none any more; whether this deletion has done it is not known.
    InDoubt,
    /// It is still there: the servers do not allow to delete it.
    Denied,
}

impl Deleted {
    /// How a claim ended that had the lock.
    pub(super) fn into_gone(self) -> Gone {
        match self {
            Self::Yes => Gone::Released,
            Self::No => Gone::Unheld,
            Self::InDoubt => Gone::InDoubt,
            Self::Denied => Gone::Denied,
        }
    }
}

impl Worker {
    /// Deletes the claim's node.
    pub(super) async fn leave(&self, place: &Place) -> Deleted {
        self.delete(&place.session, &place.path, false).await
    }

    /// The same for a claim that has the lock and does not need it any more.
    pub(super) async fn give_back(&self, place: &Place) -> Deleted {
        self.store.crowds.note_given_back(&self.claim.name, &place.path);
        self.delete(&place.session, &place.path, true).await
    }

    /// Deletes a node of this claim; does not end while the session lives and the node may be there.
    pub(super) async fn delete(&self, session: &Session, path: &str, gives_back: bool) -> Deleted {
        let mut none = Deleted::No;
        loop {
            let deleted = match gives_back {
                true => session.give_back(path).await,
                false => session.delete(path).await,
            };
            let Err(failure) = deleted else { return Deleted::Yes };
            match failure.handling {
                Fate::Refused(code::NO_NODE) | Fate::Ended => return none,
                Fate::Broken => none = Deleted::InDoubt,
                Fate::Refused(code::NO_AUTH) => {
                    tracing::warn!(lock = %self.claim.name, ?failure, "a claim cannot be deleted");
                    return Deleted::Denied;
                }
                Fate::Refused(_) | Fate::Undone => sleep(RETRY_AFTER).await,
            }
            session.settled().await;
        }
    }
}
