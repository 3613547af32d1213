//! Elections and scheduled jobs: what no store has a part in.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

use std::time::Duration;

use lockfast::{EventStream, LeaderEvent, Leadership, Locker, Moment, Ran};
use tempfile::TempDir;

const SECOND: Duration = Duration::from_secs(1);

/// Sooner than the slow look would find it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observer_that_missed_events_looks_again() {
    let locker = Locker::connect("memory:").await.unwrap();
    let leader = locker.leader("scheduler").unwrap();
    let mut observer = leader.observe().await.unwrap();
    assert!(matches!(observer.next().await.unwrap(), Leadership::Vacant));
    let noise = locker.mutex("noise").unwrap();
    for _ in 0..EventStream::BACKLOG_MAX {
        noise.acquire().await.unwrap().release().await.unwrap();
    }
    let mut campaign = leader.campaign().unwrap();
    let LeaderEvent::Elected { term, .. } = campaign.next().await.unwrap() else { panic!() };
    let start = Moment::now();
    let seen = tokio::spawn(async move { observer.next().await });
    while !seen.is_finished() {
        assert!(Moment::now().since(start) < 5 * SECOND, "it was not looked at");
        // That something was missed is told with the next event.
        noise.acquire().await.unwrap().release().await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let seen = seen.await.unwrap().unwrap();
    assert!(matches!(&seen, Leadership::Led(leader) if leader.term == Some(term)), "{seen:?}");
}

/// A program that ends right after a campaign was dropped, leading or in line, leaves nothing; after a
/// job, what is left of `at_least`.
#[test]
fn the_last_locker_waits_for_what_was_dropped_before_it() {
    let directory = TempDir::new().unwrap();
    let url = format!("embedded:{}", directory.path().join("store").display());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let other = runtime.block_on(Locker::connect(&url)).unwrap();
    let name = lockfast::LockName::new("a").unwrap();
    for _ in 0..10 {
        let locker = runtime.block_on(Locker::connect(&url)).unwrap();
        let mut leading = locker.leader("a").unwrap().campaign().unwrap();
        runtime.block_on(leading.next()).unwrap();
        let waiting = locker.leader("a").unwrap().campaign().unwrap();
        drop((waiting, leading));
        drop(locker);
        let view = runtime.block_on(other.inspect(&name)).unwrap();
        assert!(view.holders.is_empty() && view.waiting == 0, "{view:?}");
    }
    let locker = runtime.block_on(Locker::connect(&url)).unwrap();
    let job = locker.once("a", 600 * SECOND).unwrap().at_least(60 * SECOND);
    drop(runtime.block_on(job.start()).unwrap());
    drop((job, locker));
    let view = runtime.block_on(other.inspect(&name)).unwrap();
    let left = view.holders[0].remaining;
    assert!(left <= 60 * SECOND && left > 50 * SECOND, "{view:?}");
}

/// What a job extends is its own affair; nothing else prolongs it.
#[tokio::test]
async fn a_job_may_say_that_it_takes_longer() {
    let locker = Locker::connect("memory:").await.unwrap();
    let job = locker.once("a", SECOND).unwrap();
    let ran = job.run(|lease| async move {
        tokio::time::sleep(SECOND / 2).await;
        lease.extend(20 * SECOND).await.unwrap();
        tokio::time::sleep(SECOND).await;
        lease.check().map(|checked| checked.remaining)
    });
    let Ran::Done(left) = ran.await.unwrap() else { panic!("nobody had it") };
    assert!(left.unwrap() > 10 * SECOND);
    assert!(matches!(job.run(|_| async {}).await.unwrap(), Ran::Done(())));
}
