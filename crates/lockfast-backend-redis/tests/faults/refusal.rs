//! The server answers, but says no: each of its ways has one kind of error and clear words, and
//! "no" is never taken for "granted" (P11).

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use lockfast::{ErrorKind, LeaseStatus, Moment, Options, Released, Retry};
use lockfast_faults::server::Server as _;

use crate::kit::direct::Direct;
use crate::kit::rights::rights;
use crate::kit::topology::{cut_off, start_cluster, wait_for_sync};
use crate::kit::{
    Redis, Setup, bounded, check_error, connect, eventually, failure, hold, lose_the_right_on_one,
    refusal, try_connect, ttl, wait_for_renewal,
};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(6);

/// Who waits for a lock also waits for a server that cannot serve it for a while.
fn waiting() -> Options {
    Options::default().ttl(TTL).wait(TTL * 3)
}

fn is_free(redis: &Redis) -> bool {
    redis.cli(&["EXISTS", NAME]) == "0"
}

/// A server that is loading its data grants nothing. Whoever does not wait is told so at once;
/// whoever waits is served when it has loaded, and told when its wait is over before.
/// The user sees: `Unreachable`, that it loads its data; trying again can help.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loading() {
    let mut redis = Redis::start();
    let locker = connect(&redis.url()).await;
    redis.restart_loading(10_000);
    let is_loading = || redis.try_cli(&["PING"]).1.contains("LOADING");
    let error = failure(&locker, NAME, ttl(TTL)).await;
    check_error(&error, ErrorKind::Unreachable, &["loads its data"]);
    assert_eq!(error.retry(), Retry::Later);
    assert!(is_loading(), "it was told when there was nothing to tell any more");
    let (start, short) = (Moment::now(), Duration::from_millis(700));
    let mutex = locker.mutex(NAME).unwrap().with_options(waiting().wait(short));
    let error = bounded(mutex.acquire()).await.unwrap_err();
    check_error(&error, ErrorKind::Unreachable, &["loads its data"]);
    assert!(Moment::now().since(start) >= short, "it did not wait");
    assert!(is_loading(), "it waited for longer than it was to");
    redis.cli(&["CONFIG", "SET", "key-load-delay", "0"]);
    let guard = hold(&locker, NAME, waiting()).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
}

/// P10: whoever waits for a lock outlasts a restart of the server of some seconds, whether it stood
/// in line before or asks meanwhile.
/// The user sees: nothing but the delay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_while_waiting() {
    let mut redis = Setup::new().append_always().start();
    let (first, second) = (connect(&redis.url()).await, connect(&redis.url()).await);
    let guard = hold(&first, NAME, ttl(TTL)).await;
    let wait = |name| {
        let second = second.clone();
        tokio::spawn(async move { hold(&second, name, waiting()).await })
    };
    let in_line = wait(NAME);
    let name = guard.name().clone();
    eventually("it waits", TTL, async || first.inspect(&name).await.unwrap().waiting == 1).await;
    redis.kill();
    let meanwhile = wait("another");
    tokio::time::sleep(Duration::from_secs(3)).await;
    redis.restart();
    drop(bounded(meanwhile).await.unwrap());
    eventually("the lease is renewed", TTL, async || guard.status() == LeaseStatus::Held).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    drop(bounded(in_line).await.unwrap());
}

/// P1: a lease that was saved outlives a restart, also while the server is still loading.
/// The user sees: `Jeopardy`, then `Held`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_outlives_loading() {
    let mut redis = Redis::start();
    let locker = connect(&redis.url()).await;
    // On a slow machine the server takes several times the second that it takes otherwise.
    let guard = hold(&locker, NAME, ttl(TTL * 3)).await;
    redis.restart_loading(1000);
    wait_for_renewal(&guard, TTL * 3).await;
    refusal(&locker, NAME).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
}

/// A replica takes no writes.
/// The user sees: that this is a replica, at connect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica() {
    let master = Redis::start();
    let replica = Setup::new().replica_of(&master).start();
    wait_for_sync(&master, &replica);
    let error = match try_connect(&replica.url()).await {
        Err(error) => error,
        Ok(locker) => failure(&locker, NAME, ttl(TTL).retries(0)).await,
    };
    check_error(&error, ErrorKind::WrongNode, &["replica"]);
}

/// A replica without its master does not even answer.
/// The user sees: `WrongNode`, that this is a replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_without_its_master() {
    let mut master = Redis::start();
    let replica = Setup::new().replica_of(&master).line("replica-serve-stale-data no").start();
    wait_for_sync(&master, &replica);
    master.kill();
    eventually("MASTERDOWN", TTL, async || {
        replica.try_cli(&["GET", NAME]).1.contains("MASTERDOWN")
    })
    .await;
    let error = match try_connect(&replica.url()).await {
        Err(error) => error,
        Ok(locker) => failure(&locker, NAME, ttl(TTL).retries(0)).await,
    };
    check_error(&error, ErrorKind::WrongNode, &["replica"]);
}

/// A node of a cluster has only a part of the locks, so it is not used as if it were alone.
/// The user sees: `Unsupported`, that it is a cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_a_cluster() {
    let cluster = start_cluster();
    for node in &cluster.nodes {
        let error = match try_connect(&node.url()).await {
            Err(error) => error,
            Ok(locker) => failure(&locker, NAME, ttl(TTL)).await,
        };
        check_error(&error, ErrorKind::Unsupported, &["cluster"]);
    }
}

/// A master that became a replica takes no writes any more, and the lease is not renewed there;
/// when it is master again, everything goes on.
/// The user sees: `WrongNode`, that it is a replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readonly() {
    let redis = Redis::start();
    let locker = connect(&redis.url()).await;
    // It keeps what it has, because nobody is there to copy from.
    cut_off(&redis);
    let error = failure(&locker, NAME, ttl(TTL).retries(0)).await;
    check_error(&error, ErrorKind::WrongNode, &["replica"]);
    assert!(is_free(&redis));
    redis.cli(&["REPLICAOF", "NO", "ONE"]);
    let guard = hold(&locker, NAME, waiting()).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
}

/// The same of one that has copied a master which knows nobody: it has forgotten us too, and that
/// it does not take us in again is what tells.
/// The user sees: `WrongNode`, that it is a replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_replica() {
    let (redis, master) = (Redis::start(), Redis::start());
    let locker = connect(&redis.url()).await;
    redis.cli(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    wait_for_sync(&master, &redis);
    assert_eq!(redis.cli(&["KEYS", "lockfast:client:*"]), "");
    // The first finds out by itself, the second by a new connection.
    for _ in 0..2 {
        let error = failure(&locker, NAME, ttl(TTL).retries(0)).await;
        check_error(&error, ErrorKind::WrongNode, &["replica"]);
    }
    redis.cli(&["REPLICAOF", "NO", "ONE"]);
    let guard = hold(&locker, NAME, waiting()).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
}

/// A server that runs somebody's endless script answers nothing else; a lease outlives it while
/// the script ends within the ttl.
/// The user sees: `Unreachable`, that a script runs there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn busy() {
    let redis = Setup::new().line("busy-reply-threshold 50").start();
    let locker = connect(&redis.url()).await;
    let held = hold(&locker, "held", ttl(TTL)).await;
    let _script = redis.spawn_cli(&["EVAL", "while true do end", "0"]);
    eventually("it is busy", TTL, async || redis.try_cli(&["PING"]).1.contains("BUSY")).await;
    let error = failure(&locker, NAME, ttl(TTL).retries(0)).await;
    check_error(&error, ErrorKind::Unreachable, &["script"]);
    redis.cli(&["SCRIPT", "KILL"]);
    let guard = hold(&locker, NAME, Options::default().ttl(TTL).wait(TTL)).await;
    assert!(held.check().is_ok());
    for guard in [guard, held] {
        assert!(matches!(guard.release().await.unwrap(), Released::Released));
    }
}

/// A server without memory grants nothing new; who has a lock can renew it and give it back.
/// The user sees: an error that names maxmemory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn out_of_memory() {
    let redis = Setup::new().memory_max(100 << 20, "noeviction").start();
    let locker = connect(&redis.url()).await;
    let held = hold(&locker, "held", ttl(TTL)).await;
    redis.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = failure(&locker, NAME, ttl(TTL)).await;
    check_error(&error, ErrorKind::Unreachable, &["maxmemory"]);
    assert_eq!(error.retry(), Retry::Never);
    assert!(is_free(&redis));
    bounded(held.extend(TTL * 2)).await.unwrap();
    assert!(matches!(held.release().await.unwrap(), Released::Released));
    assert_eq!(redis.cli(&["EXISTS", "held"]), "0");
}

/// P6, P10: without memory a lock can still be given back, and goes to who waits for it: the
/// server lets a script that has freed something go on.
/// The user sees: nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_without_memory() {
    let redis = Setup::new().memory_max(100 << 20, "noeviction").start();
    let locker = connect(&redis.url()).await;
    let held = hold(&locker, NAME, ttl(TTL)).await;
    let waiter = tokio::spawn({
        let options = Options::default().ttl(TTL).wait(TTL * 3);
        let mutex = locker.mutex(NAME).unwrap().with_options(options);
        async move { mutex.acquire().await }
    });
    let name = held.name().clone();
    eventually("it waits", TTL, async || locker.inspect(&name).await.unwrap().waiting == 1).await;
    redis.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    assert!(matches!(held.release().await.unwrap(), Released::Released));
    let next = bounded(waiter).await.unwrap().unwrap();
    assert!(matches!(next.release().await.unwrap(), Released::Released));
    assert!(is_free(&redis));
}

/// A server that cannot save refuses all writes.
/// The user sees: an error that names the disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn misconf() {
    let redis = Setup::new().line("save 3600 100000").start();
    let locker = connect(&redis.url()).await;
    std::fs::remove_dir_all(redis.data()).unwrap();
    redis.cli(&["BGSAVE"]);
    eventually("the save failed", TTL, async || redis.info("rdb_last_bgsave_status") == "err")
        .await;
    let error = failure(&locker, NAME, ttl(TTL)).await;
    check_error(&error, ErrorKind::Unreachable, &["disk"]);
    assert_eq!(error.retry(), Retry::Never);
    assert!(is_free(&redis));
    redis.cli(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
}

/// A server that must have replicas and has none takes no writes.
/// The user sees: an error that names the replicas.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_replicas() {
    let redis = Redis::start();
    let locker = connect(&redis.url()).await;
    redis.cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let error = failure(&locker, NAME, ttl(TTL).retries(0)).await;
    check_error(&error, ErrorKind::Unreachable, &["replica"]);
    assert!(is_free(&redis));
}

/// Without the right password nobody gets in.
/// The user sees: `Permission`, without the password.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password() {
    let redis = Setup::new().password("p@ss:w/o%rd").start();
    let at = redis.address();
    for url in [
        format!("redis://{at}"),
        format!("redis://:hidden-guess@{at}"),
        format!("redis://somebody:hidden-guess@{at}"),
    ] {
        let error = bounded(try_connect(&url)).await.unwrap_err();
        check_error(&error, ErrorKind::Permission, &["password"]);
        assert!(!format!("{error} {error:?}").contains("hidden-guess"), "{error:?}");
    }
    let locker = connect(&redis.url()).await;
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
}

/// A user who may not write gets nothing, also when the right is taken away later.
/// The user sees: `Permission`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_rights() {
    let redis = Setup::new().user("worker", "a-password", "~* &* +@all").start();
    let locker = connect(&redis.url()).await;
    assert!(hold(&locker, NAME, ttl(TTL)).await.release().await.is_ok());
    redis.cli(&["ACL", "SETUSER", "worker", "-@scripting", "-@write"]);
    let error = failure(&locker, NAME, ttl(TTL)).await;
    check_error(&error, ErrorKind::Permission, &[]);
    assert!(!format!("{error} {error:?}").contains("a-password"), "{error:?}");
}

/// A server, and the URL of a user with the README's rights on locks whose names begin with `app/`.
fn start_with_user() -> (Redis, String) {
    let redis = Setup::new().line(format!("user locks on >word {}", rights("~app/*", &[]))).start();
    let url = redis.url().replace("redis://", "redis://locks:word@");
    (redis, url)
}

/// B143, P11: locks on which the user has no rights are asked for together with others.
/// The user sees: `Permission` for those, and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_without_rights_beside_others() {
    let (redis, url) = start_with_user();
    let locker = connect(&url).await;
    let mut asking = tokio::task::JoinSet::new();
    for at in 0..50 {
        let (allowed, refused) = (format!("app/{at}"), format!("others/{at}"));
        let (asker, other) = (locker.clone(), locker.clone());
        asking.spawn(async move {
            let error = failure(&asker, &refused, ttl(TTL).retries(0)).await;
            check_error(&error, ErrorKind::Permission, &["ACL"]);
        });
        asking.spawn(async move {
            let guard = hold(&other, &allowed, ttl(TTL).retries(0)).await;
            assert!(matches!(guard.release().await.unwrap(), Released::Released));
        });
    }
    while let Some(asked) = bounded(asking.join_next()).await {
        asked.unwrap();
    }
    assert_eq!(redis.cli(&["KEYS", "app/*"]), "");
}

/// B143, P3, P6: the right on one of the locks that are renewed together, and released together, is
/// taken away.
/// The user sees: `Permission` for that one; the others are renewed, and released.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_right_on_one_lock_is_taken_away() {
    let (redis, url) = start_with_user();
    let direct = Direct::connect(&url).await;
    let withdraw = |left: &[String]| redis.restrict("locks", left);
    lose_the_right_on_one(&direct.backend, direct.client, withdraw, ErrorKind::Permission).await;
}

/// A server has so many databases and no more.
/// The user sees: that the index is out of range.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_not_there() {
    let redis = Redis::start();
    let error = try_connect(&format!("{}/99", redis.url())).await.unwrap_err();
    check_error(&error, ErrorKind::InvalidConfig, &["99"]);
    let locker = connect(&format!("{}/3", redis.url())).await;
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    assert_eq!(redis.cli(&["-n", "3", "EXISTS", NAME]), "1");
    assert!(is_free(&redis));
    assert!(guard.release().await.is_ok());
}

/// A server that has no room for another client, and an address where nobody listens.
/// The user sees: `Unreachable`, with the address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_can_connect() {
    let mut redis = Setup::new().line("maxclients 1").start();
    let at = redis.address().to_string();
    // The connection that waited for the start may still be there, so one try may not do.
    let mut occupant = None;
    eventually("it is full", TTL, async || {
        let mut stream = TcpStream::connect(redis.address()).unwrap();
        let mut said = [0; 7];
        let has_place = stream.write_all(b"PING\r\n").is_ok()
            && stream.read_exact(&mut said).is_ok()
            && &said == b"+PONG\r\n";
        occupant = has_place.then_some(stream);
        has_place
    })
    .await;
    let error = try_connect(&redis.url()).await.unwrap_err();
    check_error(&error, ErrorKind::Unreachable, &[&at]);
    drop(occupant);
    redis.kill();
    let error = try_connect(&redis.url()).await.unwrap_err();
    check_error(&error, ErrorKind::Unreachable, &[&at]);
}

/// The same locks over a Unix socket.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unix_socket() {
    let redis = Setup::new().unix_socket().start();
    let locker = connect(&format!("redis+unix://{}", redis.unix_socket().display())).await;
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    assert!(!is_free(&redis));
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    let error = try_connect("redis+unix:///nonexistent/redis.sock").await.unwrap_err();
    check_error(&error, ErrorKind::Unreachable, &["/nonexistent/redis.sock"]);
}
