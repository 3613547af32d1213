//! Servers that belong together: a master that sentinels name, and the masters of a cluster.

use lockfast_core::error::quote;
use lockfast_core::{ErrorKind, Finding};

use super::facts::Facts;
use super::{Setting, examine};
use crate::config::Endpoint;
use crate::topology::Service;
use crate::wire::cluster::{Range, draw_map};
use crate::wire::dial::Dialer;
use crate::wire::failure::Failure;
use crate::wire::sentinel::{Opinion, survey};

pub(super) const SENTINELS: &str = "sentinels";
pub(super) const SLOTS: &str = "slots";
pub(super) const REACHABLE: &str = "reachable";

/// Fewer cannot outvote one that is wrong.
const SENTINELS_MIN: u32 = 3;
const SLOT_COUNT: usize = 16_384;

/// The master, and what each sentinel says.
pub(super) async fn of_service(
    dialer: &Dialer,
    service: &Service,
    setting: &Setting,
) -> Result<Vec<Finding>, Failure> {
    let facts = Facts::gather(dialer).await?;
    let mut findings = of_sentinels(&survey(dialer, service).await);
    findings.extend(examine(&facts, setting));
    Ok(findings)
}

fn of_sentinels(opinions: &[(Endpoint, Result<Opinion, Failure>)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut masters: Vec<String> = Vec::new();
    let mut known = 0;
    for (sentinel, opinion) in opinions {
        match opinion {
            Ok(opinion) => {
                masters.push(quote(&opinion.master));
                known = known.max(opinion.others + 1);
            }
            Err(failure) => {
                let finding = Finding::warn(
                    SENTINELS,
                    failure.message(),
                    "with the next one that is gone, a master that moves may not be found",
                    "start it, or take it out of the URL",
                );
                findings.push(finding.at(sentinel.to_string()));
            }
        }
    }
    masters.sort_unstable();
    masters.dedup();
    findings.push(of_masters(&masters, known));
    findings
}

fn of_masters(masters: &[String], known: u32) -> Finding {
    if masters.len() > 1 {
        return Finding::hazard(
            SENTINELS,
            format!("they name several masters: {}", masters.join(", ")),
            "clients that ask different sentinels lock on different servers",
            "wait if a failover is under way, else see which sentinels are cut off",
        );
    }
    let fact = format!("{known} know each other, and agree on {}", masters.join(", "));
    if known >= SENTINELS_MIN {
        return Finding::ok(SENTINELS, fact);
    }
    Finding::warn(
        SENTINELS,
        fact,
        "fewer than three cannot tell a master that is gone from one that they are cut off from, or \
         cannot replace it",
        "run at least three, on different machines",
    )
}

/// Every master that has slots.
pub(super) async fn of_cluster(
    dialer: &Dialer,
    seeds: &[Endpoint],
    setting: &Setting,
) -> Result<Vec<Finding>, Failure> {
    let ranges = draw_map(dialer, seeds).await?;
    let mut findings = vec![of_slots(&ranges)];
    let mut masters: Vec<&Endpoint> = Vec::new();
    ranges.iter().map(|range| &range.master).for_each(|master| {
        if !masters.contains(&master) {
            masters.push(master);
        }
    });
    // All at once, because each takes a second or two.
    let looks: Vec<_> = masters
        .into_iter()
        .map(|master| {
            let (name, dialer) = (master.to_string(), dialer.for_node(master.clone()));
            (name, tokio::spawn(async move { Facts::gather(&dialer).await }))
        })
        .collect();
    for (name, look) in looks {
        let gathered = look.await.unwrap_or_else(|error| {
            Err(Failure::new(ErrorKind::Internal, format!("the look at {name} ended: {error}")))
        });
        match gathered {
            Ok(facts) => {
                findings.push(Finding::ok(REACHABLE, "yes").at(&name));
                let found = examine(&facts, setting);
                findings.extend(found.into_iter().map(|finding| finding.at(&name)));
            }
            Err(failure) => findings.push(unreachable(failure)?.at(&name)),
        }
    }
    Ok(findings)
}

fn unreachable(failure: Failure) -> Result<Finding, Failure> {
    if failure.kind() != ErrorKind::Unreachable {
        return Err(failure);
    }
    Ok(Finding::warn(
        REACHABLE,
        failure.message(),
        "nothing is granted or renewed of the locks in its slots",
        "start it, or let another master have its slots",
    ))
}

fn of_slots(ranges: &[Range]) -> Finding {
    let spans = ranges.iter().map(|range| usize::from(range.last) + 1 - usize::from(range.first));
    let served: usize = spans.sum();
    let fact = format!("{served} of {SLOT_COUNT} are served");
    if served >= SLOT_COUNT {
        return Finding::ok(SLOTS, fact);
    }
    Finding::warn(
        SLOTS,
        fact,
        "locks in the others cannot be taken, or none at all (cluster-require-full-coverage)",
        "give the rest to a master (redis-cli --cluster fix)",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockfast_core::Severity;

    /// Sentinels that are cut off from each other are hard to come by.
    #[test]
    fn sentinels_that_do_not_agree() {
        let found = of_masters(&["a:1".into(), "b:1".into()], 3);
        assert_eq!(found.severity, Severity::Unsafe);
        assert!(found.fact.contains("a:1, b:1"), "{found:?}");
        assert_eq!(of_masters(&["a:1".into()], 3).severity, Severity::Ok);
        assert_eq!(of_masters(&["a:1".into()], 2).severity, Severity::Warn);
    }
}
