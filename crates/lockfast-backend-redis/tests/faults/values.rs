//! Values while the way to the server, its data or what is stored fails.

use std::time::Duration;

use lockfast::ErrorKind;
use lockfast_core::{Change, EventStream, Version, WatchKind, WriteOutcome};
use lockfast_faults::proxy::{Link, Proxy};
use lockfast_faults::server::Server as _;

use crate::kit::direct::Direct;
use crate::kit::{Redis, Setup, TIME_MAX, bounded, check_error, eventually, topology};

const NAME: &str = "nightly";
const KEY: &str = "lockfast:{nightly}:value";

/// A server, somebody who goes to it through a proxy and soon gives up, and somebody who does not.
struct Net {
    redis: Redis,
    proxy: Proxy,
    far: Direct,
    near: Direct,
}

impl Net {
    async fn start() -> Self {
        let redis = Redis::start();
        let proxy = Proxy::start(redis.address()).await.unwrap();
        let url = format!("{}?request_timeout=500ms", redis.url_at(proxy.address()));
        let far = Direct::connect(&url).await;
        let near = Direct::connect(&redis.url()).await;
        Self { redis, proxy, far, near }
    }

    /// How many scripts the server has run.
    fn scripts_run(&self) -> u64 {
        let stats = self.redis.cli(&["INFO", "commandstats"]);
        let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        calls.and_then(|calls| calls.split(',').next()).map_or(0, |calls| calls.parse().unwrap())
    }
}

/// What a watcher was told by the time at which it is told of a write to another name.
async fn changes(events: &mut EventStream, near: &Direct, mark: &str) -> Vec<String> {
    near.write(near.put(mark, None, b"")).await;
    let mut names = Vec::new();
    loop {
        let event = bounded(events.next()).await.unwrap();
        assert_eq!(event.kind, WatchKind::Changed);
        assert!(event.label.is_some(), "who did it");
        if event.name.as_str() == mark {
            return names;
        }
        names.push(event.name.as_str().to_owned());
    }
}

/// P7, P14: the server writes and its reply is lost. The same request on a new connection is answered
/// as the first was, and nothing is written twice.
/// The user sees: `Unreachable`, then what became of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reply_of_a_write_is_lost() {
    let net = Net::start().await;
    let mut events = bounded(net.near.backend.watch()).await.unwrap();
    let mut seen = None;
    for (at, bytes) in [b"one", b"two"].into_iter().enumerate() {
        let request = net.far.put(NAME, seen, bytes);
        net.proxy.set_open(Link::SwallowReplies);
        let error = net.far.try_write(request.clone()).await.unwrap_err();
        check_error(&error, ErrorKind::Unreachable, &[]);
        assert_eq!(net.near.read(NAME).await.as_deref(), Some(&bytes[..]), "it was written");
        for _ in 0..2 {
            let version = net.far.write(request.clone()).await;
            assert_eq!(version, Some(Version::from_bytes(request.id)));
        }
        assert_eq!(changes(&mut events, &net.near, &format!("mark-{at}")).await, [NAME]);
        seen = net.near.try_read(NAME).await.unwrap().map(|value| value.version);
        assert_eq!(seen, Some(Version::from_bytes(request.id)));
    }
    // Nothing is left by which a removal could be known.
    let removal = net.far.change(NAME, seen, Change::Remove);
    net.proxy.set_open(Link::SwallowReplies);
    net.far.try_write(removal.clone()).await.unwrap_err();
    assert_eq!(net.redis.cli(&["EXISTS", KEY]), "0");
    assert_eq!(net.far.try_write(removal).await.unwrap(), WriteOutcome::Conflict(None));
    assert_eq!(changes(&mut events, &net.near, "mark-2").await, [NAME]);
}

/// P7: a read whose reply is lost costs a delay and no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reply_of_a_read_is_lost() {
    let net = Net::start().await;
    net.near.write(net.near.put(NAME, None, b"one")).await;
    for link in [Link::SwallowReplies, Link::HalfOpen] {
        net.proxy.set_open(link);
        check_error(&net.far.try_read(NAME).await.unwrap_err(), ErrorKind::Unreachable, &[]);
        assert_eq!(net.far.read(NAME).await.as_deref(), Some(&b"one"[..]), "{link:?}");
    }
}

/// P14: a write that is held up on its way arrives after it was repeated on another connection and its
/// value was removed. What was removed stays removed.
/// The user sees: nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_earlier_try_arrives_late() {
    let net = Net::start().await;
    let create = net.far.put(NAME, None, b"one");
    net.proxy.set_open(Link::HoldRequests);
    net.far.try_write(create.clone()).await.unwrap_err();
    assert_eq!(net.redis.cli(&["EXISTS", KEY]), "0", "it is on its way");
    let version = net.far.write(create).await;
    net.near.write(net.near.change(NAME, version, Change::Remove)).await;
    let before = net.scripts_run();
    net.proxy.set_open(Link::Pass);
    eventually("it arrives", TIME_MAX, async || net.scripts_run() > before).await;
    assert_eq!(net.redis.cli(&["EXISTS", KEY]), "0");
    // What keeps it out goes by itself, and hinders nobody else.
    let gone = net.redis.cli(&["KEYS", "lockfast:{nightly}:gone:*"]);
    let lasts: u64 = net.redis.cli(&["PTTL", &gone]).parse().unwrap();
    assert!(lasts <= 3_600_000, "{lasts}");
    net.far.write(net.far.put(NAME, None, b"two")).await;
}

/// P1, P11: what Lockfast has not written there is told by its key and left as it is; the lock of that
/// name and other values are not concerned.
/// The user sees: `CorruptRecord` with the key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_value() {
    let redis = Redis::start();
    let direct = Direct::connect(&redis.url()).await;
    let version = Version::from_bytes([7; 16]);
    for make in [
        ["HSET", KEY, "field", "secret"].as_slice(),
        &["RPUSH", KEY, "secret"],
        &["SET", KEY, ""],
        &["SET", KEY, "secret"],
        &["SET", KEY, "AAAAAAAAAAAAAAAAAAAAAA"],
        &["SET", KEY, "AAAAAAAAAAAAAAAAAAAAA.secret"],
        &["SET", KEY, "AAAAAAAAAAAAAAAAAAAAAAA.secret"],
        &["SET", KEY, "AAAAAAAAAAAA AAAAAAAAA.secret"],
        // It says more than an id has room for.
        &["SET", KEY, "AAAAAAAAAAAAAAAAAAAAAB.secret"],
    ] {
        redis.cli(make);
        let before = redis.cli(&["DUMP", KEY]);
        let mut errors = vec![direct.try_read(NAME).await.unwrap_err()];
        for request in [
            direct.put(NAME, None, b"one"),
            direct.put(NAME, Some(version), b"one"),
            direct.change(NAME, Some(version), Change::Remove),
        ] {
            errors.push(direct.try_write(request).await.unwrap_err());
        }
        for error in errors {
            check_error(&error, ErrorKind::CorruptRecord, &[KEY]);
            assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
        }
        assert_eq!(redis.cli(&["DUMP", KEY]), before, "{make:?}");
        redis.cli(&["DEL", KEY]);
    }
    let holder = direct.take(direct.request(NAME, lockfast_core::Wait::No)).await;
    direct.write(direct.put(NAME, None, b"one")).await;
    direct.give(NAME, holder).await;
}

/// P14: what was answered as written survives a crash with every write on disk. Without its data the
/// server has no values, and nobody writes over what it has read before.
/// The user sees: that the value is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart() {
    let mut redis = Setup::new().append_always().start();
    let direct = Direct::connect(&redis.url()).await;
    let version = direct.write(direct.put(NAME, None, b"one")).await;
    let keep = Some(Duration::from_secs(60));
    let brief = Change::Put { bytes: b"brief".to_vec(), keep };
    direct.write(direct.change("brief", None, brief)).await;
    redis.restart();
    eventually("it answers", TIME_MAX, async || direct.try_read(NAME).await.is_ok()).await;
    assert_eq!(direct.read(NAME).await.as_deref(), Some(&b"one"[..]));
    let left = direct.try_read("brief").await.unwrap().and_then(|value| value.remaining);
    assert!(left.is_some() && left < keep, "{left:?}");
    redis.restart_empty();
    eventually("it answers", TIME_MAX, async || direct.try_read(NAME).await.is_ok()).await;
    assert_eq!(direct.read(NAME).await, None);
    let late = direct.put(NAME, version, b"two");
    assert_eq!(direct.try_write(late).await.unwrap(), WriteOutcome::Conflict(None));
}

/// The server forgets the scripts, or is out of memory.
/// The user sees: nothing; `Unreachable` that names `maxmemory` for what must be stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_forgets_scripts_or_is_full() {
    let redis = Redis::start();
    let direct = Direct::connect(&redis.url()).await;
    let version = direct.write(direct.put(NAME, None, b"one")).await;
    redis.cli(&["SCRIPT", "FLUSH"]);
    assert_eq!(direct.read(NAME).await.as_deref(), Some(&b"one"[..]));
    redis.cli(&["SCRIPT", "FLUSH"]);
    let version = direct.write(direct.put(NAME, version, b"two")).await;
    redis.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = direct.try_write(direct.put(NAME, version, b"three")).await.unwrap_err();
    check_error(&error, ErrorKind::Unreachable, &["maxmemory"]);
    assert_eq!(direct.read(NAME).await.as_deref(), Some(&b"two"[..]));
    assert_eq!(direct.write(direct.change(NAME, version, Change::Remove)).await, None);
}

/// With `min_replicas`, a write that replicas do not have is told as that, and is done once when it is
/// asked for again.
/// The user sees: `Unreachable`, how many replicas have it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_needs_its_replicas() {
    let redis = Redis::start();
    let direct = Direct::connect(&format!("{}?min_replicas=1", redis.url())).await;
    let create = direct.put(NAME, None, b"one");
    let error = direct.try_write(create.clone()).await.unwrap_err();
    check_error(&error, ErrorKind::Unreachable, &["written", "0 of 1 replicas"]);
    assert_eq!(direct.read(NAME).await.as_deref(), Some(&b"one"[..]));
    let replica = Setup::new().replica_of(&redis).start();
    topology::wait_for_sync(&redis, &replica);
    // On a busy machine a replica may be late with its first confirmations.
    let version = Some(Version::from_bytes(create.id));
    eventually("it is confirmed", TIME_MAX, async || {
        let answer = direct.try_write(create.clone()).await;
        answer.is_ok_and(|outcome| outcome == WriteOutcome::Written(version))
    })
    .await;
    // A repetition counts only when replicas confirm it too.
    topology::cut_off(&replica);
    let error = direct.try_write(create).await.unwrap_err();
    check_error(&error, ErrorKind::Unreachable, &["0 of 1 replicas"]);
}
