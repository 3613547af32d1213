//! Whether the server keeps what it has granted: memory, disk and copies.

use lockfast_core::Finding;
use lockfast_core::error::quote;

use super::Setting;
use super::facts::{Facts, Seen};

pub(super) const EVICTION: &str = "eviction";
pub(super) const EVICTED: &str = "evicted-keys";
pub(super) const MEMORY: &str = "memory";
pub(super) const PERSISTENCE: &str = "persistence";
pub(super) const SAVING: &str = "saving";

/// Above this part of its limit a server will soon refuse what needs memory.
const MEMORY_PART_MAX: f64 = 0.9;

/// How much of what was granted a server has after it was started anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// All of it.
    Lasting,
    /// All but the last second or so, if its machine crashed.
    AlmostLasting,
    /// What was saved at some time.
    Fleeting,
}

/// Settles what could not be seen.
pub(super) fn settle(check: &'static str, found: Seen<Finding>) -> Finding {
    found.unwrap_or_else(|unseen| unseen.finding(check))
}

pub(super) fn eviction(facts: &Facts) -> Finding {
    let look = || -> Seen<Finding> {
        let policy = facts.info("maxmemory_policy")?.unwrap_or("noeviction");
        let limit = facts.count("maxmemory")?;
        if policy == "noeviction" {
            return Ok(Finding::ok(EVICTION, "noeviction"));
        }
        let policy = quote(policy);
        if limit == 0 {
            return Ok(Finding::ok(EVICTION, format!("{policy}, without a limit of memory")));
        }
        Ok(Finding::hazard(
            EVICTION,
            format!("{policy} with maxmemory {limit}"),
            "a lock that is held can be thrown away to make room, and is then granted again",
            "set maxmemory-policy noeviction, or give the locks a server of their own",
        ))
    };
    settle(EVICTION, look())
}

pub(super) fn evicted_keys(facts: &Facts) -> Finding {
    let look = || -> Seen<Finding> {
        Ok(match facts.count("evicted_keys")? {
            0 => Finding::ok(EVICTED, "none since the server was started"),
            count => Finding::warn(
                EVICTED,
                format!("{count} since the server was started"),
                "there may have been locks among them, which were then granted twice",
                "set maxmemory-policy noeviction, or give the locks a server of their own",
            ),
        })
    };
    settle(EVICTED, look())
}

pub(super) fn memory(facts: &Facts) -> Finding {
    let look = || -> Seen<Finding> {
        let (used, limit) = (facts.count("used_memory")?, facts.count("maxmemory")?);
        if limit == 0 {
            return Ok(Finding::ok(MEMORY, format!("{} MiB used, without a limit", used >> 20)));
        }
        let fact = format!("{} of {} KiB used", used >> 10, limit >> 10);
        if used as f64 <= limit as f64 * MEMORY_PART_MAX {
            return Ok(Finding::ok(MEMORY, fact));
        }
        Ok(Finding::warn(
            MEMORY,
            fact,
            "without memory nothing is granted; what is held is renewed and given back",
            "raise maxmemory, or give the locks a server of their own",
        ))
    };
    settle(MEMORY, look())
}

impl Facts {
    /// How much of what was granted it still has after it was started anew.
    pub fn memory(&self) -> Result<Memory, Finding> {
        let look = || -> Seen<Memory> {
            if self.count("aof_enabled")? == 0 {
                return Ok(Memory::Fleeting);
            }
            Ok(match self.setting("appendfsync")? {
                "always" => Memory::Lasting,
                _ => Memory::AlmostLasting,
            })
        };
        look().map_err(|unseen| unseen.finding(PERSISTENCE))
    }
}

pub(super) fn persistence(facts: &Facts, setting: &Setting) -> Finding {
    let memory = match facts.memory() {
        Ok(memory) => memory,
        Err(unseen) => return unseen,
    };
    let fsync = facts.setting("appendfsync").map_or("unknown".into(), quote);
    let fact = match memory {
        Memory::Fleeting => "appendonly is off".to_owned(),
        _ => format!("appendonly is on, appendfsync is {fsync}"),
    };
    if memory == Memory::Lasting {
        return Finding::ok(PERSISTENCE, fact);
    }
    if setting.quarantine {
        let fact = format!("{fact}; after a restart nothing is granted until leases are over");
        return Finding::ok(PERSISTENCE, fact);
    }
    let fix = "set appendonly yes and appendfsync always, or use on_data_loss=quarantine";
    match memory {
        Memory::Fleeting if !setting.is_voter => Finding::hazard(
            PERSISTENCE,
            fact,
            "a server that is started anew has forgotten who holds what, and grants it again",
            fix,
        ),
        Memory::Fleeting => Finding::warn(
            PERSISTENCE,
            fact,
            "when it is started anew it has forgotten who holds what; see persistence-mix",
            "set appendonly yes and appendfsync always",
        ),
        _ => Finding::warn(
            PERSISTENCE,
            fact,
            "when the server's machine crashes, the grants of the last second or two are forgotten \
             and can be given again",
            if setting.is_voter { "set appendfsync always" } else { fix },
        ),
    }
}

pub(super) fn saving(facts: &Facts) -> Finding {
    const FIELDS: &[&str] =
        &["rdb_last_bgsave_status", "aof_last_write_status", "aof_last_bgrewrite_status"];
    let look = || -> Seen<Finding> {
        let mut failed = Vec::new();
        for field in FIELDS {
            if facts.info(field)?.is_some_and(|status| status != "ok") {
                failed.push(*field);
            }
        }
        if failed.is_empty() {
            return Ok(Finding::ok(SAVING, "the last attempts succeeded"));
        }
        Ok(Finding::warn(
            SAVING,
            format!("{} failed", failed.join(", ")),
            "what is granted may not be on the disk, and the server may soon refuse every write",
            "look at the server's disk and its log",
        ))
    };
    settle(SAVING, look())
}
