//! Optimistic locking: nobody waits for anybody. Read a value with its version, compute, and write
//! only if nobody has written in between; otherwise begin again with what is there now.
//!
//! It suits values for which few compete: without a conflict it is one read and one write, and nothing
//! is held when a process dies. Where many compete, most of the work is thrown away: take a
//! [`Mutex`](crate::Mutex) there.
//!
//! ```
//! use lockfast::Locker;
//! use lockfast::optimistic::Update;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> lockfast::Result<()> {
//! let locker = Locker::connect("memory:").await?; // any store but redlock:
//! let stock = locker.value("stock/7")?;
//! stock.update(async |_| Ok(Update::Put(b"10".to_vec()))).await?;
//!
//! // Take three of them, if there are three.
//! let left = stock
//!     .update(async |there| {
//!         let stock = there.and_then(|value| String::from_utf8(value.bytes).ok());
//!         let stock: u32 = stock.and_then(|text| text.parse().ok()).unwrap_or(0);
//!         Ok(match stock.checked_sub(3) {
//!             Some(left) => Update::Put(left.to_string().into_bytes()),
//!             None => Update::Keep,
//!         })
//!     })
//!     .await?;
//! assert_eq!(left.expect("a value").bytes, b"7");
//! # Ok(())
//! # }
//! ```
//!
//! A value in a table of your own is changed in the same way by [`retry`]: see its example.

use std::time::Duration;

use lockfast_core::{Error, ErrorKind, Result, jitter};

use crate::lease::keeper::Keeper;

pub use crate::primitive::{SharedValue, Update};

/// How often, and after which pauses, somebody tries again who met a conflict.
///
/// ```
/// use std::time::Duration;
/// use lockfast::{Locker, optimistic::Attempts};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// let attempts = Attempts::default().most(100).pause_max(Duration::from_millis(20));
/// let stock = Locker::connect("memory:").await?.value("stock/7")?.attempts(attempts);
/// # stock.read().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempts {
    most: u32,
    pause: Duration,
    pause_max: Duration,
}

impl Default for Attempts {
    /// Twenty attempts, with pauses from 1 ms to 100 ms: about a second in all.
    fn default() -> Self {
        Self { most: 20, pause: Duration::from_millis(1), pause_max: Duration::from_millis(100) }
    }
}

impl Attempts {
    /// So many attempts in all; at least one is made. See [`Attempts`] for an example.
    #[must_use]
    pub fn most(mut self, most: u32) -> Self {
        self.most = most.max(1);
        self
    }

    /// The first pause is up to so long, and each is up to twice as long as the one before it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use lockfast::{Locker, optimistic::Attempts};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// // A store that is far away: to begin again sooner would be to meet the same write.
    /// let attempts = Attempts::default().pause(Duration::from_millis(50));
    /// let stock = Locker::connect("memory:").await?.value("stock/7")?.attempts(attempts);
    /// # stock.read().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// No pause is longer than this. See [`Attempts`] for an example.
    #[must_use]
    pub fn pause_max(mut self, pause_max: Duration) -> Self {
        self.pause_max = pause_max;
        self
    }

    /// Pauses after an attempt that met a conflict; an error when it was the last.
    pub(crate) async fn pause_before_next(&self, made: &mut u32) -> Result<()> {
        *made += 1;
        let Some(pause) = self.pause_after(*made) else {
            let message = format!(
                "somebody else has written in between, {made} times in a row; try again later, or \
                 take a lock where so many write"
            );
            return Err(Error::new(ErrorKind::Conflict, message));
        };
        Keeper::of_this_process()?.sleep(pause).await;
        Ok(())
    }

    /// How long to pause after so many attempts; `None` when there are no more.
    fn pause_after(&self, made: u32) -> Option<Duration> {
        if made >= self.most {
            return None;
        }
        let doubled = self.pause.saturating_mul(1 << (made - 1).min(20)).min(self.pause_max);
        // All of it by chance: two who met once would meet again otherwise.
        Some(doubled.mul_f64(jitter()))
    }
}

/// What came of one attempt.
///
/// ```
/// use lockfast::optimistic::Step;
///
/// /// What an UPDATE that names the old value has changed.
/// fn step(rows: u64) -> Step<()> {
///     if rows == 0 { Step::Conflict } else { Step::Done(()) }
/// }
/// assert_eq!(step(0), Step::Conflict);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<T> {
    /// It is done.
    Done(T),
    /// Somebody else has written in between, and nothing was changed.
    Conflict,
}

/// Makes attempts until one is done.
///
/// ```
/// use lockfast::optimistic::{Attempts, Step, retry};
///
/// # struct Database;
/// # impl Database {
/// #     async fn stock(&self, _: u32) -> lockfast::Result<i64> { Ok(5) }
/// #     /// UPDATE item SET stock = $3 WHERE id = $1 AND stock = $2
/// #     async fn set_stock(&self, _: u32, _: i64, _: i64) -> lockfast::Result<u64> { Ok(1) }
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// # let database = Database;
/// let left = retry(Attempts::default(), || async {
///     let stock = database.stock(7).await?;
///     // UPDATE item SET stock = $3 WHERE id = $1 AND stock = $2
///     Ok(match database.set_stock(7, stock, stock - 1).await? {
///         0 => Step::Conflict,
///         _ => Step::Done(stock - 1),
///     })
/// })
/// .await?;
/// assert_eq!(left, 4);
/// # Ok(())
/// # }
/// ```
///
/// # Cancel safety
/// That of an attempt.
///
/// # Errors
/// [`ErrorKind::Conflict`] when all attempts met one; what an attempt fails with.
pub async fn retry<T, F, Fut>(attempts: Attempts, mut attempt: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<Step<T>>>,
{
    let mut made = 0;
    loop {
        match attempt().await? {
            Step::Done(value) => return Ok(value),
            Step::Conflict => attempts.pause_before_next(&mut made).await?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end() {
        let attempts = Attempts::default().most(30);
        for made in 1..30 {
            let longest = Duration::from_millis(1 << (made - 1).min(7)).min(attempts.pause_max);
            let pause = attempts.pause_after(made).unwrap();
            assert!(pause <= longest, "{pause:?} after {made}");
        }
        assert_eq!(attempts.pause_after(30), None);
        assert_eq!(Attempts::default().most(0).pause_after(1), None);
    }

    #[tokio::test]
    async fn it_ends_with_what_it_met() {
        let attempts = Attempts::default().most(3).pause(Duration::from_micros(10));
        let mut made = 0;
        let done = retry(attempts, || {
            made += 1;
            let step = if made < 3 { Step::Conflict } else { Step::Done(made) };
            async move { Ok(step) }
        });
        assert_eq!(done.await.unwrap(), 3);
        let error = retry(attempts, async || Ok(Step::<()>::Conflict)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert!(error.message().contains("3 times in a row"), "{error}");
        let failed = retry(attempts, async || {
            Err::<Step<()>, _>(Error::new(ErrorKind::Permission, "a test refuses"))
        });
        assert_eq!(failed.await.unwrap_err().kind(), ErrorKind::Permission);
    }
}
