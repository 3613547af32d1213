//! A store and a directory of a test's own, and the binary started in it.
#![allow(dead_code, reason = "two test binaries share this, and each uses a part of it")]

use std::ffi::OsStr;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use lockfast_core::Moment;
use lockfast_faults::reaper;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tempfile::TempDir;

/// How long anything may take on a busy machine.
pub(crate) const BOUND: Duration = Duration::from_secs(60);

pub(crate) struct Sandbox {
    directory: TempDir,
    url: String,
}

/// What a finished command printed, and its code.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Finished {
    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("ended by a signal: {}", self.stderr))
    }

    /// Asserts the exit code and shows everything otherwise.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(
            self.status.code(),
            Some(code),
            "{:?}\nstdout: {}\nstderr: {}",
            self.status,
            self.stdout,
            self.stderr
        );
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }
}

impl Sandbox {
    /// With an embedded store of its own.
    pub(crate) fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let url = format!("embedded:{}", directory.path().join("store").display());
        Self { directory, url }
    }

    /// On a store that is there.
    pub(crate) fn on(url: &str) -> Self {
        Self { directory: TempDir::new().unwrap(), url: url.to_owned() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    /// What a file holds, or nothing if it is not there.
    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// The process ids that scripts wrote into a file, once there are `count`.
    pub(crate) fn pids(&self, name: &str, count: usize) -> Vec<Pid> {
        let read = || -> Vec<Pid> {
            self.read(name)
                .lines()
                .filter_map(|line| line.trim().parse().ok())
                .filter_map(Pid::from_raw)
                .collect()
        };
        eventually(name, || read().len() >= count);
        read()
    }

    /// The binary, in this directory and on this store.
    pub(crate) fn command<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut command = undisturbed(env!("CARGO_BIN_EXE_lockfast"));
        command.args(arguments);
        self.settle(&mut command);
        command
    }

    /// The surroundings of a command.
    pub(crate) fn settle(&self, command: &mut Command) {
        command
            .current_dir(self.directory.path())
            .env("LOCKFAST_URL", &self.url)
            .env("HOME", self.directory.path())
            .env("LANG", "C.UTF-8")
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("XDG_STATE_HOME")
            .env_remove("LC_ALL")
            .env_remove("NO_COLOR")
            .env_remove("RUST_LOG")
            .env_remove("LOCKFAST_HELD")
            .env_remove("LOCKFAST_NAME")
            .env_remove("LOCKFAST_FENCE")
            .env_remove("LOCKFAST_URL_WITHHELD")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
    }

    /// A shell that runs a script in this directory, on this store, with the binary in its `PATH`.
    pub(crate) fn shell(&self, script: &str) -> Command {
        let binary = Path::new(env!("CARGO_BIN_EXE_lockfast"));
        let mut folders = vec![binary.parent().unwrap().to_owned()];
        folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        let mut command = undisturbed("sh");
        command.args(["-c", script]).env("PATH", std::env::join_paths(folders).unwrap());
        self.settle(&mut command);
        command
    }

    /// Starts the binary.
    pub(crate) fn start<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Running {
        Running::new(self.command(arguments))
    }

    /// Runs the binary to its end.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Finished {
        self.start(arguments).finish()
    }

    /// Starts `run NAME OPTIONS… -- sh -c SCRIPT` and waits until the script wrote `started`.
    pub(crate) fn hold(&self, options: &[&str], script: &str) -> Running {
        let script = format!("{script}\n");
        let command = ["--", "sh", "-c", &script];
        let arguments = ["run"].iter().chain(options).chain(&command);
        let running = self.start(arguments);
        running.until("the script to start", || self.path("started").exists())
    }

    /// Whether the store says that somebody holds it.
    pub(crate) fn is_held(&self, name: &str) -> bool {
        self.run(["show", name, "--json"]).expect(0).json()["held"] == true
    }

    /// How many wait.
    pub(crate) fn waiting(&self, name: &str) -> u64 {
        self.run(["show", name, "--json"]).expect(0).json()["waiting"].as_u64().unwrap()
    }
}

/// A program with the signals as they are by default, however the tests themselves were started:
/// in the background of a script, interrupts are ignored.
pub(crate) fn undisturbed(program: &str) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT,QUIT", program]);
    command
}

/// A started process, killed at the latest when it is dropped or this process ends.
pub(crate) struct Running {
    child: Option<Child>,
    _ward: reaper::Ward,
}

impl Running {
    pub(crate) fn new(mut command: Command) -> Self {
        let child = command.spawn().unwrap();
        let ward = reaper::watch(child.id(), None);
        Self { child: Some(child), _ward: ward }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(self.child.as_ref().unwrap())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Waits for a state that it brings about, with a bound; what it said otherwise tells why not.
    #[track_caller]
    pub(crate) fn until(mut self, what: &str, mut state: impl FnMut() -> bool) -> Self {
        let start = Moment::now();
        while !state() {
            let has_ended = self.child().try_wait().unwrap().is_some();
            if has_ended || Moment::now().since(start) > BOUND {
                let (pid, took) = (self.pid(), Moment::now().since(start));
                let was = state_of(pid);
                let _ = kill_process(pid, Signal::CONT);
                let _ = self.child().kill();
                panic!("waited {took:?} for {what}; state {was:?}, then {:?}", self.finish());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self
    }

    /// Kills this wrapper and its guard in one instant, so that neither can do anything about it.
    pub(crate) fn kill_with_guard(&self) {
        self.signal(Signal::STOP);
        kill_process(self.guard(), Signal::KILL).unwrap();
        self.signal(Signal::KILL);
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        self.child.as_mut().unwrap()
    }

    /// The guard below this wrapper.
    pub(crate) fn guard(&self) -> Pid {
        let mut found = None;
        eventually("the guard", || {
            found = children_of(self.pid()).into_iter().find(|pid| {
                let arguments = format!("/proc/{}/cmdline", pid.as_raw_pid());
                std::fs::read(arguments).is_ok_and(|line| line.starts_with(b"lockfast\0__guard\0"))
            });
            found.is_some()
        });
        found.unwrap()
    }

    /// Waits for the end, with a bound.
    pub(crate) fn finish(mut self) -> Finished {
        let mut child = self.child.take().unwrap();
        let pid = Pid::from_child(&child);
        let read = |stream: Option<Box<dyn std::io::Read + Send>>| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                if let Some(mut stream) = stream {
                    let _ = stream.read_to_end(&mut bytes);
                }
                String::from_utf8_lossy(&bytes).into_owned()
            })
        };
        let stdout = read(child.stdout.take().map(|stream| Box::new(stream) as _));
        let stderr = read(child.stderr.take().map(|stream| Box::new(stream) as _));
        let start = Moment::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if Moment::now().since(start) > BOUND {
                let _ = kill_process(pid, Signal::KILL);
                let _ = child.wait();
                panic!("not finished in {BOUND:?}: {}", stderr.join().unwrap());
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        Finished { status, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = kill_process(Pid::from_child(child), Signal::CONT);
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Waits for a state, with a bound.
#[track_caller]
pub(crate) fn eventually(what: &str, mut state: impl FnMut() -> bool) {
    let start = Moment::now();
    while !state() {
        assert!(Moment::now().since(start) < BOUND, "still waiting for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Whether a process is there and is not a zombie.
pub(crate) fn is_alive(pid: Pid) -> bool {
    test_kill_process(pid).is_ok() && state_of(pid) != Some('Z')
}

/// The state letter of a process.
pub(crate) fn state_of(pid: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

fn children_of(parent: Pid) -> Vec<Pid> {
    let parent = parent.as_raw_pid();
    let children = format!("/proc/{parent}/task/{parent}/children");
    std::fs::read_to_string(children)
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|pid| Pid::from_raw(pid.parse().ok()?))
        .collect()
}
