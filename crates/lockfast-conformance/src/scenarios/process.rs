//! Several processes on one store: killed, stopped, and competing.

use std::time::Duration;

use lockfast::{Feature, Fence, HolderId, LeaderEvent, Locker, Moment, ReleaseOutcome};
use lockfast_core::capability::Expiry;
use tempfile::TempDir;

use super::shared_state::{locker, lockers};
use crate::actor::{FRESH, LOCK, PARTIES, Role, Script, Work};
use crate::arena::{Arena, Client, GRACE, PATIENCE, finish, name};
use crate::case::{Case, Group};
use crate::history::assert_excluded;
use lockfast_faults::child::Child;
use lockfast_faults::ledger::Ledger;

pub(super) const GROUP: Group = Group {
    name: "process",
    source: include_str!("process.rs"),
    cases: &[
        Case::of_processes("a_killed_holder_frees_its_lock", |arena| {
            Box::pin(a_killed_holder_frees_its_lock(arena))
        }),
        Case::of_processes("a_killed_waiter_delays_nobody", |arena| {
            Box::pin(a_killed_waiter_delays_nobody(arena))
        }),
        Case::of_processes("that_ends_gives_back_what_it_dropped", |arena| {
            Box::pin(that_ends_gives_back_what_it_dropped(arena))
        }),
        Case::of_processes("a_stopped_holder_loses_its_lease", |arena| {
            Box::pin(a_stopped_holder_loses_its_lease(arena))
        }),
        Case::of_processes("a_detached_lease_outlives_its_process", |arena| {
            Box::pin(a_detached_lease_outlives_its_process(arena))
        })
        .using(&[Feature::Detached]),
        Case::of_processes("waiters_of_other_processes_are_woken", |arena| {
            Box::pin(waiters_of_other_processes_are_woken(arena))
        }),
        Case::of_processes("fences_rise_over_processes", |arena| {
            Box::pin(fences_rise_over_processes(arena))
        }),
        Case::of_processes("workers_never_overlap", |arena| Box::pin(workers_never_overlap(arena))),
        Case::of_processes("killed_workers_lose_nothing", |arena| {
            Box::pin(killed_workers_lose_nothing(arena))
        }),
        Case::of_processes("that_dies_leaves_its_barrier", |arena| {
            Box::pin(that_dies_leaves_its_barrier(arena))
        })
        .using(&[Feature::Values, Feature::Shared, Feature::Events]),
        Case::of_processes("that_dies_has_counted", |arena| Box::pin(that_dies_has_counted(arena)))
            .using(&[Feature::Values, Feature::Events]),
        Case::of_processes("that_dies_leaves_a_refresh_to_the_next", |arena| {
            Box::pin(that_dies_leaves_a_refresh_to_the_next(arena))
        })
        .using(&[Feature::Values, Feature::ValueExpiry, Feature::Shared]),
        Case::of_processes("that_dies_is_followed_as_leader", |arena| {
            Box::pin(that_dies_is_followed_as_leader(arena))
        })
        .using(&[Feature::Line]),
    ],
};

/// How long a dead waiter may delay the others (P9).
const DEAD_WAITER_DELAY_MAX: Duration = Duration::from_secs(2);

fn script(arena: &Arena, directory: &TempDir, ttl: Duration) -> Script {
    Script {
        role: Role::Actor,
        url: arena.url.clone(),
        ttl: arena.ttl(ttl),
        directory: directory.path().to_owned(),
        seed: arena.seed,
        rounds: 0,
    }
}

fn directory() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

/// Lets a child take the lock; its fence and when it had it.
fn take(child: &mut Child) -> (u64, u64) {
    child.send("acquire").expect("the child listens");
    granted(child)
}

fn granted(child: &Child) -> (u64, u64) {
    let line = child.wait_for("granted ", PATIENCE).expect("the child is granted the lock");
    let mut numbers = line.split(' ').map(|word| word.parse().expect("a number"));
    (numbers.next().expect("a fence"), numbers.next().expect("a time"))
}

async fn queue(client: &Client) -> tokio::task::JoinHandle<crate::arena::Held> {
    client.queue_for(client.waiting_request(&name(LOCK))).await
}

/// P9: a lock whose holder was killed is free within its ttl and a second, and within a second
/// where the store notices that a process dies.
async fn a_killed_holder_frees_its_lock(arena: Arena) {
    let client = arena.client().await;
    let directory = directory();
    let notices_death = matches!(arena.profile.expiry, Expiry::ProcessDeath { .. });
    let ttl = Duration::from_secs(if notices_death { 30 } else { 1 });
    let script = script(&arena, &directory, ttl);
    let mut child = script.start();
    let (fence, _) = take(&mut child);
    let waiter = queue(&client).await;
    child.kill().expect("the child dies");
    let killed = Moment::now();
    let next = client.finish(&name(LOCK), waiter).await;
    let took = next.granted.since(killed);
    let bound = if notices_death { GRACE } else { script.ttl + GRACE };
    assert!(took <= bound, "free only {took:?} after its holder was killed");
    assert!(next.fence.get() > fence, "the fence did not rise");
}

/// P9: a waiter that was killed delays those behind it by two seconds at most.
async fn a_killed_waiter_delays_nobody(arena: Arena) {
    let [first, second] = arena.clients().await;
    let directory = directory();
    let held = first.take(first.request(&name(LOCK))).await;
    let mut child = script(&arena, &directory, Duration::from_secs(30)).start();
    child.send("acquire").expect("the child listens");
    first.until(&held.name, "the child waits", |view| view.waiting == 1).await;
    let behind = second.wait_for(second.waiting_request(&held.name));
    first.until(&held.name, "two wait", |view| view.waiting == 2).await;
    child.kill().expect("the child dies");
    let released = Moment::now();
    first.release(&held).await;
    let next = second.finish(&held.name, behind).await;
    let took = next.granted.since(released);
    assert!(took <= DEAD_WAITER_DELAY_MAX, "delayed by {took:?}");
}

/// P6 (B48): a program that ends right after its guard and its locker were dropped has given the
/// lock back.
async fn that_ends_gives_back_what_it_dropped(arena: Arena) {
    let client = arena.client().await;
    let directory = directory();
    let mut child = script(&arena, &directory, Duration::from_secs(30)).start();
    let (fence, _) = take(&mut child);
    let view = client.view(&name(LOCK)).await;
    assert_eq!(view.holders.len(), 1, "the child holds {fence}, which nobody else sees: {view:?}");
    child.send("slow").expect("the child listens");
    child.wait_for("slow", PATIENCE).expect("the child obeys");
    child.finish(PATIENCE).expect("the child ends");
    let view = client.view(&name(LOCK)).await;
    assert!(view.holders.is_empty(), "{view:?}");
}

/// P3: a holder that was stopped for longer than its ttl says lost before anything else when it
/// continues, its fenced write is refused, and its release does not free the next holder's lock.
async fn a_stopped_holder_loses_its_lease(arena: Arena) {
    let client = arena.client().await;
    let directory = directory();
    let ledger = Ledger::open(directory.path()).expect("the ledger");
    let script = script(&arena, &directory, Duration::from_secs(1));
    let mut child = script.start();
    let (fence, _) = take(&mut child);
    child.send("watch").expect("the child listens");
    child.wait_for("watching", PATIENCE).expect("the child looks at its lease");
    let waiter = queue(&client).await;
    child.stop().expect("the child stops");
    let stopped = Moment::now();
    let next = client.finish(&name(LOCK), waiter).await;
    let took = next.granted.since(stopped);
    assert!(took <= script.ttl + GRACE, "free only after {took:?}");
    assert!(next.fence.get() > fence, "the fence did not rise");
    let admitted = ledger.read(next.fence.get()).expect("the ledger");
    assert!(admitted.is_some(), "the new holder raises the fence");
    child.resume().expect("the child continues");
    let lost = child.wait_for("lost ", PATIENCE).expect("the child is told");
    let last_held: u64 = lost.split(' ').next().and_then(|word| word.parse().ok()).expect("a time");
    assert!(
        last_held < next.granted.host_ns(),
        "it said held {} ns after the next had the lock",
        last_held - next.granted.host_ns()
    );
    child.send("write").expect("the child listens");
    child.wait_for("refused", PATIENCE).expect("the stale write is refused");
    child.send("release").expect("the child listens");
    child.wait_for("not released", PATIENCE).expect("it has nothing to release");
    let view = client.view(&next.name).await;
    assert_eq!(view.holders.len(), 1, "{view:?}");
    assert_eq!(view.holders[0].fence, Some(next.fence));
}

/// P9: a detached lease outlives the process that took it, and whoever knows its holder id can
/// release it.
async fn a_detached_lease_outlives_its_process(arena: Arena) {
    let client = arena.client().await;
    let directory = directory();
    let mut child = script(&arena, &directory, Duration::from_secs(60)).start();
    child.send("detach").expect("the child listens");
    let line = child.wait_for("granted ", PATIENCE).expect("the child is granted the lock");
    let (fence, holder) = line.split_once(' ').expect("fence and holder");
    child.kill().expect("the child dies");
    // Long enough for a store that notices when a process dies.
    tokio::time::sleep(GRACE).await;
    let view = client.view(&name(LOCK)).await;
    assert_eq!(view.holders.len(), 1, "{view:?}");
    assert_eq!(view.holders[0].fence, Some(Fence::parse(fence).expect("a fence")));
    let holder = HolderId::parse(holder).expect("a holder id");
    let outcome = client.release_of(&name(LOCK), holder).await;
    assert_eq!(outcome, ReleaseOutcome::Released);
    client.take(client.request(&name(LOCK))).await;
}

/// P10: a waiter in another process is woken when its turn comes: half of the hand-overs take
/// less than a poll would.
async fn waiters_of_other_processes_are_woken(arena: Arena) {
    const HAND_OVERS: usize = 9;
    let client = arena.client().await;
    let directory = directory();
    let mut child = script(&arena, &directory, Duration::from_secs(30)).start();
    let mut held = client.take(client.request(&name(LOCK))).await;
    let mut times = Vec::new();
    for _ in 0..HAND_OVERS {
        child.send("acquire").expect("the child listens");
        client.until(&held.name, "the child waits", |view| view.waiting == 1).await;
        let sent = Moment::now();
        client.release(&held).await;
        let (_, granted_ns) = granted(&child);
        times.push(Duration::from_nanos(granted_ns.saturating_sub(sent.host_ns())));
        let waiter = queue(&client).await;
        let sent = Moment::now();
        child.send("release").expect("the child listens");
        held = client.finish(&name(LOCK), waiter).await;
        times.push(held.granted.since(sent));
    }
    times.sort_unstable();
    let median = times[times.len() / 2];
    assert!(median < Duration::from_millis(250), "hand-overs took {times:?}");
}

/// P4: fences rise from process to process, over releases, deaths and processes that come later.
async fn fences_rise_over_processes(arena: Arena) {
    let client = arena.client().await;
    let directory = directory();
    let ttl = arena.ttl(Duration::from_secs(1));
    let mut fences = Vec::new();
    for round in 0..4 {
        let mut child = script(&arena, &directory, ttl).start();
        fences.push(take(&mut child).0);
        if round % 2 == 0 {
            child.send("release").expect("the child listens");
            child.wait_for("released", PATIENCE).expect("the child releases");
        }
        child.kill().expect("the child dies");
        let waiter = client.wait_for(client.waiting_request(&name(LOCK)));
        let held = client.finish(&name(LOCK), waiter).await;
        fences.push(held.fence.get());
        client.release(&held).await;
    }
    let rising = fences.windows(2).all(|pair| pair[0] < pair[1]);
    assert!(rising, "fences did not rise: {fences:?}");
}

/// P1: eight processes that increment a number under the lock never hold it together and lose no
/// increment.
async fn workers_never_overlap(arena: Arena) {
    const WORKERS: u64 = 8;
    const ROUNDS: u64 = 20;
    let directory = directory();
    let mut workers = Vec::new();
    for worker in 0..WORKERS {
        let script = Script {
            role: Role::Worker,
            seed: arena.seed.of(&format!("worker {worker}")),
            rounds: ROUNDS,
            ..script(&arena, &directory, Duration::from_secs(5))
        };
        workers.push(script.start());
    }
    for worker in &workers {
        worker.wait_for("done", PATIENCE * 2).expect("the worker ends");
    }
    let work = Work::read(directory.path()).expect("the logs");
    assert_excluded(&work.intervals);
    assert_eq!((work.acknowledged, work.unknown), (WORKERS * ROUNDS, 0));
    let number = Ledger::open(directory.path()).and_then(|ledger| ledger.number());
    assert_eq!(number.expect("the ledger"), work.acknowledged, "increments were lost");
}

/// P1: the same while workers are killed at random and others take their place: no two hold the
/// lock together, and every increment that was acknowledged is there.
async fn killed_workers_lose_nothing(arena: Arena) {
    const WORKERS: u64 = 5;
    const KILLS: u64 = 8;
    let directory = directory();
    let mut dice = arena.seed.dice();
    let start = |number: u64| {
        let script = Script {
            role: Role::Worker,
            seed: arena.seed.of(&format!("worker {number}")),
            rounds: u64::MAX,
            ..script(&arena, &directory, Duration::from_secs(1))
        };
        let worker = script.start();
        worker.wait_for("ready", PATIENCE).expect("the worker starts");
        worker
    };
    let mut workers: Vec<Child> = (0..WORKERS).map(&start).collect();
    for kill in 0..KILLS {
        tokio::time::sleep(dice.time_below(Duration::from_millis(150))).await;
        let victim = usize::try_from(dice.below(WORKERS)).expect("a small number");
        workers[victim].kill().expect("the worker dies");
        workers[victim] = start(WORKERS + kill);
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    for mut worker in workers {
        worker.finish(PATIENCE).expect("the worker ends when told to");
    }
    let work = Work::read(directory.path()).expect("the logs");
    assert_excluded(&work.intervals);
    assert!(work.acknowledged > 0, "nobody could work");
    let number = Ledger::open(directory.path()).and_then(|ledger| ledger.number());
    let number = number.expect("the ledger");
    let possible = work.acknowledged..=work.acknowledged + work.unknown;
    assert!(possible.contains(&number), "{number} increments of {possible:?}");
}

/// Starts a child that takes part in what `order` says, and returns when it answers.
fn start_with(script: &Script, order: &str, answer: &str) -> (Child, String) {
    let mut child = script.start();
    child.send(order).expect("the child listens");
    let line = child.wait_for(answer, PATIENCE).expect("the child takes part");
    (child, line)
}

/// How long what a process has may outlive it: not at all where the store notices its death.
fn survival(arena: &Arena, script: &Script) -> Duration {
    match arena.profile.expiry {
        Expiry::ProcessDeath { .. } => GRACE,
        _ => script.ttl + GRACE,
    }
}

/// P9: a process that dies at a barrier has left it when its lease has ended; those who are there wait
/// for one more.
async fn that_dies_leaves_its_barrier(arena: Arena) {
    let lockers: [Locker; PARTIES as usize] = lockers(&arena).await;
    let client = arena.client().await;
    let (directory, place) = (directory(), name(&format!("barrier:{LOCK}#0")));
    let wait = |at: usize| {
        let barrier = lockers[at].barrier(LOCK, PARTIES).expect("a barrier");
        tokio::spawn(async move { barrier.wait().await.expect("an answer") })
    };
    let first = wait(0);
    client.until(&place, "one is there", |view| view.holders.len() == 1).await;
    let script = script(&arena, &directory, Duration::from_secs(1));
    let (mut child, _) = start_with(&script, "meet", "meeting");
    client.until(&place, "the child is there", |view| view.holders.len() == 2).await;
    child.kill().expect("the child dies");
    let killed = Moment::now();
    client.until(&place, "the child has left", |view| view.holders.len() == 1).await;
    let took = Moment::now().since(killed);
    assert!(took <= survival(&arena, &script), "it left only {took:?} after its death");
    let second = wait(1);
    client.until(&place, "two are there", |view| view.holders.len() == 2).await;
    assert!(!first.is_finished() && !second.is_finished(), "one is missing");
    let third = wait(2);
    for waiting in [first, second, third] {
        assert_eq!(finish(waiting).await, 0);
    }
}

/// P14: what a process has counted down stays counted when it dies.
async fn that_dies_has_counted(arena: Arena) {
    let locker = locker(&arena).await;
    let directory = directory();
    let latch = locker.latch(LOCK, PARTIES).expect("a latch");
    let waiting = tokio::spawn({
        let latch = latch.clone();
        async move { latch.wait().await.expect("an answer") }
    });
    let script = script(&arena, &directory, Duration::from_secs(1));
    let (mut child, _) = start_with(&script, "count", "counted");
    child.kill().expect("the child dies");
    for left in (0..PARTIES - 1).rev() {
        assert!(!waiting.is_finished(), "{} are missing", left + 1);
        assert_eq!(latch.count_down().await.expect("an answer"), left);
    }
    finish(waiting).await;
}

/// P9: when a process dies that computes a value, one who waited for it computes when its lease has
/// ended.
async fn that_dies_leaves_a_refresh_to_the_next(arena: Arena) {
    let (locker, client) = (locker(&arena).await, arena.client().await);
    let (directory, place) = (directory(), name(&format!("refresh:{LOCK}")));
    let script = script(&arena, &directory, Duration::from_secs(1));
    let (mut child, _) = start_with(&script, "compute", "computing");
    let refresh = locker.refresh(LOCK, FRESH).expect("a refresh");
    let next = tokio::spawn(async move {
        let computed = refresh.get(|_| async { Ok(b"next".to_vec()) }).await;
        (computed.expect("a value"), Moment::now())
    });
    client.until(&place, "one waits", |view| view.waiting == 1).await;
    child.kill().expect("the child dies");
    let killed = Moment::now();
    let (value, computed) = finish(next).await;
    assert_eq!(value, b"next");
    let took = computed.since(killed);
    assert!(took <= survival(&arena, &script), "computed only {took:?} after the death");
}

/// P9: a leader that dies is followed when its lease has ended, in a higher term.
async fn that_dies_is_followed_as_leader(arena: Arena) {
    let (locker, client) = (locker(&arena).await, arena.client().await);
    let directory = directory();
    let script = script(&arena, &directory, Duration::from_secs(1));
    let (mut child, term) = start_with(&script, "lead", "leading ");
    let mut campaign = locker.leader(LOCK).and_then(|it| it.campaign()).expect("a campaign");
    client.until(&name(LOCK), "one stands", |view| view.waiting == 1).await;
    child.kill().expect("the child dies");
    let killed = Moment::now();
    let event = tokio::time::timeout(PATIENCE, campaign.next()).await.expect("an event in time");
    let took = Moment::now().since(killed);
    let Ok(LeaderEvent::Elected { term: next, .. }) = event else { panic!("{event:?}") };
    assert!(took <= survival(&arena, &script), "elected only {took:?} after the death");
    assert!(next.get() > Fence::parse(&term).expect("a term").get(), "{next} after {term}");
    campaign.resign().await.expect("an answer");
}
