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
        let policy = facts.told("maxmemory_policy")?;
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
            // With the second on, nothing is synced while a copy is being written.
            let is_synced = self.setting("appendfsync")? == "always"
                && self.setting("no-appendfsync-on-rewrite")? == "no";
            Ok(if is_synced { Memory::Lasting } else { Memory::AlmostLasting })
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
        Memory::AlmostLasting if facts.setting("appendfsync") == Ok("always") => {
            "appendonly is on, appendfsync is always, but no-appendfsync-on-rewrite is yes"
                .to_owned()
        }
        _ => format!("appendonly is on, appendfsync is {fsync}"),
    };
    if memory == Memory::Lasting {
        return Finding::ok(PERSISTENCE, fact);
    }
    if setting.quarantine {
        let fact = format!("{fact}; after a restart nothing is granted until leases are over");
        return Finding::ok(PERSISTENCE, fact);
    }
    let fix = "set appendonly yes, appendfsync always and no-appendfsync-on-rewrite no, or use \
               on_data_loss=quarantine";
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
            match setting.is_voter {
                true => "set appendfsync always and no-appendfsync-on-rewrite no",
                false => fix,
            },
        ),
    }
}

pub(super) fn saving(facts: &Facts) -> Finding {
    const FIELDS: &[&str] =
        &["rdb_last_bgsave_status", "aof_last_write_status", "aof_last_bgrewrite_status"];
    let look = || -> Seen<Finding> {
        // Every server has the first.
        facts.told(FIELDS[0])?;
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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use lockfast_core::Severity;

    use super::*;
    use crate::config::Endpoint;
    use crate::diagnosis::{copies, service};

    fn facts(info: &[(&str, &str)]) -> Facts {
        let info = info.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Facts {
            endpoint: Endpoint::Unix("/socket".into()),
            peer: None,
            software: "redis".to_owned(),
            version: "7.4.6".to_owned(),
            mode: "standalone".to_owned(),
            role: "master".to_owned(),
            info: Ok(info.collect()),
            settings: HashMap::new(),
            user: Ok(super::super::facts::User::default()),
            stranger: Ok(super::super::facts::Stranger::Refused),
            samples: Ok(Vec::new()),
            fence: Ok(None),
            guard: Ok(None),
        }
    }

    /// B84: a server that leaves something out of INFO, as those do that somebody else runs, is not
    /// called good for it.
    #[test]
    fn what_is_not_told_is_not_known() {
        let setting = Setting::default();
        let look = |facts: &Facts| {
            vec![
                eviction(facts),
                evicted_keys(facts),
                memory(facts),
                persistence(facts, &setting),
                saving(facts),
                copies::failover(facts, &setting),
                copies::replica_lag(facts),
                copies::split_brain(facts, &setting),
                service::max_clients(facts),
            ]
        };
        for found in look(&facts(&[])) {
            assert_eq!(found.severity, Severity::Unknown, "{found:?}");
            assert!(found.fact.contains("INFO says no "), "{found:?}");
        }
        let found = evicted_keys(&facts(&[("evicted_keys", "many")]));
        assert_eq!(found.severity, Severity::Unknown, "{found:?}");
    }
}
