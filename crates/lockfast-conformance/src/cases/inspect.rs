//! Looking at locks shows what is there, changes nothing, and gives no secret away.

use std::time::Duration;

use lockfast_core::{AcquireRequest, Feature, HolderId, Mode, Wait};

use crate::arena::{Arena, Client, Held, finish, name};
use crate::case::{Case, Group};

pub(super) const GROUP: Group = Group {
    name: "inspect",
    source: include_str!("inspect.rs"),
    cases: &[
        Case::new("shows_a_free_lock", |arena| Box::pin(shows_a_free_lock(arena))),
        Case::new("shows_holders_and_waiters", |arena| Box::pin(shows_holders_and_waiters(arena)))
            .using(&[Feature::Shared]),
        Case::new("lists_in_pages", |arena| Box::pin(lists_in_pages(arena))),
        Case::new("lists_only_what_is_wanted", |arena| Box::pin(lists_only_what_is_wanted(arena))),
        Case::new("gives_no_secret_away", |arena| Box::pin(gives_no_secret_away(arena)))
            .using(&[Feature::Events]),
    ],
};

/// P11: a lock that nobody has ever wanted is seen as free, and looking does not make it.
async fn shows_a_free_lock(arena: Arena) {
    let client = arena.client().await;
    let view = client.view(&name("a")).await;
    assert!(view.holders.is_empty() && view.waiting == 0, "{view:?}");
    assert!(client.list("", None, 10).await.is_empty());
}

/// P11: a lock is seen with every holder's label, mode, fence and time left, and the number of
/// those who wait; a renewal shows.
async fn shows_holders_and_waiters(arena: Arena) {
    let [first, second] = arena.clients().await;
    let lock = name("a");
    let reading =
        |client: &Client, ttl| AcquireRequest { mode: Mode::Shared, ttl, ..client.request(&lock) };
    let [long_ttl, short_ttl] = [100, 20].map(|secs| arena.ttl(Duration::from_secs(secs)));
    let long = first.take(reading(&first, long_ttl)).await;
    let short = second.take(reading(&second, short_ttl)).await;
    let waiter = first.queue_for(first.waiting_request(&lock)).await;
    let view = second.view(&lock).await;
    assert_eq!((view.holders.len(), view.waiting), (2, 1), "{view:?}");
    for (held, client, ttl) in [(&long, &first, long_ttl), (&short, &second, short_ttl)] {
        let shown = view.holders.iter().find(|shown| shown.fence == Some(held.fence));
        let shown = shown.expect("every holder is shown with its fence");
        assert_eq!(shown.label.as_ref(), Some(&client.label));
        assert_eq!(shown.mode, Mode::Shared);
        assert!(shown.remaining <= ttl && shown.remaining > ttl / 4, "{shown:?}");
    }
    let renewed_ttl = arena.ttl(Duration::from_secs(300));
    second.renew(&short, renewed_ttl).await;
    let view = first.view(&lock).await;
    let shown = view.holders.iter().find(|shown| shown.fence == Some(short.fence));
    let remaining = shown.expect("it is still held").remaining;
    assert!(remaining > renewed_ttl * 2 / 3, "renewed, but {remaining:?} left");
    first.release(&long).await;
    second.release(&short).await;
    finish(waiter).await;
}

/// P11: a listing is in the byte order of the names and continues after any name, whether or not
/// that one still is a lock.
async fn lists_in_pages(arena: Arena) {
    const LOCKS: usize = 25;
    let client = arena.client().await;
    let mut expected = Vec::new();
    for at in 0..LOCKS {
        let lock = name(&format!("page/{:02}", (at * 7) % LOCKS));
        client.take(client.request(&lock)).await;
        expected.push(lock);
    }
    client.take(client.request(&name("other"))).await;
    expected.sort();
    let mut seen = Vec::new();
    loop {
        let page = client.list("page/", seen.last(), 7).await;
        assert!(page.len() <= 7, "{} on a page of 7", page.len());
        if page.is_empty() {
            break;
        }
        seen.extend(page.into_iter().map(|view| view.name));
    }
    assert_eq!(seen, expected);
    let after = name("page/07 is no lock");
    let page = client.list("page/", Some(&after), 2).await;
    let page: Vec<&str> = page.iter().map(|view| view.name.as_str()).collect();
    assert_eq!(page, ["page/08", "page/09"]);
}

/// P11: a listing shows locks that are held or waited for, and forgets those that are not.
async fn lists_only_what_is_wanted(arena: Arena) {
    let [first, second] = arena.clients().await;
    let request = AcquireRequest { ttl: arena.short_ttl(), ..first.request(&name("lapsing")) };
    first.take(request).await;
    let held = first.take(first.request(&name("released"))).await;
    let kept = first.take(first.request(&name("kept"))).await;
    let waiter = second.queue_for(second.waiting_request(&kept.name)).await;
    first.release(&held).await;
    second.until(&name("lapsing"), "it expires", |view| view.holders.is_empty()).await;
    let listed = second.list("", None, 10).await;
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!((&listed[0].name, listed[0].waiting), (&kept.name, 1));
    assert_eq!(listed[0].holders.len(), 1, "{listed:?}");
    first.release(&kept).await;
    finish(waiter).await;
}

/// P11: nothing that a store shows or logs holds a holder id, with which anybody could release
/// the lock.
async fn gives_no_secret_away(arena: Arena) {
    let [first, second] = arena.clients().await;
    let mut events = second.backend.watch().await.expect("a stream");
    let held = first.take(first.request(&name("a"))).await;
    let request = second.waiting_request(&name("a"));
    let waiting = request.holder;
    let waiter = second.queue_for(request).await;
    let refusal = second.be_refused(second.request(&name("a"))).await;
    let mode_error = match arena.profile.lack_of(Feature::Shared) {
        None => Some(refuse_other_mode(&first, &held).await),
        Some(_) => None,
    };
    let mut shown = vec![
        format!("{:?}", second.view(&name("a")).await),
        format!("{:?}", second.list("", None, 10).await),
        format!("{refusal:?} {refusal}"),
        format!("{:?} {:?}", first.backend, second.backend),
        format!("{:?}", second.revoke(&name("a"), None).await),
    ];
    finish(waiter).await;
    shown.extend(mode_error);
    for _ in 0..3 {
        let event = tokio::time::timeout(crate::arena::PATIENCE, events.next()).await;
        shown.push(format!("{:?}", event.expect("an event")));
    }
    for text in shown {
        for holder in [held.holder, waiting] {
            assert_hidden(&text, holder);
        }
    }
}

/// What a holder is told that asks for its lock in another mode.
async fn refuse_other_mode(client: &Client, held: &Held) -> String {
    let request = AcquireRequest {
        holder: held.holder,
        mode: Mode::Shared,
        wait: Wait::No,
        ..client.request(&held.name)
    };
    let error = client.backend.acquire(request).await.expect_err("it holds it exclusively");
    format!("{error:?} {error}")
}

fn assert_hidden(text: &str, holder: HolderId) {
    // The first twelve digits are the client's and no secret.
    let secret = &holder.to_hex()[12..];
    let bytes = format!("{:?}", &holder.as_bytes()[6..]);
    let bytes = bytes.trim_matches(['[', ']']);
    let found = text.to_lowercase().contains(secret) || text.contains(bytes);
    assert!(!found, "a holder id shows in {text}");
}
