//! The gate inside one process.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lockfast_core::{Fence, FencingToken, LockName, Result};

use crate::rule::{check_lock, judge};

/// A value of this process that a lock guards, which only fences reach that are not stale.
///
/// All writers must pass the same gate, for example in the one process that owns a file. It
/// forgets what it has seen when the process ends.
///
/// ```
/// use lockfast::{Locker, fence::Gate};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// let gate = Gate::new("account/7", 100)?; // one for all writers
/// let locker = Locker::connect("memory:").await?;
/// let guard = locker.mutex("account/7")?.acquire().await?;
///
/// let balance = *gate.open(&guard.token())?; // raise the fence, then read
/// let computed = balance + 10; // may take long
/// *gate.check(&guard.token())? = computed; // refused if a later holder has opened meanwhile
/// # guard.release().await?;
/// # assert_eq!(gate.into_inner(), 110);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Gate<T> {
    lock: LockName,
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    seen: Option<Fence>,
    value: T,
}

impl<T> Gate<T> {
    /// A gate before a value that this lock guards; it has seen no fence.
    ///
    /// ```
    /// use lockfast_fence::Gate;
    ///
    /// assert!(Gate::new("account/7", ()).is_ok());
    /// assert!(Gate::new("", ()).is_err()); // the name of no lock
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`](lockfast_core::ErrorKind::InvalidName).
    pub fn new(lock: impl AsRef<str>, value: T) -> Result<Self> {
        let state = Mutex::new(State { seen: None, value });
        Ok(Self { lock: LockName::new(lock)?, state })
    }

    /// The open step of a new holder, before it reads: the same as [`Gate::check`].
    ///
    /// ```
    /// # use lockfast_core::{Fence, FencingToken, LockName};
    /// # fn main() -> lockfast_core::Result<()> {
    /// # let gate = lockfast_fence::Gate::new("a", 7)?;
    /// # let token = FencingToken { lock: LockName::new("a")?, fence: Fence::new(1)? };
    /// let read = *gate.open(&token)?;
    /// # assert_eq!(read, 7);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Gate::check`].
    pub fn open(&self, token: &FencingToken) -> Result<Admitted<'_, T>> {
        self.check(token)
    }

    /// Lets a fence pass that is not below the highest one seen, and remembers it. Nobody else
    /// passes until the answer is dropped.
    ///
    /// ```
    /// # use lockfast_core::{Fence, FencingToken, LockName};
    /// # fn main() -> lockfast_core::Result<()> {
    /// # let gate = lockfast_fence::Gate::new("a", vec![0])?;
    /// # let token = FencingToken { lock: LockName::new("a")?, fence: Fence::new(1)? };
    /// gate.check(&token)?.push(1);
    /// # assert_eq!(gate.into_inner(), [0, 1]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::StaleFence`](lockfast_core::ErrorKind::StaleFence) with the fence that was seen,
    /// [`ErrorKind::DifferentLock`](lockfast_core::ErrorKind::DifferentLock) for the fence of another
    /// lock.
    pub fn check(&self, token: &FencingToken) -> Result<Admitted<'_, T>> {
        check_lock(&self.lock, token)?;
        let mut state = self.state();
        if let Some(seen) = state.seen {
            judge(token, seen)?;
        }
        state.seen = Some(token.fence);
        Ok(Admitted(state))
    }

    /// The highest fence that it has seen: the floor of the next acquisition.
    ///
    /// ```
    /// # fn main() -> lockfast_core::Result<()> {
    /// assert_eq!(lockfast_fence::Gate::new("a", ())?.seen(), None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn seen(&self) -> Option<Fence> {
        self.state().seen
    }

    /// The value, when there are no more writers.
    ///
    /// ```
    /// # fn main() -> lockfast_core::Result<()> {
    /// assert_eq!(lockfast_fence::Gate::new("a", 7)?.into_inner(), 7);
    /// # Ok(())
    /// # }
    /// ```
    pub fn into_inner(self) -> T {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner).value
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The way through a [`Gate`] to its value; the next one waits until it is dropped.
///
/// ```
/// # use lockfast_core::{Fence, FencingToken, LockName};
/// # fn main() -> lockfast_core::Result<()> {
/// # let gate = lockfast_fence::Gate::new("a", 7)?;
/// # let token = FencingToken { lock: LockName::new("a")?, fence: Fence::new(1)? };
/// let mut admitted = gate.check(&token)?;
/// *admitted += 1;
/// assert_eq!(*admitted, 8);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "what is written after it was dropped is not checked"]
pub struct Admitted<'gate, T>(MutexGuard<'gate, State<T>>);

impl<T> Deref for Admitted<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T> DerefMut for Admitted<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0.value
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use lockfast_core::ErrorKind;

    use super::*;
    use crate::rule::tests::token;

    #[test]
    fn a_gate_rises_and_never_falls() {
        let gate = Gate::new("a", 0).unwrap();
        assert_eq!(gate.seen(), None);
        for (fence, passes) in [(5, true), (5, true), (4, false), (7, true), (6, false), (7, true)]
        {
            let before = gate.seen();
            match gate.check(&token("a", fence)) {
                Ok(mut admitted) => {
                    assert!(passes, "{fence}");
                    *admitted += 1;
                }
                Err(error) => {
                    assert!(!passes, "{fence}");
                    assert_eq!((error.kind(), error.fence_seen()), (ErrorKind::StaleFence, before));
                }
            }
        }
        assert_eq!((gate.seen().unwrap().get(), gate.into_inner()), (7, 4));
    }

    #[test]
    fn another_lock_does_not_pass() {
        let gate = Gate::new("a", ()).unwrap();
        let error = gate.check(&token("b", 9)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DifferentLock);
        assert_eq!(gate.seen(), None);
    }

    /// Whoever has seen a fence pass never sees a lower one pass later.
    #[test]
    fn racing_writers_pass_in_the_order_of_their_fences() {
        let gate = Gate::new("a", Vec::new()).unwrap();
        let next = AtomicU64::new(1);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let fence = next.fetch_add(1, Ordering::SeqCst);
                        for _ in 0..2 {
                            if let Ok(mut passed) = gate.check(&token("a", fence)) {
                                passed.push(fence);
                            }
                        }
                    }
                });
            }
        });
        let highest = gate.seen().unwrap().get();
        let passed = gate.into_inner();
        assert!(passed.is_sorted(), "a lower fence passed after a higher one");
        assert_eq!((passed.last().copied(), highest), (Some(highest), 4000));
    }
}
