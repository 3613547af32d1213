//! What a scenario plays on: a store, a directory of its own, and locks that nobody else uses.

use std::ffi::OsStr;
use std::time::Duration;

use lockfast_core::Moment;
use rustix::process::Pid;
use serde_json::Value;

use crate::row::{Row, Site};
use crate::sandbox::{Finished, Running, Sandbox, eventually, is_alive};

/// Notices anybody else inside, and loses an update when two write at once. It cannot be interrupted
/// half-way, and whoever was killed there is no longer inside.
const VISIT: &str = "trap '' INT TERM
mkdir -p $1; cd $1
touch inside-$$
for other in inside-*; do
    [ $other = inside-$$ ] || ! kill -0 ${other#inside-} 2>/dev/null || echo $$ $other >> overlaps
done
n=$(cat n 2>/dev/null || echo 0)
sleep 0.01
echo $((n + 1)) > n
rm inside-$$";

/// Until a file named `go` is there.
pub(crate) const UNTIL_GO: &str = "touch started; while ! [ -e go ]; do sleep 0.01; done";

/// For ever.
pub(crate) const FOR_EVER: &str = "echo $$ > pids; touch started; while :; do sleep 1; done";

pub(crate) struct Stage<'a> {
    pub(crate) row: &'static Row,
    pub(crate) sandbox: Sandbox,
    /// The scenario's lock. The names of all its locks start with this.
    pub(crate) lock: String,
    site: &'a Site,
}

impl<'a> Stage<'a> {
    pub(crate) fn new(site: &'a Site, group: &str, scenario: &str) -> Self {
        let sandbox = Sandbox::on(&site.url());
        Self { row: site.row, sandbox, lock: format!("{group}/{scenario}"), site }
    }

    /// Starts the binary.
    pub(crate) fn start<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Running {
        self.sandbox.start(arguments)
    }

    /// Runs the binary to its end.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Finished {
        self.sandbox.run(arguments)
    }

    /// Runs `run LOCK --try -- true`.
    pub(crate) fn try_it(&self) -> Finished {
        self.run(["run", &self.lock, "--try", "--", "true"])
    }

    /// A holder, once its script wrote `started`; the script goes on until there is a file `go`.
    pub(crate) fn hold_until_go(&self, options: &[&str]) -> Running {
        self.hold(options, UNTIL_GO)
    }

    /// A holder that ends only by force; its script's pid is in the file `pids`.
    pub(crate) fn hold_for_ever(&self, options: &[&str]) -> Running {
        self.hold(options, FOR_EVER)
    }

    /// A holder, once its script wrote `started`.
    pub(crate) fn hold(&self, options: &[&str], script: &str) -> Running {
        let mut all = vec![self.lock.as_str()];
        all.extend(options);
        self.sandbox.hold(&all, script)
    }

    /// Lets a holder of [`Stage::hold_until_go`] end.
    pub(crate) fn go(&self) {
        std::fs::write(self.sandbox.path("go"), "").unwrap();
    }

    /// Starts `run LOCK OPTIONS… -- sh -c SCRIPT`, and returns when it has queued as number `place`;
    /// where there is no line, when it has asked.
    pub(crate) fn queue(&self, options: &[&str], script: &str, place: u64) -> Running {
        let command = ["--", "sh", "-c", script];
        let crowd = self.crowd();
        let waiter =
            self.start(["run", self.lock.as_str()].iter().chain(options).chain(&command).copied());
        waiter.until("the waiter to queue", || self.has_joined(crowd, place, 1))
    }

    /// How many have asked for the scenario's lock so far, where there is no line.
    pub(crate) fn crowd(&self) -> Option<u64> {
        self.site.asked(&self.lock)
    }

    /// Whether the line has got that long, or so many have asked since there was that crowd.
    pub(crate) fn has_joined(&self, crowd: Option<u64>, length: u64, newcomers: u64) -> bool {
        match crowd {
            None => self.sandbox.waiting(&self.lock) >= length,
            Some(before) => self.crowd() >= Some(before + newcomers),
        }
    }

    /// A command line that visits the place `place`, where only one may be at a time.
    pub(crate) fn visit<'v>(
        &self,
        lock: &'v str,
        place: &'v str,
        more: &[&'v str],
    ) -> Vec<&'v str> {
        let mut line = vec!["run", lock, "--wait", "60s"];
        line.extend(more);
        line.extend(["--", "sh", "-c", VISIT, "sh", place]);
        line
    }

    /// Nobody met anybody in that place, and so many were there; some more perhaps of those who lost
    /// their leases meanwhile.
    pub(crate) fn check_visits(&self, place: &str, count: usize, losses: usize) {
        assert_eq!(self.sandbox.read(&format!("{place}/overlaps")), "", "two were inside at once");
        let visits: usize = self.sandbox.read(&format!("{place}/n")).trim().parse().unwrap();
        assert!((count..=count + losses).contains(&visits), "{visits} of {count} visits");
    }

    /// Waits for a file, and tells how long that took.
    pub(crate) fn time_until(&self, file: &str, from: Moment) -> Duration {
        eventually(file, || self.sandbox.path(file).exists());
        Moment::now().since(from)
    }

    /// The process that a script noted.
    pub(crate) fn job(&self) -> Pid {
        self.sandbox.pids("pids", 1)[0]
    }

    /// Nothing that a script noted is alive.
    pub(crate) fn check_job_is_gone(&self) {
        assert!(!is_alive(self.job()), "the job is still there");
    }

    /// None of the scenario's locks is held or waited for, as `list` tells it.
    pub(crate) fn check_nothing_is_left(&self) {
        eventually("nothing to be left", || {
            let list = self.run(["list", "--prefix", &self.lock, "--json"]).expect(0).stdout;
            let locks = list.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            locks.into_iter().all(|lock| lock["held"] == false && lock["waiting"] == 0)
        });
    }
}
