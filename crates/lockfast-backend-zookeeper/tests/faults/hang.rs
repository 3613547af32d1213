//! Processes that hang while they wait: their sessions are silent, but nobody has ended them yet.

use std::process::Command;
use std::time::Duration;

use lockfast::{LockName, Locker, Moment};
use lockfast_faults::child::Child;
use lockfast_faults::lateness::Lateness;

use crate::kit::{ZooKeeper, bounded, claims, connect, eventually, hold, ttl};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(10);
/// P9: how long somebody who hangs or is dead may delay the others.
const DELAY_MAX: Duration = Duration::from_secs(2);
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
    command.args(["--exact", "hang::waiting_process", "--nocapture"]);
    Child::spawn(command.env(ORDER, format!("{count} {url}"))).unwrap()
}

async fn wait_for_waiting(locker: &Locker, count: usize) {
    let name = LockName::new(NAME).unwrap();
    let waiting = async || locker.inspect(&name).await.unwrap().waiting;
    eventually("all wait", TTL * 3, async || waiting().await == count).await;
}

/// P9: however many of a stopped process are ahead in the line, and however many such processes, the
/// next of another process is let in within two seconds: all that a process waits for ends with one
/// session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_processes_delay_nobody_for_long() {
    let server = ZooKeeper::start();
    let locker = connect(&server.url()).await;
    let machine = Lateness::watch();
    for (processes, each) in [(1, 1), (1, 40), (4, 3)] {
        let guard = hold(&locker, NAME, ttl(TTL)).await;
        let mut children = Vec::new();
        for at in 0..processes {
            children.push(start_waiting(&server.url(), each));
            wait_for_waiting(&locker, (at + 1) * each).await;
        }
        let next = tokio::spawn(wait(&connect(&server.url()).await));
        wait_for_waiting(&locker, processes * each + 1).await;
        children.iter().for_each(|child| child.stop().unwrap());
        let start = Moment::now();
        guard.release().await.unwrap();
        let granted = bounded(next).await.unwrap();
        let what = format!("{each} waiters of each of {processes} stopped processes");
        machine.check(&what, DELAY_MAX, start, granted);
        drop(children);
        eventually("none is left", TTL * 3, async || claims(&server, NAME).is_empty()).await;
    }
}
