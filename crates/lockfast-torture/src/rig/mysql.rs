//! MariaDB and Oracle's MySQL, one server each that has every commit on disk before it answers.

use std::io;

use lockfast_faults::mysql::{Flavor, Mysql, Setup};

use super::host::Host;
use super::need::{From, Need};
use super::{CLOCK, KILL, PAUSE, Planned, RESTART, Rig, RigOptions, Row, ServerFault};

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

#[derive(Debug)]
struct Single(Host<Mysql>);

fn start(options: &RigOptions, flavor: Flavor) -> io::Result<Box<dyn Rig>> {
    let setup = Setup::new(flavor).durable();
    let server = if options.clock { setup.clock().start() } else { setup.start() };
    server.sql(&format!("CREATE USER {USER}"));
    server.sql(&format!("GRANT ALL ON lockfast.* TO {USER}"));
    Ok(Box::new(Single(Host::new(server, options.ttl))))
}

impl Rig for Single {
    fn url(&self) -> String {
        self.0.server.url_as(USER, None)
    }

    fn begin(&mut self, planned: &Planned) -> io::Result<()> {
        self.0.begin(planned)
    }

    fn heal(&mut self, planned: &Planned) -> io::Result<()> {
        self.0.heal(planned)
    }
}
