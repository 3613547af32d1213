//! How fast the server answers, and how its clock compares with ours.

use std::time::Duration;

use lockfast_core::diagnosis::{ClockSample, Reading, judge_clock, judge_latency, pause_between};
use lockfast_core::{Finding, Moment};

use super::Patient;
use crate::failure::Failure;

/// How often the clock is read at once, and how often that is done.
const READINGS: usize = 12;
const ROUNDS: usize = 3;
/// No longer than that at once, however slow the answers are.
const ROUND_MAX: Duration = Duration::from_secs(1);

pub(super) async fn look(patient: &mut Patient<'_>) -> Result<Vec<Finding>, Failure> {
    // Where clocks are set back an hour comes twice, but not here.
    patient.ask("SET SESSION time_zone = '+00:00'").await?;
    let mut samples = Vec::with_capacity(ROUNDS * READINGS);
    for round in 0..ROUNDS {
        if round > 0 {
            tokio::time::sleep(pause_between(&samples)).await;
        }
        let start = Moment::now();
        for _ in 0..READINGS {
            samples.push(read_clock(patient).await?);
            if (start + ROUND_MAX).has_passed(Moment::now()) {
                break;
            }
        }
    }
    let round_trips: Vec<Duration> = samples.iter().map(ClockSample::round_trip).collect();
    let mut findings = judge_clock(&samples);
    findings.extend(judge_latency(&round_trips));
    Ok(findings)
}

async fn read_clock(patient: &mut Patient<'_>) -> Result<ClockSample, Failure> {
    const QUERY: &str = "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)";
    let before = Reading::now();
    let rows = patient.ask(QUERY).await?;
    let after = Reading::now();
    let server_us = rows.first().and_then(|row| row.number(0));
    let server_us = server_us.ok_or_else(|| Failure::of_nonsense("no time"))?;
    Ok(ClockSample { before, after, server_us })
}
