//! A replica that follows, in step or not.

use lockfast::{Guarantee, Severity};

use super::look::{diagnose, expect, let_see};
use crate::kit::replica::{WORDS, follow, start};
use crate::kit::{Flavor, TIME_MAX, eventually, prepare, url_at};

/// What the two call the same.
struct Words {
    /// On the server that is followed, and on the one that follows.
    here: &'static str,
    there: &'static str,
    clients: &'static str,
    patience: &'static str,
}

const SEMI_SYNC: Words = match crate::FLAVOR {
    Flavor::MariaDb => Words {
        here: "SET GLOBAL rpl_semi_sync_master_enabled = ON",
        there: "SET GLOBAL rpl_semi_sync_slave_enabled = ON",
        clients: "SHOW STATUS LIKE 'Rpl_semi_sync_master_clients'",
        patience: "SET GLOBAL rpl_semi_sync_master_timeout = 86400000",
    },
    Flavor::MySql => Words {
        here: "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'; \
               SET GLOBAL rpl_semi_sync_source_enabled = ON",
        there: "INSTALL PLUGIN rpl_semi_sync_replica SONAME 'semisync_replica.so'; \
                SET GLOBAL rpl_semi_sync_replica_enabled = ON",
        clients: "SHOW STATUS LIKE 'Rpl_semi_sync_source_clients'",
        patience: "SET GLOBAL rpl_semi_sync_source_timeout = 86400000",
    },
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica() {
    let main = start(1);
    let url = prepare(&main).await;
    let_see(&main);
    main.sql("SET GLOBAL sync_binlog = 0");
    let replica = follow(&main).await;
    let diagnosis = diagnose(&url).await;
    expect(&diagnosis, "failover", Severity::Unsafe, &["1 replica(s)", "asynchronously"]);
    expect(&diagnosis, "binlog", Severity::Unsafe, &["sync_binlog is 0"]);
    assert_eq!(diagnosis.guarantee, Guarantee::Efficiency);
    eventually("the rights arrive", TIME_MAX, async || {
        replica.try_sql("SHOW GRANTS FOR locks").1.contains("Super_priv")
    })
    .await;
    let there = url_at(replica.address());
    expect(&diagnose(&there).await, "role", Severity::Unsafe, &["a replica", "promoted"]);
    replica.sql("SET GLOBAL read_only = 0");
    expect(&diagnose(&there).await, "role", Severity::Unsafe, &["takes writes", "granted twice"]);

    main.sql(SEMI_SYNC.here);
    replica.sql_on("", &format!("SET sql_log_bin = 0; {}", SEMI_SYNC.there));
    replica.sql(WORDS.stop);
    replica.sql(WORDS.start);
    eventually("it is in step", TIME_MAX, async || {
        main.sql(SEMI_SYNC.clients).trim().ends_with('1')
    })
    .await;
    let diagnosis = diagnose(&url).await;
    expect(&diagnosis, "failover", Severity::Warn, &["no longer than 10000 ms"]);
    main.sql(SEMI_SYNC.patience);
    main.sql("SET GLOBAL sync_binlog = 1");
    let diagnosis = diagnose(&url).await;
    expect(&diagnosis, "failover", Severity::Ok, &["commits wait for one of 1"]);
    expect(&diagnosis, "binlog", Severity::Ok, &[]);
    main.sql("SET GLOBAL binlog_format = 'STATEMENT'");
    let diagnosis = diagnose(&url).await;
    expect(&diagnosis, "binlog", Severity::Unsafe, &["STATEMENT", "no lock can be taken"]);
}
