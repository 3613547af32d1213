//! A wait lasts as long as it may, and a refusal says who is in the way.

use std::time::Duration;

use lockfast_core::time::wall_clock;
use lockfast_core::{AcquireRequest, Mode, Moment, Wait};

use crate::arena::{Arena, GRACE, name};
use crate::case::{Case, Group};

pub(super) const GROUP: Group = Group {
    name: "waiting",
    source: include_str!("waiting.rs"),
    cases: &[
        Case::new("ends_when_its_time_is_up", |arena| Box::pin(ends_when_its_time_is_up(arena))),
        Case::new("until_the_past_is_one_try", |arena| Box::pin(until_the_past_is_one_try(arena))),
        Case::new("not_at_all_answers_at_once", |arena| {
            Box::pin(not_at_all_answers_at_once(arena))
        }),
        Case::new("ends_with_the_grant", |arena| Box::pin(ends_with_the_grant(arena))),
    ],
};

/// P10: a wait ends not before its time, not much later, and leaves nothing.
async fn ends_when_its_time_is_up(arena: Arena) {
    let [first, second, third] = arena.clients().await;
    let held = first.take(first.request(&name("a"))).await;
    for millis in [1, 60, 350] {
        let start = Moment::now();
        let until = start + Duration::from_millis(millis);
        let request = AcquireRequest { wait: Wait::Until(until), ..second.request(&name("a")) };
        let refusal = second.be_refused(request).await;
        let end = Moment::now();
        assert!(until.has_passed(end), "given up {:?} early", until.remaining(end));
        assert!(end.since(until) <= GRACE, "given up {:?} late", end.since(until));
        assert!(refusal.waited <= end.since(start), "waited {:?}", refusal.waited);
        assert_eq!(refusal.lock.holders.len(), 1, "{refusal:?}");
        assert_eq!(third.view(&held.name).await.waiting, 0);
    }
    first.release(&held).await;
    third.take(third.request(&held.name)).await;
}

/// P10: a wait whose time has passed already is one try: granted when free, else refused, with
/// nothing left.
async fn until_the_past_is_one_try(arena: Arena) {
    let [first, second] = arena.clients().await;
    let past = Wait::Until(Moment::now().before(Duration::from_secs(5)));
    let request = AcquireRequest { wait: past, ..first.request(&name("a")) };
    let held = first.take(request).await;
    let request = AcquireRequest { wait: past, ..second.request(&name("a")) };
    let start = Moment::now();
    second.be_refused(request).await;
    assert!(Moment::now().since(start) <= GRACE);
    assert_eq!(first.view(&held.name).await.waiting, 0);
}

/// P11: a refusal comes at once and says who holds the lock, how, since when, for how much
/// longer, and how many wait.
async fn not_at_all_answers_at_once(arena: Arena) {
    let [first, second] = arena.clients().await;
    let ttl = arena.ttl(Duration::from_secs(60));
    let request = AcquireRequest { ttl, ..first.request(&name("a")) };
    let held = first.take(request).await;
    let waiter = second.queue_for(second.waiting_request(&name("a"))).await;
    let start = Moment::now();
    let refusal = second.be_refused(second.request(&name("a"))).await;
    assert!(Moment::now().since(start) <= GRACE);
    assert_eq!(refusal.lock.name, held.name);
    assert_eq!(refusal.lock.waiting, 1, "{refusal:?}");
    let [holder] = refusal.lock.holders.as_slice() else {
        panic!("one holds it: {refusal:?}");
    };
    assert_eq!(holder.label.as_ref(), Some(&first.label));
    assert_eq!((holder.mode, holder.fence), (Mode::Exclusive, Some(held.fence)));
    assert!(holder.remaining <= ttl && holder.remaining > ttl / 2, "{holder:?}");
    let since = holder.since.expect("it was written");
    let since = wall_clock().duration_since(since).unwrap_or_default();
    assert!(since < Duration::from_secs(30), "{holder:?}");
    waiter.abort();
}

/// P10: a wait that is granted in time is not refused, although its time would run out later.
async fn ends_with_the_grant(arena: Arena) {
    let [first, second] = arena.clients().await;
    let held = first.take(first.request(&name("a"))).await;
    let request = AcquireRequest {
        wait: Wait::Until(Moment::now() + Duration::from_secs(8)),
        ..second.request(&name("a"))
    };
    let waiter = second.queue_for(request).await;
    let sent = Moment::now();
    first.release(&held).await;
    let next = crate::arena::finish(waiter).await;
    assert!(next.granted.since(sent) < Duration::from_secs(5));
    let view = first.view(&held.name).await;
    assert_eq!((view.holders.len(), view.waiting), (1, 0), "{view:?}");
}
