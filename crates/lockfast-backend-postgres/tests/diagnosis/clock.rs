//! A server whose clock is wrong, or runs wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockfast::{Guarantee, Moment, Severity};
use lockfast_faults::server::Server as _;

use crate::kit::{Setup, TIME_MAX, eventually, url};
use crate::{diagnose, expect, finding, start};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_wrong() {
    let postgres = start(Setup::new().durable().clock());
    let url = url(&postgres);
    postgres.clock().step_forward(Duration::from_secs(5));
    let said = ["ahead of ours", "time server"];
    expect(&diagnose(&url).await, "clock-offset", Severity::Warn, &said);
    postgres.clock().step_back(Duration::from_secs(60));
    expect(&diagnose(&url).await, "clock-offset", Severity::Warn, &["behind ours"]);
    // One that goes twice as fast as ours.
    let is_done = Arc::new(AtomicBool::new(false));
    let postgres = Arc::new(postgres);
    let running = std::thread::spawn({
        let (postgres, is_done) = (Arc::clone(&postgres), Arc::clone(&is_done));
        move || {
            let start = Moment::now();
            while !is_done.load(Ordering::Relaxed) {
                postgres.clock().step_forward(Moment::now().since(start));
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    eventually("the machine is not too busy to see it", TIME_MAX, async || {
        let diagnosis = diagnose(&url).await;
        if finding(&diagnosis, "clock-rate").0 == Severity::Unknown {
            return false;
        }
        expect(&diagnosis, "clock-rate", Severity::Unsafe, &["before its holder's deadline"]);
        assert_eq!(diagnosis.guarantee, Guarantee::Efficiency);
        true
    })
    .await;
    is_done.store(true, Ordering::Relaxed);
    running.join().unwrap();
}
