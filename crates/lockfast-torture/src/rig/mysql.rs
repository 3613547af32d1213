//! MariaDB and Oracle's MySQL, one server each that has every commit on disk before it answers.

use std::io;

use lockfast_faults::mysql::{Flavor, Setup};

use super::host::Single;
use super::need::{From, Need};
use super::{CLOCK, KILL, PAUSE, RESTART, Rig, RigOptions, Row, ServerFault};

const FAULTS: &[ServerFault] = &[KILL, RESTART, PAUSE, CLOCK];

pub(super) const MARIADB: Row = Row {
    name: "mariadb",
    about: "one MariaDB server",
    schemes: &["mysql", "mariadb"],
    needs: &[
        Need { program: "mariadbd", from: From::Package("mariadb-server") },
        Need { program: "mariadb", from: From::Package("mariadb-client") },
        Need { program: "mariadb-install-db", from: From::Package("mariadb-server") },
    ],
    servers: 1,
    proxied: true,
    faults: FAULTS,
    start: |options| start(options, Flavor::MariaDb),
};

pub(super) const MYSQL: Row = Row {
    name: "mysql",
    about: "one MySQL server",
    schemes: &["mysql", "mariadb"],
    needs: &[
        Need { program: "mysqld", from: From::Mysql },
        Need { program: "mysql", from: From::Mysql },
    ],
    servers: 1,
    proxied: true,
    faults: FAULTS,
    start: |options| start(options, Flavor::MySql),
};

/// As whom workers connect.
const USER: &str = "app";

fn start(options: &RigOptions, flavor: Flavor) -> io::Result<Box<dyn Rig>> {
    let setup = Setup::new(flavor).durable();
    let server = if options.clock { setup.clock().start() } else { setup.start() };
    server.sql(&format!("CREATE USER {USER}"));
    server.sql(&format!("GRANT ALL ON lockfast.* TO {USER}"));
    let url = server.url_as(USER, None);
    Ok(Box::new(Single::new(server, url, options.ttl)))
}
