//! The other clients that we look after: a pipe of each, which the operating system hangs up when
//! the client dies.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd as _, OwnedFd};

use lockfast_core::ClientId;

use crate::client::{Clients, Life, is_hung_up};

/// Clients that were alive when last looked at.
#[derive(Debug, Default)]
pub(crate) struct Peers(HashMap<ClientId, OwnedFd>);

impl Peers {
    /// More than this many are closed again when nobody waits for them.
    const SPARE_MAX: usize = 64;

    /// Whether a client is certainly dead. One that is alive is looked after from now on.
    pub(crate) fn is_dead(&mut self, clients: &Clients, client: ClientId) -> bool {
        if let Some(pipe) = self.0.get(&client) {
            let dead = is_hung_up(pipe.as_fd());
            if dead {
                self.0.remove(&client);
            }
            return dead;
        }
        match clients.life(client) {
            Life::Alive(pipe) => {
                self.0.insert(client, pipe);
                false
            }
            Life::Dead => true,
            Life::Unknown => false,
        }
    }

    /// The pipes to watch, and whose they are.
    pub(crate) fn pipes(&self) -> impl Iterator<Item = (ClientId, &OwnedFd)> {
        self.0.iter().map(|(client, pipe)| (*client, pipe))
    }

    /// Stops looking after a client that has died.
    pub(crate) fn forget(&mut self, client: ClientId) {
        self.0.remove(&client);
    }

    /// Closes what is not needed, once there is much of it.
    pub(crate) fn tidy(&mut self, needed: impl FnOnce() -> HashSet<ClientId>) {
        if self.0.len() > Self::SPARE_MAX {
            let needed = needed();
            self.0.retain(|client, _| needed.contains(client));
        }
    }
}
