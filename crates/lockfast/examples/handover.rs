//! How long it takes to hand a lock from one process to another that waits for it: from the call
//! of `release` here to the return of `acquire` there. Prints JSON.
//!
//! ```text
//! cargo run --release --example handover URL
//! ```

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement, not a library")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use lockfast::{Locker, Moment};

const NAME: &str = "handed-over";
const ROUNDS: usize = 1_000;
/// Rounds before those that count, in which the log of a store on disk still grows.
const WARM_UP: usize = 500;

/// The process that waits: each line that it reads is a turn.
async fn wait_in_turn(url: &str) {
    let mutex = Locker::connect(url).await.unwrap().mutex(NAME).unwrap();
    for _ in std::io::stdin().lines() {
        let guard = mutex.acquire().await.unwrap();
        println!("{}", Moment::now().host_ns());
        guard.release().await.unwrap();
    }
}

async fn measure(url: &str) -> Vec<u64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([url, "wait"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut turns = child.stdin.take().unwrap();
    let mut granted = BufReader::new(child.stdout.take().unwrap()).lines();
    let locker = Locker::connect(url).await.unwrap();
    let mutex = locker.mutex(NAME).unwrap();
    let mut times_ns = Vec::with_capacity(ROUNDS);
    for round in 0..WARM_UP + ROUNDS {
        let guard = mutex.acquire().await.unwrap();
        writeln!(turns, "next").unwrap();
        while locker.inspect(mutex.name()).await.unwrap().waiting == 0 {}
        let released_ns = Moment::now().host_ns();
        guard.release().await.unwrap();
        let granted_ns: u64 = granted.next().unwrap().unwrap().parse().unwrap();
        if round >= WARM_UP {
            times_ns.push(granted_ns - released_ns);
        }
    }
    drop(turns);
    child.wait().unwrap();
    times_ns
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [url, _] => wait_in_turn(url).await,
        [url] => {
            let mut times_ns = measure(url).await;
            times_ns.sort_unstable();
            let at = |share: usize| times_ns[times_ns.len() * share / 100] as f64 / 1e3;
            println!("{{\"p50_us\":{:.1},\"p99_us\":{:.1}}}", at(50), at(99));
        }
        _ => println!("usage: handover URL"),
    }
}
