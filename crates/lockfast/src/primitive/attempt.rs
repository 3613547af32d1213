//! What came of one try to take something without waiting.

use lockfast_core::Refusal;

use crate::lease::handle::Guard;

/// What came of one try: the guard, or who is in the way.
///
/// ```
/// use lockfast::{Attempt, Locker};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// let mutex = Locker::connect("memory:").await?.mutex("nightly-report")?;
/// if let Some(guard) = mutex.try_acquire().await?.acquired() {
///     match mutex.try_acquire().await? {
///         Attempt::Acquired(_) => unreachable!("it is held"),
///         Attempt::Taken(refusal) => println!("{refusal}"), // held by … for 2ms, 29.9s left
///     }
///     guard.release().await?;
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "what was acquired is given back as soon as it is dropped"]
#[derive(Debug)]
pub enum Attempt<G = Guard> {
    /// It is held.
    Acquired(G),
    /// Somebody else has it.
    Taken(Refusal),
}

impl<G> Attempt<G> {
    /// The guard, unless somebody else has it. See [`Attempt`] for an example.
    #[doc(alias = "ok")]
    #[doc(alias = "into_option")]
    pub fn acquired(self) -> Option<G> {
        match self {
            Self::Acquired(guard) => Some(guard),
            Self::Taken(_) => None,
        }
    }

    /// Whether it is held.
    ///
    /// ```
    /// use lockfast::Locker;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let report = Locker::connect("memory:").await?.mutex("nightly-report")?;
    /// let attempt = report.try_acquire().await?;
    /// if !attempt.is_acquired() {
    ///     println!("somebody else writes the report");
    /// }
    /// # assert!(attempt.is_acquired());
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_acquired(&self) -> bool {
        matches!(self, Self::Acquired(_))
    }

    /// Who is in the way, if somebody is.
    ///
    /// ```
    /// use lockfast::Locker;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let report = Locker::connect("memory:").await?.mutex("nightly-report")?;
    /// let guard = report.acquire().await?;
    /// let attempt = report.try_acquire().await?;
    /// let refusal = attempt.refusal().expect("it is held");
    /// assert_eq!(refusal.lock.holders[0].fence, Some(guard.fence()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Acquired(_) => None,
            Self::Taken(refusal) => Some(refusal),
        }
    }

    /// The same with another guard.
    pub(crate) fn map<H>(self, wrap: impl FnOnce(G) -> H) -> Attempt<H> {
        match self {
            Self::Acquired(guard) => Attempt::Acquired(wrap(guard)),
            Self::Taken(refusal) => Attempt::Taken(refusal),
        }
    }
}
