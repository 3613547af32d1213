//! Whether the kernel stops this process because its group has used up its share of the processors:
//! a pause that no program notices while it lasts.

use std::path::{Path, PathBuf};

use lockfast_core::Finding;

pub(super) const CHECK: &str = "client-throttling";

/// Below this part of all periods it is nothing to talk about.
const THROTTLED_PART_MAX: f64 = 0.01;

/// Looks at the control group of this process, as the files below `root` describe it.
pub(super) fn throttling(root: &Path) -> Finding {
    let fix = "look at nr_throttled in the cpu.stat of its control group";
    let groups = match std::fs::read_to_string(root.join("proc/self/cgroup")) {
        Ok(groups) => groups,
        Err(error) => return Finding::unknown(CHECK, format!("/proc/self/cgroup: {error}"), fix),
    };
    let stats = candidates(&groups).into_iter();
    let mut stats = stats.filter_map(|path| std::fs::read_to_string(root.join(path)).ok());
    let Some(stat) = stats.next() else {
        return Finding::unknown(CHECK, "the cpu.stat of its control group cannot be read", fix);
    };
    let (Some(periods), Some(throttled)) =
        (field(&stat, "nr_periods"), field(&stat, "nr_throttled"))
    else {
        return Finding::ok(CHECK, "its control group has no limit");
    };
    let fact = format!("{throttled} times in {periods} periods");
    if throttled as f64 <= periods as f64 * THROTTLED_PART_MAX {
        return Finding::ok(CHECK, fact);
    }
    Finding::warn(
        CHECK,
        fact,
        "whoever holds a lock here is stopped for a part of the time, also between its last look \
         at the deadline and its write",
        "give its control group more (cpu.max, CPUQuota=, resources.limits.cpu), or use longer \
         leases",
    )
}

/// Where the numbers may be: of version 2, of version 1, and of a container that sees only its own
/// group.
fn candidates(groups: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(number), Some(controllers), Some(group)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let group = group.trim_start_matches('/');
        if number == "0" && controllers.is_empty() {
            let tree = Path::new("sys/fs/cgroup");
            found.extend([tree.join(group), tree.to_owned()]);
        } else if controllers.split(',').any(|controller| controller == "cpu") {
            for tree in [controllers, "cpu"].map(|name| Path::new("sys/fs/cgroup").join(name)) {
                found.extend([tree.join(group), tree]);
            }
        }
    }
    found.iter().map(|folder| folder.join("cpu.stat")).collect()
}

fn field(stat: &str, name: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockfast_core::Severity;

    fn look(groups: &str, stats: &[(&str, &str)]) -> Finding {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("proc/self/cgroup", groups);
        stats.iter().for_each(|(path, text)| write(path, text));
        throttling(root.path())
    }

    #[test]
    fn throttling_is_found_in_either_version() {
        let calm = "usage_usec 5\nnr_periods 1000\nnr_throttled 10\nthrottled_usec 3\n";
        let stopped = "nr_periods 1000\nnr_throttled 11\n";
        type Row<'a> = (&'a str, &'a [(&'a str, &'a str)], Severity, &'a str);
        let table: &[Row<'_>] = &[
            ("0::/app\n", &[("sys/fs/cgroup/app/cpu.stat", stopped)], Severity::Warn, "11 times"),
            ("0::/app\n", &[("sys/fs/cgroup/app/cpu.stat", calm)], Severity::Ok, "10 times"),
            ("0::/../x\n", &[("sys/fs/cgroup/cpu.stat", stopped)], Severity::Warn, "11 times"),
            ("0::/\n", &[("sys/fs/cgroup/cpu.stat", "usage_usec 5\n")], Severity::Ok, "no limit"),
            (
                "4:cpu,cpuacct:/d/1\n0::/\n",
                &[("sys/fs/cgroup/cpu,cpuacct/d/1/cpu.stat", stopped)],
                Severity::Warn,
                "11 times",
            ),
            (
                "1:cpu:/d\n0::/\n",
                &[("sys/fs/cgroup/cpu/cpu.stat", stopped)],
                Severity::Warn,
                "11 times",
            ),
            ("0::/app\n", &[], Severity::Unknown, "cannot be read"),
            ("rubbish\n", &[], Severity::Unknown, "cannot be read"),
        ];
        for (groups, stats, severity, fact) in table {
            let found = look(groups, stats);
            assert_eq!(found.severity, *severity, "{groups} {found:?}");
            assert!(found.fact.contains(fact), "{found:?}");
        }
        let nowhere = throttling(Path::new("/nonexistent"));
        assert_eq!(nowhere.severity, Severity::Unknown);
    }
}
