//! Memory, disk and the quarantine.

use std::time::Duration;

use lockfast::Severity;

use crate::kit::{connect, eventually, wait_until};
use crate::{Redis, Setup, check, check_only, diagnose, good};

const TIME_MAX: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eviction_throws_locks_away() {
    for policy in ["allkeys-lru", "volatile-ttl"] {
        let setup = good().memory_max(100 << 20, policy);
        check_only(setup, "eviction", Severity::Unsafe, policy).await;
    }
    let unlimited = good().line("maxmemory-policy allkeys-lru");
    check_only(unlimited, "eviction", Severity::Ok, "without a limit").await;
}

/// What was evicted is told also after the policy was mended; and a server that is nearly full.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_were_evicted_and_memory_that_is_short() {
    let redis = Redis::start();
    redis.cli(&["CONFIG", "SET", "maxmemory", "4mb"]);
    redis.cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let fill = "for i = 1, 9000 do redis.call('SET', 'filler:' .. i, ('x'):rep(1000)) end";
    redis.cli(&["EVAL", fill, "0"]);
    redis.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    let diagnosis = diagnose(&redis.url()).await;
    check(&diagnosis, "eviction", Severity::Ok, "noeviction");
    check(&diagnosis, "evicted-keys", Severity::Warn, "since the server was started");
    let used: u64 = redis.info("used_memory").parse().unwrap();
    redis.cli(&["CONFIG", "SET", "maxmemory", &(used * 105 / 100).to_string()]);
    check(&diagnose(&redis.url()).await, "memory", Severity::Warn, "KiB used");
    redis.cli(&["CONFIG", "SET", "maxmemory", &(used * 4).to_string()]);
    check(&diagnose(&redis.url()).await, "memory", Severity::Ok, "KiB used");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_restart_forgets() {
    let off = good().line("appendonly no");
    let redis = check_only(off, "persistence", Severity::Unsafe, "appendonly is off").await;
    let url = redis.url() + "?on_data_loss=quarantine";
    let diagnosis = diagnose(&url).await;
    check(&diagnosis, "persistence", Severity::Ok, "nothing is granted until");
    for fsync in ["everysec", "no"] {
        let setup = good().line(format!("appendfsync {fsync}"));
        check_only(setup, "persistence", Severity::Warn, fsync).await;
    }
    // B84: while a copy is written nothing is synced then.
    let setup = good().line("no-appendfsync-on-rewrite yes");
    check_only(setup, "persistence", Severity::Warn, "no-appendfsync-on-rewrite is yes").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_fails() {
    let redis = Redis::start();
    check(&diagnose(&redis.url()).await, "saving", Severity::Ok, "succeeded");
    std::fs::remove_dir_all(redis.data()).unwrap();
    redis.cli(&["SET", "x", "y"]);
    redis.cli(&["BGSAVE"]);
    wait_until("saving has failed", TIME_MAX, || redis.info("rdb_last_bgsave_status") == "err");
    let diagnosis = diagnose(&redis.url()).await;
    check(&diagnosis, "saving", Severity::Warn, "rdb_last_bgsave_status failed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quarantine_and_those_who_do_not_keep_it() {
    let redis = Setup::new().start();
    let plain = redis.url();
    check(&diagnose(&plain).await, "guard", Severity::Ok, "nobody uses");
    let quarantined = format!("{plain}?on_data_loss=quarantine&max_ttl=5s");
    check(&diagnose(&quarantined).await, "guard", Severity::Ok, "not written yet");
    let locker = connect(&quarantined).await;
    let url = quarantined.clone();
    check(&diagnose(&url).await, "guard", Severity::Warn, "quarantine for another");
    check(&diagnose(&plain).await, "guard", Severity::Warn, "others use on_data_loss=quarantine");
    eventually("it is over", TIME_MAX, async || {
        let diagnosis = diagnose(&url).await;
        crate::find(&diagnosis, "guard").fact.contains("was over")
    })
    .await;
    check(&diagnose(&url).await, "guard", Severity::Ok, "was over");
    redis.cli(&["SET", "lockfast:guard", "rubbish"]);
    check(&diagnose(&url).await, "guard", Severity::Warn, "does not hold what Lockfast writes");
    drop(locker);
}
