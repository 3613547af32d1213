//! What the store does on its own account, beside what it is asked for.

use lockfast_core::{ClientId, HolderId, LockName};

use super::{Batch, Outcome};
use crate::failure::Scope;

/// What the store does on its own account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Chore {
    /// Something may have ended in this queue.
    Look(LockName),
    /// This client is dead.
    Reap(ClientId),
    /// Nobody waits for this claim any more, or is there to be told that it was granted.
    Discard(LockName, HolderId),
    /// We want to be told of events, or not any more.
    Watch(bool),
    /// We are leaving.
    Leave,
}

impl Batch<'_> {
    /// Does what the store wants. What cannot be done because of a record that is not ours
    /// keeps nobody from the rest.
    pub(crate) fn run_chore(&mut self, chore: &Chore) -> Outcome<()> {
        skip_corrupt(self.do_chore(chore)).map(|_| ())
    }

    fn do_chore(&mut self, chore: &Chore) -> Outcome<()> {
        match chore {
            Chore::Look(name) => self.look(name),
            Chore::Reap(client) => self.reap(*client),
            Chore::Discard(name, holder) => self.with_queue(name, |queue, clock, fences, out| {
                queue.discard(*holder, clock, fences, out);
            }),
            Chore::Watch(watching) => {
                let me = self.setting.me;
                self.done.meta.watchers = self.setting.wire.set_watching(me, *watching)?;
                self.setting.wire.save_meta(&self.done.meta)
            }
            Chore::Leave => self.leave(),
        }
    }

    /// Sees to everything that a dead client has left.
    fn reap(&mut self, client: ClientId) -> Outcome<()> {
        if !self.setting.peers.is_dead(self.setting.clients, client) {
            // Somebody else was faster.
            return Ok(());
        }
        for name in self.setting.wire.names_of(client)? {
            skip_corrupt(self.with_queue(&name, |queue, clock, fences, out| {
                queue.bury(|dead| *dead == client, clock, fences, out);
            }))?;
        }
        if self.done.meta.watchers > 0 {
            self.done.meta.watchers = self.setting.wire.set_watching(client, false)?;
            self.setting.wire.save_meta(&self.done.meta)?;
        }
        self.done.reaped.push(client);
        Ok(())
    }

    /// Gives up what we waited for. What we hold stays until everybody who has our pipe open is
    /// gone.
    fn leave(&mut self) -> Outcome<()> {
        let me = self.setting.me;
        for name in self.setting.wire.names_of(me)? {
            let stays = skip_corrupt(self.with_queue(&name, |queue, clock, fences, out| {
                let waiting = queue.claims().iter().filter(|claim| claim.is_waiting());
                let ours = waiting.filter(|claim| claim.client == me);
                let ours: Vec<_> = ours.map(|claim| claim.holder).collect();
                for holder in ours {
                    queue.release(holder, clock, fences, out);
                }
                let mut held = queue.claims().iter().filter(|claim| claim.client == me);
                held.any(|claim| claim.hold().is_some() && !claim.detached)
            }))?;
            self.done.leaves_lease |= stays.unwrap_or(false);
        }
        if self.done.meta.watchers > 0 {
            self.done.meta.watchers = self.setting.wire.set_watching(me, false)?;
            self.setting.wire.save_meta(&self.done.meta)?;
        }
        if !self.done.leaves_lease {
            self.done.reaped.push(me);
        }
        Ok(())
    }
}

/// Passes over a lock with a record that is not ours.
fn skip_corrupt<T>(outcome: Outcome<T>) -> Outcome<Option<T>> {
    match outcome {
        Err(failure) if failure.handling == Scope::Lock => {
            tracing::warn!(error = failure.message(), "a lock is passed over");
            Ok(None)
        }
        outcome => outcome.map(Some),
    }
}
