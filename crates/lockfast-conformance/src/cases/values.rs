//! Values are written by comparing versions.

use std::collections::HashSet;
use std::time::Duration;

use lockfast_core::{
    Change, Expected, Feature, Moment, Version, VersionedValue, WatchKind, WriteOutcome,
    WriteRequest,
};

use crate::arena::{Arena, Client, GRACE, PATIENCE, finish, name};
use crate::case::{Case, Group};

pub(super) const GROUP: Group = Group {
    name: "values",
    source: include_str!("values.rs"),
    cases: &[
        Case::new("are_written_by_comparing_versions", |arena| {
            Box::pin(are_written_by_comparing_versions(arena))
        })
        .using(&[Feature::Values]),
        Case::new("lose_no_update", |arena| Box::pin(lose_no_update(arena)))
            .using(&[Feature::Values]),
        Case::new("know_a_repetition", |arena| Box::pin(know_a_repetition(arena)))
            .using(&[Feature::Values]),
        Case::new("never_have_an_old_version_again", |arena| {
            Box::pin(never_have_an_old_version_again(arena))
        })
        .using(&[Feature::Values]),
        Case::new("are_kept_to_the_byte", |arena| Box::pin(are_kept_to_the_byte(arena)))
            .using(&[Feature::Values]),
        Case::new("and_locks_are_apart", |arena| Box::pin(and_locks_are_apart(arena)))
            .using(&[Feature::Values]),
        Case::new("that_change_are_told", |arena| Box::pin(that_change_are_told(arena)))
            .using(&[Feature::Values, Feature::Events]),
        Case::new("end_by_themselves", |arena| Box::pin(end_by_themselves(arena)))
            .using(&[Feature::Values, Feature::ValueExpiry]),
    ],
};

/// The write of a name whose value is `seen`.
fn request(client: &Client, of: &str, seen: Option<Version>, change: Change) -> WriteRequest {
    let expected = seen.map_or(Expected::Nothing, Expected::Version);
    // Holder ids are random, which is all that is needed of it.
    WriteRequest { name: name(of), expected, change, id: *client.holder().as_bytes() }
}

fn put(bytes: &[u8]) -> Change {
    Change::Put { bytes: bytes.to_vec(), keep: None }
}

async fn read(client: &Client, of: &str) -> Option<VersionedValue> {
    client.backend.read(name(of)).await.expect("an answer")
}

async fn write(
    client: &Client,
    of: &str,
    seen: Option<Version>,
    change: Change,
) -> Result<Option<Version>, Option<VersionedValue>> {
    match client.backend.write(request(client, of, seen, change)).await.expect("an answer") {
        WriteOutcome::Written(version) => Ok(version),
        WriteOutcome::Conflict(there) => Err(there),
    }
}

/// P14: a value is written when the version is the one that was read, and otherwise not at all, with
/// what is there for an answer.
async fn are_written_by_comparing_versions(arena: Arena) {
    let [first, second] = arena.clients().await;
    assert_eq!(read(&first, "a").await, None);
    let one = write(&first, "a", None, put(b"one")).await.expect("nothing was there").unwrap();
    let seen = read(&second, "a").await.expect("a value");
    assert_eq!((seen.version, seen.bytes.as_slice(), seen.remaining), (one, &b"one"[..], None));
    // Whoever saw nothing, and whoever saw something else, is told what is there.
    let refused = write(&second, "a", None, put(b"two")).await;
    assert_eq!(refused, Err(Some(seen.clone())));
    let two = write(&second, "a", Some(one), put(b"two")).await.expect("as it was").unwrap();
    assert_ne!(one, two);
    let there = write(&first, "a", Some(one), put(b"three")).await.expect_err("it changed");
    assert_eq!(there.map(|value| (value.version, value.bytes)), Some((two, b"two".to_vec())));
    let kept = write(&first, "a", Some(one), Change::Remove).await.expect_err("it changed");
    assert_eq!(kept.map(|value| value.version), Some(two));
    assert_eq!(write(&first, "a", Some(two), Change::Remove).await, Ok(None));
    assert_eq!(read(&second, "a").await, None);
    assert_eq!(write(&second, "a", Some(two), put(b"three")).await, Err(None));
    assert_eq!(write(&second, "a", Some(two), Change::Remove).await, Err(None));
}

/// P14: of all who read a value and write it, none writes over what it has not read.
async fn lose_no_update(arena: Arena) {
    const TASKS: usize = 6;
    const ROUNDS: usize = 15;
    let clients: [Client; 3] = arena.clients().await;
    let add_one = |client: Client| async move {
        for _ in 0..ROUNDS {
            loop {
                let there = read(&client, "a").await;
                let number = there.as_ref().map_or(0, |value| value.bytes.len());
                let version = there.map(|value| value.version);
                if write(&client, "a", version, put(&vec![b'x'; number + 1])).await.is_ok() {
                    break;
                }
            }
        }
    };
    let tasks: Vec<_> =
        (0..TASKS).map(|at| tokio::spawn(add_one(clients[at % clients.len()].clone()))).collect();
    for task in tasks {
        finish(task).await;
    }
    let counted = read(&clients[0], "a").await.map(|value| value.bytes.len());
    assert_eq!(counted, Some(TASKS * ROUNDS));
}

/// P7: a write whose answer was lost and that is asked for again is done once, and answered as if
/// it were the first.
async fn know_a_repetition(arena: Arena) {
    let [first, second] = arena.clients().await;
    let create = request(&first, "a", None, put(b"one"));
    let created = first.backend.write(create.clone()).await.expect("an answer");
    let WriteOutcome::Written(Some(one)) = created else { panic!("nothing was there") };
    assert_eq!(first.backend.write(create.clone()).await.expect("an answer"), created);
    assert_eq!(read(&second, "a").await.map(|value| value.version), Some(one));
    let update = request(&first, "a", Some(one), put(b"two"));
    let updated = first.backend.write(update.clone()).await.expect("an answer");
    let WriteOutcome::Written(Some(two)) = updated else { panic!("it was as expected") };
    assert_eq!(first.backend.write(update.clone()).await.expect("an answer"), updated);
    // Once somebody else has written, the repetition changes nothing.
    write(&second, "a", Some(two), put(b"three")).await.expect("as it was");
    for request in [create, update] {
        let outcome = first.backend.write(request).await.expect("an answer");
        assert!(matches!(outcome, WriteOutcome::Conflict(Some(_))), "{outcome:?}");
    }
    assert_eq!(read(&first, "a").await.map(|value| value.bytes), Some(b"three".to_vec()));
}

/// P14: what was removed and written again is not taken for what was there before.
async fn never_have_an_old_version_again(arena: Arena) {
    let [first, second] = arena.clients().await;
    let mut versions = HashSet::new();
    let mut oldest = None;
    for _ in 0..5 {
        let version = write(&first, "a", None, put(b"same")).await.expect("nothing was there");
        let version = version.expect("the version of a value");
        assert!(versions.insert(version), "{version} was there before");
        if let Some(oldest) = oldest {
            let there = write(&second, "a", Some(oldest), put(b"other")).await;
            let there = there.expect_err("another value was read").expect("a value");
            assert_eq!(there.version, version);
        }
        oldest = oldest.or(Some(version));
        write(&second, "a", Some(version), Change::Remove).await.expect("as it was");
    }
}

/// P14: a value is what was written: nothing, every byte, and as long as is allowed.
async fn are_kept_to_the_byte(arena: Arena) {
    let [first, second] = arena.clients().await;
    let all: Vec<u8> = (0..=u8::MAX).collect();
    let longest: Vec<u8> = (0..VersionedValue::BYTES_MAX).map(|at| (at % 251) as u8).collect();
    let mut version = None;
    for bytes in [&b""[..], b"\0", b"'\"\\%_\r\n", "Grüße".as_bytes(), &all, &longest] {
        version = write(&first, "a", version, put(bytes)).await.expect("as it was");
        let there = read(&second, "a").await.expect("a value");
        assert_eq!(there.bytes, bytes);
        assert_eq!(Some(there.version), version);
    }
}

/// P8: values of other names, and locks of the same name, are none of its business.
async fn and_locks_are_apart(arena: Arena) {
    let [first, second] = arena.clients().await;
    let names = ["a", "A", "a/b", "{a}", "a b", "ä"];
    for of in names {
        write(&first, of, None, put(of.as_bytes())).await.expect("nothing was there");
    }
    let held = first.take(first.request(&name("a"))).await;
    assert_eq!(second.view(&held.name).await.holders.len(), 1);
    let listed = second.list("", None, 10).await;
    assert_eq!(listed.len(), 1, "a value is no lock: {listed:?}");
    for of in names {
        let there = read(&second, of).await.expect("a value");
        assert_eq!(there.bytes, of.as_bytes());
        write(&second, of, Some(there.version), Change::Remove).await.expect("as it was");
    }
    assert_eq!(second.view(&held.name).await.holders.len(), 1);
    first.release(&held).await;
    let held = second.take(second.request(&held.name)).await;
    assert_eq!(read(&first, "a").await, None);
    second.release(&held).await;
}

/// P11: whoever watches is told of each write and removal, soon, and not of one that was refused.
async fn that_change_are_told(arena: Arena) {
    let [first, watcher] = arena.clients().await;
    let mut events = watcher.backend.watch().await.expect("a stream");
    let start = Moment::now();
    write(&first, "b", None, put(b"one")).await.expect("nothing was there");
    write(&first, "b", None, put(b"two")).await.expect_err("something is there");
    let version = write(&first, "a", None, put(b"one")).await.expect("nothing was there");
    write(&first, "a", version, Change::Remove).await.expect("as it was");
    // Where several servers keep them, events of different names come in any order.
    let mut told = Vec::new();
    for _ in 0..3 {
        let event = tokio::time::timeout(PATIENCE, events.next()).await.expect("an event in time");
        let event = event.expect("a stream that goes on");
        assert_eq!(event.kind, WatchKind::Changed);
        told.push(event.name);
    }
    told.sort();
    assert_eq!(told, [name("a"), name("a"), name("b")]);
    let waited = Moment::now().since(start);
    assert!(waited <= GRACE, "told after {waited:?}");
}

/// P9: a value that is kept for a time is there until then and not after it; one that is written over
/// it has its own time.
async fn end_by_themselves(arena: Arena) {
    let [first, second] = arena.clients().await;
    let keep = arena.short_ttl();
    let brief = |bytes: &[u8]| Change::Put { bytes: bytes.to_vec(), keep: Some(keep) };
    let start = Moment::now();
    let version = write(&first, "a", None, brief(b"one")).await.expect("nothing was there");
    write(&first, "b", None, brief(b"one")).await.expect("nothing was there");
    let there = read(&second, "a").await.expect("a value");
    let left = there.remaining.expect("it ends");
    assert!(left <= keep && !left.is_zero(), "{left:?} of {keep:?}");
    write(&second, "a", version, put(b"two")).await.expect("as it was");
    let written = Moment::now();
    loop {
        let asked = Moment::now();
        if read(&second, "b").await.is_none() {
            let kept = Moment::now().since(start);
            assert!(kept >= keep, "gone after {kept:?} of {keep:?}");
            break;
        }
        let limit = keep + arena.profile.ttl.fit(Duration::ZERO) + GRACE;
        assert!(asked.since(written) <= limit, "there after {limit:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(read(&first, "a").await.map(|value| value.bytes), Some(b"two".to_vec()));
    write(&second, "b", None, put(b"two")).await.expect("nothing is there");
}
