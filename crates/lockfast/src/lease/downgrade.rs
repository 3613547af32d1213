//! A writer that becomes a reader: what its guard can rely on meanwhile, and how the store is asked.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lockfast_core::{
    DowngradeOutcome, DowngradeRequest, Error, ErrorKind, Feature, Mode, Result, Wait,
};

use super::acquire::Repeats;
use super::cell::LeaseCell;
use super::handle::Lease;
use super::state::Event;

/// How a lease is held.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum HeldMode {
    /// As it was granted.
    Granted(Mode),
    /// The store was asked to let readers in. Each of the requests may have taken effect, or may still
    /// do so, until one was answered.
    Downgrading {
        /// How many there were.
        asked: u32,
    },
    /// A writer's, of which the store has made a reader's.
    Downgraded,
}

impl HeldMode {
    /// What can be relied on.
    pub(crate) fn mode(self) -> Mode {
        match self {
            Self::Granted(mode) => mode,
            Self::Downgrading { .. } | Self::Downgraded => Mode::Shared,
        }
    }

    /// The store is about to be asked; false when it need not be. Others who rely on the lease as it is
    /// keep it so.
    fn ask(&mut self, guards: usize) -> Result<bool> {
        let asked = match *self {
            Self::Granted(Mode::Exclusive) if guards > 1 => return Err(relied_on(guards - 1)),
            Self::Granted(Mode::Exclusive) => 1,
            Self::Granted(mode) => return Err(no_writer(mode)),
            Self::Downgrading { asked } => asked.saturating_add(1),
            Self::Downgraded => return Ok(false),
        };
        *self = Self::Downgrading { asked };
        Ok(true)
    }

    /// The store has refused and changed nothing. It is exclusive as before, unless an earlier request
    /// may still arrive.
    fn refuse(&mut self) {
        if *self == (Self::Downgrading { asked: 1 }) {
            *self = Self::Granted(Mode::Exclusive);
        }
    }
}

fn no_writer(mode: Mode) -> Error {
    let message =
        format!("this guard has it as {mode}; only a writer's, which is exclusive, is downgraded");
    Error::new(ErrorKind::AlreadyHeld, message)
}

fn relied_on(others: usize) -> Error {
    let message = format!(
        "other guards of the same holder rely on its being exclusive: {others}; release them before \
         it is downgraded"
    );
    Error::new(ErrorKind::AlreadyHeld, message)
}

impl Lease {
    /// Makes a reader's of a writer's, as [`RwLock::downgrade`](crate::RwLock::downgrade) says.
    pub(crate) async fn downgrade(&self) -> Result<()> {
        self.check()?;
        let profile = self.0.store.backend.profile();
        profile.require(Feature::Downgrade).map_err(|error| error.with_lock(&self.0.name))?;
        // What is lost meanwhile is not asked for any more, which its deadline sees to.
        self.unless_lost(self.0.downgrade()).await?
    }
}

impl LeaseCell {
    /// Whether the store has to be asked, which is noted. No guard can be added meanwhile.
    fn ask_as_reader(&self) -> Result<bool> {
        let mut held = self.held_mode();
        held.ask(self.guards.load(Ordering::Acquire))
    }

    /// Asks the store until it answers, but not more often than an acquisition that does not wait.
    async fn downgrade(self: &Arc<Self>) -> Result<()> {
        let policy = self.state().policy;
        let mut repeats = Repeats::new(Wait::No, policy.retries);
        loop {
            let asked = self.store.now();
            if !self.ask_as_reader().map_err(|error| error.with_lock(&self.name))? {
                return Ok(());
            }
            let request = DowngradeRequest { name: self.name.clone(), holder: self.holder };
            let call = self.store.backend.downgrade(request);
            let error = match self.store.within(policy.request_timeout, call).await {
                Ok(DowngradeOutcome::Downgraded) => {
                    *self.held_mode() = HeldMode::Downgraded;
                    return Ok(());
                }
                Ok(DowngradeOutcome::Lost(cause)) => {
                    self.answer(Event::Lost(cause.clone()));
                    return Err(self.lost_error(cause));
                }
                Err(error) => error.with_lock(&self.name),
            };
            let refused = [ErrorKind::Conflict, ErrorKind::Unsupported].contains(&error.kind());
            if refused || error.is_without_effect() {
                self.held_mode().refuse();
            }
            let Some(pause) = repeats.pause_after(&error, asked, self.store.now()) else {
                return Err(error);
            };
            self.store.sleep(pause).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITER: HeldMode = HeldMode::Granted(Mode::Exclusive);

    #[test]
    fn only_a_lone_writer_begins() {
        let mut held = WRITER;
        let error = held.ask(3).unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string()),
            (
                ErrorKind::AlreadyHeld,
                "other guards of the same holder rely on its being exclusive: 2; release them \
                 before it is downgraded"
                    .to_owned()
            )
        );
        assert_eq!(held, WRITER);
        for mode in [Mode::Shared, Mode::permit(3).unwrap()] {
            let mut held = HeldMode::Granted(mode);
            assert_eq!(held.ask(1).unwrap_err().kind(), ErrorKind::AlreadyHeld);
            assert_eq!(held.mode(), mode);
        }
    }

    #[test]
    fn from_the_first_request_on_it_is_relied_on_as_shared() {
        let mut held = WRITER;
        assert!(held.ask(1).unwrap());
        assert_eq!(held.mode(), Mode::Shared);
        // Another guard has come, as a reader's.
        assert!(held.ask(2).unwrap());
        held = HeldMode::Downgraded;
        assert!(!held.ask(1).unwrap());
        assert_eq!(held.mode(), Mode::Shared);
    }

    #[test]
    fn a_refusal_is_believed_only_while_no_earlier_request_is_open() {
        let mut held = WRITER;
        held.ask(1).unwrap();
        held.refuse();
        assert_eq!(held, WRITER);
        held.ask(1).unwrap();
        held.ask(1).unwrap();
        held.refuse();
        assert_eq!(held.mode(), Mode::Shared);
        held = HeldMode::Downgraded;
        held.refuse();
        assert_eq!(held, HeldMode::Downgraded);
    }
}
