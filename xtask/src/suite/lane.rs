//! Jobs that run side by side, as many as the machine can take.

use std::sync::Mutex;

use anyhow::{Context as _, Result};

/// How many jobs run at once. Tests wait most of the time, but what they measure is time, too.
const LANES: usize = 2;

/// Does every job, in this order, and answers the first error after all have ended.
pub(crate) fn in_lanes<T: Send>(jobs: Vec<T>, work: impl Fn(T) -> Result<()> + Sync) -> Result<()> {
    let waiting = Mutex::new(jobs.into_iter());
    let next = || waiting.lock().ok().and_then(|mut rest| rest.next());
    std::thread::scope(|scope| {
        let lane = || {
            let mut outcome = Ok(());
            while let Some(job) = next() {
                let done = work(job);
                outcome = outcome.and(done);
            }
            outcome
        };
        let lanes: Vec<_> = (0..LANES).map(|_| scope.spawn(lane)).collect();
        let ended = lanes.into_iter().map(|lane| lane.join().ok().context("a thread panicked")?);
        // All of them are waited for.
        ended.fold(Ok(()), Result::and)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use anyhow::bail;

    use super::*;

    #[test]
    fn an_error_does_not_end_the_others() {
        let sum = AtomicUsize::new(0);
        let outcome = in_lanes((1..=9).collect(), |job: usize| {
            sum.fetch_add(job, Ordering::Relaxed);
            if job == 2 { bail!("two") } else { Ok(()) }
        });
        assert_eq!(outcome.unwrap_err().to_string(), "two");
        assert_eq!(sum.into_inner(), 45);
    }
}
