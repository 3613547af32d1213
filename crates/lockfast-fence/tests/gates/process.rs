//! A holder in a process of its own, which can be stopped.

use std::io::stdin;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lockfast::{Locker, Mutex, Options};
use lockfast_faults::child::Child;

use crate::account::{LOCK, Site};

/// The variable that makes this test a holder: the directory of the lock, whether it goes through
/// the gate, and the site, in lines.
const SCRIPT: &str = "LOCKFAST_TEST_GATE_HOLDER";
/// How long a lease lasts when its holder is stopped; a busy machine renews it in less.
const TTL: Duration = Duration::from_secs(2);

/// What the holder does to the balance.
pub(crate) const DEPOSIT: u64 = 50;

/// Starts a holder that reads, and writes when it is told to.
pub(crate) fn start(directory: &Path, site: &Site, is_fenced: bool) -> Child {
    let script = format!("{}\n{is_fenced}\n{}", directory.display(), site.write());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "process::holder", "--nocapture"]).env(SCRIPT, script);
    Child::spawn(&mut command).unwrap()
}

/// The lock, as everybody takes it.
pub(crate) async fn lock(directory: &Path) -> Mutex {
    let locker = Locker::connect(&format!("embedded:{}", directory.display())).await.unwrap();
    let options = Options::default().ttl(TTL).wait(Duration::from_secs(60));
    locker.mutex(LOCK).unwrap().with_options(options)
}

/// No test but what the tests start: without its script it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn holder() {
    let Ok(script) = std::env::var(SCRIPT) else { return };
    let mut parts = script.splitn(3, '\n');
    let mut part = || parts.next().unwrap();
    let (directory, is_fenced, site) = (part(), part() == "true", Site::read(part()));
    let mut account = site.connect().await;
    let guard = lock(Path::new(directory)).await.acquire().await.unwrap();
    let token = guard.token();
    let token = is_fenced.then_some(&token);
    let balance = account.read(token).await.unwrap();
    guard.check().unwrap();
    // A line of its own, whatever the harness has begun.
    println!("\nread {balance}");
    // Here it is stopped for longer than its lease.
    stdin().read_line(&mut String::new()).unwrap();
    match account.write(token, balance + DEPOSIT).await {
        Ok(()) => println!("\nwritten"),
        Err(error) => println!("\nrefused {}", error.fence_seen().unwrap()),
    }
    assert!(guard.check().is_err(), "it was stopped for longer than its lease");
}
