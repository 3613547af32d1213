//! A replica that had not received everything takes the place of its server.

use std::time::Duration;

use lockfast::LossCause;

use crate::kit::{
    Flavor, Mysql, connect, eventually, hold, hold_detached, loss, prepare, refusal, setup, ttl,
    url_at,
};

const TTL: Duration = Duration::from_secs(6);
const LONG: Duration = Duration::from_secs(600);

/// What the two call the same.
struct Words {
    options: &'static [&'static str],
    follow: &'static str,
    start: &'static str,
    stop: &'static str,
    forget: &'static str,
}

const WORDS: Words = match crate::FLAVOR {
    Flavor::MariaDb => Words {
        options: &["--log-slave-updates"],
        follow: "CHANGE MASTER TO MASTER_USE_GTID = slave_pos, MASTER_HOST = '127.0.0.1', \
                 MASTER_USER = 'root', MASTER_PORT =",
        start: "START SLAVE",
        stop: "STOP SLAVE",
        forget: "RESET SLAVE ALL",
    },
    Flavor::MySql => Words {
        options: &["--gtid-mode=ON", "--enforce-gtid-consistency=ON"],
        follow: "CHANGE REPLICATION SOURCE TO SOURCE_AUTO_POSITION = 1, SOURCE_HOST = '127.0.0.1', \
                 GET_SOURCE_PUBLIC_KEY = 1, SOURCE_USER = 'root', SOURCE_PORT =",
        start: "START REPLICA",
        stop: "STOP REPLICA",
        forget: "RESET REPLICA ALL",
    },
};

fn start(id: u8) -> Mysql {
    let setup = setup().option(format!("--server-id={id}")).option("--log-bin=binlog");
    WORDS.options.iter().fold(setup, |setup, option| setup.option(*option)).start()
}

/// A replica that follows asynchronously from the first statement on.
async fn follow(main: &Mysql) -> Mysql {
    let replica = start(2);
    // What each has made for itself is not to be followed.
    replica.sql_on("", "SET sql_log_bin = 0; DROP DATABASE lockfast");
    if crate::FLAVOR == Flavor::MySql {
        let known = main.sql("SELECT @@server_uuid");
        let made = format!("SET GLOBAL gtid_purged = '{known}:1-2'");
        replica.sql_on("", &format!("RESET BINARY LOGS AND GTIDS; {made}"));
    }
    replica.sql_on("", &format!("{} {}; SET GLOBAL read_only = 1", WORDS.follow, main.port()));
    replica.sql_on("", WORDS.start);
    eventually("the replica follows", LONG, async || {
        replica.try_sql("SELECT version FROM lockfast_store").1.trim() == "2"
    })
    .await;
    replica
}

/// P1 holds for what the replica had received: it is refused to others and can be released. What
/// it had not received is forgotten, so that the lock is granted to another while its holder still
/// believes to have it, as the README says; P4 holds all the same: the new fence is higher, and P3:
/// the first is told by its deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_promoted() {
    let mut main = start(1);
    let url = prepare(&main).await;
    let replica = follow(&main).await;
    let first = connect(&url).await;
    let received = hold_detached(&first, "received", LONG).await;
    let row = "SELECT fence FROM lockfast_locks WHERE name = 'received' AND holder IS NOT NULL";
    eventually("it is received", LONG, async || {
        replica.sql(row).trim() == received.fence.get().to_string()
    })
    .await;
    replica.sql(WORDS.stop);
    let lost = hold(&first, "lost", ttl(TTL)).await;
    main.kill();
    replica.sql(WORDS.forget);
    replica.sql("SET GLOBAL read_only = 0");
    let second = connect(&url_at(replica.address())).await;
    let seen = refusal(&second, "received").await;
    assert_eq!(seen.lock.holders[0].fence, Some(received.fence));
    let next = hold(&second, "lost", ttl(TTL)).await;
    assert!(next.fence().get() > lost.fence().get());
    assert!(matches!(loss(&lost, TTL * 2).await, LossCause::Expired { .. }));
    second.release_detached(&received.name, received.holder).await.unwrap();
    let after = hold(&second, "received", ttl(TTL)).await;
    assert!(after.fence().get() > received.fence.get());
}
