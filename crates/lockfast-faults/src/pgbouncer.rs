//! A real PgBouncer in transaction mode before a PostgreSQL, on a free port of loopback, in a
//! directory of its own.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;

use tempfile::TempDir;

use super::port::Port;
use super::postgres::{self, Postgres};
use super::program;
use super::server::{Process, Server};
use super::user::User;

/// A running pooler. Dropping it kills it and removes its directory.
#[derive(Debug)]
pub struct PgBouncer {
    process: Option<Process>,
    port: Port,
    directory: TempDir,
    user: User,
}

impl PgBouncer {
    /// Starts one before a server that trusts it, to which it has at most so many connections of
    /// each role on each database. It lets in, without a password, the roles that are there now.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(server: &Postgres, connections_max: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let port = Port::take();
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={server}\n[pgbouncer]\n\
             listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             pool_mode = transaction\nauth_type = trust\nauth_file = roles\n\
             default_pool_size = {connections_max}\nmax_client_conn = 1000\n\
             ignore_startup_parameters = extra_float_digits\n",
            server = server.port(),
            port = port.number(),
        );
        std::fs::write(directory.path().join("pgbouncer.ini"), text).unwrap();
        let roles = server.sql("SELECT format('\"%s\" \"\"', rolname) FROM pg_roles");
        std::fs::write(directory.path().join("roles"), roles + "\n").unwrap();
        let user = User::unprivileged();
        user.give(directory.path());
        let mut pooler = Self { process: None, port, directory, user };
        pooler.launch();
        pooler
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port.number()))
    }

    /// The URL of a role on a database behind it.
    pub fn url_as(&self, role: &str, database: &str) -> String {
        postgres::url(self.address(), role, None, database)
    }
}

impl Server for PgBouncer {
    fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    fn process_mut(&mut self) -> &mut Option<Process> {
        &mut self.process
    }

    fn launch(&mut self) {
        let directory = self.directory.path();
        let mut command = Command::new(program::find("pgbouncer"));
        command.arg("pgbouncer.ini").current_dir(directory);
        let mut process = Process::spawn(self.user.run(&mut command), &directory.join("log"));
        process.wait_until_it(|| TcpStream::connect(self.address()).is_ok());
        self.process = Some(process);
    }
}
