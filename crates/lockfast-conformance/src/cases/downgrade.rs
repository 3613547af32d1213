//! A writer becomes a reader: the lock is never free, readers come in, writers do not.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use lockfast_core::{
    AcquireRequest, DowngradeOutcome, DowngradeRequest, Error, ErrorKind, Feature, Fence, HolderId,
    LockName, LossCause, Mode, Moment, ReleaseOutcome, RenewOutcome, RevokeOutcome,
};

use crate::arena::{Arena, Client, GRACE, Held, finish, name};
use crate::case::{Case, Group};

pub(super) const GROUP: Group = Group {
    name: "downgrade",
    source: include_str!("downgrade.rs"),
    cases: &[
        Case::new("is_done_or_refused_as_the_profile_says", |arena| {
            Box::pin(is_done_or_refused_as_the_profile_says(arena))
        }),
        Case::new("keeps_the_fence_and_the_lease", |arena| {
            Box::pin(keeps_the_fence_and_the_lease(arena))
        })
        .using(&[Feature::Downgrade]),
        Case::new("does_not_prolong_the_lease", |arena| {
            Box::pin(does_not_prolong_the_lease(arena))
        })
        .using(&[Feature::Downgrade]),
        Case::new("lets_readers_in_up_to_the_next_writer", |arena| {
            Box::pin(lets_readers_in_up_to_the_next_writer(arena))
        })
        .using(&[Feature::Downgrade]),
        Case::new("lets_nobody_overtake_a_writer_that_waits", |arena| {
            Box::pin(lets_nobody_overtake_a_writer_that_waits(arena))
        })
        .using(&[Feature::Downgrade]),
        Case::new("never_lets_a_writer_in_beside_readers", |arena| {
            Box::pin(never_lets_a_writer_in_beside_readers(arena))
        })
        .using(&[Feature::Downgrade]),
        Case::new("can_be_repeated", |arena| Box::pin(can_be_repeated(arena)))
            .using(&[Feature::Downgrade]),
        Case::new("is_how_it_is_held_from_then_on", |arena| {
            Box::pin(is_how_it_is_held_from_then_on(arena))
        })
        .using(&[Feature::Downgrade]),
        Case::new("by_another_holder_changes_nothing", |arena| {
            Box::pin(by_another_holder_changes_nothing(arena))
        })
        .using(&[Feature::Downgrade]),
        Case::new("after_the_end_changes_nothing", |arena| {
            Box::pin(after_the_end_changes_nothing(arena))
        })
        .using(&[Feature::Downgrade]),
        Case::new("is_refused_where_permits_are_used", |arena| {
            Box::pin(is_refused_where_permits_are_used(arena))
        })
        .using(&[Feature::Downgrade, Feature::Permits]),
        Case::new("leaves_a_lease_that_can_be_revoked", |arena| {
            Box::pin(leaves_a_lease_that_can_be_revoked(arena))
        })
        .using(&[Feature::Downgrade]),
    ],
};

/// What a writer weighs beside readers, of whom there are fewer.
const WRITER: i64 = 1_000;

fn reading(client: &Client, lock: &LockName) -> AcquireRequest {
    AcquireRequest { mode: Mode::Shared, ..client.request(lock) }
}

fn waiting_to_read(client: &Client, lock: &LockName) -> AcquireRequest {
    AcquireRequest { mode: Mode::Shared, ..client.waiting_request(lock) }
}

async fn ask(
    client: &Client,
    lock: &LockName,
    holder: HolderId,
) -> Result<DowngradeOutcome, Error> {
    client.backend.downgrade(DowngradeRequest { name: lock.clone(), holder }).await
}

/// Downgrades a lease, which must be possible.
#[track_caller]
fn downgrade<'a>(client: &'a Client, held: &'a Held) -> impl Future<Output = ()> + 'a {
    let caller = std::panic::Location::caller();
    async move {
        let outcome = ask(client, &held.name, held.holder).await;
        assert!(matches!(outcome, Ok(DowngradeOutcome::Downgraded)), "{caller}: {outcome:?}");
    }
}

/// Why a holder does not have what it wants to downgrade.
async fn loss(client: &Client, lock: &LockName, holder: HolderId) -> LossCause {
    match ask(client, lock, holder).await {
        Ok(DowngradeOutcome::Lost(cause)) => cause,
        other => panic!("it does not hold it, but the store says {other:?}"),
    }
}

/// The lock has exactly one holder, with this mode and fence.
async fn assert_held(client: &Client, held: &Held, mode: Mode) {
    let view = client.view(&held.name).await;
    let holders: Vec<_> = view.holders.iter().map(|holder| (holder.mode, holder.fence)).collect();
    let is_fence = |fence: Option<Fence>| fence == Some(held.fence) || fence.is_none();
    assert!(
        matches!(holders[..], [(seen, fence)] if seen == mode && is_fence(fence)),
        "it must be held as {mode} with {:?}: {view:?}",
        held.fence
    );
}

/// P11: a store that cannot downgrade refuses it with the reason that its profile gives, and changes
/// nothing; one that can does it.
async fn is_done_or_refused_as_the_profile_says(arena: Arena) {
    let client = arena.client().await;
    let lock = name("a");
    let held = client.take(client.request(&lock)).await;
    match arena.profile.lack_of(Feature::Downgrade) {
        Some(reason) => {
            let error = ask(&client, &lock, held.holder).await.expect_err("it cannot");
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert!(error.to_string().contains(reason), "{error}");
            assert_held(&client, &held, Mode::Exclusive).await;
        }
        None => {
            arena.profile.require(Feature::Shared).expect("readers, where a writer becomes one");
            downgrade(&client, &held).await;
            assert_held(&client, &held, Mode::Shared).await;
        }
    }
    client.release(&held).await;
    client.take(client.request(&lock)).await;
}

/// P15: a downgrade is no new grant: fence and lease stay, it is renewed and released as before, and
/// the next grant's fence is higher.
async fn keeps_the_fence_and_the_lease(arena: Arena) {
    let [first, second] = arena.clients().await;
    let lock = name("a");
    let held = first.take(first.request(&lock)).await;
    downgrade(&first, &held).await;
    assert_held(&second, &held, Mode::Shared).await;
    let renewed = first.renew_long(&held).await;
    assert!(matches!(renewed, RenewOutcome::Renewed), "{renewed:?}");
    assert_held(&second, &held, Mode::Shared).await;
    second.be_refused(second.request(&lock)).await;
    let beside = second.take(reading(&second, &lock)).await;
    assert!(beside.fence.get() > held.fence.get(), "{:?} {:?}", beside.fence, held.fence);
    assert_eq!(first.release(&held).await, ReleaseOutcome::Released);
    second.be_refused(second.request(&lock)).await;
    assert_eq!(second.release(&beside).await, ReleaseOutcome::Released);
    let next = first.take(first.request(&lock)).await;
    assert!(next.fence.get() > beside.fence.get(), "{:?} {:?}", next.fence, beside.fence);
}

/// P15: a downgrade moves no deadline: the lease ends when it would have ended, and whoever waits gets
/// in then.
async fn does_not_prolong_the_lease(arena: Arena) {
    let [first, second] = arena.clients().await;
    let (lock, ttl) = (name("a"), arena.ttl(4 * GRACE));
    let held = first.take(AcquireRequest { ttl, ..first.request(&lock) }).await;
    let writer = second.queue_for(second.waiting_request(&lock)).await;
    let half = held.until.before(ttl / 2);
    tokio::time::sleep(half.remaining(Moment::now())).await;
    downgrade(&first, &held).await;
    let next = second.finish(&lock, writer).await;
    assert!(held.until.has_passed(next.granted), "it ended too soon");
    let took = next.granted.since(held.granted);
    assert!(took <= ttl + GRACE, "free only after {took:?} with a ttl of {ttl:?}");
    assert!(next.fence.get() > held.fence.get());
}

/// P15: readers that wait behind a writer come in with its downgrade, up to the next writer; that one
/// comes in alone when all of them have left, and whoever waits behind it after that.
async fn lets_readers_in_up_to_the_next_writer(arena: Arena) {
    let [first, second, third] = arena.clients().await;
    let lock = name("a");
    let held = first.take(first.request(&lock)).await;
    let mut waiting = Vec::new();
    for client in [&second, &third, &first] {
        waiting.push((client, client.queue_for(waiting_to_read(client, &lock)).await));
    }
    let writer = second.queue_for(second.waiting_request(&lock)).await;
    let behind = third.queue_for(waiting_to_read(&third, &lock)).await;
    downgrade(&first, &held).await;
    let mut inside = Vec::new();
    for (client, reader) in waiting {
        let reader = client.finish(&lock, reader).await;
        assert!(reader.fence.get() > held.fence.get());
        inside.push((client, reader));
    }
    let view = first.view(&lock).await;
    assert_eq!((view.holders.len(), view.waiting), (4, 2), "{view:?}");
    assert!(view.holders.iter().all(|holder| holder.mode == Mode::Shared), "{view:?}");
    for (client, reader) in inside {
        client.release(&reader).await;
    }
    assert_held(&third, &held, Mode::Shared).await;
    assert!(!writer.is_finished(), "a writer came in beside a reader");
    assert!(!behind.is_finished(), "a reader overtook a writer");
    first.release(&held).await;
    let writing = second.finish(&lock, writer).await;
    assert_held(&first, &writing, Mode::Exclusive).await;
    second.release(&writing).await;
    third.finish(&lock, behind).await;
}

/// P15: a writer that waits behind the one that becomes a reader goes on waiting, and later readers
/// stay behind it.
async fn lets_nobody_overtake_a_writer_that_waits(arena: Arena) {
    let [first, second, third] = arena.clients().await;
    let lock = name("a");
    let held = first.take(first.request(&lock)).await;
    let writer = second.queue_for(second.waiting_request(&lock)).await;
    let early = third.queue_for(waiting_to_read(&third, &lock)).await;
    downgrade(&first, &held).await;
    third.be_refused(reading(&third, &lock)).await;
    let late = first.queue_for(waiting_to_read(&first, &lock)).await;
    let view = third.view(&lock).await;
    assert_eq!((view.holders.len(), view.waiting), (1, 3), "{view:?}");
    assert_held(&third, &held, Mode::Shared).await;
    first.release(&held).await;
    let writing = second.finish(&lock, writer).await;
    assert_held(&third, &writing, Mode::Exclusive).await;
    assert!(!early.is_finished() && !late.is_finished(), "a reader overtook a writer");
    second.release(&writing).await;
    finish(early).await;
    finish(late).await;
}

/// P1: with many who write, downgrade and read at once, no writer ever has the lock together with a
/// reader or another writer.
async fn never_lets_a_writer_in_beside_readers(arena: Arena) {
    let clients = arena.clients::<3>().await;
    let lock = name("a");
    let inside = Arc::new(AtomicI64::new(0));
    let mut tasks = Vec::new();
    for at in 0..6 {
        let (client, lock) = (clients[at % 3].clone(), lock.clone());
        let inside = Arc::clone(&inside);
        tasks.push(tokio::spawn(async move {
            for round in 0..8 {
                if (at + round) % 3 == 0 {
                    let held = client.take(waiting_to_read(&client, &lock)).await;
                    assert!(inside.fetch_add(1, Ordering::SeqCst) < WRITER, "beside a writer");
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    client.release(&held).await;
                    continue;
                }
                let held = client.take(client.waiting_request(&lock)).await;
                assert_eq!(inside.fetch_add(WRITER, Ordering::SeqCst), 0, "a writer is alone");
                tokio::task::yield_now().await;
                // Readers may come in before the answer is here.
                let before = inside.fetch_sub(WRITER - 1, Ordering::SeqCst);
                assert_eq!(before, WRITER, "a writer is alone");
                downgrade(&client, &held).await;
                tokio::task::yield_now().await;
                assert!(inside.fetch_sub(1, Ordering::SeqCst) < WRITER, "beside a writer");
                client.release(&held).await;
            }
        }));
    }
    for task in tasks {
        clients[0].finish(&lock, task).await;
    }
    assert_eq!(inside.load(Ordering::SeqCst), 0);
}

/// P7: a downgrade whose answer was lost is repeated: it stays as it is, also beside others, and a
/// reader is one already.
async fn can_be_repeated(arena: Arena) {
    let [first, second] = arena.clients().await;
    let lock = name("a");
    let held = first.take(first.request(&lock)).await;
    downgrade(&first, &held).await;
    downgrade(&first, &held).await;
    assert_held(&second, &held, Mode::Shared).await;
    let reader = second.take(reading(&second, &lock)).await;
    let writer = second.queue_for(second.waiting_request(&lock)).await;
    for (client, held) in [(&first, &held), (&second, &reader)] {
        downgrade(client, held).await;
    }
    let view = first.view(&lock).await;
    assert_eq!((view.holders.len(), view.waiting), (2, 1), "{view:?}");
    first.release(&held).await;
    second.release(&reader).await;
    second.finish(&lock, writer).await;
}

/// P7: after a downgrade the holder has the lock shared: asked for so again it is the same grant,
/// asked for exclusively it is refused.
async fn is_how_it_is_held_from_then_on(arena: Arena) {
    let client = arena.client().await;
    let lock = name("a");
    let request = client.request(&lock);
    let held = client.take(request.clone()).await;
    downgrade(&client, &held).await;
    let again = AcquireRequest { mode: Mode::Shared, ..request.clone() };
    assert_eq!(client.take(again).await.fence, held.fence);
    let error = client.backend.acquire(request).await.expect_err("it is shared");
    assert_eq!(error.kind(), ErrorKind::AlreadyHeld, "{error}");
    assert_held(&client, &held, Mode::Shared).await;
    assert_eq!(client.release(&held).await, ReleaseOutcome::Released);
    client.take(client.request(&lock)).await;
}

/// P8: who does not have the lock, or only waits for it, downgrades nothing.
async fn by_another_holder_changes_nothing(arena: Arena) {
    let [first, second] = arena.clients().await;
    let lock = name("a");
    loss(&second, &lock, second.holder()).await;
    let held = first.take(first.request(&lock)).await;
    let request = second.waiting_request(&lock);
    let waiter = request.holder;
    let writer = second.queue_for(request).await;
    loss(&second, &lock, second.holder()).await;
    loss(&first, &lock, first.holder()).await;
    loss(&second, &lock, waiter).await;
    assert_held(&second, &held, Mode::Exclusive).await;
    assert_eq!(second.view(&lock).await.waiting, 1);
    first.release(&held).await;
    let writing = second.finish(&lock, writer).await;
    assert_held(&first, &writing, Mode::Exclusive).await;
}

/// P8: what was released or has expired is not downgraded, and the next holder's is not either.
async fn after_the_end_changes_nothing(arena: Arena) {
    let [first, second] = arena.clients().await;
    let lock = name("a");
    let released = first.take(first.request(&lock)).await;
    first.release(&released).await;
    loss(&first, &lock, released.holder).await;
    let ttl = arena.short_ttl();
    let expired = first.take(AcquireRequest { ttl, ..first.request(&lock) }).await;
    let next = second.wait_for(second.waiting_request(&lock));
    let next = second.finish(&lock, next).await;
    for holder in [released.holder, expired.holder] {
        loss(&first, &lock, holder).await;
    }
    assert_held(&first, &next, Mode::Exclusive).await;
    first.be_refused(reading(&first, &lock)).await;
}

/// P11: a name is used with readers or with permits: a downgrade is refused while somebody waits for a
/// permit, and of a permit, and changes nothing.
async fn is_refused_where_permits_are_used(arena: Arena) {
    let [first, second] = arena.clients().await;
    let lock = name("a");
    let mode = Mode::permit(2).expect("a limit");
    let held = first.take(first.request(&lock)).await;
    let writer = first.queue_for(first.waiting_request(&lock)).await;
    let request = AcquireRequest { mode, ..second.waiting_request(&lock) };
    let permit = second.queue_for(request).await;
    let error = ask(&first, &lock, held.holder).await.expect_err("permits wait");
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_held(&second, &held, Mode::Exclusive).await;
    assert_eq!(second.view(&lock).await.waiting, 2);
    first.release(&held).await;
    let writing = first.finish(&lock, writer).await;
    first.release(&writing).await;
    let permit = second.finish(&lock, permit).await;
    let error = ask(&second, &lock, permit.holder).await.expect_err("it has a permit");
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_held(&first, &permit, mode).await;
}

/// P8: an operator takes the lock from one that became a reader as from every holder, by its fence.
async fn leaves_a_lease_that_can_be_revoked(arena: Arena) {
    let [first, second] = arena.clients().await;
    let lock = name("a");
    let held = first.take(first.request(&lock)).await;
    downgrade(&first, &held).await;
    let reader = second.take(reading(&second, &lock)).await;
    let writer = second.queue_for(second.waiting_request(&lock)).await;
    match second.revoke(&lock, Some(held.fence)).await {
        RevokeOutcome::Revoked(holders) => assert_eq!(holders.len(), 2, "{holders:?}"),
        other => panic!("it is held, but the store says {other:?}"),
    }
    let writing = second.finish(&lock, writer).await;
    for (client, held) in [(&first, &held), (&second, &reader)] {
        loss(client, &lock, held.holder).await;
        let renewed = client.renew_long(held).await;
        assert!(matches!(renewed, RenewOutcome::Lost(_)), "{renewed:?}");
    }
    assert_held(&first, &writing, Mode::Exclusive).await;
}
