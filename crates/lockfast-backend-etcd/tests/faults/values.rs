//! Values: what others keep at their place, lost and late messages, rights, and what is left behind.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use lockfast_core::{Change, ErrorKind, WatchKind, WriteOutcome};
use lockfast_faults::proxy::{Link, Proxy};

use crate::kit::values::{NAME, Values, put};
use crate::kit::{
    Etcd, PASSWORD, TIME_MAX, bounded, check_error, eventually, make_user, url_at, user_url,
};

/// Shorter than the patience of a test with several lost messages.
const TIMEOUT: &str = "request_timeout=1s";

/// Where a value is, without a prefix.
fn key(name: &str) -> OsString {
    OsStr::from_bytes(&[b"\xffvalue/", name.as_bytes()].concat()).to_owned()
}

fn run(server: &Etcd, words: &[&OsStr]) -> Vec<u8> {
    let done = server.etcdctl().args(words).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    done.stdout
}

/// P11, P14: what another program keeps at the place of a value is told, and left alone.
/// The user sees: `ForeignKey`, with the key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn something_else_is_at_the_place_of_a_value() {
    let server = Etcd::start();
    let values = Values::connect(&server.url()).await;
    let version = values.write("other", None, put("one")).await;
    let theirs = ["", "theirs", "lockfast value 2 0", "lockfast 1\nmode=exclusive"];
    for text in theirs {
        run(&server, &["put".as_ref(), &key(NAME), text.as_ref()]);
        let error = values.try_read(NAME).await.unwrap_err();
        check_error(&error, ErrorKind::ForeignKey, &["value/nightly", "delete"]);
        for (seen, change) in [(None, put("one")), (version, put("one")), (version, Change::Remove)]
        {
            let error = values.try_write(NAME, seen, change).await.unwrap_err();
            check_error(&error, ErrorKind::ForeignKey, &["value/nightly"]);
        }
        let there = run(&server, &["get".as_ref(), "--print-value-only".as_ref(), &key(NAME)]);
        assert_eq!(there, format!("{text}\n").as_bytes());
    }
    run(&server, &["del".as_ref(), &key(NAME)]);
    values.write(NAME, None, put("one")).await;
}

/// P7, P14: the replies to writes are lost: each is repeated, known, and done once.
/// The user sees: nothing but the delay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_to_writes_are_lost() {
    let server = Etcd::start();
    let proxy = Proxy::start(server.address()).await.unwrap();
    let far = Values::connect(&format!("{}?{TIMEOUT}", url_at(proxy.address()))).await;
    let near = Values::connect(&server.url()).await;
    // So that what a removal needs is there.
    let version = far.write("other", None, put("one")).await;
    far.write("other", version, Change::Remove).await;
    let mut seen = None;
    let keep = Some(Duration::from_secs(60));
    let kept = Change::Put { bytes: b"three".to_vec(), keep };
    // The lease is granted over the same connection, so that its reply is lost as well.
    for (change, text) in [(put("one"), "one"), (put("two"), "two"), (kept, "three")] {
        proxy.set_open(Link::SwallowReplies);
        let (writer, request) = (far.clone(), far.request(NAME, seen, change));
        let writing = tokio::spawn(async move { writer.backend.write(request).await });
        let is_there = async || near.read(NAME).await.is_some_and(|(_, there)| there == text);
        eventually("it is written", TIME_MAX, is_there).await;
        let version = near.read(NAME).await.map(|(version, _)| version);
        assert_eq!(bounded(writing).await.unwrap().unwrap(), WriteOutcome::Written(version));
        assert_eq!(near.read(NAME).await, version.map(|version| (version, text.to_owned())));
        seen = version;
    }
    proxy.set_open(Link::SwallowReplies);
    let (writer, request) = (far.clone(), far.request(NAME, seen, Change::Remove));
    let again = request.clone();
    let writing = tokio::spawn(async move { writer.backend.write(request).await });
    eventually("it is removed", TIME_MAX, async || near.read(NAME).await.is_none()).await;
    assert_eq!(bounded(writing).await.unwrap().unwrap(), WriteOutcome::Written(None));
    // Also when it is asked for once more.
    assert_eq!(
        bounded(far.backend.write(again.clone())).await.unwrap(),
        WriteOutcome::Written(None)
    );
    near.write(NAME, None, put("four")).await;
    let outcome = bounded(far.backend.write(again)).await.unwrap();
    assert!(matches!(outcome, WriteOutcome::Conflict(Some(_))), "{outcome:?}");
}

/// B165, P14: the reply to a write is lost, and somebody writes over it before it is repeated. That is
/// no conflict: something was written.
/// The user sees: `Unreachable`, and that it may have happened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply_to_a_write_that_others_write_over() {
    let server = Etcd::start();
    let proxy = Proxy::start(server.address()).await.unwrap();
    // Nobody gives up before the test lets go.
    let far = format!("{}?request_timeout=20s", url_at(proxy.address()));
    let (far, near) = (Values::connect(&far).await, Values::connect(&server.url()).await);
    let version = far.write(NAME, None, put("one")).await;
    proxy.set_open(Link::SwallowReplies);
    let (writer, request) = (far.clone(), far.request(NAME, version, put("two")));
    let writing = tokio::spawn(async move { writer.backend.write(request).await });
    let is_there = async || near.read(NAME).await.is_some_and(|(_, there)| there == "two");
    eventually("it is written", TIME_MAX, is_there).await;
    let version = near.read(NAME).await.map(|(version, _)| version);
    near.write(NAME, version, put("three")).await;
    proxy.set_open(Link::Close);
    let error = bounded(writing).await.unwrap().unwrap_err();
    check_error(&error, ErrorKind::Unreachable, &["may have happened"]);
    assert_eq!(near.read(NAME).await.unwrap().1, "three");
}

/// B288, P14: the reply to a write that makes a value is lost, and somebody removes the value before it is
/// repeated: it is not made once more.
/// The user sees: `Unreachable`, and that it may have happened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply_to_a_value_that_others_remove() {
    let server = Etcd::start();
    let proxy = Proxy::start(server.address()).await.unwrap();
    // Nobody gives up before the test lets go.
    let far = format!("{}?request_timeout=20s", url_at(proxy.address()));
    let (far, near) = (Values::connect(&far).await, Values::connect(&server.url()).await);
    far.write("other", None, put("one")).await;
    proxy.set_open(Link::SwallowReplies);
    let (writer, request) = (far.clone(), far.request(NAME, None, put("one")));
    let writing = tokio::spawn(async move { writer.backend.write(request).await });
    eventually("it is written", TIME_MAX, async || near.read(NAME).await.is_some()).await;
    let version = near.read(NAME).await.map(|(version, _)| version);
    near.write(NAME, version, Change::Remove).await;
    proxy.set_open(Link::Close);
    let error = bounded(writing).await.unwrap().unwrap_err();
    check_error(&error, ErrorKind::Unreachable, &["may have happened"]);
    assert_eq!(near.read(NAME).await, None);
}

/// P14: a request to create a value that arrives after its repetition, and after the value was removed,
/// does not take effect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_request_to_create_a_value() {
    let server = Etcd::start();
    let proxy = Proxy::start(server.address()).await.unwrap();
    let far = Values::connect(&format!("{}?{TIMEOUT}", url_at(proxy.address()))).await;
    let near = Values::connect(&server.url()).await;
    proxy.set_open(Link::HoldRequests);
    let version = far.write(NAME, None, put("one")).await;
    near.write(NAME, version, Change::Remove).await;
    proxy.set(Link::Pass);
    // Long enough for what was kept back to arrive.
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(near.read(NAME).await, None);
    // The server drops most of what it reads together with the end of its connection, so it is also
    // looked at what such a request compares: there is something.
    let there = run(&server, &["get".as_ref(), "--print-value-only".as_ref(), &key(NAME)]);
    assert!(there.ends_with(b" removed\n\n"), "{}", String::from_utf8_lossy(&there));
}

/// P3: nothing is answered while the way to the server is cut, and the time for that is limited; a
/// write after it finds its way.
/// The user sees: `Unreachable`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut() {
    let server = Etcd::start();
    let proxy = Proxy::start(server.address()).await.unwrap();
    let far = Values::connect(&format!("{}?{TIMEOUT}", url_at(proxy.address()))).await;
    for cut in [Link::Close, Link::HalfOpen] {
        proxy.set(cut);
        let error = far.try_read(NAME).await.unwrap_err();
        check_error(&error, ErrorKind::Unreachable, &[]);
        let error = far.try_write(NAME, None, put("one")).await.unwrap_err();
        check_error(&error, ErrorKind::Unreachable, &[]);
    }
    proxy.set(Link::Pass);
    eventually("it is there again", TIME_MAX, async || far.try_read(NAME).await.is_ok()).await;
    let there = far.read(NAME).await.map(|(version, _)| version);
    far.write(NAME, there, put("two")).await;
}

/// P11: the right to one key is enough for one value, and for no other.
/// The user sees: `Permission`, with the keys.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_on_one_value() {
    let mut server = Etcd::start();
    make_user(&mut server);
    server.ctl(&["user", "add", &format!("one:{PASSWORD}")]);
    server.ctl(&["role", "add", "value"]);
    let words = ["role", "grant-permission", "value", "readwrite"].map(OsStr::new);
    run(&server, &[&words[..], &[&key(NAME)]].concat());
    server.ctl(&["user", "grant-role", "one", "value"]);
    let values = Values::connect(&server.url_as("one", PASSWORD)).await;
    let keep = Some(Duration::from_secs(60));
    let kept = Change::Put { bytes: b"one".to_vec(), keep };
    let version = values.write(NAME, None, kept.clone()).await;
    assert!(values.try_write(NAME, None, kept).await.is_ok());
    let version = values.write(NAME, version, put("two")).await;
    assert_eq!(values.read(NAME).await.map(|(_, text)| text).as_deref(), Some("two"));
    values.write(NAME, version, Change::Remove).await;
    for error in [
        values.try_read("other").await.unwrap_err(),
        values.try_write("other", None, put("one")).await.unwrap_err(),
    ] {
        check_error(&error, ErrorKind::Permission, &["permission denied", "value/NAME"]);
    }
    // What the documented role may is what the suite does; it may not elsewhere.
    let app = Values::connect(&user_url(&server)).await;
    app.write(NAME, None, put("one")).await;
    let other = format!("{}?prefix=others/", server.url_as("app", PASSWORD));
    let error = Values::connect(&other).await.try_read(NAME).await.unwrap_err();
    check_error(&error, ErrorKind::Permission, &["permission denied", "others/"]);
}

/// P9, P11: the lease of a write that was refused is given back; what ends by itself is not told as a
/// change, and neither is the end of what a removal leaves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_writes_leave_behind() {
    let server = Etcd::start();
    let values = Values::connect(&server.url()).await;
    let mut events = bounded(values.backend.watch()).await.unwrap();
    let version = values.write(NAME, None, put("one")).await;
    let keep =
        |seconds| Change::Put { bytes: Vec::new(), keep: Some(Duration::from_secs(seconds)) };
    let before = server.leases();
    for _ in 0..3 {
        let outcome = values.try_write(NAME, None, keep(60)).await.unwrap();
        assert!(matches!(outcome, WriteOutcome::Conflict(Some(_))), "{outcome:?}");
    }
    eventually("they are given back", TIME_MAX, async || server.leases() == before).await;
    values.write(NAME, version, keep(2)).await;
    let version = values.write("other", None, put("one")).await;
    values.write("other", version, Change::Remove).await;
    let is_gone = async || values.read(NAME).await.is_none();
    eventually("it has ended", TIME_MAX, is_gone).await;
    let removal = |lease: &String| {
        let said = server.ctl(&["lease", "timetolive", "--keys", lease]);
        said.contains("value/other").then(|| lease.clone())
    };
    let lease = server.leases().iter().find_map(removal).expect("the lease of a removal");
    server.ctl(&["lease", "revoke", &lease]);
    assert_eq!(server.keys(""), [""; 0]);
    // A removal whose lease has ended gets another.
    let version = values.write("last", None, put("one")).await;
    values.write("last", version, Change::Remove).await;
    for name in [NAME, NAME, "other", "other", "last", "last"] {
        let event = bounded(events.next()).await.unwrap();
        assert_eq!((event.name.as_str(), event.kind), (name, WatchKind::Changed));
    }
}
