//! This machine and this process: what keeps a holder from noticing a loss in time, and who could
//! read its secrets. All readings come from files below a root, so that tests can set each.

use std::path::PathBuf;
use std::time::Duration;

use lockfast_core::Finding;
use lockfast_core::error::quote;
use lockfast_core::time::{DRIFT, time_asleep};
use lockfast_core::view::brief;

use super::cpu;

/// What is looked at here.
pub(super) const CHECKS: &[&str] =
    &[CLOCK_SOURCE, SUSPEND, TIME_SERVICE, TOLERANCE, cpu::CHECK, FILES, PANIC, CORE_DUMPS, PTRACE];
const CLOCK_SOURCE: &str = "client-clock-source";
const SUSPEND: &str = "client-suspend";
const TIME_SERVICE: &str = "client-time-service";
const TOLERANCE: &str = "client-tolerance";
const FILES: &str = "client-open-files";
const PANIC: &str = "client-panic";
const CORE_DUMPS: &str = "client-core-dumps";
const PTRACE: &str = "client-ptrace";

/// Clock sources that cost a trip to slow hardware, or that only count ticks. The kernel falls back
/// to them when it does not trust the processor's counter.
const CLOCKS_SLOW: &[&str] = &["acpi_pm", "hpet", "jiffies", "pit", "refined-jiffies"];

/// Less than this is rounding between two readings of clocks.
const ASLEEP_MIN: Duration = Duration::from_secs(1);

/// A program that holds locks has a few dozen descriptors of its own.
const FILES_LEFT_MIN: u64 = 64;

/// What says that a service keeps the wall clock right: a file, and what it means.
const TIME_SERVICES: &[(&str, &str)] = &[
    ("run/systemd/timesync/synchronized", "systemd-timesyncd has set the clock"),
    ("run/chrony/chronyd.pid", "chronyd runs"),
    ("run/chronyd.pid", "chronyd runs"),
    ("run/ntpd.pid", "ntpd runs"),
    ("run/ntpsec/ntpd.pid", "ntpd runs"),
    ("run/openntpd.pid", "openntpd runs"),
];

/// Where readings come from.
pub(super) struct Machine {
    /// What stands before every path.
    root: PathBuf,
    /// For how long the machine has slept since it was started.
    asleep: Duration,
    /// Whether a panic of this program ends it on the spot.
    panic_aborts: bool,
}

impl Machine {
    /// The one that this runs on.
    pub(super) fn this() -> Self {
        let panic_aborts = cfg!(panic = "abort");
        Self { root: "/".into(), asleep: time_asleep(), panic_aborts }
    }

    /// Looks at everything.
    pub(super) fn look(&self) -> Vec<Finding> {
        vec![
            self.clock_source(),
            self.suspend(),
            self.time_service(),
            tolerance(),
            cpu::throttling(&self.root),
            self.open_files(),
            self.panic(),
            self.core_dumps(),
            self.ptrace(),
        ]
    }

    fn clock_source(&self) -> Finding {
        const PATH: &str = "sys/devices/system/clocksource/clocksource0/current_clocksource";
        let source = match self.read(PATH) {
            Ok(text) => text.trim().to_owned(),
            Err(reason) => return Finding::unknown(CLOCK_SOURCE, reason, "mount /sys"),
        };
        if !CLOCKS_SLOW.contains(&source.as_str()) {
            return Finding::ok(CLOCK_SOURCE, quote(&source));
        }
        Finding::warn(
            CLOCK_SOURCE,
            quote(&source),
            "the kernel does not trust the processor's counter, and every look at the clock is slow",
            "see which source the kernel's log gave up and why (dmesg | grep -i clocksource)",
        )
    }

    fn suspend(&self) -> Finding {
        if self.asleep < ASLEEP_MIN {
            return Finding::ok(SUSPEND, "never since it was started");
        }
        Finding::warn(
            SUSPEND,
            format!("{} in all since it was started", brief(self.asleep)),
            "a holder that sleeps past its deadline learns of the loss when the machine wakes, and \
             not before",
            "keep machines that hold locks from suspending, and check fences where it matters",
        )
    }

    /// The wall clock decides no lease, but fences of `redlock:` and `embedded:` begin with it, and
    /// people read it.
    fn time_service(&self) -> Finding {
        let found = TIME_SERVICES.iter().find(|(path, _)| self.root.join(path).exists());
        match found {
            Some((_, fact)) if fact.starts_with("chronyd") => {
                Finding::ok(TIME_SERVICE, format!("{fact}, and slews by {}", self.chrony_limit()))
            }
            Some((_, fact)) => Finding::ok(TIME_SERVICE, *fact),
            None => Finding::unknown(
                TIME_SERVICE,
                "no trace of systemd-timesyncd, chronyd, ntpd or openntpd in /run; the host of a \
                 container may have one",
                "see that the machine's clock is kept right (timedatectl, chronyc tracking)",
            ),
        }
    }

    /// By how much chronyd may speed the clock up or slow it down. It does not change deadlines here,
    /// for which a clock that is never slewed is looked at as well; on a store's server it matters.
    fn chrony_limit(&self) -> String {
        const DEFAULT_PPM: f64 = 83_333.333;
        let files = ["etc/chrony/chrony.conf", "etc/chrony.conf"];
        let Some(text) = files.iter().find_map(|path| self.read(path).ok()) else {
            return "an amount that cannot be read".into();
        };
        let limit = text.lines().find_map(|line| line.trim().strip_prefix("maxslewrate"));
        let limit = limit.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        format!("{:.2} % at most (maxslewrate)", limit.unwrap_or(DEFAULT_PPM) / 1e4)
    }

    fn open_files(&self) -> Finding {
        let fix = "mount /proc";
        let limit = match self.limit("Max open files") {
            Ok(limit) => limit,
            Err(reason) => return Finding::unknown(FILES, reason, fix),
        };
        let open = match std::fs::read_dir(self.root.join("proc/self/fd")) {
            Ok(entries) => entries.count() as u64,
            Err(error) => return Finding::unknown(FILES, format!("/proc/self/fd: {error}"), fix),
        };
        let Some(limit) = limit else {
            return Finding::ok(FILES, format!("{open} open, without a limit"));
        };
        let fact = format!("{open} open of {limit}");
        if limit.saturating_sub(open) >= FILES_LEFT_MIN {
            return Finding::ok(FILES, fact);
        }
        Finding::warn(
            FILES,
            fact,
            "a connection that breaks cannot be made again when no descriptor is left, and then \
             leases are lost",
            "raise the limit (ulimit -n, or LimitNOFILE= of a systemd unit)",
        )
    }

    fn panic(&self) -> Finding {
        if !self.panic_aborts {
            return Finding::ok(PANIC, "a panic unwinds, and guards are dropped");
        }
        Finding::warn(
            PANIC,
            "this program was built with panic=abort",
            "a panic ends it without giving locks back, and others wait until they expire",
            "build it with panic=unwind, or use short leases",
        )
    }

    fn core_dumps(&self) -> Finding {
        let limit = match self.limit("Max core file size") {
            Ok(limit) => limit,
            Err(reason) => return Finding::unknown(CORE_DUMPS, reason, "mount /proc"),
        };
        if limit == Some(0) {
            return Finding::ok(CORE_DUMPS, "not written (the limit is 0)");
        }
        let size = limit.map_or_else(|| "without a limit".into(), |limit| format!("up to {limit}"));
        Finding::warn(
            CORE_DUMPS,
            format!("written, {size}"),
            "a dump of a crashed holder shows the store's password and holder ids, with which its \
             locks can be released",
            "set the limit to 0 (ulimit -c 0, or LimitCORE=0 of a systemd unit)",
        )
    }

    fn ptrace(&self) -> Finding {
        const PATH: &str = "proc/sys/kernel/yama/ptrace_scope";
        let scope = match self.read(PATH) {
            Ok(text) => text.trim().to_owned(),
            // A kernel that has the folder around it but not this file is one without Yama.
            Err(_) if self.root.join("proc/sys/kernel").is_dir() => "0, as without Yama".into(),
            Err(reason) => return Finding::unknown(PTRACE, reason, "mount /proc"),
        };
        if scope.parse().is_ok_and(|scope: u32| scope > 0) {
            return Finding::ok(PTRACE, format!("restricted (ptrace_scope is {scope})"));
        }
        Finding::warn(
            PTRACE,
            format!("not restricted (ptrace_scope is {scope})"),
            "every process of the same user can read the store's password and the holder ids from \
             a holder's memory",
            "sysctl kernel.yama.ptrace_scope=1, or a user of its own for whatever holds locks",
        )
    }

    /// A file, or why it cannot be read.
    fn read(&self, path: &str) -> Result<String, String> {
        std::fs::read_to_string(self.root.join(path)).map_err(|error| format!("/{path}: {error}"))
    }

    /// A limit of this process; `None` for one that is not there.
    fn limit(&self, name: &str) -> Result<Option<u64>, String> {
        const PATH: &str = "proc/self/limits";
        let text = self.read(PATH)?;
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        match line.and_then(|line| line.split_whitespace().next()) {
            Some("unlimited") => Ok(None),
            Some(number) => {
                number.parse().map(Some).map_err(|_| format!("/{PATH}: {}", quote(number)))
            }
            None => Err(format!("/{PATH} has no line {}", quote(name))),
        }
    }
}

/// The difference between the rates of two clocks that every deadline allows for.
fn tolerance() -> Finding {
    let kept = 1.0 - DRIFT;
    let fact = format!(
        "a holder relies on {:.0} % of its ttl, so the store's clock may run up to {:.2} % faster \
         than this machine's",
        kept * 100.0,
        (kept.recip() - 1.0) * 100.0
    );
    Finding::ok(TOLERANCE, fact)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockfast_core::Severity;
    use tempfile::TempDir;

    const LIMITS: &str = "Limit                     Soft Limit           Hard Limit           Units\n\
                          Max core file size        0                    unlimited            bytes\n\
                          Max open files            1024                 4096                 files\n";

    /// A machine on which all is well.
    struct Bench {
        directory: TempDir,
        machine: Machine,
    }

    impl Bench {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let root = directory.path().to_owned();
            let machine = Machine { root, asleep: Duration::ZERO, panic_aborts: false };
            let bench = Self { directory, machine };
            let clock = "sys/devices/system/clocksource/clocksource0/current_clocksource";
            bench.write(clock, "tsc\n");
            bench.write("run/systemd/timesync/synchronized", "");
            bench.write("proc/self/limits", LIMITS);
            bench.write("proc/self/fd/0", "");
            bench.write("proc/self/cgroup", "0::/\n");
            bench.write("sys/fs/cgroup/cpu.stat", "usage_usec 1\n");
            bench.write("proc/sys/kernel/yama/ptrace_scope", "1\n");
            bench
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.directory.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }

        fn remove(&self, path: &str) {
            std::fs::remove_file(self.directory.path().join(path)).unwrap();
        }

        /// What is found of one thing, all else being well.
        #[track_caller]
        fn find(&self, check: &str, severity: Severity, fact: &str) {
            for finding in self.machine.look() {
                let expected = if finding.check == check { severity } else { Severity::Ok };
                assert_eq!(finding.severity, expected, "{finding:?}");
                let is_well = finding.severity == Severity::Ok;
                assert_eq!(
                    (finding.meaning.is_empty(), finding.fix.is_empty()),
                    (is_well, is_well)
                );
                assert!(finding.check != check || finding.fact.contains(fact), "{finding:?}");
            }
        }
    }

    #[test]
    fn a_good_machine_is_all_ok() {
        let bench = Bench::new();
        let found = bench.machine.look();
        assert_eq!(found.iter().map(|finding| finding.check).collect::<Vec<_>>(), CHECKS);
        bench.find(TOLERANCE, Severity::Ok, "up to 1.01 % faster");
        // And this one can be looked at, whatever it is like.
        assert_eq!(Machine::this().look().len(), CHECKS.len());
    }

    #[test]
    fn clocks_that_are_not_to_be_trusted() {
        let mut bench = Bench::new();
        let path = "sys/devices/system/clocksource/clocksource0/current_clocksource";
        bench.write(path, "acpi_pm\n");
        bench.find(CLOCK_SOURCE, Severity::Warn, "acpi_pm");
        bench.remove(path);
        bench.find(CLOCK_SOURCE, Severity::Unknown, path);
        bench.write(path, "kvm-clock\n");
        bench.machine.asleep = Duration::from_secs(3_700);
        bench.find(SUSPEND, Severity::Warn, "1h01m in all");
        bench.machine.asleep = Duration::ZERO;
        bench.remove("run/systemd/timesync/synchronized");
        bench.find(TIME_SERVICE, Severity::Unknown, "no trace");
        bench.write("run/chrony/chronyd.pid", "7\n");
        bench.find(TIME_SERVICE, Severity::Ok, "chronyd runs, and slews by an amount that cannot");
        bench.write("etc/chrony/chrony.conf", "pool x\nmakestep 1 3\n");
        bench.find(TIME_SERVICE, Severity::Ok, "8.33 % at most");
        bench.write("etc/chrony/chrony.conf", "pool x\n maxslewrate 500 # slow\n");
        bench.find(TIME_SERVICE, Severity::Ok, "0.05 % at most");
    }

    #[test]
    fn pauses_and_lacks() {
        let mut bench = Bench::new();
        bench.write("sys/fs/cgroup/cpu.stat", "nr_periods 9\nnr_throttled 8\n");
        bench.find(cpu::CHECK, Severity::Warn, "8 times in 9 periods");
        bench.remove("sys/fs/cgroup/cpu.stat");
        bench.find(cpu::CHECK, Severity::Unknown, "cannot be read");
        bench.write("sys/fs/cgroup/cpu.stat", "usage_usec 1\n");
        bench.write("proc/self/limits", &LIMITS.replace("1024", "64  "));
        bench.find(FILES, Severity::Warn, "1 open of 64");
        bench.write("proc/self/limits", &LIMITS.replace("1024 ", "unlimited "));
        bench.find(FILES, Severity::Ok, "without a limit");
        bench.machine.panic_aborts = true;
        bench.find(PANIC, Severity::Warn, "panic=abort");
    }

    #[test]
    fn secrets_that_others_can_read() {
        let bench = Bench::new();
        for limit in ["unlimited", "1024     "] {
            bench.write(
                "proc/self/limits",
                &LIMITS.replace("size        0 ", &format!("size {limit} ")),
            );
            bench.find(CORE_DUMPS, Severity::Warn, "written");
        }
        bench.write("proc/self/limits", LIMITS);
        bench.write("proc/sys/kernel/yama/ptrace_scope", "0\n");
        bench.find(PTRACE, Severity::Warn, "ptrace_scope is 0");
        bench.remove("proc/sys/kernel/yama/ptrace_scope");
        bench.find(PTRACE, Severity::Warn, "without Yama");
    }

    /// Without /proc, /sys and /run nothing is known, and nothing is called good.
    #[test]
    fn what_cannot_be_read_is_not_ok() {
        let root = tempfile::tempdir().unwrap();
        let machine =
            Machine { root: root.path().to_owned(), asleep: Duration::ZERO, panic_aborts: false };
        for finding in machine.look() {
            let is_read = ![SUSPEND, TOLERANCE, PANIC].contains(&finding.check);
            assert_eq!(finding.severity == Severity::Unknown, is_read, "{finding:?}");
        }
    }
}
