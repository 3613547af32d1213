//! Connections and clocks.

use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use lockfast::{Moment, Severity};
use lockfast_faults::server::Server as _;

use crate::kit::{connect, hold, ttl, wait_until};
use crate::{Redis, Setup, check, check_only, diagnose, find, good};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_closed_or_kept_too_long() {
    check_only(good().line("timeout 10"), "idle-timeout", Severity::Warn, "10 s").await;
    check_only(good().line("timeout 300"), "idle-timeout", Severity::Ok, "300 s").await;
    check_only(good().line("tcp-keepalive 0"), "tcp-keepalive", Severity::Warn, "off").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_connections_are_left() {
    let redis = Setup::new().line("maxclients 20").start();
    check(&diagnose(&redis.url()).await, "max-clients", Severity::Ok, "of 20");
    let crowd: Vec<_> = (0..16).map(|_| TcpStream::connect(redis.address()).unwrap()).collect();
    wait_until("all are connected", Duration::from_secs(30), || {
        redis.info("connected_clients").parse::<u32>().unwrap() > 16
    });
    check(&diagnose(&redis.url()).await, "max-clients", Severity::Warn, "of 20");
    drop(crowd);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_off() {
    let redis = Setup::new().clock().start();
    let diagnosis = diagnose(&redis.url()).await;
    check(&diagnosis, "clock-offset", Severity::Ok, "s ± 0.0");
    redis.clock().step_forward(Duration::from_secs(3600));
    let diagnosis = diagnose(&redis.url()).await;
    check(&diagnosis, "clock-offset", Severity::Warn, "ahead of ours");
    assert_ne!(find(&diagnosis, "clock-rate").severity, Severity::Unsafe);
    redis.clock().step_back(Duration::from_secs(3600));
    check(&diagnose(&redis.url()).await, "clock-offset", Severity::Warn, "behind ours");
}

/// Twice as fast as ours.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_runs_away() {
    let redis = Arc::new(Setup::new().clock().start());
    let start = Moment::now();
    let hurry = tokio::spawn({
        let redis = Arc::clone(&redis);
        async move {
            loop {
                redis.clock().step_forward(Moment::now().since(start));
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    });
    let found = diagnose(&redis.url()).await;
    hurry.abort();
    check(&found, "clock-rate", Severity::Unsafe, "faster than ours");
}

/// A fence that is ahead of the clock shows that the clock was set back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_was_set_back() {
    let redis = Setup::new().clock().start();
    check(&diagnose(&redis.url()).await, "clock-steps", Severity::Ok, "nothing was granted yet");
    let locker = connect(&redis.url()).await;
    drop(hold(&locker, "nightly", ttl(Duration::from_secs(10))).await);
    check(&diagnose(&redis.url()).await, "clock-steps", Severity::Ok, "has not gone back");
    redis.clock().step_back(Duration::from_secs(600));
    check(&diagnose(&redis.url()).await, "clock-steps", Severity::Warn, "ahead of the clock");
    drop(locker);
}

/// A server that is not there is no finding but an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_gone() {
    let mut redis = Redis::start();
    redis.kill();
    let address = lockfast_core::Address::parse(&redis.url()).unwrap();
    let error = lockfast_backend_redis::diagnose(address).await.unwrap_err();
    assert_eq!(error.kind(), lockfast::ErrorKind::Unreachable, "{error}");
}
