//! What a store lacks by its profile is refused when it is made, with the profile's reason, and
//! touches nothing. What it has is made. No store is let off these cases.

use lockfast::{
    Error, ErrorKind, Expected, Feature, Fence, HolderId, Locker, Moment, Mutex, Result, RwLock,
};
use lockfast_core::{Change, DowngradeRequest, WriteRequest};

use super::LONG_TTL;
use super::shared_state::locker;
use crate::arena::{Arena, Client, name};
use crate::case::{Case, Group};

pub(super) const GROUP: Group = Group {
    name: "refusals",
    source: include_str!("refusals.rs"),
    cases: &[
        Case::new("leave_nothing_out", |arena| Box::pin(leave_nothing_out(arena))),
        Case::new("of_shared_locks", |arena| Box::pin(of_shared_locks(arena))),
        Case::new("of_downgrades", |arena| Box::pin(of_downgrades(arena))),
        Case::new("of_permits", |arena| Box::pin(of_permits(arena))),
        Case::new("of_lock_delays", |arena| Box::pin(of_lock_delays(arena))),
        Case::new("of_detached_leases", |arena| Box::pin(of_detached_leases(arena))),
        Case::new("of_floors", |arena| Box::pin(of_floors(arena))),
        Case::new("of_elections", |arena| Box::pin(of_elections(arena))),
        Case::new("of_values", |arena| Box::pin(of_values(arena))),
        Case::new("of_values_that_end", |arena| Box::pin(of_values_that_end(arena))),
        Case::new("of_events", |arena| Box::pin(of_events(arena))),
    ],
};

/// What the cases of this group ask for.
const ASKED_FOR: &[Feature] = &[
    Feature::Shared,
    Feature::Downgrade,
    Feature::Permits,
    Feature::LockDelay,
    Feature::Detached,
    Feature::Floor,
    Feature::Line,
    Feature::Values,
    Feature::ValueExpiry,
    Feature::Events,
];

/// Something that a store was asked for, and what came of it.
struct Asked {
    what: &'static str,
    needs: &'static [Feature],
    refusal: Option<Error>,
}

fn asked<T>(what: &'static str, needs: &'static [Feature], answer: Result<T>) -> Asked {
    Asked { what, needs, refusal: answer.err() }
}

/// Each was refused for one of the reasons that the profile gives, or made where it gives none.
fn check(arena: &Arena, answers: impl IntoIterator<Item = Asked>) {
    for Asked { what, needs, refusal } in answers {
        let lacking = needs.iter().filter(|feature| arena.profile.lack_of(**feature).is_some());
        let reasons: Vec<Error> =
            lacking.map(|feature| arena.profile.unsupported(*feature)).collect();
        match refusal {
            None => assert!(reasons.is_empty(), "{what}: made, in spite of {reasons:?}"),
            Some(error) if reasons.is_empty() => panic!("{what}: refused without need: {error}"),
            Some(error) => {
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{what}: {error}");
                let is_told = reasons.iter().any(|reason| reason.message() == error.message());
                assert!(is_told, "{what}: {error}, and not {reasons:?}");
                assert_eq!(error.backend(), Some(arena.profile.backend), "{what}: {error}");
            }
        }
    }
}

/// The same of what would take the lock `a`, which is free then.
async fn check_untouched(arena: &Arena, client: &Client, answers: Vec<Asked>) {
    check(arena, answers);
    let view = client.until(&name("a"), "it is free", |view| view.holders.is_empty()).await;
    assert_eq!(view.waiting, 0, "{view:?}");
}

/// Takes the lock and gives it back.
async fn take(lock: Mutex) -> Result<()> {
    lock.acquire().await?.release().await.map(drop)
}

fn mutex(locker: &Locker) -> Mutex {
    locker.mutex("a").expect("a valid name")
}

/// P11: there is a case for everything that the store says it lacks.
async fn leave_nothing_out(arena: Arena) {
    for (feature, reason) in arena.profile.lacks {
        assert!(ASKED_FOR.contains(feature), "no case asks for {feature} ({reason})");
    }
}

/// P11: a store without shared locks refuses them with its reason.
async fn of_shared_locks(arena: Arena) {
    let locker = locker(&arena).await;
    check(&arena, [asked("a lock of readers", &[Feature::Shared], locker.rwlock("a"))]);
}

/// P11: a store in which no writer becomes a reader refuses that with its reason, and the writer has its
/// lock as before.
async fn of_downgrades(arena: Arena) {
    let (locker, client) = (locker(&arena).await, arena.client().await);
    let downgraded = match locker.rwlock("a") {
        Ok(lock) => downgrade(lock).await,
        Err(error) => Err(error),
    };
    let request = DowngradeRequest { name: name("a"), holder: client.holder() };
    let answers = vec![
        asked("a downgrade", &[Feature::Shared, Feature::Downgrade], downgraded),
        asked("the store's", &[Feature::Downgrade], client.backend.downgrade(request).await),
    ];
    check_untouched(&arena, &client, answers).await;
}

async fn downgrade(lock: RwLock) -> Result<()> {
    let writer = lock.write().await?;
    let downgraded = lock.downgrade(&writer).await;
    writer.check()?;
    writer.release().await?;
    downgraded
}

/// P11: a store without permits refuses them with its reason.
async fn of_permits(arena: Arena) {
    let locker = locker(&arena).await;
    check(&arena, [asked("a semaphore", &[Feature::Permits], locker.semaphore("a", 2))]);
}

/// P11: a store without lock-delays refuses them with its reason, before it grants anything.
async fn of_lock_delays(arena: Arena) {
    let (locker, client) = (locker(&arena).await, arena.client().await);
    let taken = take(mutex(&locker).lock_delay(arena.short_ttl())).await;
    let answers = vec![asked("a lock-delay", &[Feature::LockDelay], taken)];
    check_untouched(&arena, &client, answers).await;
}

/// P11: a store whose leases end with the process refuses those that do not with its reason, before it
/// grants anything.
async fn of_detached_leases(arena: Arena) {
    const NEEDS: &[Feature] = &[Feature::Detached];
    let (locker, client) = (locker(&arena).await, arena.client().await);
    let ttl = arena.ttl(LONG_TTL);
    let lease = mutex(&locker).ttl(ttl).acquire_detached().await;
    let holder = lease.as_ref().map_or(HolderId::from_bytes([7; 16]), |lease| lease.holder);
    let renewed = locker.renew_detached("a", holder, ttl).await;
    let released = locker.release_detached("a", holder).await;
    let answers = vec![
        asked("a detached lease", NEEDS, lease),
        asked("its renewal", NEEDS, renewed),
        asked("its release", NEEDS, released),
    ];
    check_untouched(&arena, &client, answers).await;
    let brief = locker.once("b", ttl).expect("a time that it keeps").at_least(arena.short_ttl());
    let ended = brief.finish_detached(holder, Moment::now()).await;
    let started = brief.start().await;
    check(
        &arena,
        [asked("a job that is kept", NEEDS, started), asked("the end of another's", NEEDS, ended)],
    );
}

/// P11: a store whose fences nobody can raise refuses a floor with its reason, before it grants anything.
async fn of_floors(arena: Arena) {
    let (locker, client) = (locker(&arena).await, arena.client().await);
    let floor = Fence::new(1).expect("a fence");
    let taken = take(mutex(&locker).floor(floor)).await;
    check_untouched(&arena, &client, vec![asked("a floor", &[Feature::Floor], taken)]).await;
}

/// P11: a store where those who wait stand in no line refuses elections with its reason.
async fn of_elections(arena: Arena) {
    let locker = locker(&arena).await;
    check(&arena, [asked("an election", &[Feature::Line], locker.leader("a"))]);
}

/// P11: a store that keeps no values refuses them, and whatever is made of them, with its reason.
async fn of_values(arena: Arena) {
    const NEEDS: &[Feature] = &[Feature::Values];
    let (locker, client) = (locker(&arena).await, arena.client().await);
    let write = WriteRequest {
        name: name("a"),
        expected: Expected::Nothing,
        change: Change::Put { bytes: b"x".to_vec(), keep: None },
        id: *client.holder().as_bytes(),
    };
    let latch = locker.latch("a", 2);
    let barrier = locker.barrier("a", 2);
    let answers = [
        asked("a value", NEEDS, locker.value("a")),
        asked("a read", NEEDS, client.backend.read(name("a")).await),
        asked("a write", NEEDS, client.backend.write(write).await),
        asked("a latch", &[Feature::Values, Feature::Events], latch),
        asked("a barrier", &[Feature::Values, Feature::Shared, Feature::Events], barrier),
    ];
    check(&arena, answers);
}

/// P11: a store whose values do not end by themselves refuses those that shall, and whatever is made of
/// them, with its reason.
async fn of_values_that_end(arena: Arena) {
    const NEEDS: &[Feature] = &[Feature::Values, Feature::ValueExpiry];
    const REFRESH: &[Feature] = &[Feature::Values, Feature::ValueExpiry, Feature::Shared];
    let (locker, client) = (locker(&arena).await, arena.client().await);
    let write = WriteRequest {
        name: name("a"),
        expected: Expected::Nothing,
        change: Change::Put { bytes: b"x".to_vec(), keep: Some(LONG_TTL) },
        id: *client.holder().as_bytes(),
    };
    let kept = locker.value("a").and_then(|value| value.keep(LONG_TTL));
    let answers = [
        asked("a value that ends", NEEDS, kept),
        asked("a write for a time", NEEDS, client.backend.write(write).await),
        asked("a refresh", REFRESH, locker.refresh("a", LONG_TTL)),
    ];
    check(&arena, answers);
}

/// P11: a store that tells nobody what happens in it refuses those who watch and observe with its reason.
async fn of_events(arena: Arena) {
    const NEEDS: &[Feature] = &[Feature::Events];
    let (locker, client) = (locker(&arena).await, arena.client().await);
    let observed = match locker.leader("a") {
        Ok(leader) => leader.observe().await.map(drop),
        Err(error) => Err(error),
    };
    let answers = [
        asked("a watch", NEEDS, locker.watch().await),
        asked("the store's watch", NEEDS, client.backend.watch().await),
        asked("who observes", &[Feature::Line, Feature::Events], observed),
    ];
    check(&arena, answers);
}
