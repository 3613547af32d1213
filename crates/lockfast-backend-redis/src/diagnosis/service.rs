//! How the server serves connections, and what its clock does.

use lockfast_core::Finding;
use lockfast_core::diagnosis::{judge_clock, judge_latency};
use lockfast_core::view::brief;
use std::time::Duration;

use super::Setting;
use super::data::settle;
use super::facts::{Facts, Seen};

pub(super) const CLOCK_OFFSET: &str = "clock-offset";
pub(super) const CLOCK_RATE: &str = "clock-rate";
pub(super) const CLOCK_STEPS: &str = "clock-steps";
pub(super) const LATENCY: &str = "latency";
pub(super) const IDLE: &str = "idle-timeout";
pub(super) const KEEPALIVE: &str = "tcp-keepalive";
pub(super) const CLIENTS: &str = "max-clients";
pub(super) const GUARD: &str = "guard";

/// A quiet client says nothing for longer than that.
const IDLE_SECONDS_MIN: u64 = 60;
/// Above this part of its limit a server will soon refuse connections.
const CLIENTS_PART_MAX: f64 = 0.8;
/// Fences are never ahead of the clock by more than a few grants, unless somebody named a floor.
const FENCE_AHEAD_US_MAX: u64 = 1_000_000;

/// What its clock and its answers are like.
pub(super) fn timing(facts: &Facts) -> Vec<Finding> {
    let samples = match &facts.samples {
        Ok(samples) => samples,
        Err(unseen) => {
            return [CLOCK_OFFSET, CLOCK_RATE, LATENCY].map(|it| unseen.finding(it)).into();
        }
    };
    let round_trips: Vec<Duration> = samples.iter().map(|it| it.round_trip()).collect();
    let mut findings = judge_clock(samples);
    findings.extend(judge_latency(&round_trips));
    findings
}

/// The fence is never behind the clock when it is handed out, so one that is far ahead of it shows
/// that the clock went back since.
pub(super) fn clock_steps(facts: &Facts) -> Finding {
    let look = || -> Seen<Finding> {
        let samples = facts.samples.as_ref().map_err(Clone::clone)?;
        let now = samples.last().map_or(0, |sample| sample.server_us);
        let fence = facts.fence.as_ref().map_err(Clone::clone)?;
        let Some(fence) = fence.as_ref().and_then(|text| text.parse::<u64>().ok()) else {
            return Ok(Finding::ok(CLOCK_STEPS, "nothing was granted yet that could show one"));
        };
        let ahead = fence.saturating_sub(now);
        if ahead <= FENCE_AHEAD_US_MAX {
            return Ok(Finding::ok(
                CLOCK_STEPS,
                "the clock has not gone back behind the last grant",
            ));
        }
        Ok(Finding::warn(
            CLOCK_STEPS,
            format!("the last fence is {} ahead of the clock", brief(Duration::from_micros(ahead))),
            "the clock was set back (or somebody named a floor that far ahead), and if all data is \
             lost before it has caught up, fences begin again below those that were handed out",
            "let the clock be slewed and not stepped, and save what the server has",
        ))
    };
    settle(CLOCK_STEPS, look())
}

pub(super) fn idle_timeout(facts: &Facts) -> Finding {
    let look = || -> Seen<Finding> {
        let seconds: u64 = facts.setting("timeout")?.parse().unwrap_or_default();
        Ok(match seconds {
            0 => Finding::ok(IDLE, "none"),
            IDLE_SECONDS_MIN.. => Finding::ok(IDLE, format!("{seconds} s")),
            _ => Finding::warn(
                IDLE,
                format!("timeout is {seconds} s"),
                "the server closes connections that are quiet for so long, and a client may first \
                 notice when it is about to renew",
                "set timeout 0, or at least 60",
            ),
        })
    };
    settle(IDLE, look())
}

pub(super) fn tcp_keepalive(facts: &Facts) -> Finding {
    let look = || -> Seen<Finding> {
        let seconds: u64 = facts.setting("tcp-keepalive")?.parse().unwrap_or_default();
        if seconds > 0 {
            return Ok(Finding::ok(KEEPALIVE, format!("{seconds} s")));
        }
        Ok(Finding::warn(
            KEEPALIVE,
            "off",
            "a waiter whose machine is gone stays connected, and is offered the lock before the \
             next one",
            "set tcp-keepalive 300 or less",
        ))
    };
    settle(KEEPALIVE, look())
}

pub(super) fn max_clients(facts: &Facts) -> Finding {
    let look = || -> Seen<Finding> {
        let (now, most) = (facts.count("connected_clients")?, facts.count("maxclients")?);
        let fact = format!("{now} of {most}");
        if now as f64 <= most as f64 * CLIENTS_PART_MAX {
            return Ok(Finding::ok(CLIENTS, fact));
        }
        Ok(Finding::warn(
            CLIENTS,
            fact,
            "a client that has to connect again may be refused, and then loses its leases",
            "raise maxclients, or find out who has so many connections",
        ))
    };
    settle(CLIENTS, look())
}

/// What is written down for the quarantine: which server it is, until when nothing was granted, and
/// the longest lease, in ms.
pub(super) fn guard(facts: &Facts, setting: &Setting) -> Finding {
    let look = || -> Seen<Finding> {
        let guard = facts.guard.as_ref().map_err(Clone::clone)?;
        let samples = facts.samples.as_ref().map_err(Clone::clone)?;
        let now_ms = samples.last().map_or(0, |sample| sample.server_us / 1000);
        Ok(match (guard, setting.quarantine) {
            (None, false) => Finding::ok(GUARD, "nobody uses the quarantine"),
            (None, true) => Finding::ok(GUARD, "not written yet: the first client waits max_ttl"),
            (Some(_), false) => Finding::warn(
                GUARD,
                "others use on_data_loss=quarantine here, and this URL does not",
                "after a loss of data this client's leases are not waited for, and it does not wait \
                 for those of others",
                "use on_data_loss=quarantine with the same max_ttl everywhere",
            ),
            (Some(guard), true) => of_guard(guard, now_ms),
        })
    };
    settle(GUARD, look())
}

fn of_guard(guard: &str, now_ms: u64) -> Finding {
    let ends = guard.split(' ').nth(1).and_then(|ends| ends.parse::<u64>().ok());
    let Some(ends) = ends else {
        return Finding::warn(
            GUARD,
            "the key lockfast:guard does not hold what Lockfast writes there",
            "the quarantine begins anew, and nothing is granted for max_ttl",
            "find out who writes there",
        );
    };
    match ends.checked_sub(now_ms) {
        None | Some(0) => {
            let since = brief(Duration::from_millis(now_ms - ends));
            Finding::ok(GUARD, format!("the last quarantine was over {since} ago"))
        }
        Some(left) => Finding::warn(
            GUARD,
            format!("quarantine for another {}", brief(Duration::from_millis(left))),
            "the server was new or may have lost data, and nothing is granted until then",
            "wait; and find out why the server was started anew",
        ),
    }
}
