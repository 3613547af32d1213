//! What only the embedded store does: other processes, their death, the disk.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by a panic and its children talk through stdout"
)]

mod kit;

use std::sync::Arc;
use std::time::Duration;

use kit::child::Other;
use kit::{Asker, acquire, ask, bounded, name, poll_once, released, request, taken};
use lockfast_core::capability::Expiry;
use lockfast_core::{
    AcquireRequest, ErrorKind, LossCause, LossReport, Mode, Moment, Query, ReleaseOutcome,
    ReleaseRequest, RenewOutcome, RenewRequest, RevokeOutcome, RevokeRequest, Wait, WatchKind,
};
use rusqlite::Connection;
use tempfile::TempDir;

/// Runs only in a process that a test has started.
#[test]
fn other_process() {
    kit::child::serve();
}

fn fresh() -> (TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("embedded:{}", dir.path().join("store").display());
    (dir, url)
}

fn database(dir: &TempDir) -> Connection {
    Connection::open(dir.path().join("store/lockfast.db")).unwrap()
}

fn witness(asker: &Asker) -> std::path::PathBuf {
    match &asker.backend.profile().expiry {
        Expiry::ProcessDeath { witness } => witness.clone(),
        other => panic!("{other:?}"),
    }
}

fn renewal(held: &kit::Held) -> RenewRequest {
    RenewRequest {
        name: held.name.clone(),
        holder: held.holder,
        ttl: Duration::from_secs(30),
        lock_delay: Duration::ZERO,
    }
}

#[tokio::test]
async fn two_connections_contend_and_hand_over() {
    let (_dir, url) = fresh();
    let a = Asker::connect(&url).await;
    let b = Asker::connect(&url).await;
    let held = acquire(&a, "x", Mode::Exclusive, Wait::No).await;
    let refusal = taken(&b, "x", Wait::No).await;
    assert_eq!(refusal.lock.holders.len(), 1);
    assert_eq!(refusal.lock.holders[0].fence, Some(held.grant.fence));
    let label = refusal.lock.holders[0].label.clone().unwrap();
    assert_eq!(label.pid, std::process::id());

    let mut next = b.backend.acquire(request(&b, "x", Wait::Forever));
    assert!(poll_once(&mut next).await.is_none());
    waits(&a, 1).await;
    released(&a, &held).await;
    let grant = kit::granted(bounded(next).await);
    assert!(grant.fence.get() > held.grant.fence.get());
}

/// What the slow poll would need is the time between two polls. On a busy machine one try in three
/// must be faster.
async fn assert_pushed(mut attempt: impl AsyncFnMut() -> Duration) {
    let mut took = Vec::new();
    for _ in 0..3 {
        took.push(attempt().await);
        if took.last() < Some(&Duration::from_millis(200)) {
            return;
        }
    }
    panic!("by poll and not by push: {took:?}");
}

#[tokio::test]
async fn a_killed_holder_lets_the_next_in_at_once() {
    assert_pushed(async || {
        let (_dir, url) = fresh();
        let me = Asker::connect(&url).await;
        let mut holder = Other::start(&url);
        holder.ask("acquire x 60000 0");
        let mut next = me.backend.acquire(request(&me, "x", Wait::Forever));
        assert!(poll_once(&mut next).await.is_none());
        waits(&me, 1).await;
        let start = Moment::now();
        holder.kill();
        kit::granted(bounded(next).await);
        Moment::now().since(start)
    })
    .await;
}

/// Waits until so many wait for the lock x.
async fn waits(asker: &Asker, count: usize) {
    kit::eventually("they wait", async || {
        let views = asker.backend.inspect(Query::Name(name("x"))).await.unwrap();
        views[0].waiting == count
    })
    .await;
}

#[tokio::test]
async fn a_dead_holder_is_met_by_who_comes_later() {
    let (dir, url) = fresh();
    let me = Asker::connect(&url).await;
    let mut holder = Other::start(&url);
    holder.ask("acquire x 60000 0");
    holder.ask("acquire y 60000 0");
    holder.kill();
    let views = me.backend.inspect(Query::Name(name("x"))).await.unwrap();
    assert!(views[0].holders.is_empty(), "a dead holder is not shown");
    acquire(&me, "x", Mode::Exclusive, Wait::No).await;
    // Meeting it once ends all that it had.
    kit::eventually("the dead client is forgotten", async || {
        let left: i64 = database(&dir)
            .query_row("SELECT count(*) FROM claim WHERE name = 'y'", [], |row| row.get(0))
            .unwrap();
        let pipes = std::fs::read_dir(dir.path().join("store/clients")).unwrap();
        left == 0 && pipes.count() == 2
    })
    .await;
}

#[tokio::test]
async fn a_lock_delay_holds_also_for_the_dead() {
    let (_dir, url) = fresh();
    let me = Asker::connect(&url).await;
    let mut holder = Other::start(&url);
    holder.ask("acquire x 60000 700");
    let start = Moment::now();
    holder.kill();
    acquire(&me, "x", Mode::Exclusive, Wait::Forever).await;
    let took = Moment::now().since(start);
    assert!(took >= Duration::from_millis(690), "{took:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[tokio::test]
async fn a_witness_keeps_a_killed_client_alive() {
    assert_pushed(async || {
        let (_dir, url) = fresh();
        let me = Asker::connect(&url).await;
        let mut holder = Other::start(&url);
        holder.ask("acquire x 60000 0");
        let said = holder.ask("witness");
        let path = said.split('"').nth(1).unwrap();
        let witness = std::fs::File::options().read(true).write(true).open(path).unwrap();
        holder.kill();
        let mut next = me.backend.acquire(request(&me, "x", Wait::Forever));
        let early = tokio::time::timeout(Duration::from_millis(800), &mut next).await;
        assert!(early.is_err(), "the witness is still there");
        let start = Moment::now();
        drop(witness);
        kit::granted(bounded(next).await);
        Moment::now().since(start)
    })
    .await;
}

#[tokio::test]
async fn a_dead_waiter_is_skipped() {
    assert_pushed(async || {
        let (_dir, url) = fresh();
        let me = Asker::connect(&url).await;
        let held = acquire(&me, "x", Mode::Exclusive, Wait::No).await;
        let mut dead = Other::start(&url);
        dead.tell("acquire x 60000 0");
        waits(&me, 1).await;
        let mut next = Other::start(&url);
        next.tell("acquire x 60000 0");
        waits(&me, 2).await;
        dead.kill();
        let start = Moment::now();
        released(&me, &held).await;
        next.read();
        let took = Moment::now().since(start);
        next.finish();
        took
    })
    .await;
}

#[tokio::test]
async fn a_process_that_ends_in_order_leaves_nothing() {
    let (dir, url) = fresh();
    {
        let me = Asker::connect(&url).await;
        let held = acquire(&me, "x", Mode::Exclusive, Wait::No).await;
        released(&me, &held).await;
    }
    kit::eventually("it is gone", async || {
        let pipes = std::fs::read_dir(dir.path().join("store/clients")).unwrap();
        pipes.count() == 0
    })
    .await;
    let count: i64 =
        database(&dir).query_row("SELECT count(*) FROM client", [], |row| row.get(0)).unwrap();
    assert_eq!(count, 0);
}

#[tokio::test]
async fn a_detached_lease_outlives_its_connection() {
    let (dir, url) = fresh();
    let held = {
        let gone = Asker::connect(&url).await;
        let request = AcquireRequest { detached: true, ..request(&gone, "x", Wait::No) };
        ask(&gone, request).await
    };
    kit::eventually("the connection is closed", async || {
        let pipes = std::fs::read_dir(dir.path().join("store/clients")).unwrap();
        pipes.count() == 0
    })
    .await;
    let me = Asker::connect(&url).await;
    let refusal = taken(&me, "x", Wait::No).await;
    let label = refusal.lock.holders[0].label.clone();
    assert!(label.is_some(), "its label stays with it");
    let renewed = me.backend.renew(vec![renewal(&held)]).await.unwrap();
    assert!(matches!(renewed[..], [RenewOutcome::Renewed]));
    released(&me, &held).await;
    acquire(&me, "x", Mode::Exclusive, Wait::No).await;
    let labels: i64 =
        database(&dir).query_row("SELECT count(*) FROM client", [], |row| row.get(0)).unwrap();
    assert_eq!(labels, 1, "only our own");
}

#[tokio::test]
async fn after_a_reboot_nothing_is_held_and_the_fence_goes_on_from_its_ceiling() {
    let (dir, url) = fresh();
    let fence = {
        let me = Asker::connect(&url).await;
        acquire(&me, "x", Mode::Exclusive, Wait::No).await.grant.fence
    };
    kit::eventually("the connection is closed", async || {
        let db = database(&dir);
        let ceiling: i64 =
            db.query_row("SELECT fence_ceiling FROM meta", [], |row| row.get(0)).unwrap();
        assert!(ceiling as u64 > fence.get(), "no fence without a higher ceiling");
        !witness_left(&dir)
    })
    .await;
    // The machine lost its last commits and its clock, and the ceiling was just not reached.
    let ceiling = fence.get() + 500_000_000;
    database(&dir)
        .execute(
            "UPDATE meta SET boot_id = 'another', fence = 1, fence_ceiling = ?1",
            [ceiling as i64],
        )
        .unwrap();
    let me = Asker::connect(&url).await;
    let held = acquire(&me, "x", Mode::Exclusive, Wait::No).await;
    assert!(held.grant.fence.get() > ceiling);
}

/// Whether some client's process is still there.
fn witness_left(dir: &TempDir) -> bool {
    use std::io::Read as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let pipes = std::fs::read_dir(dir.path().join("store/clients")).unwrap();
    let mut alive = pipes
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "alive"));
    alive.any(|path| {
        let mut options = std::fs::File::options();
        let pipe = options.read(true).custom_flags(0o4000).open(path);
        pipe.is_ok_and(|mut pipe| pipe.read(&mut [0]).is_err())
    })
}

#[tokio::test]
async fn a_store_of_another_boot_that_is_in_use_is_left_alone() {
    let (dir, url) = fresh();
    let me = Asker::connect(&url).await;
    acquire(&me, "x", Mode::Exclusive, Wait::No).await;
    database(&dir).execute("UPDATE meta SET boot_id = 'another'", []).unwrap();
    let error = Asker::try_connect(&url).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("container"), "{error}");
}

#[tokio::test]
async fn the_fence_never_goes_back() {
    let (dir, url) = fresh();
    let mut last = 0;
    for _ in 0..3 {
        let me = Asker::connect(&url).await;
        for _ in 0..5 {
            let held = acquire(&me, "x", Mode::Exclusive, Wait::Forever).await;
            assert!(held.grant.fence.get() > last);
            last = held.grant.fence.get();
            released(&me, &held).await;
        }
        let floor = kit::fence(last + 30_000_000);
        let request = AcquireRequest { floor: Some(floor), ..request(&me, "x", Wait::Forever) };
        let held = ask(&me, request).await;
        assert_eq!(held.grant.fence.get(), floor.get() + 1);
        last = held.grant.fence.get();
        released(&me, &held).await;
    }
    let me = Asker::connect(&url).await;
    let too_far = AcquireRequest {
        floor: Some(kit::fence(last + 61_000_000)),
        ..request(&me, "x", Wait::No)
    };
    let error = me.backend.acquire(too_far).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidToken);
    for (stored, expected) in [
        ("9007199254740991", ErrorKind::TokenExhausted),
        ("-1", ErrorKind::CorruptRecord),
        ("'rubbish'", ErrorKind::CorruptRecord),
    ] {
        let sql = format!("UPDATE meta SET fence = {stored}");
        database(&dir).execute(&sql, []).unwrap();
        let error = me.backend.acquire(request(&me, "y", Wait::No)).await;
        assert_eq!(error.unwrap_err().kind(), expected, "{stored}");
    }
}

#[tokio::test]
async fn a_rubbish_record_is_not_stolen() {
    let (dir, url) = fresh();
    let me = Asker::connect(&url).await;
    acquire(&me, "x", Mode::Exclusive, Wait::No).await;
    database(&dir).execute("UPDATE claim SET stage = 9", []).unwrap();
    let error = me.backend.acquire(request(&me, "x", Wait::No)).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::CorruptRecord);
    acquire(&me, "y", Mode::Exclusive, Wait::No).await;
}

#[tokio::test]
async fn what_cannot_be_a_store_says_why() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("file"), "x").unwrap();
    std::fs::create_dir(path("text")).unwrap();
    std::fs::write(path("text/lockfast.db"), "not a database, not at all".repeat(100)).unwrap();
    for (store, sql) in [
        (
            "newer",
            "CREATE TABLE t (x); PRAGMA user_version = 99; PRAGMA application_id = 0x4C6B4673",
        ),
        ("foreign", "CREATE TABLE t (x)"),
    ] {
        std::fs::create_dir(path(store)).unwrap();
        let db = Connection::open(path(store).join("lockfast.db")).unwrap();
        db.execute_batch(sql).unwrap();
    }
    for store in ["text", "newer", "foreign"] {
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(path(store).join("lockfast.db"), private).unwrap();
    }
    std::fs::create_dir(path("linked")).unwrap();
    std::os::unix::fs::symlink("/tmp", path("linked/clients")).unwrap();
    let table = [
        ("file", ErrorKind::InvalidUrl, "is a file"),
        ("file/below", ErrorKind::InvalidUrl, "name one"),
        ("text", ErrorKind::CorruptRecord, "lockfast.db"),
        ("newer", ErrorKind::CorruptRecord, "upgrade"),
        ("foreign", ErrorKind::CorruptRecord, "not a Lockfast database"),
        ("linked", ErrorKind::Permission, "is a symbolic link"),
        ("x?snyc=full", ErrorKind::InvalidUrl, "it knows group, sync"),
        ("x?sync=off", ErrorKind::InvalidUrl, "normal or full"),
    ];
    for (store, kind, text) in table {
        let url = format!("embedded:{}/{store}", dir.path().display());
        let error = Asker::try_connect(&url).await.err().expect(store);
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
    let error = Asker::try_connect("embedded:/proc/lockfast").await;
    let error = error.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:?}");
}

#[tokio::test]
async fn a_revocation_is_told_at_once() {
    let (_dir, url) = fresh();
    let a = Asker::connect(&url).await;
    let b = Asker::connect(&url).await;
    let held = acquire(&a, "x", Mode::Exclusive, Wait::No).await;
    let mut next = a.backend.acquire(request(&a, "x", Wait::Forever));
    assert!(poll_once(&mut next).await.is_none());
    let revoke = |expect_fence| RevokeRequest {
        name: name("x"),
        expect_fence,
        reason: "maintenance".into(),
    };
    let other = Some(kit::fence(7));
    let outcome = b.backend.revoke(revoke(other)).await.unwrap();
    assert!(matches!(outcome, RevokeOutcome::OtherFence(holders) if holders.len() == 1));
    let outcome = b.backend.revoke(revoke(Some(held.grant.fence))).await.unwrap();
    assert!(matches!(outcome, RevokeOutcome::Revoked(holders) if holders.len() == 1));
    kit::granted(bounded(next).await);
    let cause = LossCause::Revoked { reason: "maintenance".into() };
    kit::eventually("the loss is told", async || {
        a.losses.lock().unwrap()[..] == [LossReport::Lease(held.holder, cause.clone())]
    })
    .await;
    let renewed = a.backend.renew(vec![renewal(&held)]).await.unwrap();
    assert!(matches!(&renewed[..], [RenewOutcome::Lost(lost)] if *lost == cause));
}

#[tokio::test]
async fn a_watcher_sees_what_others_do() {
    let (_dir, url) = fresh();
    let watcher = Asker::connect(&url).await;
    let mut events = watcher.backend.watch().await.unwrap();
    let mut other = Other::start(&url);
    other.ask("acquire x 60000 0");
    let mut own = watcher.backend.acquire(request(&watcher, "x", Wait::Forever));
    assert!(poll_once(&mut own).await.is_none());
    let mut next = async || bounded(events.next()).await.unwrap();
    let event = next().await;
    assert_eq!((event.kind, event.name), (WatchKind::Granted, name("x")));
    assert_eq!(event.label.unwrap().pid, other.pid());
    assert_eq!(next().await.kind, WatchKind::Queued);
    other.ask("release");
    kit::granted(bounded(own).await);
    assert_eq!(next().await.kind, WatchKind::Released);
    assert_eq!(next().await.kind, WatchKind::Granted);
    other.ask("acquire y 60000 0");
    assert_eq!(next().await.kind, WatchKind::Granted);
    other.finish();
}

#[tokio::test]
async fn a_watcher_that_is_gone_costs_nothing() {
    let (dir, url) = fresh();
    let watcher = Asker::connect(&url).await;
    let events = watcher.backend.watch().await.unwrap();
    let watchers = || -> i64 {
        database(&dir).query_row("SELECT watchers FROM meta", [], |row| row.get(0)).unwrap()
    };
    assert_eq!(watchers(), 1);
    drop(events);
    kit::eventually("it is struck off", async || watchers() == 0).await;
}

#[tokio::test]
async fn a_full_pipe_is_healed_by_the_slow_poll() {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let (_dir, url) = fresh();
    let a = Asker::connect(&url).await;
    let held = acquire(&a, "x", Mode::Exclusive, Wait::No).await;
    let mut stopped = Other::start(&url);
    stopped.tell("acquire x 60000 0");
    waits(&a, 1).await;
    let pid = rustix::process::Pid::from_raw(stopped.pid() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let clients = witness(&a).parent().unwrap().to_owned();
    for entry in std::fs::read_dir(clients).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|kind| kind == "wake") {
            let mut options = std::fs::File::options();
            let mut pipe = options.write(true).custom_flags(0o4000).open(path).unwrap();
            while pipe.write(&[0; 4096]).is_ok() {}
        }
    }
    released(&a, &held).await;
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    stopped.read();
    stopped.finish();
}

#[tokio::test]
async fn a_thousand_names_come_in_pages() {
    let (_dir, url) = fresh();
    let me = Asker::connect(&url).await;
    let me = Arc::new(me);
    let mut tasks = tokio::task::JoinSet::new();
    for at in 0..1_000 {
        let me = Arc::clone(&me);
        let name = format!("page/{at:04}");
        tasks.spawn(async move { acquire(&me, &name, Mode::Exclusive, Wait::No).await });
    }
    tasks.join_all().await;
    acquire(&me, "pagf", Mode::Exclusive, Wait::No).await;
    acquire(&me, "pag", Mode::Exclusive, Wait::No).await;
    let mut seen = Vec::new();
    loop {
        let query =
            Query::Prefix { prefix: "page/".into(), after: seen.last().cloned(), limit: 99 };
        let page = me.backend.inspect(query).await.unwrap();
        let is_last = page.len() < 99;
        seen.extend(page.into_iter().map(|view| view.name));
        if is_last {
            break;
        }
    }
    assert_eq!(seen.len(), 1_000);
    assert!(seen.is_sorted());
    let none = Query::Prefix { prefix: "page/*".into(), after: None, limit: 10 };
    assert!(me.backend.inspect(none).await.unwrap().is_empty());
}

#[tokio::test]
async fn the_log_stays_bounded() {
    let (dir, url) = fresh();
    let me = Asker::connect(&url).await;
    let other = Asker::connect(&url).await;
    for round in 0..3_000 {
        let held = acquire(&me, "x", Mode::Exclusive, Wait::No).await;
        if round % 10 == 0 {
            taken(&other, "x", Wait::No).await;
        }
        released(&me, &held).await;
    }
    let log = std::fs::metadata(dir.path().join("store/lockfast.db-wal")).unwrap();
    assert!(log.len() < 12 << 20, "{} bytes", log.len());
}

#[tokio::test]
async fn a_release_overtakes_nothing() {
    let (_dir, url) = fresh();
    let me = Asker::connect(&url).await;
    for _ in 0..50 {
        let request = request(&me, "x", Wait::Forever);
        let (name, holder) = (request.name.clone(), request.holder);
        let mut dropped = me.backend.acquire(request);
        let _ = poll_once(&mut dropped).await;
        drop(dropped);
        let release = ReleaseRequest { name, holder };
        let outcome = me.backend.release(release).await.unwrap();
        assert!(matches!(outcome, ReleaseOutcome::Released | ReleaseOutcome::NotHeld));
        let held = acquire(&me, "x", Mode::Exclusive, Wait::No).await;
        released(&me, &held).await;
    }
}

/// B269: a waiter whose request was dropped keeps its turn until it asks again or releases it. Its turn
/// was given away, and when it asked again meanwhile, it was told that the lock is taken, and its new
/// claim stayed in the line for ever.
#[tokio::test]
async fn a_waiter_that_asks_again_has_kept_its_turn() {
    let (_dir, url) = fresh();
    let asker = Asker::connect(&url).await;
    let held = acquire(&asker, "x", Mode::Exclusive, Wait::No).await;
    let asked = request(&asker, "x", Wait::Forever);
    let mut dropped = asker.backend.acquire(asked.clone());
    assert!(poll_once(&mut dropped).await.is_none());
    let mut next = asker.backend.acquire(request(&asker, "x", Wait::Forever));
    assert!(poll_once(&mut next).await.is_none());
    waits(&asker, 2).await;
    drop(dropped);
    released(&asker, &held).await;
    for _ in 0..3 {
        // What the store does on its own account is done before it answers the next request.
        waits(&asker, 1).await;
        assert!(poll_once(&mut next).await.is_none(), "it overtook");
    }
    let turn = ask(&asker, asked).await;
    assert!(poll_once(&mut next).await.is_none(), "two have the lock");
    released(&asker, &turn).await;
    kit::granted(bounded(next).await);
}

#[tokio::test]
async fn files_are_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let (dir, url) = fresh();
    let _me = Asker::connect(&url).await;
    let store = dir.path().join("store");
    let mut paths = vec![store.clone(), store.join("clients")];
    for dir in [&store, &store.join("clients")] {
        paths.extend(std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()));
    }
    for path in paths {
        let mode = std::fs::symlink_metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{} is {mode:o}", path.display());
    }
}

#[tokio::test]
async fn many_tasks_of_two_connections_never_overlap() {
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
    let (_dir, url) = fresh();
    let inside = Arc::new(AtomicUsize::new(0));
    let last = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let asker = Arc::new(Asker::connect(&url).await);
        for _ in 0..8 {
            let (asker, inside, last) = (asker.clone(), inside.clone(), last.clone());
            tasks.push(tokio::spawn(async move {
                for _ in 0..25 {
                    let held = acquire(&asker, "x", Mode::Exclusive, Wait::Forever).await;
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold at once");
                    let fence = held.grant.fence.get();
                    assert!(last.swap(fence, Ordering::SeqCst) < fence, "the fence went back");
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    released(&asker, &held).await;
                }
            }));
        }
    }
    for task in tasks {
        bounded(task).await.unwrap();
    }
}

#[tokio::test]
async fn a_store_that_is_removed_under_its_users_is_lost_and_said_so() {
    let (dir, url) = fresh();
    let me = Asker::connect(&url).await;
    let held = acquire(&me, "x", Mode::Exclusive, Wait::No).await;
    std::fs::remove_dir_all(dir.path().join("store")).unwrap();
    let newcomer = Asker::connect(&url).await;
    let next = acquire(&newcomer, "x", Mode::Exclusive, Wait::No).await;
    assert!(next.grant.fence.get() > held.grant.fence.get(), "the clock keeps it rising");
    let renewed = me.backend.renew(vec![renewal(&held)]).await.unwrap();
    assert!(matches!(renewed[..], [RenewOutcome::Lost(LossCause::DataLost)]));
    let error = me.backend.acquire(request(&me, "y", Wait::No)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.to_string().contains("connect again"), "{error}");
}
