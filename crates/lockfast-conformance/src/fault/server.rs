//! Starts a real server program on a free port of loopback, in a directory of its own, and ends
//! it by its pid.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use lockfast_core::Moment;
use tempfile::TempDir;

use super::pause;

/// Between two looks at a server that is starting.
const PROBE_INTERVAL: Duration = Duration::from_millis(20);

/// Another program may take a free port before the server does.
const ATTEMPTS_MAX: usize = 3;

/// A server program that tests need.
pub struct ServerProgram {
    /// The file name that is looked for in `PATH`, or a path to it.
    pub program: PathBuf,
    /// The package that it comes from, for people who lack it.
    pub package: &'static str,
    /// Its arguments, for a port and a directory.
    pub arguments: fn(port: u16, directory: &Path) -> Vec<OsString>,
    /// Variables that it is started with, beside those of this process.
    pub environment: fn(port: u16, directory: &Path) -> Vec<(OsString, OsString)>,
    /// Whether it answers; [`accepts`] where a connection is enough.
    pub probe: fn(SocketAddr) -> bool,
    /// How long it may take to answer.
    pub start_time_max: Duration,
}

impl fmt::Debug for ServerProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerProgram({})", self.program.display())
    }
}

/// A running server. Dropping it kills it and removes its directory.
#[derive(Debug)]
pub struct Server {
    program: ServerProgram,
    port: u16,
    directory: TempDir,
    child: Option<std::process::Child>,
}

impl Server {
    /// Starts the program and waits until it answers.
    ///
    /// # Errors
    /// When the program is missing, saying how to install it; when it ends or does not answer,
    /// with the end of what it said.
    pub fn start(program: ServerProgram) -> io::Result<Self> {
        let mut attempt = 1;
        let path = find_program(&program)?;
        let mut server = Self {
            program: ServerProgram { program: path, ..program },
            port: 0,
            directory: tempfile::tempdir()?,
            child: None,
        };
        loop {
            server.port = free_port()?;
            match server.launch() {
                Ok(()) => return Ok(server),
                Err(error) if attempt == ATTEMPTS_MAX => return Err(error),
                Err(_) => attempt += 1,
            }
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// Its directory, in which it stores what outlives a restart.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Kills it (SIGKILL) and waits for its end.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn kill(&mut self) -> io::Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Starts it again on the same port with the same directory, and waits until it answers.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn restart(&mut self) -> io::Result<()> {
        self.kill()?;
        self.launch()
    }

    /// Stops it (SIGSTOP) and returns when it has stopped: it accepts connections and answers nothing.
    ///
    /// # Errors
    /// When it does not run.
    pub fn stop(&self) -> io::Result<()> {
        pause::stop(self.pid()?)
    }

    /// Lets it continue (SIGCONT).
    ///
    /// # Errors
    /// When it does not run.
    pub fn resume(&self) -> io::Result<()> {
        pause::resume(self.pid()?)
    }

    fn pid(&self) -> io::Result<u32> {
        let child = self.child.as_ref().ok_or(io::ErrorKind::NotFound)?;
        Ok(child.id())
    }

    fn launch(&mut self) -> io::Result<()> {
        let log_path = self.directory.path().join("server.log");
        let log = std::fs::File::create(&log_path)?;
        let (port, directory) = (self.port, self.directory.path());
        let child = Command::new(&self.program.program)
            .args((self.program.arguments)(port, directory))
            .envs((self.program.environment)(port, directory))
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        self.child = Some(child);
        let answered = self.wait_until_it_answers();
        if let Err(reason) = answered {
            self.kill()?;
            let said = std::fs::read_to_string(&log_path).unwrap_or_default();
            let tail: Vec<&str> = said.lines().rev().take(5).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            return Err(io::Error::other(format!(
                "{} {reason}; it said: {}",
                self.program.program.display(),
                tail.join(" | ")
            )));
        }
        Ok(())
    }

    fn wait_until_it_answers(&mut self) -> Result<(), String> {
        let start = Moment::now();
        let address = self.address();
        loop {
            if (self.program.probe)(address) {
                return Ok(());
            }
            let ended = self.child.as_mut().and_then(|child| child.try_wait().ok());
            if let Some(Some(status)) = ended {
                return Err(format!("ended with {status} instead of answering"));
            }
            if Moment::now().since(start) > self.program.start_time_max {
                return Err(format!("did not answer within {:?}", self.program.start_time_max));
            }
            std::thread::sleep(PROBE_INTERVAL);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended already, or there is nothing more to be done about it.
        let _ = self.kill();
    }
}

/// Whether somebody accepts connections there.
pub fn accepts(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, Duration::from_millis(500)).is_ok()
}

fn free_port() -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}

fn find_program(program: &ServerProgram) -> io::Result<PathBuf> {
    let named = &program.program;
    let found = if named.components().count() > 1 {
        Some(named.clone()).filter(|path| path.is_file())
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        // Servers often live where only root looks.
        let extra = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
        std::env::split_paths(&path)
            .chain(extra)
            .map(|directory| directory.join(named))
            .find(|path| path.is_file())
    };
    found.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            format!(
                "{} is not installed; run: cargo xtask setup (it comes with package {})",
                named.display(),
                program.package
            ),
        )
    })
}
