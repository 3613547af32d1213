//! One acquisition on its way to the server.

use std::fmt;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::{Claim, Lobby};

/// Asks for a lock.
#[derive(Debug)]
pub struct Take<C: Claim> {
    /// Which, and for whom.
    pub claim: Arc<C>,
    /// Who wants to know.
    pub purpose: Purpose<C>,
    /// How often it was asked in vain.
    pub tries: u8,
}

/// Who wants to know about an acquisition.
pub enum Purpose<C: Claim> {
    /// The caller, for the first time.
    First(oneshot::Sender<C::Told>),
    /// A claim that waits looks whether its turn has come.
    Look,
    /// A claim whose time is up takes what it can get now, or goes.
    Last,
}

impl<C: Claim> Take<C> {
    /// Asks for the first time.
    pub fn first(claim: Arc<C>, asker: oneshot::Sender<C::Told>) -> Self {
        Self { claim, purpose: Purpose::First(asker), tries: 0 }
    }

    /// Whether the claim stays in the queue when its turn has not come.
    pub fn may_wait(&self) -> bool {
        match self.purpose {
            Purpose::First(_) => self.claim.wait().is_open(),
            Purpose::Look => true,
            Purpose::Last => false,
        }
    }

    /// Whether it need not be asked any more. Whoever gave up an acquisition releases it
    /// afterwards; a claim that looked when it does not wait any more would take, after its
    /// release, what nobody knows of.
    pub fn is_moot(&self, lobby: &Lobby<C>) -> bool {
        match &self.purpose {
            Purpose::First(asker) => asker.is_closed(),
            Purpose::Look | Purpose::Last => !lobby.has(&self.claim),
        }
    }
}

impl<C: Claim> fmt::Debug for Purpose<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::First(_) => "First",
            Self::Look => "Look",
            Self::Last => "Last",
        })
    }
}
