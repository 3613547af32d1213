//! Which versions have holes that a lock's user should know of. Scripts are how this store works, so
//! its user may run them, and a hole in Lua is open to whoever has that user's password.

use lockfast_core::Finding;
use lockfast_core::error::quote;

use super::facts::Facts;

pub(super) const CHECK: &str = "version";

/// A hole, and the first versions without it; a series that is not listed was never mended by those
/// who publish the server, unless it began after the last of them.
struct Hole {
    name: &'static str,
    mended: &'static [[u32; 3]],
}

/// Redis: release notes of the versions named, as of November 2025.
const REDIS: &[Hole] = &[
    Hole { name: "CVE-2022-24834", mended: &[[6, 0, 20], [6, 2, 13], [7, 0, 12]] },
    Hole { name: "CVE-2024-31449", mended: &[[6, 2, 16], [7, 2, 6], [7, 4, 1]] },
    Hole { name: "CVE-2024-46981", mended: &[[6, 2, 17], [7, 2, 7], [7, 4, 2]] },
    Hole {
        name: "CVE-2025-49844",
        mended: &[[6, 2, 20], [7, 2, 11], [7, 4, 6], [8, 0, 4], [8, 2, 2]],
    },
];

/// Valkey: release notes of the versions named, as of November 2025.
const VALKEY: &[Hole] = &[
    Hole { name: "CVE-2024-31449", mended: &[[7, 2, 7], [8, 0, 1]] },
    Hole { name: "CVE-2024-46981", mended: &[[7, 2, 8], [8, 0, 2]] },
    Hole { name: "CVE-2025-49844", mended: &[[7, 2, 11], [8, 0, 6], [8, 1, 4]] },
];

/// The version, and what is known about it.
pub(super) fn version(facts: &Facts) -> Finding {
    // Valkey says that it is Redis 7.2.4 unless it is asked for its own name.
    let own = facts.info("valkey_version").ok().flatten();
    let (software, version) = match own {
        Some(version) => ("valkey", version),
        None => (facts.software.as_str(), facts.version.as_str()),
    };
    let fact = format!("{} {}", shown(software), shown(version));
    let table = match software {
        "redis" => REDIS,
        "valkey" => VALKEY,
        _ => {
            let reason = format!("{fact}, of whose holes nothing is known here");
            return Finding::unknown(CHECK, reason, "see what its publisher says about Lua");
        }
    };
    let Some(numbers) = parse(version) else {
        let reason = format!("{fact} is no version that can be compared");
        return Finding::unknown(CHECK, reason, "see what its publisher says about Lua");
    };
    let open: Vec<&str> =
        table.iter().filter(|hole| hole.is_open(numbers)).map(|hole| hole.name).collect();
    if open.is_empty() {
        return Finding::ok(CHECK, fact);
    }
    Finding::warn(
        CHECK,
        format!("{fact}, published with {}", open.join(", ")),
        "whoever may run scripts may be able to run programs as the server's user, and so to forge \
         every lock; distributions mend this without another number",
        "upgrade the server, or see that its package has these mended",
    )
}

impl Hole {
    fn is_open(&self, version: [u32; 3]) -> bool {
        let series = |version: [u32; 3]| (version[0], version[1]);
        match self.mended.iter().find(|mended| series(**mended) == series(version)) {
            Some(mended) => version < *mended,
            None => self.mended.last().is_some_and(|last| version < *last),
        }
    }
}

fn parse(version: &str) -> Option<[u32; 3]> {
    let mut numbers = version.split(['.', '-']).map(|part| part.parse().ok());
    Some([numbers.next()??, numbers.next()??, numbers.next()??])
}

fn shown(text: &str) -> String {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte));
    if is_plain && !text.is_empty() { text.to_owned() } else { quote(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_by_version() {
        let open = |table: &[Hole], version: &str| -> Vec<&str> {
            let numbers = parse(version).unwrap();
            table.iter().filter(|hole| hole.is_open(numbers)).map(|hole| hole.name).collect()
        };
        let recent = ["CVE-2024-31449", "CVE-2024-46981", "CVE-2025-49844"];
        assert_eq!(open(REDIS, "7.0.15"), recent);
        assert_eq!(open(REDIS, "7.0.11").len(), 4);
        assert_eq!(open(REDIS, "6.2.19"), ["CVE-2025-49844"]);
        assert_eq!(open(REDIS, "7.4.1"), recent[1..]);
        assert_eq!(open(REDIS, "8.0.3"), recent[2..]);
        for mended in ["6.2.20", "7.2.11", "7.4.6", "8.0.4", "8.0.6", "8.2.2", "8.4.0", "9.0.0"] {
            assert!(open(REDIS, mended).is_empty(), "{mended}");
        }
        assert_eq!(open(VALKEY, "8.1.3"), recent[2..]);
        for mended in ["7.2.11", "8.0.6", "8.1.4", "9.1.2"] {
            assert!(open(VALKEY, mended).is_empty(), "{mended}");
        }
        assert_eq!(parse("8.0.0-rc1"), Some([8, 0, 0]));
        assert_eq!(parse("255.255"), None);
    }
}
