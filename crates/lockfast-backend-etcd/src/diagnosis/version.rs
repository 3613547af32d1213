//! Which version the members run, and what is known to be wrong with it.

use lockfast_core::Finding;

use super::{Named, TELL_ROOT};

/// Versions that the suite runs on, as major and minor.
const TESTED: [(u32, u32); 2] = [(3, 4), (3, 5)];

type Version = (u32, u32, u32);

/// Something that is wrong with some versions.
struct Defect {
    /// The first version of each series that has it mended; a series before the first of them has it.
    mended: &'static [Version],
    /// The first that has it.
    since: Version,
    /// The fewest and the most members with which it can happen.
    members: (usize, usize),
    /// Whether a lock can be granted twice by it.
    is_unsafe: bool,
    /// What it does.
    harm: &'static str,
}

const ANY: (usize, usize) = (1, usize::MAX);
const SEVERAL: (usize, usize) = (2, usize::MAX);
const ALONE: (usize, usize) = (1, 1);

/// From the changelog of etcd.
const DEFECTS: &[Defect] = &[
    Defect {
        mended: &[(3, 5, 5)],
        since: (3, 5, 0),
        members: ALONE,
        is_unsafe: true,
        harm: "a crash of a single member can lose a write that was confirmed, and so a grant",
    },
    Defect {
        mended: &[(3, 4, 31), (3, 5, 13)],
        since: (3, 4, 0),
        members: SEVERAL,
        is_unsafe: true,
        harm: "a member that led before can revoke leases that are kept alive, so that a lock is granted \
               again before its holder knows",
    },
    Defect {
        mended: &[(3, 4, 31), (3, 5, 13)],
        since: (3, 4, 0),
        members: ANY,
        is_unsafe: false,
        harm: "after a compaction events can be lost, so that a turn comes up to ten seconds late and a loss is \
               told by the next renewal",
    },
    Defect {
        mended: &[(3, 4, 32), (3, 5, 14)],
        since: (3, 4, 0),
        members: ANY,
        is_unsafe: false,
        harm: "after a crash while it compacts, revisions can go back, and fences with them",
    },
    Defect {
        mended: &[(3, 4, 38), (3, 5, 23), (3, 6, 5)],
        since: (3, 4, 0),
        members: ANY,
        is_unsafe: false,
        harm: "keeping a revoked lease alive can seem to succeed; the holder is told by its watch only",
    },
    Defect {
        mended: &[(3, 4, 44), (3, 5, 30), (3, 6, 11)],
        since: (3, 4, 0),
        members: ANY,
        is_unsafe: false,
        harm: "users can attach leases to keys without the right to write them (CVE-2026-44283)",
    },
];

impl Defect {
    fn is_in(&self, version: Version, members: usize) -> bool {
        let is_mended = self
            .mended
            .iter()
            .any(|mended| version >= *mended && (version.0, version.1) == (mended.0, mended.1));
        let is_newer =
            self.mended.last().is_some_and(|last| (version.0, version.1) > (last.0, last.1));
        let (least, most) = self.members;
        version >= self.since && !is_mended && !is_newer && (least..=most).contains(&members)
    }
}

/// What is known about the versions of those that answer; of how many members the cluster has.
pub(super) fn judge(named: &[Named<'_>], members: usize) -> Finding {
    let statuses = named.iter().filter_map(|it| it.status.as_ref().ok());
    let mut texts: Vec<&str> = statuses.map(|status| status.version.as_str()).collect();
    texts.sort_unstable();
    texts.dedup();
    judge_versions(&texts, members)
}

fn judge_versions(texts: &[&str], members: usize) -> Finding {
    const CHECK: &str = "version";
    let fact = format!("etcd {}", texts.join(", "));
    let Some(oldest) = texts.iter().filter_map(|text| read(text)).min() else {
        return Finding::unknown(CHECK, "no member tells this user", TELL_ROOT);
    };
    let found: Vec<&Defect> = DEFECTS.iter().filter(|it| it.is_in(oldest, members)).collect();
    if let Some(worst) = found.iter().max_by_key(|defect| defect.is_unsafe) {
        let harms: Vec<&str> = found.iter().map(|defect| defect.harm).collect();
        let harms = harms.join("; ");
        let fix = format!(
            "upgrade to {} or newer, or see that the package has it mended",
            fixed(oldest, &found)
        );
        return match worst.is_unsafe {
            true => Finding::hazard(CHECK, fact, harms, fix),
            false => Finding::warn(CHECK, fact, harms, fix),
        };
    }
    let series = (oldest.0, oldest.1);
    if !TESTED.contains(&series) {
        let [from, to] = TESTED;
        let meaning = format!(
            "Lockfast is tested with etcd {}.{} and {}.{}; nobody has looked whether its promises \
             hold here",
            from.0, from.1, to.0, to.1
        );
        return Finding::warn(CHECK, fact, meaning, "use a version that is tested");
    }
    Finding::ok(CHECK, fact)
}

/// The first version in which all of these are mended: of the same series, or of a later one.
fn fixed(version: Version, defects: &[&Defect]) -> String {
    let mended = defects.iter().filter_map(|defect| {
        let same = defect.mended.iter().find(|it| (it.0, it.1) == (version.0, version.1));
        same.or_else(|| defect.mended.iter().find(|it| **it > version))
    });
    let (major, minor, patch) = mended.max().copied().unwrap_or(version);
    format!("{major}.{minor}.{patch}")
}

fn read(text: &str) -> Option<Version> {
    let mut parts = text.split(['.', '-', '+']).map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??, parts.next().flatten().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use lockfast_core::Severity;

    use super::*;

    #[test]
    fn known_defects() {
        for (version, members, severity, said) in [
            ("3.4.23", 1, Severity::Warn, "events can be lost"),
            ("3.4.23", 3, Severity::Unsafe, "led before"),
            ("3.4.31", 3, Severity::Warn, "fences"),
            ("3.4.37", 3, Severity::Warn, "watch only"),
            ("3.4.44", 3, Severity::Ok, ""),
            ("3.5.4", 1, Severity::Unsafe, "confirmed"),
            ("3.5.4", 3, Severity::Unsafe, "led before"),
            ("3.5.5", 1, Severity::Warn, "events can be lost"),
            ("3.5.13", 1, Severity::Warn, "fences"),
            ("3.5.23", 3, Severity::Warn, "CVE-2026-44283"),
            ("3.5.30", 3, Severity::Ok, ""),
            ("3.6.4", 3, Severity::Warn, "watch only"),
            ("3.6.11", 3, Severity::Warn, "tested"),
            ("3.7.0", 3, Severity::Warn, "tested"),
        ] {
            let finding = judge_versions(&[version], members);
            assert_eq!(finding.severity, severity, "{version} of {members}: {finding:?}");
            assert!(finding.meaning.contains(said), "{version} of {members}: {finding:?}");
        }
    }

    #[test]
    fn the_oldest_counts_and_the_fix_is_of_its_series() {
        let finding = judge_versions(&["3.4.44", "3.4.23", "3.5.30"], 3);
        assert_eq!(finding.severity, Severity::Unsafe);
        assert!(finding.fix.contains("3.4.44"), "{finding:?}");
        assert_eq!(judge_versions(&["new"], 3).severity, Severity::Unknown);
        assert_eq!(read("3.6.0-rc.1"), Some((3, 6, 0)));
    }
}
