//! The two stories that people tell about Redlock, replayed on servers that this program starts:
//! a holder that sleeps past its lease, and a node that restarts empty. Both times two believe to
//! hold one lock. A plain write then loses an update; a write that checks the fence does not.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "an example that tells a story"
)]

use std::sync::Mutex;
use std::time::Duration;

use lockfast::fence::Gate;
use lockfast::{DetachedLease, Locker, Moment, Options, Result};
use lockfast_core::Address;
use lockfast_faults::redis::Redis;
use lockfast_faults::server::Server as _;

/// What the lock guards: an account to which each holder adds what it read plus its deposit.
#[derive(Debug)]
enum Account {
    Plain(Mutex<u64>),
    Fenced(Gate<u64>),
}

impl Account {
    fn new(checks: bool) -> Self {
        match checks {
            true => Self::Fenced(Gate::new("account", 0).unwrap()),
            false => Self::Plain(Mutex::new(0)),
        }
    }

    /// The open step: raises the fence first, then reads.
    fn read(&self, lease: &DetachedLease) -> Result<u64> {
        match self {
            Self::Plain(balance) => Ok(*balance.lock().unwrap()),
            Self::Fenced(gate) => gate.open(&lease.token()).map(|balance| *balance),
        }
    }

    fn write(&self, lease: &DetachedLease, balance: u64) -> Result<()> {
        match self {
            Self::Plain(plain) => *plain.lock().unwrap() = balance,
            Self::Fenced(gate) => *gate.check(&lease.token())? = balance,
        }
        Ok(())
    }

    fn balance(self) -> u64 {
        match self {
            Self::Plain(balance) => balance.into_inner().unwrap(),
            Self::Fenced(gate) => gate.into_inner(),
        }
    }
}

/// How a story ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Ending {
    /// Whether two held the lock at one moment, or wrote as if they did.
    pub two_holders: bool,
    /// Whether the first holder's late write was refused.
    pub late_write_refused: bool,
    /// What is left of 100 + 50 that were paid in.
    pub balance: u64,
}

/// Tells one event with the time since the story began.
struct Teller(Moment);

impl Teller {
    fn tell(&self, what: &str) {
        println!("  {:>5} ms  {what}", Moment::now().since(self.0).as_millis());
    }
}

async fn connect(servers: &[Redis]) -> Locker {
    let hosts: Vec<String> = servers.iter().map(|it| it.address().to_string()).collect();
    let url = format!("redlock://{}?node_timeout=500ms", hosts.join(","));
    let address = Address::parse(&url).unwrap();
    Locker::builder()
        .connect_with(move |context| lockfast_backend_redlock::connect(address, context))
        .await
        .unwrap()
}

/// A holder that nobody renews: what a process is that sleeps.
async fn take(locker: &Locker, ttl: Duration) -> DetachedLease {
    let options = Options::default().ttl(ttl).wait(Duration::from_secs(20));
    let lock = locker.mutex("account").unwrap().with_options(options);
    lock.acquire_detached().await.unwrap()
}

/// Ann reads, and then cannot act for a while; Ben reads and writes meanwhile; then Ann writes.
fn finish(
    account: &Account,
    teller: &Teller,
    (ann, read): (&DetachedLease, u64),
    ben: &DetachedLease,
) -> bool {
    let balance = account.read(ben).unwrap();
    account.write(ben, balance + 100).unwrap();
    teller.tell(&format!("Ben reads {balance}, writes {} with fence {}", balance + 100, ben.fence));
    let late = account.write(ann, read + 50);
    match &late {
        Ok(()) => teller.tell(&format!("Ann writes {} with fence {}", read + 50, ann.fence)),
        Err(error) => teller.tell(&format!("Ann's write is refused: {error}")),
    }
    late.is_err()
}

/// A holder sleeps past its lease.
pub async fn a_holder_sleeps(checks: bool) -> Ending {
    let servers = [Redis::start(), Redis::start(), Redis::start()];
    let (anns, bens) = (connect(&servers).await, connect(&servers).await);
    let account = Account::new(checks);
    let teller = Teller(Moment::now());
    let ann = take(&anns, Duration::from_millis(400)).await;
    let read = account.read(&ann).unwrap();
    teller.tell(&format!("Ann holds the lock for 0.4 s, reads {read}, and falls asleep"));
    let ben = take(&bens, Duration::from_secs(30)).await;
    teller.tell("Ann's lease has ended, Ben holds the lock");
    assert!(ann.deadline.has_passed(Moment::now()), "no two hold it while leases last");
    let late_write_refused = finish(&account, &teller, (&ann, read), &ben);
    let balance = account.balance();
    teller.tell(&format!("the account has {balance}"));
    Ending { two_holders: true, late_write_refused, balance }
}

/// A node restarts empty.
pub async fn a_node_restarts_empty(checks: bool) -> Ending {
    let mut servers = [Redis::start(), Redis::start(), Redis::start()];
    let (anns, bens) = (connect(&servers).await, connect(&servers).await);
    let account = Account::new(checks);
    let teller = Teller(Moment::now());
    servers[2].pause();
    let ann = take(&anns, Duration::from_secs(60)).await;
    let read = account.read(&ann).unwrap();
    teller.tell(&format!("node 3 hangs; Ann holds the lock by nodes 1 and 2, reads {read}"));
    // What Ann asked of node 3 is given up, so that it is as if it had been cut off.
    drop(anns);
    servers[1].restart_empty();
    servers[2].kill();
    servers[2].restart_empty();
    teller.tell("node 2 restarts without its memory, node 3 is back without Ann's request");
    let ben = take(&bens, Duration::from_secs(60)).await;
    let two_holders = !ann.deadline.has_passed(Moment::now());
    teller.tell("Ben holds the lock by nodes 2 and 3, while Ann's lease lasts");
    let late_write_refused = finish(&account, &teller, (&ann, read), &ben);
    let balance = account.balance();
    teller.tell(&format!("the account has {balance}"));
    Ending { two_holders, late_write_refused, balance }
}

#[tokio::main]
async fn main() {
    for (checks, how) in [(false, "plain writes"), (true, "fenced writes")] {
        println!("A holder sleeps past its lease, {how}");
        a_holder_sleeps(checks).await;
        println!("A node restarts empty, {how}");
        a_node_restarts_empty(checks).await;
    }
}
