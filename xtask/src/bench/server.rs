//! A Redis server of our own on a free port, and what it says about itself.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

/// A server that ends with this value.
pub(super) struct Server {
    child: Child,
    port: u16,
    folder: PathBuf,
}

impl Server {
    /// Starts one, on this core alone if one is named.
    pub(super) fn start(core: Option<&str>) -> Result<Self> {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let name = format!("lockfast-bench-{}-{port}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder)?;
        let mut command = match core {
            None => Command::new("redis-server"),
            Some(core) => {
                let mut command = Command::new("taskset");
                command.args(["-c", core, "redis-server"]);
                command
            }
        };
        let port_text = port.to_string();
        command.args(["--port", &port_text, "--bind", "127.0.0.1", "--save", ""]);
        command.args(["--appendonly", "no", "--dir"]).arg(&folder);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().context("redis-server cannot be started")?;
        let server = Self { child, port, folder };
        server.wait_until_it_answers()?;
        Ok(server)
    }

    pub(super) fn port(&self) -> String {
        self.port.to_string()
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Empties it and starts its counters again.
    pub(super) fn clear(&self) -> Result<()> {
        self.ask(&["FLUSHALL"])?;
        self.ask(&["CONFIG", "RESETSTAT"])?;
        Ok(())
    }

    /// How often a command was called, by clients or by scripts.
    pub(super) fn calls(&self, command: &str) -> Result<f64> {
        let text = self.ask(&["INFO", "commandstats"])?;
        let start = format!("cmdstat_{command}:calls=");
        let found = text.lines().find_map(|line| line.strip_prefix(&start));
        let calls = found.and_then(|rest| rest.split(',').next()).unwrap_or("0");
        calls.parse().with_context(|| format!("{calls:?} is no number of calls"))
    }

    /// The CPU time that it has used, in seconds.
    pub(super) fn cpu(&self) -> Result<f64> {
        let text = self.ask(&["INFO", "cpu"])?;
        Ok(field(&text, "used_cpu_user")? + field(&text, "used_cpu_sys")?)
    }

    /// The memory that it uses, in bytes.
    pub(super) fn memory(&self) -> Result<f64> {
        field(&self.ask(&["INFO", "memory"])?, "used_memory")
    }

    /// How many keys there are.
    pub(super) fn keys(&self) -> Result<f64> {
        let text = self.ask(&["DBSIZE"])?;
        text.parse().with_context(|| format!("{text:?} is no number of keys"))
    }

    /// How many commands clients send within a while; what scripts call is not counted.
    pub(super) fn client_commands(&self, span: Duration) -> Result<usize> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.write_all(&encode(&["MONITOR"]))?;
        sleep(span);
        // What has not arrived by now is not of this while.
        stream.set_nonblocking(true)?;
        let mut seen = Vec::new();
        match stream.read_to_end(&mut seen) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            other => bail!("the server's monitor ended: {other:?}"),
        }
        let text = String::from_utf8_lossy(&seen);
        // The first line is the answer to the command itself.
        Ok(text.lines().skip(1).filter(|line| !line.contains(" lua] ")).count())
    }

    fn wait_until_it_answers(&self) -> Result<()> {
        for _ in 0..500 {
            if self.ask(&["PING"]).is_ok() {
                return Ok(());
            }
            sleep(Duration::from_millis(10));
        }
        bail!("redis-server does not answer")
    }

    fn ask(&self, words: &[&str]) -> Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.write_all(&encode(words))?;
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        reader.read_line(&mut head)?;
        let head = head.trim_end();
        match head.split_at_checked(1) {
            Some(("$", length)) => {
                let mut text = vec![0; length.parse()?];
                reader.read_exact(&mut text)?;
                Ok(String::from_utf8(text)?)
            }
            Some(("+" | ":", text)) => Ok(text.to_owned()),
            _ => bail!("{} was answered by {head:?}", words.join(" ")),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; either way there is nothing left to do about it.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn encode(words: &[&str]) -> Vec<u8> {
    let mut text = format!("*{}\r\n", words.len());
    for word in words {
        text.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    text.into_bytes()
}

fn field(text: &str, name: &str) -> Result<f64> {
    let start = format!("{name}:");
    let found = text.lines().find_map(|line| line.strip_prefix(&start));
    let value = found.with_context(|| format!("the server does not tell its {name}"))?;
    value.trim().parse().with_context(|| format!("{name} is {value:?}"))
}
