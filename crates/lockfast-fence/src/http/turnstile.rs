//! Who may be inside: requests with the highest fence, once those with lower ones have left.
//!
//! A check alone is not enough, because the service writes later: a request that passed could write
//! after one with a higher fence was answered. So a higher fence waits for those inside.

use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockfast_core::{Fence, FencingToken, LockName, Result};
use tokio::sync::Notify;

use crate::rule::judge;

/// One for each lock that a request has named.
#[derive(Debug, Default)]
pub(super) struct Turnstiles(Mutex<HashMap<LockName, Arc<Turnstile>>>);

impl Turnstiles {
    /// Lets a request in when its turn has come; it is inside until the answer is dropped.
    ///
    /// # Cancel safety
    /// Safe: it is not inside, but its fence has been seen.
    pub(super) async fn enter(&self, token: &FencingToken) -> Result<Inside> {
        let turnstile = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(all.entry(token.lock.clone()).or_default())
        };
        turnstile.enter(token).await
    }
}

#[derive(Debug, Default)]
struct Turnstile {
    state: Mutex<State>,
    /// Somebody has left.
    left: Notify,
}

#[derive(Debug, Default)]
struct State {
    seen: Option<Fence>,
    /// How many requests are inside, or wait to be, with which fence.
    inside: BTreeMap<u64, usize>,
}

impl Turnstile {
    async fn enter(self: Arc<Self>, token: &FencingToken) -> Result<Inside> {
        let fence = token.fence.get();
        {
            let mut state = self.state();
            if let Some(seen) = state.seen {
                judge(token, seen)?;
            }
            state.seen = Some(token.fence);
            *state.inside.entry(fence).or_default() += 1;
        }
        let inside = Inside { turnstile: Arc::clone(&self), fence };
        loop {
            // Before the look, so that nobody leaves unnoticed after it.
            let mut left = pin!(self.left.notified());
            left.as_mut().enable();
            if inside.is_first(token)? {
                return Ok(inside);
            }
            left.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that is inside.
#[derive(Debug)]
pub(super) struct Inside {
    turnstile: Arc<Turnstile>,
    fence: u64,
}

impl Inside {
    /// Whether nobody with a lower fence is inside. Whoever waited may be stale by now.
    fn is_first(&self, token: &FencingToken) -> Result<bool> {
        let state = self.turnstile.state();
        if let Some(seen) = state.seen {
            judge(token, seen)?;
        }
        Ok(state.inside.first_key_value().is_none_or(|(lowest, _)| *lowest >= self.fence))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let mut state = self.turnstile.state();
        if let Some(count) = state.inside.get_mut(&self.fence) {
            *count -= 1;
            if *count == 0 {
                state.inside.remove(&self.fence);
                self.turnstile.left.notify_waiters();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use lockfast_core::ErrorKind;

    use super::*;
    use crate::rule::tests::token;

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    fn enter(all: &Turnstiles, fence: u64) -> Result<Inside> {
        match poll(pin!(all.enter(&token("a", fence)))) {
            Poll::Ready(entered) => entered,
            Poll::Pending => panic!("{fence} has to wait"),
        }
    }

    #[test]
    fn equal_fences_are_inside_together_and_lower_ones_stay_out() {
        let all = Turnstiles::default();
        let inside = [enter(&all, 5).unwrap(), enter(&all, 5).unwrap()];
        assert_eq!(enter(&all, 4).unwrap_err().kind(), ErrorKind::StaleFence);
        drop(inside);
        assert_eq!(enter(&all, 4).unwrap_err().fence_seen().unwrap().get(), 5);
        drop(enter(&all, 6).unwrap());
    }

    #[test]
    fn a_higher_fence_waits_for_those_inside() {
        let all = Turnstiles::default();
        let first = enter(&all, 5).unwrap();
        let higher = token("a", 6);
        let mut waiting = pin!(all.enter(&higher));
        assert!(poll(waiting.as_mut()).is_pending());
        // It has been seen, although it waits.
        assert_eq!(enter(&all, 5).unwrap_err().kind(), ErrorKind::StaleFence);
        drop(first);
        assert!(matches!(poll(waiting), Poll::Ready(Ok(_))));
    }

    #[test]
    fn who_waits_while_a_higher_one_comes_is_stale() {
        let all = Turnstiles::default();
        let first = enter(&all, 5).unwrap();
        let (middle, last) = (token("a", 6), token("a", 7));
        let mut middle = pin!(all.enter(&middle));
        let mut last = pin!(all.enter(&last));
        assert!(poll(middle.as_mut()).is_pending() && poll(last.as_mut()).is_pending());
        drop(first);
        match poll(middle) {
            Poll::Ready(Err(error)) => assert_eq!(error.kind(), ErrorKind::StaleFence),
            other => panic!("{other:?}"),
        }
        assert!(matches!(poll(last), Poll::Ready(Ok(_))));
    }

    #[test]
    fn who_gives_up_waiting_is_in_nobodys_way() {
        let all = Turnstiles::default();
        let first = enter(&all, 5).unwrap();
        {
            let six = token("a", 6);
            assert!(poll(pin!(all.enter(&six))).is_pending());
        }
        drop(first);
        drop(enter(&all, 6).unwrap());
    }

    #[test]
    fn locks_do_not_wait_for_each_other() {
        let all = Turnstiles::default();
        let _first = enter(&all, 5).unwrap();
        let other = token("b", 1);
        assert!(matches!(poll(pin!(all.enter(&other))), Poll::Ready(Ok(_))));
    }
}
