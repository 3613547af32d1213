//! Users with the documented rights, and with fewer. The suite runs as a user with exactly those.

use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use lockfast::{ErrorKind, Released};

use crate::kit::{
    Etcd, PASSWORD, TIME_MAX, USER, bounded, check_error, connect, failure, hold, loss, make_user,
    queue_for, refusal, try_connect, ttl, user_url, wait_for_renewal,
};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(6);

/// P11: locks outside the prefix on which the user has rights are refused.
/// The user sees: `Permission`, with what to give to whom.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_prefix() {
    let mut server = Etcd::start();
    make_user(&mut server);
    let url = format!("{}?prefix=others/", server.url_as(USER, PASSWORD));
    let error = match try_connect(&url).await {
        Err(error) => error,
        Ok(locker) => failure(&locker, NAME, ttl(TTL).retries(0)).await,
    };
    check_error(&error, ErrorKind::Permission, &["permission denied", "others/"]);
    assert_eq!(server.keys("others/"), [""; 0]);
}

/// P11: who may only read can look, but not lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_to_read_only() {
    let mut server = Etcd::start();
    make_user(&mut server);
    server.ctl(&["user", "add", &format!("reader:{PASSWORD}")]);
    server.ctl(&["role", "add", "readers"]);
    server.ctl(&["role", "grant-permission", "readers", "--prefix=true", "read", "app/"]);
    server.ctl(&["user", "grant-role", "reader", "readers"]);
    let holder = connect(&user_url(&server)).await;
    let _guard = hold(&holder, NAME, ttl(TTL)).await;
    let url = format!("{}?prefix=app/", server.url_as("reader", PASSWORD));
    let reader = connect(&url).await;
    let name = lockfast::LockName::new(NAME).unwrap();
    assert_eq!(reader.inspect(&name).await.unwrap().holders.len(), 1);
    let error = failure(&reader, "another", ttl(TTL).retries(0)).await;
    check_error(&error, ErrorKind::Permission, &["permission denied"]);
}

/// B133, P11: locks on which the user has no rights are asked for together with others.
/// The user sees: `Permission` for those, and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_without_rights_beside_others() {
    let mut server = Etcd::start();
    make_user(&mut server);
    let locker = connect(&server.url_as(USER, PASSWORD)).await;
    let mut asking = tokio::task::JoinSet::new();
    for at in 0..100 {
        let locker = locker.clone();
        let name = |prefix: &str| format!("{prefix}/{at}");
        let (allowed, refused) = (name("app"), name("others"));
        let (asker, options) = (locker.clone(), ttl(TTL).retries(0));
        asking.spawn(async move { drop(failure(&asker, &refused, options).await) });
        asking.spawn(async move {
            let guard = hold(&locker, &allowed, ttl(TTL).retries(0)).await;
            assert!(matches!(guard.release().await.unwrap(), Released::Released));
        });
    }
    while let Some(asked) = bounded(asking.join_next()).await {
        asked.unwrap();
    }
    assert_eq!(server.keys("app/"), [""; 0]);
}

/// B133, P3: the rights on some of the locks that are renewed together are taken away: the others are kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_on_some_locks_are_taken_away() {
    let mut server = Etcd::start();
    make_user(&mut server);
    let right = ["role", "grant-permission", "--prefix=true", "locks", "readwrite", "others/"];
    server.ctl(&right);
    let locker = connect(&server.url_as(USER, PASSWORD)).await;
    // Many at the same time, so that they are renewed together.
    let names = (0..40).map(|at| format!("{}/{at}", if at % 2 == 0 { "app" } else { "others" }));
    let holding = names.map(|name| {
        let locker = locker.clone();
        tokio::spawn(async move { (hold(&locker, &name, ttl(TTL)).await, name) })
    });
    let mut guards = Vec::new();
    for held in holding.collect::<Vec<_>>() {
        guards.push(bounded(held).await.unwrap());
    }
    server.ctl(&["role", "revoke-permission", "--prefix=true", "locks", "others/"]);
    let error = failure(&locker, "others/new", ttl(TTL).retries(0)).await;
    check_error(&error, ErrorKind::Permission, &[]);
    tokio::time::sleep(TTL * 2).await;
    for (guard, name) in guards.iter().filter(|(_, name)| name.starts_with("app")) {
        assert!(guard.check().is_ok(), "{name} is lost");
    }
}

/// P3: rights that are taken away while a lock is held: it can be kept, because a lease can be kept
/// alive by anybody, or its loss is told; nobody waits for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_are_taken_away() {
    let mut server = Etcd::start();
    make_user(&mut server);
    let locker = connect(&user_url(&server)).await;
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    server.ctl(&["user", "revoke-role", USER, "locks"]);
    let error = failure(&locker, "another", ttl(TTL).retries(0)).await;
    check_error(&error, ErrorKind::Permission, &[]);
    server.ctl(&["user", "grant-role", USER, "locks"]);
    wait_for_renewal(&guard, TTL * 2).await;
    hold(&locker, "another", ttl(TTL)).await.release().await.unwrap();
}

/// P3: tokens end; a new one is asked for, and no lease is lost by it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_end() {
    let mut server = crate::kit::Setup::new().option("--auth-token-ttl=3").start();
    make_user(&mut server);
    let locker = connect(&user_url(&server)).await;
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    // Long enough that the token is gone: the server keeps those that are used, but what keeps a lease
    // alive is a stream that was let in when it began.
    for _ in 0..3 {
        wait_for_renewal(&guard, TTL).await;
    }
    hold(&locker, "another", ttl(TTL)).await.release().await.unwrap();
    refusal(&locker, NAME).await;
    assert!(guard.check().is_ok());
}

/// Ends all tokens of the user, as a new password does; it is the same.
fn end_tokens(server: &Etcd) {
    let mut command = server.etcdctl();
    command.args(["user", "passwd", USER, "--interactive=false"]).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(format!("{PASSWORD}\n").as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}

/// P3, P10 (B91): who begins to wait when its token has ended is not refused for it, and no lease is
/// lost by it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_begins_after_the_token_has_ended() {
    let mut server = Etcd::start();
    make_user(&mut server);
    let first = connect(&user_url(&server)).await;
    let second = connect(&user_url(&server)).await;
    let guard = hold(&first, NAME, ttl(TTL)).await;
    // The stream of watches is there, with the token of its beginning.
    let waiter = queue_for(&second, NAME, ttl(TTL).wait(TIME_MAX)).await;
    end_tokens(&server);
    let other = hold(&first, "another", ttl(TTL)).await;
    let next = queue_for(&second, "another", ttl(TTL).wait(TIME_MAX)).await;
    assert!(matches!(other.release().await.unwrap(), Released::Released));
    assert!(bounded(next).await.unwrap().check().is_ok());
    wait_for_renewal(&guard, TTL).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
    assert!(bounded(waiter).await.unwrap().check().is_ok());
}

/// P3: the user is removed: the loss is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_user_is_removed() {
    let mut server = Etcd::start();
    make_user(&mut server);
    let locker = connect(&user_url(&server)).await;
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    server.ctl(&["user", "delete", USER]);
    let error = failure(&locker, "another", ttl(TTL).retries(0)).await;
    check_error(&error, ErrorKind::Permission, &[]);
    server.ctl(&["lease", "revoke", &server.leases()[0]]);
    loss(&guard, TTL * 3).await;
}

/// B109, P3, P5: users are asked for, and later not any more, while a process that names one holds a lock.
/// The user sees: nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_are_asked_for_while_a_lock_is_held() {
    let mut server = Etcd::start();
    let locker = connect(&user_url(&server)).await;
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    make_user(&mut server);
    wait_for_renewal(&guard, TTL).await;
    wait_for_renewal(&guard, TTL).await;
    hold(&locker, "another", ttl(TTL)).await.release().await.unwrap();
    server.ctl(&["auth", "disable"]);
    wait_for_renewal(&guard, TTL).await;
    wait_for_renewal(&guard, TTL).await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
}
