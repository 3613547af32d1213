//! Who runs the job and who skips it.

use std::time::Duration;

use lockfast::{Attempt, Locker, LossCause, Moment, OnceGuard, Refusal, Released};
use tokio::task::JoinSet;

use crate::java::{Java, TIMES, Time};
use crate::kit::{self, bounded, connect, eventually, name};
use crate::stage::{MINUTE, NAME, SECOND, row, start, start_with, url};

async fn start_job(locker: &Locker, at_most: Duration) -> OnceGuard {
    match bounded(locker.once(NAME, at_most).unwrap().start()).await.unwrap() {
        Attempt::Acquired(guard) => guard,
        Attempt::Taken(refusal) => panic!("{refusal}"),
    }
}

async fn skip_job(locker: &Locker) -> Refusal {
    match bounded(locker.once(NAME, MINUTE).unwrap().start()).await.unwrap() {
        Attempt::Acquired(guard) => panic!("runs with fence {}", guard.fence()),
        Attempt::Taken(refusal) => refusal,
    }
}

/// P1: whoever comes second skips the job, whichever side it is and whoever made the row; a job that has
/// ended lets the other side run it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_side_skips_what_the_other_runs() {
    for time in TIMES {
        for java_is_first in [true, false] {
            let server = start();
            let locker = connect(&url(&server)).await;
            let mut java = Java::start(&server, time, "java-1").await;
            let mut other = Java::start(&server, time, "java-2").await;
            if java_is_first {
                assert!(java.lock(MINUTE).await);
                let seen = skip_job(&locker).await;
                let holder = &seen.lock.holders[0];
                assert!(holder.label.is_none() && holder.fence.is_none(), "{holder:?}");
                assert!(holder.remaining > MINUTE - 10 * SECOND && holder.remaining <= MINUTE);
                assert!(java.extend(2 * MINUTE).await, "its own");
                assert!(skip_job(&locker).await.lock.holders[0].remaining > MINUTE);
                assert!(java.unlock(Duration::ZERO, Duration::ZERO).await);
            }
            for _ in 0..2 {
                let guard = start_job(&locker, MINUTE).await;
                assert!(!other.insert(MINUTE).await && !other.update(MINUTE).await, "{time:?}");
                assert!(!other.extend(MINUTE).await && !other.unlock(SECOND, SECOND).await);
                let second = connect(&url(&server)).await;
                assert_eq!(skip_job(&second).await.lock.holders[0].fence, Some(guard.fence()));
                assert!(guard.check().is_ok());
                let released = guard.finish().await.unwrap();
                assert!(matches!(released, Released::Released), "{released:?}");
                assert!(other.update(MINUTE).await, "free for the other side, {time:?}");
                assert!(!java.lock(MINUTE).await, "taken for its own");
                skip_job(&locker).await;
                assert!(other.unlock(Duration::ZERO, SECOND).await);
            }
        }
    }
}

/// P2: both sides keep the time after the start in which nobody else runs the job.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_least_is_kept_by_both_sides() {
    let at_least = 2 * SECOND;
    for time in TIMES {
        let server = start();
        let locker = connect(&url(&server)).await;
        let mut java = Java::start(&server, time, "java-1").await;
        let started = Moment::now();
        assert!(java.lock(MINUTE).await);
        assert!(java.unlock(at_least, Moment::now().since(started)).await);
        let remaining = skip_job(&locker).await.lock.holders[0].remaining;
        assert!(remaining <= at_least, "{remaining:?}");
        let job = locker.once(NAME, MINUTE).unwrap().at_least(at_least);
        let mut guard = None;
        eventually("it runs", MINUTE, async || {
            guard = bounded(job.start()).await.unwrap().acquired();
            guard.is_some()
        })
        .await;
        // Two clocks are compared where Java goes by its own.
        let waited = Moment::now().since(started);
        assert!(waited + Duration::from_millis(50) >= at_least, "{waited:?}");

        let started = guard.as_ref().unwrap().started();
        let released = guard.unwrap().finish().await.unwrap();
        assert!(matches!(released, Released::Kept { .. }), "{released:?}");
        assert!(!java.update(MINUTE).await, "kept for as long");
        eventually("Java runs it", MINUTE, async || java.update(MINUTE).await).await;
        let waited = Moment::now().since(started);
        assert!(waited + Duration::from_millis(50) >= at_least, "{waited:?}");
        assert!(waited < at_least + 5 * SECOND, "{waited:?}");
    }
}

/// P9: who died is succeeded when its row ends, and not before, whichever side it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_dead_are_succeeded_at_lock_until() {
    let at_most = 2 * SECOND;
    for time in TIMES {
        let server = start();
        let locker = connect(&url(&server)).await;
        let mut java = Java::start(&server, time, "java-1").await;
        let before = Moment::now();
        assert!(java.lock(at_most).await);
        let mut guard = None;
        eventually("it runs", MINUTE, async || {
            let job = locker.once(NAME, at_most).unwrap();
            guard = bounded(job.start()).await.unwrap().acquired();
            guard.is_some()
        })
        .await;
        let waited = Moment::now().since(before);
        assert!(waited + Duration::from_millis(50) >= at_most, "{waited:?}");

        let guard = guard.unwrap();
        let deadline = guard.deadline();
        // Nobody ends it.
        eventually("Java runs it", MINUTE, async || java.lock(MINUTE).await).await;
        assert!(deadline.has_passed(Moment::now()), "before its deadline");
        // P8: whoever ends it late touches nothing.
        let taken = row(&server);
        assert!(taken.contains("java-1"), "{taken}");
        let released = guard.finish().await.unwrap();
        assert!(matches!(released, Released::AlreadyLost(_)), "{released:?}");
        locker.settled().await;
        assert_eq!(row(&server), taken);
        assert!(java.extend(MINUTE).await);
    }
}

/// P1: of many who come at once, Java programs and ours, with a row that is missing and with one that is
/// free, exactly one runs the job.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_many_runs_it() {
    const EACH: usize = 16;
    let server = start();
    let mut lockers = Vec::new();
    for _ in 0..4 {
        lockers.push(connect(&url(&server)).await);
    }
    for round in 0..10 {
        let mut tasks: JoinSet<Option<Option<OnceGuard>>> = JoinSet::new();
        for at in 0..EACH {
            let mut java = Java::start(&server, TIMES[at % 2], "java").await;
            let job = lockers[at % lockers.len()].once(NAME, MINUTE).unwrap();
            tasks.spawn(async move { java.lock(MINUTE).await.then_some(None) });
            tasks.spawn(async move { bounded(job.start()).await.unwrap().acquired().map(Some) });
        }
        let winners: Vec<_> = bounded(tasks.join_all()).await.into_iter().flatten().collect();
        assert_eq!(winners.len(), 1, "round {round}");
        match winners.into_iter().next().unwrap() {
            Some(guard) => drop(guard.finish().await.unwrap()),
            None => {
                let mut java = Java::start(&server, Time::Server, "java").await;
                assert!(java.unlock(Duration::ZERO, SECOND).await);
            }
        }
        if round % 2 == 0 {
            server.sql("DELETE FROM lockfast.shedlock");
        }
    }
}

/// P4: fences rise over rows of Java programs, also of one whose clock is an hour ahead, and over rows that
/// were removed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fences_rise_over_rows_of_others() {
    let server = start();
    let locker = connect(&url(&server)).await;
    let mut fast = Java::start(&server, Time::Client(60 * MINUTE), "fast").await;
    let mut right = Java::start(&server, Time::Server, "right").await;
    let mut last = 0;
    for round in 0..6 {
        let guard = start_job(&locker, MINUTE).await;
        assert!(guard.fence().get() > last, "round {round}");
        last = guard.fence().get();
        guard.finish().await.unwrap();
        match round % 3 {
            0 => {
                assert!(fast.lock(Duration::ZERO).await);
                server.sql("UPDATE lockfast.shedlock SET lock_until = UTC_TIMESTAMP(3)");
            }
            1 => {
                assert!(right.lock(MINUTE).await);
                assert!(right.unlock(Duration::ZERO, SECOND).await);
            }
            _ => drop(server.sql("DELETE FROM lockfast.shedlock")),
        }
    }
}

/// P1, P9: a TIMESTAMP is read in the zone of the session, and a Java program leaves that as the server has
/// it: wherever the server is, both sides mean the same moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_in_another_zone() {
    for zone in ["+05:30", "-08:00"] {
        let server = start_with(kit::setup().option(format!("--default-time-zone={zone}")));
        let locker = connect(&url(&server)).await;
        for time in TIMES {
            let mut java = Java::start(&server, time, "java-1").await;
            assert!(java.lock(MINUTE).await);
            let remaining = skip_job(&locker).await.lock.holders[0].remaining;
            assert!(remaining > MINUTE - 10 * SECOND && remaining <= MINUTE, "{remaining:?}");
            assert!(java.unlock(Duration::ZERO, SECOND).await);
            let guard = start_job(&locker, MINUTE).await;
            assert!(!java.lock(MINUTE).await);
            guard.finish().await.unwrap();
        }
    }
}

/// B156, P3, P8: an operator takes the row away, from either side: a Java program cannot prolong it
/// any more, and a job of ours is told the reason, or who has it now, while it runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_takes_it_away() {
    let server = start();
    let (locker, operator) = (connect(&url(&server)).await, connect(&url(&server)).await);
    let mut java = Java::start(&server, Time::Server, "java-1").await;
    assert!(java.lock(MINUTE).await);
    operator.revoke(NAME, "it hangs").await.unwrap();
    assert!(row(&server).contains("revoked: it hangs"), "{}", row(&server));
    assert!(!java.extend(MINUTE).await, "it has it no more");
    assert!(!java.unlock(SECOND, SECOND).await);

    let guard = start_job(&locker, 12 * SECOND).await;
    assert_eq!(operator.list("", None, 10).await.unwrap().len(), 1);
    operator.revoke(NAME, "it hangs").await.unwrap();
    assert!(operator.list("", None, 10).await.unwrap().is_empty());
    let cause = told(&guard).await;
    assert_eq!(cause, LossCause::Revoked { reason: "it hangs".to_owned() });

    let guard = start_job(&locker, 12 * SECOND).await;
    operator.revoke(NAME, "it hangs").await.unwrap();
    assert!(java.lock(MINUTE).await);
    let cause = told(&guard).await;
    assert_eq!(cause, LossCause::Taken { by: Some("java-1".to_owned()) });
    assert!(operator.inspect(&name(NAME)).await.unwrap().holders[0].fence.is_none());
}

/// Why a job was lost, long before its end.
async fn told(guard: &OnceGuard) -> LossCause {
    let start = Moment::now();
    let cause = bounded(guard.lost()).await;
    assert!(Moment::now().since(start) < 9 * SECOND);
    cause
}
