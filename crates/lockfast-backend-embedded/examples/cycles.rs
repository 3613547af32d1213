//! How fast these stores are without the lease engine above them: cycles of one task and of 64,
//! renewals in a batch, and hand-overs between two processes. Prints JSON.
//!
//! ```text
//! cargo run --release --example cycles [DIRECTORY [CASE]]
//! ```
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement, not a library")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use lockfast_core::{
    AcquireOutcome, AcquireRequest, Address, Backend, ClientId, ConnectContext, Grant, HolderId,
    Label, LockName, LossReporter, Mode, Moment, ReleaseRequest, RenewRequest, Wait,
};

struct Asker {
    backend: Arc<dyn Backend>,
    client: ClientId,
}

impl Asker {
    async fn connect(url: &str) -> Self {
        let client = ClientId::random().unwrap();
        let context = ConnectContext {
            runtime: tokio::runtime::Handle::current(),
            client,
            label: Label::of_this_process(),
            losses: LossReporter::new(|_| {}),
        };
        let address = Address::parse(url).unwrap();
        let backend = lockfast_backend_embedded::connect(address, context);
        let backend = backend.await.unwrap();
        Self { backend, client }
    }

    async fn acquire(&self, name: &LockName) -> (HolderId, Grant) {
        let holder = HolderId::random(self.client).unwrap();
        let request = AcquireRequest {
            name: name.clone(),
            mode: Mode::Exclusive,
            holder,
            ttl: Duration::from_secs(30),
            lock_delay: Duration::ZERO,
            wait: Wait::Forever,
            detached: false,
            floor: None,
        };
        match self.backend.acquire(request).await.unwrap() {
            AcquireOutcome::Granted(grant) => (holder, grant),
            AcquireOutcome::Taken(_) => unreachable!("it waits for ever"),
        }
    }

    async fn release(&self, name: &LockName, holder: HolderId) {
        let name = name.clone();
        let request = ReleaseRequest { name, holder };
        self.backend.release(request).await.unwrap();
    }
}

/// Acquire and release of locks that nobody else wants.
async fn cycles_per_s(url: &str, tasks: usize, same_name: bool) -> f64 {
    let asker = Arc::new(Asker::connect(url).await);
    let start = Moment::now();
    let tasks: Vec<_> = (0..tasks)
        .map(|at| {
            let asker = Arc::clone(&asker);
            let at = if same_name { 0 } else { at };
            let name = LockName::new(format!("cycle/{at}")).unwrap();
            tokio::spawn(async move {
                let mut cycles = 0;
                while Moment::now().since(start) < Duration::from_secs(2) {
                    let (holder, _) = asker.acquire(&name).await;
                    asker.release(&name, holder).await;
                    cycles += 1;
                }
                cycles
            })
        })
        .collect();
    let mut cycles = 0;
    for task in tasks {
        cycles += task.await.unwrap();
    }
    f64::from(cycles) / Moment::now().since(start).as_secs_f64()
}

/// Microseconds for one renewal in batches of 1000, among `leases` that are held.
async fn renewal_us(url: &str, leases: usize) -> f64 {
    let asker = Asker::connect(url).await;
    let mut batch = Vec::new();
    for at in 0..leases {
        let name = LockName::new(format!("renewed/by/the/batch/{at}")).unwrap();
        let (holder, _) = asker.acquire(&name).await;
        batch.push(RenewRequest {
            name,
            holder,
            ttl: Duration::from_secs(30),
            lock_delay: Duration::ZERO,
        });
    }
    let start = Moment::now();
    let mut renewed = 0;
    for chunk in batch.chunks(1_000).cycle().take(50) {
        renewed += chunk.len();
        asker.backend.renew(chunk.to_vec()).await.unwrap();
    }
    Moment::now().since(start).as_secs_f64() * 1e6 / renewed as f64
}

/// Microseconds from the call of release here to the grant in another process.
async fn hand_over_us(url: &str) -> Vec<f64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["other", url])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut orders = child.stdin.take().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    let asker = Asker::connect(url).await;
    let name = LockName::new("handed-over").unwrap();
    let mut times = Vec::new();
    for _ in 0..1_000 {
        let (holder, _) = asker.acquire(&name).await;
        writeln!(orders, "acquire").unwrap();
        loop {
            let query = lockfast_core::Query::Name(name.clone());
            if asker.backend.inspect(query).await.unwrap()[0].waiting == 1 {
                break;
            }
        }
        let start_ns = Moment::now().host_ns();
        asker.release(&name, holder).await;
        let granted_ns: u64 = said.next().unwrap().unwrap().parse().unwrap();
        times.push((granted_ns - start_ns) as f64 / 1e3);
    }
    drop(orders);
    child.wait().unwrap();
    times
}

/// The other process of a hand-over.
async fn be_other(url: &str) {
    let asker = Asker::connect(url).await;
    let name = LockName::new("handed-over").unwrap();
    for _ in std::io::stdin().lines() {
        let (holder, _) = asker.acquire(&name).await;
        println!("{}", Moment::now().host_ns());
        asker.release(&name, holder).await;
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let [word, url] = arguments.as_slice()
        && word == "other"
    {
        return be_other(url).await;
    }
    let parent = arguments.first().map_or_else(std::env::temp_dir, Into::into);
    let wanted = arguments.get(1).map_or("", String::as_str);
    let dir = tempfile::tempdir_in(parent).unwrap();
    let store = |name: &str| format!("embedded:{}", dir.path().join(name).display());
    let full = format!("{}?sync=full", store("full"));
    let mut results = Vec::new();
    for (case, url, tasks, same_name) in [
        ("memory_cycles_1_per_s", "memory:", 1, false),
        ("memory_cycles_64_per_s", "memory:", 64, false),
        ("memory_same_name_64_per_s", "memory:", 64, true),
        ("embedded_cycles_1_per_s", &store("one"), 1, false),
        ("embedded_cycles_64_per_s", &store("many"), 64, false),
        ("embedded_same_name_64_per_s", &store("same"), 64, true),
        ("embedded_full_cycles_64_per_s", &full, 64, false),
    ] {
        if case.starts_with(wanted) {
            results.push((case, cycles_per_s(url, tasks, same_name).await));
        }
    }
    for (case, url, leases) in [
        ("memory_renewal_us", "memory:", 1_000),
        ("memory_renewal_of_100k_us", "memory:", 100_000),
        ("embedded_renewal_us", &store("renew"), 1_000),
    ] {
        if case.starts_with(wanted) {
            results.push((case, renewal_us(url, leases).await));
        }
    }
    if "hand_over".starts_with(wanted) {
        let mut times = hand_over_us(&store("hand-over")).await;
        times.sort_by(f64::total_cmp);
        results.push(("hand_over_p50_us", times[times.len() / 2]));
        results.push(("hand_over_p99_us", times[times.len() * 99 / 100]));
    }
    let results: Vec<_> =
        results.iter().map(|(case, figure)| format!("\"{case}\":{figure:.2}")).collect();
    println!("{{{}}}", results.join(","));
}
