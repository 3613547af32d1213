//! A server that is well set up, settings that hurt, and servers that cannot be used.

use std::time::Duration;

use lockfast::{Guarantee, Severity};
use lockfast_backend_mysql::CHECKS;
use lockfast_faults::server::Server as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::look::{diagnose, expect, flaws, let_see};
use crate::kit::{Flavor, Setup, TIME_MAX, eventually, prepare, setup, url_at};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_well_set_up_and_then_is_not() {
    let server = setup().durable().clock().start();
    let url = prepare(&server).await;
    let before = server.sql("SELECT * FROM lockfast_clients; CHECKSUM TABLE lockfast_store");
    let diagnosis = diagnose(&url).await;
    // What the documented rights do not show is said to be unknown.
    let unknown: &[&str] = match crate::FLAVOR {
        Flavor::MariaDb => &["definer"],
        Flavor::MySql => &["role", "failover", "definer"],
    };
    let unknown: Vec<_> = unknown.iter().map(|check| (*check, Severity::Unknown)).collect();
    assert_eq!(flaws(&diagnosis), unknown, "{diagnosis:#?}");
    expect(&diagnosis, "definer", Severity::Unknown, &["GRANT SELECT (User, Host", "'locks'@'%'"]);
    assert_eq!(diagnosis.guarantee, Guarantee::Correctness);
    let_see(&server);
    eventually("all is well, once the machine is not too busy", TIME_MAX, async || {
        let diagnosis = diagnose(&url).await;
        assert_eq!(flaws(&diagnosis), [], "{diagnosis:#?}");
        let checks: Vec<&str> = diagnosis.findings.iter().map(|finding| finding.check).collect();
        assert_eq!(checks, CHECKS);
        diagnosis.worst() == Severity::Ok
    })
    .await;
    let after = server.sql("SELECT * FROM lockfast_clients; CHECKSUM TABLE lockfast_store");
    assert_eq!(after, before, "something was written");

    // Each in another check, so that one look sees them all.
    server.sql(
        "SET GLOBAL innodb_flush_log_at_trx_commit = 2; SET GLOBAL wait_timeout = 60; \
         SET GLOBAL innodb_deadlock_detect = OFF; SET GLOBAL read_only = 1; \
         ALTER USER locks WITH MAX_USER_CONNECTIONS 5; SET GLOBAL sync_binlog = 0",
    );
    server.clock().step_forward(Duration::from_secs(5));
    let diagnosis = diagnose(&url).await;
    expect(&diagnosis, "redo-log", Severity::Unsafe, &["is 2", "granted twice", "SET GLOBAL"]);
    expect(&diagnosis, "timeouts", Severity::Warn, &["wait_timeout is 60 s"]);
    expect(&diagnosis, "lock-wait", Severity::Warn, &["innodb_deadlock_detect is OFF"]);
    expect(&diagnosis, "read-only", Severity::Unsafe, &["read_only is ON", "no lock can be taken"]);
    expect(&diagnosis, "connections", Severity::Warn, &["of 5 that the user"]);
    expect(&diagnosis, "clock-offset", Severity::Warn, &["ahead of ours"]);
    if crate::FLAVOR == Flavor::MySql {
        // MariaDB writes no binary log unless it is told to; see the test of replicas.
        expect(&diagnosis, "binlog", Severity::Unsafe, &["sync_binlog is 0", "undoes"]);
    }
    assert_eq!(diagnosis.guarantee, Guarantee::Efficiency);
    assert!(diagnosis.because.contains("unsafe"), "{}", diagnosis.because);
    if crate::FLAVOR == Flavor::MariaDb {
        server.sql("SET GLOBAL wait_timeout = 28800; SET GLOBAL max_statement_time = 5");
        let diagnosis = diagnose(&url).await;
        expect(&diagnosis, "timeouts", Severity::Warn, &["max_statement_time is 5 s"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_cannot_be_used() {
    let (options, said): (&[&str], _) = match crate::FLAVOR {
        Flavor::MariaDb => (&["--wsrep-on=ON", "--binlog-format=ROW"], "Galera"),
        Flavor::MySql => (
            &[
                "--plugin-load-add=group_replication.so",
                "--loose-group-replication-single-primary-mode=OFF",
            ],
            "several primaries",
        ),
    };
    let setup = setup().option("--sysdate-is-now").option("--innodb-doublewrite=0");
    let server = options.iter().fold(setup, |setup, option| Setup::option(setup, *option)).start();
    let diagnosis = diagnose(&server.url()).await;
    expect(&diagnosis, "cluster", Severity::Unsafe, &[said, "refuses"]);
    expect(&diagnosis, "sysdate", Severity::Unsafe, &["sysdate-is-now"]);
    expect(&diagnosis, "doublewrite", Severity::Unsafe, &["half written"]);
    expect(&diagnosis, "redo-log", Severity::Unsafe, &["is 2"]);
    // The administrator may do everything, and would make the schema by connecting.
    expect(&diagnosis, "rights", Severity::Warn, &["on *.*"]);
    expect(&diagnosis, "schema", Severity::Warn, &["lockfast migrate"]);
    assert_eq!(server.sql("SHOW TABLES"), "", "to look is not to make");
    server.sql(
        "CREATE TABLE other (n INT); CREATE USER locks IDENTIFIED BY 'word'; \
         GRANT SELECT ON lockfast.other TO locks; SET GLOBAL innodb_flush_log_at_trx_commit = 1",
    );
    let diagnosis = diagnose(&url_at(server.address())).await;
    expect(&diagnosis, "schema", Severity::Unsafe, &["no lock can be taken", "lockfast migrate"]);
    expect(&diagnosis, "redo-log", Severity::Unsafe, &["innodb_flush_method is nosync"]);

    if crate::FLAVOR == Flavor::MySql {
        server.sql(
            "SET GLOBAL group_replication_single_primary_mode = ON; \
             SET GLOBAL group_replication_group_name = '5db40c3c-180c-11e9-afbf-005056ac6820'; \
             SET GLOBAL group_replication_consistency = 'EVENTUAL'",
        );
        let diagnosis = diagnose(&url_at(server.address())).await;
        expect(&diagnosis, "cluster", Severity::Unsafe, &["EVENTUAL", "granted twice"]);
        server.sql("SET GLOBAL group_replication_consistency = 'BEFORE_ON_PRIMARY_FAILOVER'");
    }
    let proxy = start_proxy(server.address()).await;
    expect(&diagnose(&url_at(proxy)).await, "pooler", Severity::Warn, &["a proxy"]);
}

/// A proxy that numbers its connections itself, as those do that share them.
async fn start_proxy(server: std::net::SocketAddr) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut server = TcpStream::connect(server).await.unwrap();
        let mut greeting = vec![0; 4];
        server.read_exact(&mut greeting).await.unwrap();
        let length = usize::from(greeting[0]) + (usize::from(greeting[1]) << 8);
        greeting.resize(4 + length, 0);
        server.read_exact(&mut greeting[4..]).await.unwrap();
        // The number stands after the server's version, which ends with a zero.
        let version = greeting[5..].iter().position(|byte| *byte == 0).unwrap();
        greeting[5 + version + 1] ^= 0x40;
        client.write_all(&greeting).await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
    });
    address
}
