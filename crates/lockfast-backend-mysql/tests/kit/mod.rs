//! What the tests of this store share: a user with the rights that the README names, and a look at
//! the server. The servers, and the short ways to hold, lose and be refused a lock, are those of the
//! conformance crate.
#![allow(dead_code, unused_imports, reason = "each test binary uses a part of it")]
#![allow(unreachable_pub, reason = "what is shared is public, whoever uses it")]

use std::net::SocketAddr;

use lockfast::{Address, Locker, Result};
use lockfast_conformance::shorthand;

pub use lockfast_conformance::fault::certificate;
pub use lockfast_conformance::fault::mysql::{Flavor, Mysql, Setup};
pub use lockfast_conformance::fault::wait::{eventually, wait_until};
pub use lockfast_conformance::shorthand::{
    TIME_MAX, bounded, check_error, failure, hold, hold_detached, loss, refusal, ttl,
    wait_for_renewal,
};

/// A server of the kind that this binary tests.
pub fn setup() -> Setup {
    Setup::new(crate::FLAVOR)
}

/// One without anything special.
pub fn start_server() -> Mysql {
    setup().start()
}

/// The URL of a user who may only use the schema, made by one who may only make it.
pub async fn prepare(server: &Mysql) -> String {
    server.sql(
        "CREATE USER locks IDENTIFIED BY 'word'; GRANT EXECUTE ON lockfast.* TO locks; \
         CREATE USER maker IDENTIFIED BY 'word'; GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, \
         INDEX, CREATE ROUTINE, ALTER ROUTINE, EXECUTE ON lockfast.* TO maker",
    );
    let maker = Address::parse(&server.url_as("maker", Some("word"))).unwrap();
    lockfast_backend_mysql::migrate(maker).await.unwrap();
    url_at(server.address())
}

/// The same user's URL at another address.
pub fn url_at(address: SocketAddr) -> String {
    format!("mysql://locks:word@{address}/lockfast")
}

/// How many statements clients have sent so far.
pub fn statements(server: &Mysql) -> u64 {
    let said = server.sql("SHOW GLOBAL STATUS LIKE 'Questions'");
    said.split_whitespace().last().unwrap().parse().unwrap()
}

/// The connections of the user `locks`, the one for commands and the one that listens.
pub fn connections(server: &Mysql) -> (u64, u64) {
    let id = |kind: &str| {
        let said = server.sql(&format!(
            "SELECT IS_USED_LOCK(CONCAT('lockfast:{kind}:', HEX(client))) FROM \
             lockfast.lockfast_clients ORDER BY seen_us DESC LIMIT 1"
        ));
        said.trim().parse().unwrap_or(0)
    };
    (id("a"), id("l"))
}

/// Connects to a store on the server.
pub async fn connect(url: &str) -> Locker {
    shorthand::connect(url, lockfast_backend_mysql::connect).await
}

/// Connects to a store on the server, which may fail.
pub async fn try_connect(url: &str) -> Result<Locker> {
    shorthand::try_connect(url, lockfast_backend_mysql::connect).await
}
