//! How a claim ends.

use super::{Gone, Place, Worker};
use crate::failure::{Fate, code};

/// What became of the deletion of a claim's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deleted {
    Yes,
    /// There was none any more.
    No,
    /// There is none any more; whether this deletion has done it is not known.
    InDoubt,
}

impl Deleted {
    /// How a claim ended that had the lock.
    pub(super) fn into_gone(self) -> Gone {
        match self {
            Self::Yes => Gone::Released,
            Self::No => Gone::Unheld,
            Self::InDoubt => Gone::InDoubt,
        }
    }
}

impl Worker {
    /// Deletes the claim's node.
    pub(super) async fn leave(&self, place: &Place) -> Deleted {
        self.delete(place, false).await
    }

    /// The same for a claim that has the lock and does not need it any more.
    pub(super) async fn give_back(&self, place: &Place) -> Deleted {
        self.delete(place, true).await
    }

    async fn delete(&self, place: &Place, gives_back: bool) -> Deleted {
        let mut none = Deleted::No;
        loop {
            let deleted = match gives_back {
                true => place.session.give_back(&place.path).await,
                false => place.session.delete(&place.path).await,
            };
            let Err(failure) = deleted else { return Deleted::Yes };
            match failure.handling {
                Fate::Refused(code::NO_NODE) | Fate::Ended => return none,
                Fate::Broken => none = Deleted::InDoubt,
                _ => {
                    tracing::warn!(lock = %self.claim.name, ?failure, "a claim cannot be deleted");
                    return Deleted::No;
                }
            }
            place.session.settled().await;
        }
    }
}
