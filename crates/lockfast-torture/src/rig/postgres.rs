//! PostgreSQL with a standby that has every grant before it is told, and can take over.

use std::io;
use std::time::Duration;

use lockfast_faults::postgres::{Postgres, Setup};
use lockfast_faults::server::Server as _;
use lockfast_faults::signpost::Signpost;
use lockfast_faults::wait::wait_until;

use super::host::Host;
use super::need::{From, Need};
use super::{CLOCK, KILL, PAUSE, Planned, RESTART, Rig, RigOptions, Row, ServerFault};

/// The standby has all that was granted, so nothing is lost when it takes over.
const PROMOTION: ServerFault = ServerFault {
    name: "server-promotion",
    about: "the server is killed, and its synchronous standby takes over",
    outage: true,
    beyond: false,
};

pub(super) const ROW: Row = Row {
    name: "postgres",
    about: "a PostgreSQL server with a synchronous standby",
    schemes: &["postgres", "postgresql"],
    needs: &[
        Need { program: "postgres", from: From::Postgres },
        Need { program: "initdb", from: From::Postgres },
        Need { program: "psql", from: From::Postgres },
        Need { program: "pg_basebackup", from: From::Postgres },
    ],
    servers: 1,
    proxied: true,
    faults: &[KILL, RESTART, PAUSE, CLOCK, PROMOTION],
    start,
};

/// As whom workers connect.
const ROLE: &str = "app";

/// How long a standby may take to follow again.
const FOLLOW_TIME_MAX: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Pair {
    /// Where clients connect to: whoever serves now is behind it.
    signpost: Signpost,
    serving: Host<Postgres>,
    standby: Postgres,
    options: RigOptions,
}

fn setup(options: &RigOptions) -> Setup {
    let setup = Setup::new().durable().set("wal_retrieve_retry_interval", "100ms");
    if options.clock { setup.clock() } else { setup }
}

fn start(options: &RigOptions) -> io::Result<Box<dyn Rig>> {
    let serving = setup(options).start();
    serving.sql(&format!("CREATE ROLE {ROLE} LOGIN"));
    serving.sql(&format!("GRANT CREATE ON DATABASE postgres TO {ROLE}"));
    let standby = follow(&serving, Duration::ZERO, options);
    let signpost = Signpost::to(serving.address());
    let serving = Host::new(serving, options.ttl);
    Ok(Box::new(Pair { signpost, serving, standby, options: options.clone() }))
}

/// Starts a standby of which the server waits for every commit from now on.
fn follow(serving: &Postgres, behind: Duration, options: &RigOptions) -> Postgres {
    let standby = serving.start_standby_as(setup(options));
    if options.clock {
        standby.clock().step_back(behind);
    }
    demand(serving, "*");
    wait_until_followed(serving);
    standby
}

/// Which standbys must have a commit before it is told.
fn demand(server: &Postgres, standbys: &str) {
    server.sql(&format!("ALTER SYSTEM SET synchronous_standby_names = '{standbys}'"));
    server.sql("SELECT pg_reload_conf()");
}

fn wait_until_followed(serving: &Postgres) {
    let followers = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
    wait_until("the standby follows", FOLLOW_TIME_MAX, || serving.sql(followers) == "1");
}

impl Pair {
    fn promote(&mut self) {
        self.serving.server.kill();
        demand(&self.standby, "");
        self.standby.promote();
        self.signpost.turn_to(self.standby.address());
        std::mem::swap(&mut self.serving.server, &mut self.standby);
    }
}

impl Rig for Pair {
    fn url(&self) -> String {
        self.serving.server.url_at(self.signpost.address(), ROLE)
    }

    fn begin(&mut self, planned: &Planned) -> io::Result<()> {
        if planned.fault.name == PROMOTION.name {
            self.promote();
            return Ok(());
        }
        self.serving.begin(planned)?;
        if planned.fault.name == CLOCK.name {
            // Whoever takes over must not be ahead of it.
            self.standby.clock().step_back(self.serving.behind);
        }
        Ok(())
    }

    fn heal(&mut self, planned: &Planned) -> io::Result<()> {
        if planned.fault.name == PROMOTION.name {
            self.standby = follow(&self.serving.server, self.serving.behind, &self.options);
            return Ok(());
        }
        self.serving.heal(planned)?;
        wait_until_followed(&self.serving.server);
        Ok(())
    }
}
