//! What a lock inside one program costs at best: an entry of a map of `tokio::sync::Mutex`, taken
//! and given back. Prints JSON; `cargo xtask bench` compares `memory:` with it.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement, not a library")]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lockfast::Moment;

type Locks = std::sync::Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>;

async fn cycles_per_s(tasks: usize) -> f64 {
    let locks: Arc<Locks> = Arc::default();
    let start = Moment::now();
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let locks = Arc::clone(&locks);
            tokio::spawn(async move {
                let name = format!("cycle/{task}");
                let mut cycles = 0_u64;
                while Moment::now().since(start) < Duration::from_secs(1) {
                    for _ in 0..100 {
                        let lock =
                            Arc::clone(locks.lock().unwrap().entry(name.clone()).or_default());
                        drop(lock.lock().await);
                        cycles += 1;
                    }
                }
                cycles
            })
        })
        .collect();
    let mut cycles = 0;
    for task in running {
        cycles += task.await.unwrap();
    }
    cycles as f64 / Moment::now().since(start).as_secs_f64()
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let (one, many) = (cycles_per_s(1).await, cycles_per_s(64).await);
    println!("{{\"cycles_1_per_s\":{one:.0},\"cycles_64_per_s\":{many:.0}}}");
}
