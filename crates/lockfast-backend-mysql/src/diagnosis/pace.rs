//! How fast the server answers, and how its clock compares with ours.

use std::time::Duration;

use lockfast_core::Finding;
use lockfast_core::diagnosis::{ClockSample, judge_clock, judge_latency, sample_clock};

use super::Patient;
use crate::failure::{self, Failure};

pub(super) async fn look(patient: &mut Patient<'_>) -> Result<Vec<Finding>, Failure> {
    // Where clocks are set back an hour comes twice, but not here.
    patient.ask("SET SESSION time_zone = '+00:00'").await?;
    let samples = sample_clock(patient, |patient| Box::pin(read_clock(patient))).await?;
    let round_trips: Vec<Duration> = samples.iter().map(ClockSample::round_trip).collect();
    let mut findings = judge_clock(&samples);
    findings.extend(judge_latency(&round_trips));
    Ok(findings)
}

async fn read_clock(patient: &mut Patient<'_>) -> Result<u64, Failure> {
    const QUERY: &str = "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)";
    let rows = patient.ask(QUERY).await?;
    let server_us = rows.first().and_then(|row| row.number(0));
    server_us.ok_or_else(|| failure::of_nonsense("no time"))
}
