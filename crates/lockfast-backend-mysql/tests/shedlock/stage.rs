//! A server with the table as ShedLock documents it, and the rights that the README names.

use std::net::SocketAddr;
use std::time::Duration;

use crate::kit::{self, Mysql, Setup};

pub(crate) const TABLE: &str = "CREATE TABLE lockfast.shedlock(name VARCHAR(64) NOT NULL, \
    lock_until TIMESTAMP(3) NOT NULL, locked_at TIMESTAMP(3) NOT NULL DEFAULT \
    CURRENT_TIMESTAMP(3), locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name)); \
    GRANT SELECT, INSERT, UPDATE ON lockfast.shedlock TO locks";
pub(crate) const NAME: &str = "nightly-report";
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

pub(crate) fn start() -> Mysql {
    start_with(kit::setup())
}

/// The same, set up in some way.
pub(crate) fn start_with(setup: Setup) -> Mysql {
    let server = setup.start();
    server.sql("CREATE USER locks IDENTIFIED BY 'word'");
    server.sql(TABLE);
    server
}

pub(crate) fn url(server: &Mysql) -> String {
    url_at(server.address())
}

pub(crate) fn url_at(address: SocketAddr) -> String {
    format!("{}?mode=shedlock", kit::url_at(address))
}

/// The row as it is.
pub(crate) fn row(server: &Mysql) -> String {
    server.sql(&format!("SELECT * FROM lockfast.shedlock WHERE name = '{NAME}'"))
}
