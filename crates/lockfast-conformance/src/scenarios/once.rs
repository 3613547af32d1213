//! Scheduled jobs on this store: run in one place, for no longer and kept for no shorter than was
//! said.

use std::time::Duration;

use lockfast::{Attempt, ErrorKind, Feature, Locker, Moment, Once, OnceGuard, Ran, Released};

use super::LONG_TTL;
use crate::arena::{Arena, Client, GRACE, PATIENCE, finish, name};
use crate::case::{Case, Group};
use lockfast_core::flaky::{Fault, FaultSwitch, Operation};

pub(super) const GROUP: Group = Group {
    name: "once",
    source: include_str!("once.rs"),
    cases: &[
        Case::new("runs_in_one_place", |arena| Box::pin(runs_in_one_place(arena))),
        Case::new("is_kept_for_at_least", |arena| Box::pin(is_kept_for_at_least(arena))),
        Case::new("that_is_cancelled_is_kept_for_at_least", |arena| {
            Box::pin(that_is_cancelled_is_kept_for_at_least(arena))
        }),
        Case::new("is_stopped_after_at_most", |arena| Box::pin(is_stopped_after_at_most(arena))),
        Case::new("is_stopped_when_it_is_taken_away", |arena| {
            Box::pin(is_stopped_when_it_is_taken_away(arena))
        }),
        Case::new("that_is_cut_off_ends_when_the_link_is_back", |arena| {
            Box::pin(that_is_cut_off_ends_when_the_link_is_back(arena))
        }),
    ],
};

async fn locker(arena: &Arena) -> Locker {
    arena.locker(&FaultSwitch::default()).await
}

/// A job that cannot run into its end within a case.
fn long_job(arena: &Arena, locker: &Locker) -> Once {
    locker.once("a", arena.ttl(LONG_TTL)).expect("a time that the store keeps")
}

async fn start(job: &Once) -> OnceGuard {
    match job.start().await.expect("an answer") {
        Attempt::Acquired(guard) => guard,
        Attempt::Taken(refusal) => panic!("nobody has it: {refusal}"),
    }
}

async fn free(client: &Client) {
    client.until(&name("a"), "it is free", |view| view.holders.is_empty()).await;
}

/// P1: one of those who start a job runs it. The others are told who does and until when, and may run
/// it when it has ended.
async fn runs_in_one_place(arena: Arena) {
    let (first, second) = (locker(&arena).await, locker(&arena).await);
    let (job, other) = (&long_job(&arena, &first), &long_job(&arena, &second));
    for (job, other) in [(job, other), (other, job)].into_iter().cycle().take(8) {
        let ran = job.run(|lease| async move {
            lease.check().expect("it is held");
            match other.run(|_| async {}).await.expect("an answer") {
                Ran::Skipped(refusal) => refusal,
                Ran::Done(()) => panic!("it ran twice at once"),
            }
        });
        let Ran::Done(refusal) = ran.await.expect("an answer") else { panic!("nobody had it") };
        let holder = refusal.lock.holders.first().expect("who has it");
        assert!(holder.label.is_some(), "{refusal}");
        assert!(!holder.remaining.is_zero(), "{refusal}");
    }
}

/// The times of a job that ends before its `at_least`, and the job; a store whose leases end with the
/// process refuses to start it.
async fn brief_job(arena: &Arena, locker: &Locker) -> Option<(Duration, Once)> {
    let at_least = arena.ttl(Duration::from_secs(1));
    let job = long_job(arena, locker).at_least(at_least);
    if arena.profile.lack_of(Feature::Detached).is_none() {
        return Some((at_least, job));
    }
    let error = job.start().await.expect_err("no lease outlives its process");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    None
}

/// The lock of a job that began between these moments is kept for its `at_least` and not much longer.
async fn check_kept(client: &Client, at_least: Duration, before: Moment, after: Moment) {
    loop {
        let asked = Moment::now();
        let held = client.acquire(client.request(&name("a"))).await;
        let answered = Moment::now();
        match held {
            Ok(_) => {
                let kept = answered.since(before);
                assert!(kept >= at_least, "free after {kept:?} of {at_least:?}");
                return;
            }
            // A store that counts in seconds may have to round up.
            Err(refusal) => {
                let limit = at_least + client.backend.profile().ttl.fit(Duration::ZERO) + GRACE;
                let kept = asked.since(after);
                assert!(kept < limit, "still held after {kept:?}: {refusal}");
            }
        }
        tokio::time::sleep(at_least / 50).await;
    }
}

/// P13: a job that ends early keeps its lock until `at_least` after its start, by the store's clock,
/// and it ends by itself then.
async fn is_kept_for_at_least(arena: Arena) {
    let locker = locker(&arena).await;
    let client = arena.client().await;
    let Some((at_least, job)) = brief_job(&arena, &locker).await else { return };
    let before = Moment::now();
    let guard = start(&job).await;
    let after = Moment::now();
    tokio::time::sleep(at_least / 10).await;
    let released = guard.finish().await.expect("an answer");
    match released {
        Released::Kept { expires_in } => assert!(expires_in <= at_least, "{expires_in:?}"),
        // This machine may be so busy that it took all that time.
        Released::Released => assert!(Moment::now().since(before) >= at_least),
        other => panic!("not kept: {other:?}"),
    }
    if let Ran::Skipped(refusal) = job.run(|_| async {}).await.expect("an answer") {
        assert!(refusal.lock.holders[0].remaining <= at_least, "{refusal}");
    } else {
        let kept = Moment::now().since(before);
        assert!(kept >= at_least, "it ran again after {kept:?} of {at_least:?}");
        return;
    }
    // Nothing of this process keeps it.
    drop((job, locker));
    check_kept(&client, at_least, before, after).await;
}

/// P5: a job that is cancelled, or whose guard is dropped, has run: its lock is kept as long as that
/// of one that has ended, and not longer.
async fn that_is_cancelled_is_kept_for_at_least(arena: Arena) {
    let locker = locker(&arena).await;
    let client = arena.client().await;
    let Some((at_least, job)) = brief_job(&arena, &locker).await else { return };
    let before = Moment::now();
    // Whoever is cancelled before its job begins has not run, and keeps nothing.
    let (begin, begun) = tokio::sync::oneshot::channel();
    let running = tokio::spawn(async move {
        job.run(|_| async move {
            begin.send(()).expect("the case goes on");
            std::future::pending::<()>().await;
        })
        .await
    });
    begun.await.expect("it runs");
    let after = Moment::now();
    running.abort();
    assert!(running.await.expect_err("cancelled").is_cancelled());
    locker.settled().await;
    check_kept(&client, at_least, before, after).await;
}

/// P2: nothing renews the lease of a job: when `at_most` is over it is stopped, before the store lets
/// the next in.
async fn is_stopped_after_at_most(arena: Arena) {
    let locker = locker(&arena).await;
    let client = arena.client().await;
    let at_most = arena.ttl(Duration::from_secs(1));
    let job = locker.once("a", at_most).expect("a time that the store keeps");
    let before = Moment::now();
    let ran = tokio::time::timeout(PATIENCE, job.run(|_| std::future::pending::<()>())).await;
    let error = ran.expect("it is stopped").expect_err("it did not end");
    let took = Moment::now().since(before);
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert!(took < at_most + GRACE, "stopped after {took:?} of {at_most:?}");
    assert!(took > at_most / 2, "stopped after {took:?} of {at_most:?}");
    free(&client).await;
    let freed = Moment::now().since(before);
    assert!(freed < at_most + GRACE, "free after {freed:?} of {at_most:?}");
}

/// P3: a job whose lock an operator takes away is stopped.
async fn is_stopped_when_it_is_taken_away(arena: Arena) {
    let locker = locker(&arena).await;
    let client = arena.client().await;
    let at_most = arena.ttl(Duration::from_secs(12));
    let job = locker.once("a", at_most).expect("a time that the store keeps");
    let running = tokio::spawn(async move { job.run(|_| std::future::pending::<()>()).await });
    client.until(&name("a"), "it runs", |view| view.holders.len() == 1).await;
    client.revoke(&name("a"), None).await;
    let revoked = Moment::now();
    let error = finish(running).await.expect_err("it was taken away");
    let took = Moment::now().since(revoked);
    assert!(took < at_most / 2, "told after {took:?}, by the end of its lease");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    free(&client).await;
}

/// P6: a job that ends while the store is out of reach says when its lock will be free, and the keeper
/// goes on trying.
async fn that_is_cut_off_ends_when_the_link_is_back(arena: Arena) {
    let switch = FaultSwitch::default();
    let locker = arena.locker(&switch).await;
    let client = arena.client().await;
    let job = long_job(&arena, &locker);
    let guard = start(&job).await;
    switch.set(Operation::Release, Fault::Fail);
    let released = guard.finish().await.expect("an answer");
    let Released::Unknown { expires_in, .. } = released else {
        panic!("the store was out of reach: {released:?}");
    };
    assert!(expires_in <= job.at_most(), "{expires_in:?}");
    client.be_refused(client.request(&name("a"))).await;
    switch.set_all(Fault::Pass);
    free(&client).await;
}
