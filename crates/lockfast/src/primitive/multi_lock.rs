//! Several locks at once: all of them or none, taken in the order of their names, so that two
//! who want the same ones never wait for each other in a circle.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use lockfast_core::error::quote;
use lockfast_core::{Error, ErrorKind, FencingToken, LossCause, Moment, Result};

use super::lock::Lock;
use crate::lease::handle::{Guard, Released};

/// Several locks of one store that are held together.
#[derive(Clone, Debug)]
pub struct MultiLock {
    locks: Vec<Lock>,
}

impl MultiLock {
    /// The most locks that can be held together.
    pub const LOCKS_MAX: usize = 256;

    /// Puts locks together.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`] for none, more than [`MultiLock::LOCKS_MAX`], the same name
    /// twice, or locks of different connections.
    pub fn new(locks: impl IntoIterator<Item = Lock>) -> Result<Self> {
        let mut locks: Vec<Lock> = locks.into_iter().take(Self::LOCKS_MAX + 1).collect();
        let invalid = |message: String| Err(Error::new(ErrorKind::InvalidConfig, message));
        let Some(first) = locks.first() else {
            return invalid("a multi-lock needs at least one lock".into());
        };
        if locks.len() > Self::LOCKS_MAX {
            return invalid(format!("a multi-lock takes at most {} locks", Self::LOCKS_MAX));
        }
        if locks.iter().any(|lock| !lock.is_of_store(first)) {
            return invalid(
                "a multi-lock's locks must come from one locker: two stores cannot be kept in step"
                    .into(),
            );
        }
        locks.sort_by(|a, b| a.name().cmp(b.name()));
        if let Some(pair) = locks.windows(2).find(|pair| pair[0].name() == pair[1].name()) {
            return invalid(format!(
                "{} is in the multi-lock twice",
                quote(pair[0].name().as_str())
            ));
        }
        Ok(Self { locks })
    }

    /// Takes all of them. The first lock's waiting time is the limit for all together.
    ///
    /// # Cancel safety
    /// As [`Lock::acquire`], for each of them.
    ///
    /// # Errors
    /// As [`Lock::acquire`], and [`ErrorKind::Lost`] when one was lost while another was waited
    /// for; then none is held.
    pub async fn acquire(&self) -> Result<MultiGuard> {
        let mut guards = Vec::with_capacity(self.locks.len());
        let wait = self.locks.first().map(|lock| lock.wait_from(Moment::now()));
        for lock in &self.locks {
            guards.push(lock.acquire_until(wait.unwrap_or(lockfast_core::Wait::No)).await?);
        }
        let all = MultiGuard { guards };
        // The first of them may have been lost while the others were waited for.
        all.check()?;
        Ok(all)
    }
}

/// Several held locks. Dropping it gives all of them back, as [`Guard`] does.
#[must_use = "the locks are given back as soon as the guard is dropped"]
#[derive(Debug)]
pub struct MultiGuard {
    guards: Vec<Guard>,
}

impl MultiGuard {
    /// Whether all are held right now.
    ///
    /// # Errors
    /// As [`Lease::check`](crate::Lease::check), for the first that is not.
    pub fn check(&self) -> Result<Vec<FencingToken>> {
        self.guards.iter().map(|guard| guard.check().map(|_| guard.token())).collect()
    }

    /// Waits for the loss of any of them.
    ///
    /// # Cancel safety
    /// Safe: it only looks.
    pub async fn lost(&self) -> LossCause {
        let mut losses: Vec<Pin<Box<dyn Future<Output = LossCause> + Send + '_>>> =
            self.guards.iter().map(|guard| Box::pin(guard.lost()) as _).collect();
        poll_fn(|context| {
            let lost = losses.iter_mut().find_map(|lost| match lost.as_mut().poll(context) {
                Poll::Ready(cause) => Some(cause),
                Poll::Pending => None,
            });
            lost.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Gives all back; what happened to each, in the order of their names.
    ///
    /// # Cancel safety
    /// As [`Guard::release`], for each of them.
    ///
    /// # Errors
    /// As [`Guard::release`].
    pub async fn release(self) -> Result<Vec<Released>> {
        let mut released = Vec::with_capacity(self.guards.len());
        for guard in self.guards {
            released.push(guard.release().await?);
        }
        Ok(released)
    }
}
