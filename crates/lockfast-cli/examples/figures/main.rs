//! How stores compare, each on a server that is started for it: for `cargo xtask choose` and
//! `cargo xtask bench optimistic`.
//!
//! ```text
//! figures choose STORE            free locks, hand-over and take-over
//! figures optimistic STORE        updates of values, optimistic and under a lock
//! figures hold URL TTL_MS         holds a lock until it is killed
//! ```
//!
//! STORE is a name of `servers.rs`. Each of the first two prints one line of JSON.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a measurement, not a library"
)]

mod choose;
mod optimistic;
mod servers;

use std::time::Duration;

use lockfast::{Locker, Moment, Options, Reach};

/// Connects, with leases that last so long if that is said.
async fn connect(url: &str, ttl: Option<Duration>) -> Locker {
    let options = ttl.map_or_else(Options::default, |ttl| Options::default().ttl(ttl));
    Locker::builder().options(options).connect(url).await.unwrap()
}

/// So many connections to one store; one for all where a connection is the store.
async fn connect_each(url: &str, count: usize) -> Vec<Locker> {
    let first = connect(url, None).await;
    let mut lockers = vec![first.clone()];
    while lockers.len() < count {
        lockers.push(if reaches_others(&first) { connect(url, None).await } else { first.clone() });
    }
    lockers
}

/// Whether other processes can have its locks.
fn reaches_others(locker: &Locker) -> bool {
    locker.profile().reach != Reach::Process
}

/// The one in the middle, in microseconds.
fn median_us(mut spans: Vec<Duration>) -> f64 {
    spans.sort_unstable();
    spans.get(spans.len() / 2).map_or(f64::NAN, |span| span.as_secs_f64() * 1e6)
}

fn since(start: Moment) -> Duration {
    Moment::now().since(start)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().unwrap();
    let figures = match words[..] {
        ["hold", url, ttl_ms] => runtime.block_on(choose::hold(url, ttl_ms.parse().unwrap())),
        ["choose", store] => {
            let started = servers::start(store);
            runtime.block_on(choose::measure(&started.url))
        }
        ["optimistic", store] => {
            let started = servers::start(store);
            runtime.block_on(optimistic::measure(&started.url))
        }
        _ => panic!("see the head of main.rs for what can be asked"),
    };
    println!("{figures}");
}
