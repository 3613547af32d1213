//! Processes that hang while they wait: still connected, but they do not heed a call.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a panic is how a test fails, and children talk through stdout"
)]

mod kit;

use std::process::Command;
use std::time::Duration;

use kit::{Nodes, TIME_MAX, bounded, connect, eventually, hold, ttl};
use lockfast::{Locker, Moment};
use lockfast_faults::child::Child;
use lockfast_faults::lateness::Lateness;

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(60);
/// The address of the store and how many wait, for a process that a test has started.
const ORDER: &str = "LOCKFAST_TEST_WAITERS";

/// Runs only in a process that a test has started: so many wait until it is killed.
#[test]
fn waiting_process() {
    let Ok(order) = std::env::var(ORDER) else { return };
    let (count, url) = order.split_once(' ').unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let locker = connect(url).await;
        for _ in 0..count.parse().unwrap() {
            tokio::spawn(wait(&locker));
        }
        std::future::pending::<()>().await;
    });
}

fn wait(locker: &Locker) -> impl Future<Output = Moment> + Send + use<> {
    let mutex = locker.mutex(NAME).unwrap().with_options(ttl(TTL).wait_forever());
    async move {
        let guard = mutex.acquire().await.unwrap();
        let granted = Moment::now();
        guard.release().await.unwrap();
        granted
    }
}

fn start_waiting(url: &str, count: usize) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "waiting_process", "--nocapture"]);
    Child::spawn(command.env(ORDER, format!("{count} {url}"))).unwrap()
}

async fn waiting(locker: &Locker, count: usize) {
    let name = lockfast::LockName::new(NAME).unwrap();
    eventually("all wait", TTL, async || locker.inspect(&name).await.unwrap().waiting == count)
        .await;
}

/// B46, P9: however many of a stopped process are ahead in the line, and however many such
/// processes, the next of another process is let in within two seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_processes_delay_nobody_for_long() {
    let nodes = Nodes::start(3);
    let url = nodes.url();
    let locker = connect(&url).await;
    let machine = Lateness::watch();
    for (processes, each) in [(1, 1), (1, 2), (1, 6), (1, 60), (4, 3)] {
        let guard = hold(&locker, NAME, ttl(TTL)).await;
        let mut children = Vec::new();
        for at in 0..processes {
            children.push(start_waiting(&url, each));
            waiting(&locker, (at + 1) * each).await;
        }
        let next = tokio::spawn(wait(&connect(&url).await));
        waiting(&locker, processes * each + 1).await;
        children.iter().for_each(|child| child.stop().unwrap());
        let start = Moment::now();
        guard.release().await.unwrap();
        let granted = bounded(next).await.unwrap();
        let what = format!("{each} waiters of each of {processes} stopped processes");
        machine.check(&what, Duration::from_secs(2), start, granted);
        drop(children);
        eventually("none of them has it", TIME_MAX, async || nodes.count_key(NAME) == 0).await;
        nodes.0.iter().for_each(|node| drop(node.cli(&["DEL", "lockfast:{nightly}:callers"])));
    }
}
