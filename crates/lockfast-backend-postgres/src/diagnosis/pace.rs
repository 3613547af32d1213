//! How fast the server answers and commits, and how its clock compares with ours.

use std::time::Duration;

use lockfast_core::diagnosis::{ClockSample, judge_clock, judge_latency, sample_clock};
use lockfast_core::{Finding, Moment};

use super::{Patient, only};
use crate::failure::{self, Failure, Remedy};
use crate::wire::get;

/// How many commits are timed, but beyond the first not for longer than this.
const COMMITS: usize = 8;
const COMMITS_TIME_MAX: Duration = Duration::from_secs(1);
/// From here on commits, and not the network, decide how fast a lock goes round.
const COMMIT_MAX: Duration = Duration::from_millis(20);

pub(super) async fn look(patient: &Patient) -> Result<Vec<Finding>, Failure> {
    let samples = sample_clock(&mut { patient }, |patient| Box::pin(read_clock(patient))).await?;
    let round_trips: Vec<Duration> = samples.iter().map(ClockSample::round_trip).collect();
    let mut findings = judge_clock(&samples);
    findings.extend(judge_latency(&round_trips));
    if !patient.is_standby {
        let found = look_at_commits(patient, median(round_trips)).await;
        findings.push(patient.settle("commits", found)?);
    }
    Ok(findings)
}

async fn read_clock(patient: &Patient) -> Result<u64, Failure> {
    const QUESTION: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    let rows = patient.ask(QUESTION).await?;
    let server_us: i64 = get(only(&rows)?, 0)?;
    u64::try_from(server_us).map_err(failure::of_nonsense)
}

fn median(mut spans: Vec<Duration>) -> Duration {
    spans.sort_unstable();
    spans.get(spans.len() / 2).copied().unwrap_or_default()
}

/// Commits empty messages to the log: nothing else that changes nothing waits for the disk and for
/// synchronous standbys.
async fn look_at_commits(patient: &Patient, round_trip: Duration) -> Result<Finding, Failure> {
    const CHECK: &str = "commits";
    const MESSAGE: &str = "SELECT pg_logical_emit_message(true, 'lockfast', '')";
    let mut spans = Vec::with_capacity(COMMITS);
    let end = Moment::now() + COMMITS_TIME_MAX;
    while spans.len() < COMMITS && (spans.is_empty() || !end.has_passed(Moment::now())) {
        let start = Moment::now();
        match patient.ask(MESSAGE).await {
            Ok(_) => spans.push(Moment::now().since(start).saturating_sub(round_trip)),
            Err(failure) if failure.handling.remedy == Remedy::Reconnect => {
                patient.session.cancel().await;
                return Ok(Finding::hazard(
                    CHECK,
                    format!("a commit did not return within {:?}", patient.config.request_timeout),
                    "no lock can be taken, and leases cannot be renewed",
                    "look at the server's disk, and whether the standbys that are named in \
                     synchronous_standby_names are connected",
                ));
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(judge_commits(median(spans)))
}

fn judge_commits(span: Duration) -> Finding {
    const CHECK: &str = "commits";
    let fact = format!("half of them took less than {:.2} ms", span.as_secs_f64() * 1e3);
    if span <= COMMIT_MAX {
        return Finding::ok(CHECK, fact);
    }
    let rate = 1.0 / span.as_secs_f64();
    Finding::warn(
        CHECK,
        fact,
        format!(
            "one lock goes from hand to hand at most {rate:.0} times a second; while somebody watches, \
             all locks of the server together do, because NOTIFY takes one lock for the whole server"
        ),
        "give the server's log a faster disk, or a nearer standby; do not leave \"lockfast watch\" on",
    )
}

#[cfg(test)]
mod tests {
    use lockfast_core::Severity;

    use super::*;

    #[test]
    fn slow_commits_are_told() {
        assert_eq!(judge_commits(Duration::from_millis(2)).severity, Severity::Ok);
        let slow = judge_commits(Duration::from_millis(50));
        assert_eq!(slow.severity, Severity::Warn);
        assert!(slow.meaning.contains("20 times a second"), "{}", slow.meaning);
    }
}
