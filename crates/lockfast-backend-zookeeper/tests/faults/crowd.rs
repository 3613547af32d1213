//! Many wait for one lock, and a release wakes one of them.

use std::time::Duration;

use lockfast::{Guard, LockName, Locker, Moment, Options};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::kit::{Setup, TIME_MAX, ZooKeeper, claims, connect, eventually, hold, ttl};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(120);

/// P10: no herd. A release wakes one waiter: with dozens that wait, each with a connection of its
/// own, the server sends a few messages for it, and not one to each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_wakes_one() {
    const WAITERS: usize = 60;
    const RELEASES: u64 = 20;
    // One for each that waits would be 60.
    const MESSAGES_MAX: u64 = 30;
    let server = ZooKeeper::start();
    let holder = connect(&server.url()).await;
    let guard = hold(&holder, NAME, ttl(TTL)).await;
    let (turn, mut turns) = mpsc::channel(1);
    let mut tasks = JoinSet::new();
    for _ in 0..WAITERS {
        let locker = connect(&server.url()).await;
        let turn = turn.clone();
        tasks.spawn(async move {
            let guard = hold_long(&locker).await;
            // The next release is the test's.
            turn.send(guard).await.unwrap();
            std::future::pending::<()>().await;
        });
    }
    let name = LockName::new(NAME).unwrap();
    eventually("all wait", PATIENCE, async || {
        holder.inspect(&name).await.unwrap().waiting == WAITERS
    })
    .await;
    // What keeps the sessions alive is sent in any case: it is counted in as long a while.
    let sent = || server.count("zk_packets_sent");
    let (mut guard, mut woken) = (Some(guard), 0);
    let (before, start) = (sent(), Moment::now());
    for _ in 0..RELEASES {
        guard.take().unwrap().release().await.unwrap();
        guard = Some(tokio::time::timeout(TIME_MAX, turns.recv()).await.unwrap().unwrap());
        woken += 1;
    }
    let (took, during) = (Moment::now().since(start), sent() - before);
    let before = sent();
    tokio::time::sleep(took).await;
    let idle = sent() - before;
    let each = during.saturating_sub(idle) / woken;
    assert!(each <= MESSAGES_MAX, "{each} messages for a release, with {WAITERS} that wait");
}

async fn hold_long(locker: &Locker) -> Guard {
    let options = Options::default().ttl(TTL).wait_forever();
    let lock = locker.mutex(NAME).unwrap().with_options(options);
    lock.acquire().await.unwrap()
}

/// Waiters of one process, each of which passes the lock on to the test.
struct Crowd {
    server: ZooKeeper,
    holder: Locker,
    waiting: Locker,
    tasks: JoinSet<()>,
    turn: mpsc::Sender<Guard>,
    turns: mpsc::Receiver<Guard>,
    size: usize,
}

impl Crowd {
    async fn start() -> Self {
        // On a busy machine those who wait must not be late.
        let server = Setup::new().line("minSessionTimeout=8000").line("maxSessionTimeout=60000");
        let server = server.start();
        let (holder, waiting) = (connect(&server.url()).await, connect(&server.url()).await);
        let (turn, turns) = mpsc::channel(1);
        Self { server, holder, waiting, tasks: JoinSet::new(), turn, turns, size: 0 }
    }

    /// How many requests the server had for each, when so many more enter at once.
    async fn grow(&mut self, to: usize) -> u64 {
        let before = self.server.count("zk_packets_received");
        let more = to - self.size;
        for _ in 0..more {
            let (locker, turn) = (self.waiting.clone(), self.turn.clone());
            self.tasks.spawn(async move {
                let guard = hold_long(&locker).await;
                // The test is over when nobody receives it.
                let _ = turn.send(guard).await;
            });
        }
        let name = LockName::new(NAME).unwrap();
        eventually("all wait", PATIENCE, async || {
            // It may be too busy to answer in time.
            self.holder.inspect(&name).await.is_ok_and(|lock| lock.waiting == to)
        })
        .await;
        self.size = to;
        self.settle().await;
        (self.server.count("zk_packets_received") - before) / more as u64
    }

    /// Waits until all have looked at those whom they wait for, and only a few look again.
    async fn settle(&self) {
        let received = || self.server.count("zk_packets_received");
        eventually("all have looked", PATIENCE, async || {
            let before = received();
            tokio::time::sleep(Duration::from_millis(500)).await;
            received() - before < 1000
        })
        .await;
    }

    /// How many requests the server had for each hand-over, not counting what it has in any case.
    async fn hand_over(&mut self, mut guard: Guard, times: usize) -> (Guard, u64) {
        let received = || self.server.count("zk_packets_received");
        let (before, start) = (received(), Moment::now());
        for _ in 0..times {
            guard.release().await.unwrap();
            guard = tokio::time::timeout(TIME_MAX, self.turns.recv()).await.unwrap().unwrap();
        }
        let (took, during) = (Moment::now().since(start), received() - before);
        let before = received();
        tokio::time::sleep(took).await;
        let idle = received() - before;
        self.size -= times;
        (guard, during.saturating_sub(idle) / times as u64)
    }
}

/// P10: entering costs each the same, and so does a hand-over, with 10 who wait and with 5 000 who
/// came at once. When all give up at once, nothing of them is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_line_costs_no_more_than_a_short_one() {
    const SHORT: usize = 10;
    const LONG: usize = 5_000;
    // A node, those ahead and one's own; and a list, alone.
    const ENTRY_MAX: u64 = 12;
    const HAND_OVER_MAX: u64 = 40;
    let mut crowd = Crowd::start().await;
    let guard = hold(&crowd.holder, NAME, ttl(TTL)).await;
    let entry = crowd.grow(SHORT).await;
    let (guard, few) = crowd.hand_over(guard, 5).await;
    let entry_late = crowd.grow(LONG).await;
    // All who wait look again now and then, and once more after a broken connection. That can fall into
    // the hand-overs and not into the time that they are compared with, but not three times.
    let (mut guard, mut many) = (guard, u64::MAX);
    for _ in 0..3 {
        let cost;
        (guard, cost) = crowd.hand_over(guard, 20).await;
        many = many.min(cost);
    }
    let measured = format!("{entry} and {entry_late} to enter, {few} and {many} to hand over");
    assert!(entry <= ENTRY_MAX * 2 && entry_late <= ENTRY_MAX, "{measured}");
    assert!(few <= HAND_OVER_MAX && many <= HAND_OVER_MAX, "{measured}");
    crowd.tasks.shutdown().await;
    guard.release().await.unwrap();
    eventually("nobody is left", PATIENCE, async || claims(&crowd.server, NAME).is_empty()).await;
}
