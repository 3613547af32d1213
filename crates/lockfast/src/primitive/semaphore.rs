//! A lock that up to N holders have at a time; a holder has one permit.

use std::future::Future;

use lockfast_core::{LockName, Result};

use super::lock::{Attempt, Lock};
use crate::lease::handle::{Guard, Lease};
use crate::lease::policy::Options;

/// A lock that up to N holders have at a time; a holder has one permit. See [`Lock`], which it is in one mode.
#[derive(Clone, Debug)]
pub struct Semaphore(Lock);

impl Semaphore {
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

    /// As [`Lock::acquire`].
    ///
    /// # Cancel safety
    /// As [`Lock::acquire`].
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    pub async fn acquire(&self) -> Result<Guard> {
        self.0.acquire().await
    }

    /// As [`Lock::try_acquire`].
    ///
    /// # Cancel safety
    /// As [`Lock::acquire`].
    ///
    /// # Errors
    /// As [`Lock::try_acquire`].
    pub async fn try_acquire(&self) -> Result<Attempt> {
        self.0.try_acquire().await
    }

    /// As [`Lock::run`].
    ///
    /// # Cancel safety
    /// As [`Lock::run`].
    ///
    /// # Errors
    /// As [`Lock::run`].
    pub async fn run<F, Fut, T>(&self, body: F) -> Result<T>
    where
        F: FnOnce(Lease) -> Fut,
        Fut: Future<Output = T>,
    {
        self.0.run(body).await
    }
}

impl From<Semaphore> for Lock {
    fn from(primitive: Semaphore) -> Self {
        primitive.0
    }
}
