//! Elections on this store: one leads, is told of its end, and the next takes over.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockfast::{
    Campaign, ErrorKind, Feature, Fence, LeaderEvent, Leadership, Lease, Locker, LossCause, Options,
};
use lockfast_core::capability::Order;

use super::{long_lease, short_lease};
use crate::arena::{Arena, PATIENCE, finish, name};
use crate::case::{Case, Group};
use lockfast_core::flaky::{Fault, FaultSwitch};

pub(super) const GROUP: Group = Group {
    name: "leader",
    source: include_str!("leader.rs"),
    cases: &[
        Case::new("one_leads_and_the_terms_rise", |arena| {
            Box::pin(one_leads_and_the_terms_rise(arena))
        }),
        Case::new("that_resigns_is_followed_at_once", |arena| {
            Box::pin(that_resigns_is_followed_at_once(arena))
        }),
        Case::new("that_is_deposed_is_told_and_stands_again", |arena| {
            Box::pin(that_is_deposed_is_told_and_stands_again(arena))
        }),
        Case::new("that_is_cut_off_is_told_in_time", |arena| {
            Box::pin(that_is_cut_off_is_told_in_time(arena))
        }),
        Case::new("campaigns_that_are_dropped_leave_nothing", |arena| {
            Box::pin(campaigns_that_are_dropped_leave_nothing(arena))
        }),
        Case::new("is_seen_by_those_who_only_look", |arena| {
            Box::pin(is_seen_by_those_who_only_look(arena))
        })
        .using(&[Feature::Events]),
    ],
};

async fn locker(arena: &Arena) -> Locker {
    arena.locker(&FaultSwitch::default()).await
}

fn campaign(locker: &Locker, options: &Options) -> Campaign {
    let leader = locker.leader("a").expect("a name").with_options(options.clone());
    leader.campaign().expect("a campaign")
}

/// The next event, which must come within [`PATIENCE`].
async fn next(campaign: &mut Campaign) -> LeaderEvent {
    let event = tokio::time::timeout(PATIENCE, campaign.next()).await.expect("an event in time");
    event.expect("a campaign that goes on")
}

async fn elected(campaign: &mut Campaign) -> (Fence, Lease) {
    match next(campaign).await {
        LeaderEvent::Elected { term, lease } => (term, lease),
        other => panic!("expected an election: {other:?}"),
    }
}

async fn deposed(campaign: &mut Campaign) -> (Fence, LossCause) {
    match next(campaign).await {
        LeaderEvent::Deposed { term, why } => (term, why),
        other => panic!("expected a deposal: {other:?}"),
    }
}

/// P1: of several candidates one leads at a time, and each term is higher than all before it.
async fn one_leads_and_the_terms_rise(arena: Arena) {
    let options = long_lease(&arena);
    let client = arena.client().await;
    let terms = Arc::new(Mutex::new(Vec::<u64>::new()));
    let candidates = Arc::new(AtomicUsize::new(3));
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let (locker, options) = (locker(&arena).await, options.clone());
        let (client, terms) = (client.clone(), Arc::clone(&terms));
        let candidates = Arc::clone(&candidates);
        tasks.push(tokio::spawn(async move {
            for _ in 0..3 {
                let mut campaign = campaign(&locker, &options);
                let (term, lease) = elected(&mut campaign).await;
                // A second leader shows only if the others stand while this one leads.
                let view = client
                    .until(&name("a"), "all others stand", |view| {
                        view.holders.len() + view.waiting >= candidates.load(Ordering::SeqCst)
                    })
                    .await;
                assert_eq!(view.holders.len(), 1, "{view:?}");
                assert_eq!(view.holders[0].fence.unwrap_or(term), term, "{view:?}");
                assert_eq!(lease.check().expect("it leads").fence, term);
                terms.lock().expect("no panic").push(term.get());
                campaign.resign().await.expect("an answer");
            }
            candidates.fetch_sub(1, Ordering::SeqCst);
        }));
    }
    for task in tasks {
        finish(task).await;
    }
    let terms = terms.lock().expect("no panic").clone();
    assert!(terms.len() == 9 && terms.is_sorted_by(|one, next| one < next), "{terms:?}");
    let view = client.view(&name("a")).await;
    assert!(view.holders.is_empty() && view.waiting == 0, "{view:?}");
}

/// P10: a resignation lets the next lead at once, and whoever stands again after it comes after those
/// who wait, where the store keeps an order.
async fn that_resigns_is_followed_at_once(arena: Arena) {
    let options = long_lease(&arena);
    let (first, second) = (locker(&arena).await, locker(&arena).await);
    let client = arena.client().await;
    let mut leading = campaign(&first, &options);
    elected(&mut leading).await;
    let mut waiting = campaign(&second, &options);
    client.until(&name("a"), "the second waits", |view| view.waiting == 1).await;
    let released = leading.resign().await.expect("an answer");
    assert!(released.is_some(), "it was leading");
    let mut again = campaign(&first, &options);
    if arena.profile.order == Order::Fifo {
        let (_, lease) = elected(&mut waiting).await;
        client.until(&name("a"), "the first waits", |view| view.waiting == 1).await;
        lease.check().expect("it leads");
        assert!(waiting.resign().await.expect("an answer").is_some());
        elected(&mut again).await;
        assert!(again.resign().await.expect("an answer").is_some());
    } else {
        // One of the two leads, and then the other.
        let both = tokio::join!(
            async {
                elected(&mut waiting).await;
                waiting.resign().await
            },
            async {
                elected(&mut again).await;
                again.resign().await
            }
        );
        assert!(both.0.expect("an answer").is_some() && both.1.expect("an answer").is_some());
    }
}

/// P3: a leader whose lock is taken away is told, with its term; it stands for election again when it
/// asks for the next event, and not before.
async fn that_is_deposed_is_told_and_stands_again(arena: Arena) {
    // Where a revocation is not told at once, the next renewal tells.
    let options = long_lease(&arena).ttl(arena.ttl(Duration::from_secs(3)));
    let locker = locker(&arena).await;
    let client = arena.client().await;
    let mut campaign = campaign(&locker, &options);
    let (term, lease) = elected(&mut campaign).await;
    client.revoke(&name("a"), None).await;
    let (ended, _) = deposed(&mut campaign).await;
    assert_eq!(ended, term);
    assert_eq!(lease.check().expect_err("it was taken away").kind(), ErrorKind::Lost);
    client.until(&name("a"), "it is free", |view| view.holders.is_empty()).await;
    let held = client.take(client.request(&name("a"))).await;
    assert_eq!(client.view(&name("a")).await.waiting, 0, "it stands again before it was asked");
    let asking = tokio::spawn(async move {
        let (next, _) = elected(&mut campaign).await;
        (next, campaign)
    });
    client.until(&name("a"), "it stands again", |view| view.waiting == 1).await;
    client.release(&held).await;
    let (next, campaign) = finish(asking).await;
    let terms = [term, held.fence, next].map(Fence::get);
    assert!(terms.is_sorted_by(|one, next| one < next), "{terms:?}");
    campaign.resign().await.expect("an answer");
}

/// P3: a leader that cannot reach the store is told by its deadline, and is elected again when it can.
async fn that_is_cut_off_is_told_in_time(arena: Arena) {
    let (_, options) = short_lease(&arena);
    let switch = FaultSwitch::default();
    let locker = arena.locker(&switch).await;
    let mut campaign = campaign(&locker, &options);
    let (term, lease) = elected(&mut campaign).await;
    switch.set_all(Fault::Fail);
    let (ended, _) = deposed(&mut campaign).await;
    assert_eq!(ended, term);
    assert!(lease.check().is_err(), "the deadline has passed");
    switch.set_all(Fault::Pass);
    let (next, _) = elected(&mut campaign).await;
    assert!(next.get() > term.get(), "{next} after {term}");
    campaign.resign().await.expect("an answer");
}

/// P5: a campaign that is dropped, in line or leading, leaves nothing.
async fn campaigns_that_are_dropped_leave_nothing(arena: Arena) {
    let options = long_lease(&arena);
    let (first, second) = (locker(&arena).await, locker(&arena).await);
    let client = arena.client().await;
    let mut leading = campaign(&first, &options);
    elected(&mut leading).await;
    let mut waiting = campaign(&second, &options);
    client.until(&name("a"), "the second waits", |view| view.waiting == 1).await;
    // Whoever stops listening keeps its place.
    let listened = tokio::time::timeout(Duration::from_millis(20), waiting.next()).await;
    assert!(listened.is_err(), "two lead: {listened:?}");
    assert_eq!(client.view(&name("a")).await.waiting, 1);
    drop(waiting);
    second.settled().await;
    client.until(&name("a"), "nobody waits", |view| view.waiting == 0).await;
    drop(leading);
    first.settled().await;
    client.until(&name("a"), "nobody leads", |view| view.holders.is_empty()).await;
}

/// P11: who leads, and each change of that, is seen without standing for election.
async fn is_seen_by_those_who_only_look(arena: Arena) {
    let options = long_lease(&arena);
    let (first, second) = (locker(&arena).await, locker(&arena).await);
    let mut observer = second.leader("a").expect("a name").observe().await.expect("an observer");
    let mut seen = async || {
        let seen = tokio::time::timeout(PATIENCE, observer.next()).await.expect("a change in time");
        match seen.expect("an answer") {
            Leadership::Vacant => None,
            Leadership::Led(leader) => Some((leader.term, leader.label.is_some())),
        }
    };
    assert_eq!(seen().await, None, "nobody yet");
    for _ in 0..2 {
        let mut campaign = campaign(&first, &options);
        let (term, _) = elected(&mut campaign).await;
        assert_eq!(seen().await, Some((Some(term), true)));
        campaign.resign().await.expect("an answer");
        assert_eq!(seen().await, None);
    }
    // One that begins to look late begins with what is.
    let mut campaign = campaign(&first, &options);
    let (term, _) = elected(&mut campaign).await;
    let mut late = first.leader("a").expect("a name").observe().await.expect("an observer");
    let found = late.next().await.expect("an answer");
    assert!(matches!(&found, Leadership::Led(leader) if leader.term == Some(term)), "{found:?}");
    arena.client().await.revoke(&name("a"), None).await;
    let found = tokio::time::timeout(PATIENCE, late.next()).await.expect("a change in time");
    assert!(matches!(found.expect("an answer"), Leadership::Vacant));
}
