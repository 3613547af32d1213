//! Values: what others keep at their place, lost and late messages, rights, and what is left behind.

use std::time::Duration;

use lockfast_core::{Change, ErrorKind, Feature, Version, WatchKind, WriteOutcome};
use lockfast_faults::proxy::{Link, Proxy};

use crate::kit::values::{NAME, Values, put};
use crate::kit::{
    Access, Kind, TIME_MAX, ZooKeeper, bounded, check_error, codes, eventually, url_at,
};

const ROOT: &str = "/%values";
const NODE: &str = "/%values/nightly";

/// Long enough that what is lost can be asked for again by then on a busy machine.
fn far_url(proxy: &Proxy) -> String {
    format!("{}?request_timeout=10s", url_at(proxy.address()))
}

/// P11, P14: what another program keeps at the place of a value is told, and left alone.
/// The user sees: `ForeignKey`, with the node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn something_else_is_at_the_place_of_a_value() {
    let server = ZooKeeper::start();
    let values = Values::connect(&server.url()).await;
    let version = values.write("other", None, put("one")).await;
    let mut session = server.session();
    session.create(NODE, b"");
    for data in [&b""[..], b"theirs", b"lockfast value 2 0", b"lockfast 1\npid 7\n"] {
        session.try_write(NODE, data).unwrap();
        let error = values.try_read(NAME).await.unwrap_err();
        check_error(&error, ErrorKind::ForeignKey, &[NODE, "delete"]);
        // A change with this number was not read there, and none with that number is there.
        let seen = Some(Version::from_bytes([0xff; 16]));
        for (seen, change) in [(None, put("one")), (seen, put("one")), (seen, Change::Remove)] {
            let error = values.try_write(NAME, seen, change).await.unwrap_err();
            check_error(&error, ErrorKind::ForeignKey, &[NODE]);
        }
        assert_eq!(session.try_read(NODE).unwrap(), data);
    }
    session.try_delete(NODE).unwrap();
    values.write(NAME, None, put("one")).await;
    values.write("other", version, put("two")).await;
}

/// P7, P14: the replies to writes are lost: each is repeated, known, and done once.
/// The user sees: nothing but the delay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_to_writes_are_lost() {
    let server = ZooKeeper::start();
    let proxy = Proxy::start(server.address()).await.unwrap();
    let (far, near) =
        (Values::connect(&far_url(&proxy)).await, Values::connect(&server.url()).await);
    // So that what is made on first use is there.
    far.write("other", None, put("one")).await;
    let mut seen = None;
    for text in ["one", "two", "three"] {
        proxy.set_open(Link::SwallowReplies);
        let (writer, request) = (far.clone(), far.request(NAME, seen, put(text)));
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
    let outcome = bounded(far.backend.write(again.clone())).await.unwrap();
    assert_eq!(outcome, WriteOutcome::Written(None));
    near.write(NAME, None, put("four")).await;
    let outcome = bounded(far.backend.write(again)).await.unwrap();
    assert!(matches!(outcome, WriteOutcome::Conflict(Some(_))), "{outcome:?}");
}

/// B165, P14: the reply to a write is lost, and somebody writes over it before it is repeated. That is
/// no conflict: something was written.
/// The user sees: `Unreachable`, and that it may have happened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply_to_a_write_that_others_write_over() {
    let server = ZooKeeper::start();
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
    let server = ZooKeeper::start();
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
    let server = ZooKeeper::start();
    let proxy = Proxy::start(server.address()).await.unwrap();
    let (far, near) =
        (Values::connect(&far_url(&proxy)).await, Values::connect(&server.url()).await);
    far.write("other", None, put("one")).await;
    proxy.set_open(Link::HoldRequests);
    let version = far.write(NAME, None, put("one")).await;
    near.write(NAME, version, Change::Remove).await;
    let held = proxy.open();
    proxy.set_open(Link::Pass);
    // The server has done with what was late when it has closed that connection.
    eventually("what was late has arrived", TIME_MAX, async || proxy.open() < held).await;
    assert_eq!(near.read(NAME).await, None);
}

/// P3: nothing is answered while the way to the server is cut, and the time for that is limited; a
/// write after it finds its way.
/// The user sees: `Unreachable`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut() {
    let server = ZooKeeper::start();
    let proxy = Proxy::start(server.address()).await.unwrap();
    let far = Values::connect(&format!("{}?request_timeout=1s", url_at(proxy.address()))).await;
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

/// P11: the rights on the chroot that the page names are enough, and the nodes are the user's alone.
/// The user sees: `Permission`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_on_values() {
    let server = ZooKeeper::start();
    let mut owner = server.session();
    owner.introduce("app:word");
    let access = Access { rights: "cdr", scheme: "auth", id: "" };
    owner.try_create("/locks", b"", Kind::Persistent, &[access]).unwrap();
    let url_as = |login: &str| format!("zookeeper://{login}@{}/locks", server.address());
    let app = Values::connect(&url_as("app:word")).await;
    let version = app.write(NAME, None, put("one")).await;
    let version = app.write(NAME, version, put("two")).await;
    for login in ["app:geheim", "other:geheim"] {
        let other = Values::connect(&url_as(login)).await;
        for error in [
            other.try_read(NAME).await.unwrap_err(),
            other.try_write(NAME, version, put("x")).await.unwrap_err(),
            other.try_write(NAME, version, Change::Remove).await.unwrap_err(),
            other.try_write("more", None, put("x")).await.unwrap_err(),
        ] {
            check_error(&error, ErrorKind::Permission, &["ACL"]);
        }
    }
    let mut stranger = server.session();
    assert_eq!(stranger.try_read(&format!("/locks{NODE}")), Err(codes::NO_AUTH));
    assert_eq!(app.read(NAME).await.map(|(_, text)| text).as_deref(), Some("two"));
    app.write(NAME, version, Change::Remove).await;
}

/// P11: several users share a chroot whose node for values was made for all of them: each has its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_users_of_one_place() {
    let server = ZooKeeper::start();
    let access = Access { rights: "cr", scheme: "world", id: "anyone" };
    server.session().try_create(ROOT, b"", Kind::Persistent, &[access]).unwrap();
    let url_as = |login: &str| format!("zookeeper://{login}@{}", server.address());
    let one = Values::connect(&url_as("one:word")).await;
    let two = Values::connect(&url_as("two:word")).await;
    one.write("of-one", None, put("one")).await;
    let version = two.write("of-two", None, put("one")).await;
    let error = one.try_write("of-two", version, put("two")).await.unwrap_err();
    check_error(&error, ErrorKind::Permission, &["ACL"]);
    two.write("of-two", version, put("two")).await;
}

/// P11, P14: a value that is removed leaves its node, without what was in it; a time to live is refused.
/// The user sees: `Unsupported`, with the reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_writes_leave_behind() {
    let server = ZooKeeper::start();
    let values = Values::connect(&server.url()).await;
    let mut events = bounded(values.backend.watch()).await.unwrap();
    let keep = Some(Duration::from_secs(60));
    let kept = Change::Put { bytes: b"one".to_vec(), keep };
    assert!(values.backend.profile().require(Feature::Values).is_ok());
    let error = values.try_write(NAME, None, kept).await.unwrap_err();
    check_error(&error, ErrorKind::Unsupported, &["time to live"]);
    let mut session = server.session();
    assert!(session.stat(ROOT).is_none(), "something was written");
    let version = values.write(NAME, None, put("a secret")).await;
    values.write(NAME, version, Change::Remove).await;
    let left = session.try_read(NODE).unwrap();
    assert!(left.ends_with(b" removed\n"), "{}", String::from_utf8_lossy(&left));
    assert_eq!(session.children("/"), ["%values", "zookeeper"]);
    values.write(NAME, None, put("two")).await;
    for _ in 0..3 {
        let event = bounded(events.next()).await.unwrap();
        assert_eq!((event.name.as_str(), event.kind), (NAME, WatchKind::Changed));
    }
}
