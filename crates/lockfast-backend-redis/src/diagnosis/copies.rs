//! Role, replicas and what a failover would forget.

use lockfast_core::Finding;
use lockfast_core::error::quote;

use super::Setting;
use super::data::settle;
use super::facts::{Facts, Seen};

pub(super) const TOPOLOGY: &str = "topology";
pub(super) const ROLE: &str = "role";
pub(super) const FAILOVER: &str = "failover";
pub(super) const LAG: &str = "replica-lag";
pub(super) const SPLIT: &str = "split-brain";

/// A replica that is so many seconds behind is not a copy any more.
const LAG_SECONDS_MAX: u64 = 10;

pub(super) fn topology(facts: &Facts, setting: &Setting) -> Finding {
    let is_cluster = facts.mode == "cluster";
    if is_cluster && !setting.is_cluster {
        return Finding::warn(
            TOPOLOGY,
            "the server is a part of a Redis Cluster",
            "it does not serve the locks of other slots, and does not follow those that move",
            "connect with redis+cluster:",
        );
    }
    Finding::ok(TOPOLOGY, quote(&facts.mode))
}

pub(super) fn role(facts: &Facts) -> Finding {
    if facts.role == "master" {
        return Finding::ok(ROLE, "master");
    }
    if facts.role.is_empty() {
        let reason = "the server does not say whether it is a master";
        return Finding::unknown(ROLE, reason, "see what ROLE answers there");
    }
    Finding::hazard(
        ROLE,
        quote(&facts.role),
        "a replica shows locks late and takes none; if it can be written to, what it grants is \
         forgotten at its next copy",
        "connect to its master, or with redis+sentinel: or redis+cluster:",
    )
}

pub(super) fn failover(facts: &Facts, setting: &Setting) -> Finding {
    let look = || -> Seen<Finding> {
        let replicas = facts.count("connected_slaves")?;
        if replicas == 0 {
            return Ok(Finding::ok(FAILOVER, "no replica that could take over"));
        }
        let fact = format!("{replicas} replicas");
        if setting.quarantine {
            let fact = format!("{fact}; after a failover nothing is granted until leases are over");
            return Ok(Finding::ok(FAILOVER, fact));
        }
        if u64::from(setting.min_replicas) >= replicas {
            let needed = setting.min_replicas;
            let fact = format!("{fact}, and a grant counts when {needed} have it");
            return Ok(Finding::ok(FAILOVER, fact));
        }
        let fix = "use on_data_loss=quarantine where that is possible, else min_replicas with the \
                   number of replicas; and check fences";
        if setting.min_replicas > 0 || !setting.fails_over {
            return Ok(Finding::warn(
                FAILOVER,
                fact,
                "one of them that lacks the last grants gives them again when it takes over",
                fix,
            ));
        }
        Ok(Finding::hazard(
            FAILOVER,
            format!("{fact}, copied after the answer, and one takes over by itself"),
            "a replica that lacks the last grants takes over and gives them again",
            fix,
        ))
    };
    settle(FAILOVER, look())
}

pub(super) fn replica_lag(facts: &Facts) -> Finding {
    let look = || -> Seen<Finding> {
        let count = facts.count("connected_slaves")?;
        let mut late = Vec::new();
        for at in 0..count {
            let name = format!("slave{at}");
            let Some(line) = facts.info(&name)? else {
                let reason = format!("the server counts {count} replicas and shows {at}");
                return Ok(Finding::unknown(LAG, reason, "repeat it, in case one has just gone"));
            };
            let field = |name: &str| {
                line.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
            };
            let lag: Option<u64> = field("lag").and_then(|lag| lag.parse().ok());
            if field("state") != Some("online") || lag.is_none_or(|lag| lag > LAG_SECONDS_MAX) {
                late.push(quote(line));
            }
        }
        if late.is_empty() {
            return Ok(Finding::ok(LAG, format!("{count} replicas, none of them behind")));
        }
        Ok(Finding::warn(
            LAG,
            late.join(" "),
            "what it has not yet copied is forgotten when it takes over",
            "look at the replica and the network to it",
        ))
    };
    settle(LAG, look())
}

/// A master that is cut off does not know that another has taken its place.
pub(super) fn split_brain(facts: &Facts, setting: &Setting) -> Finding {
    let look = || -> Seen<Finding> {
        if facts.count("connected_slaves")? == 0 || !setting.fails_over {
            return Ok(Finding::ok(SPLIT, "nothing takes over by itself"));
        }
        // The field is there only if the server needs some.
        if facts.info("min_slaves_good_slaves")?.is_some() {
            return Ok(Finding::ok(SPLIT, "the server takes no writes without replicas"));
        }
        Ok(Finding::warn(
            SPLIT,
            "min-replicas-to-write is 0",
            "a master that is cut off goes on granting while another has taken its place",
            "set min-replicas-to-write 1 and min-replicas-max-lag 10",
        ))
    };
    settle(SPLIT, look())
}
