//! What happens when the database cannot grow. A limit of the size of a file, which anybody may
//! set, makes the writes of one process fail as a full disk or a quota does.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by a panic and its children talk through stdout"
)]

mod kit;

use kit::child::Other;
use kit::{Asker, bounded, name, poll_once, request, taken};
use lockfast_core::{LockView, Query, Wait};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tempfile::TempDir;

/// Runs only in a process that a test has started.
#[test]
fn other_process() {
    kit::child::serve();
}

/// A store and a process that has the lock x.
fn start() -> (TempDir, String, Other, u64) {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("embedded:{}", dir.path().join("store").display());
    let mut other = Other::start(&url);
    let said = other.ask("acquire x 60000 0");
    let fence = said.split(' ').next().unwrap().parse().unwrap();
    (dir, url, other, fence)
}

/// No file may grow beyond what the database's log has now.
fn limit(dir: &TempDir, other: &Other) -> Rlimit {
    let log = std::fs::metadata(dir.path().join("store/lockfast.db-wal")).unwrap();
    set_limit(other, Rlimit { current: Some(log.len()), maximum: None })
}

fn set_limit(other: &Other, limit: Rlimit) -> Rlimit {
    let pid = Pid::from_raw(other.pid().try_into().unwrap());
    prlimit(pid, Resource::Fsize, limit).unwrap()
}

async fn view(asker: &Asker, lock: &str) -> LockView {
    asker.backend.inspect(Query::Name(name(lock))).await.unwrap().remove(0)
}

#[track_caller]
fn assert_explained(said: &str) {
    assert!(said.starts_with("Unreachable: "), "{said}");
    assert!(said.contains("store/lockfast.db"), "{said}");
    assert!(said.contains("see whether its disk is full"), "{said}");
    assert!(said.contains("and try again"), "{said}");
}

#[tokio::test]
async fn a_full_disk_is_said_and_nothing_is_lost_or_left() {
    let (dir, url, mut other, fence) = start();
    let me = Asker::connect(&url).await;
    let before = limit(&dir, &other);
    for act in ["try y", "try renew", "try release", "try y"] {
        assert_explained(&other.ask(act));
    }
    // What was held is held, and what failed has left nothing.
    let held = view(&me, "x").await;
    assert_eq!(held.holders.len(), 1, "{held:?}");
    assert_eq!(held.holders[0].fence.map(|fence| fence.get()), Some(fence));
    assert!(view(&me, "y").await.holders.is_empty());
    taken(&me, "x", Wait::No).await;
    // There is room again.
    set_limit(&other, before);
    assert_eq!(other.ask("try renew"), "[Renewed]");
    let said = other.ask("try y");
    let next: u64 = said.strip_prefix("granted ").expect(&said).parse().unwrap();
    assert!(next > fence, "fence {next} after {fence}");
    assert_eq!(view(&me, "y").await.holders.len(), 1);
    other.finish();
}

#[tokio::test]
async fn a_release_that_cannot_be_written_lets_nobody_in() {
    let (dir, url, mut other, _) = start();
    let me = Asker::connect(&url).await;
    let mut next = me.backend.acquire(request(&me, "x", Wait::Forever));
    assert!(poll_once(&mut next).await.is_none());
    kit::eventually("we wait", async || view(&me, "x").await.waiting == 1).await;
    let before = limit(&dir, &other);
    assert_explained(&other.ask("try release"));
    let unchanged = view(&me, "x").await;
    assert_eq!((unchanged.holders.len(), unchanged.waiting), (1, 1), "{unchanged:?}");
    assert!(poll_once(&mut next).await.is_none(), "let in although the holder was not told so");
    set_limit(&other, before);
    assert_eq!(other.ask("try release"), "Released");
    kit::granted(bounded(next).await);
    other.finish();
}

#[tokio::test]
async fn who_dies_on_a_full_disk_still_lets_the_next_in() {
    let (dir, url, mut other, _) = start();
    let me = Asker::connect(&url).await;
    limit(&dir, &other);
    assert_explained(&other.ask("try release"));
    other.kill();
    kit::granted(bounded(me.backend.acquire(request(&me, "x", Wait::Forever))).await);
}
