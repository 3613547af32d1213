//! A lock that many readers or one writer have at a time.

use lockfast_core::{LockName, Mode, Result};

use super::lock::Lock;
use crate::lease::policy::Options;

/// A lock that many readers or one writer have at a time. A waiting writer keeps later readers
/// behind it, so neither side is starved. A reader cannot become a writer without giving its
/// hold back first: two that tried would wait for each other for ever.
#[derive(Clone, Debug)]
pub struct RwLock(Lock);

impl RwLock {
    pub(crate) fn new(lock: Lock) -> Self {
        Self(lock)
    }

    /// As [`Lock::with`].
    ///
    /// # Errors
    /// As [`Lock::with`].
    pub fn with(self, options: Options) -> Result<Self> {
        self.0.with(options).map(Self)
    }

    /// The name.
    pub fn name(&self) -> &LockName {
        self.0.name()
    }

    /// The reader's side.
    pub fn read(&self) -> Lock {
        self.0.clone().with_mode(Mode::Shared)
    }

    /// The writer's side.
    pub fn write(&self) -> Lock {
        self.0.clone().with_mode(Mode::Exclusive)
    }
}
