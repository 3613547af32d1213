//! A replica that follows a server, with the words of either kind.

use std::time::Duration;

use super::{Flavor, Mysql, eventually, setup};

const LONG: Duration = Duration::from_secs(600);

/// What the two call the same.
pub struct Words {
    options: &'static [&'static str],
    follow: &'static str,
    pub start: &'static str,
    pub stop: &'static str,
    pub forget: &'static str,
}

/// Those of the server that is tested.
pub const WORDS: Words = match crate::FLAVOR {
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

/// A server that can be followed.
pub fn start(id: u8) -> Mysql {
    let setup = setup().option(format!("--server-id={id}")).option("--log-bin=binlog");
    WORDS.options.iter().fold(setup, |setup, option| setup.option(*option)).start()
}

/// A replica that follows asynchronously from the first statement on.
pub async fn follow(main: &Mysql) -> Mysql {
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
        replica.try_sql("SELECT version FROM lockfast_store").1.trim() == "1"
    })
    .await;
    replica
}
