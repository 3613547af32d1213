//! How a server's clock compares with ours. Nobody knows when between the question and the answer
//! the server read it, so everything has an error bar of half the round trip.

use std::time::Duration;

use super::Finding;
use crate::backend::BoxFuture;
use crate::time::{DRIFT, Moment, wall_clock_us};

/// From so much on people see times that are wrong, and a fence's floor may be refused.
const OFFSET_US_MAX: u64 = 1_000_000;
/// What the deadline allows for the server's clock to run faster than ours.
const DRIFT_MAX: f64 = DRIFT / (1.0 - DRIFT);
/// What a pause is made of: with two of them the error bar is half of the drift that is allowed.
const ROUND_TRIPS_BETWEEN: u32 = 100;
const PAUSE_MIN: Duration = Duration::from_millis(150);
const PAUSE_MAX: Duration = Duration::from_millis(2500);
/// The clock is read in so many rounds with a pause between them, so often in each, but beyond the
/// first few not for longer than this, however slow the answers are.
const ROUNDS: usize = 3;
const READINGS: usize = 100;
const READINGS_MIN: usize = 3;
const ROUND_MAX: Duration = Duration::from_millis(300);

/// Our clocks at one moment.
#[derive(Clone, Copy, Debug)]
struct Reading {
    moment: Moment,
    wall_us: u64,
}

impl Reading {
    fn now() -> Self {
        Self { moment: Moment::now(), wall_us: wall_clock_us() }
    }
}

/// What a server's clock said between two readings of ours.
#[derive(Clone, Copy, Debug)]
pub struct ClockSample {
    /// Before it was asked.
    before: Reading,
    /// After it had answered.
    after: Reading,
    /// Microseconds since 1970.
    pub server_us: u64,
}

impl ClockSample {
    /// How long the answer took.
    pub fn round_trip(&self) -> Duration {
        self.after.moment.since(self.before.moment)
    }

    fn error_us(&self) -> f64 {
        self.round_trip().as_secs_f64() * 1e6 / 2.0
    }

    /// By how many seconds the server is ahead of us, and the error.
    pub fn offset(&self) -> (f64, f64) {
        (self.offset_us() / 1e6, self.error_us() / 1e6)
    }

    /// By how many µs the server is ahead of us.
    #[allow(clippy::cast_precision_loss, reason = "a difference of clocks is far below 2^52 µs")]
    fn offset_us(&self) -> f64 {
        let ahead = i128::from(self.server_us) - i128::from(self.before.wall_us);
        ahead as f64 - self.error_us()
    }

    /// How much faster the server's clock went than ours from `earlier` to here, and the error.
    #[allow(clippy::cast_precision_loss, reason = "a difference of clocks is far below 2^52 µs")]
    fn rate_since(&self, earlier: &Self) -> (f64, f64) {
        let ours = self.before.moment.since(earlier.before.moment).as_secs_f64() * 1e6
            + self.error_us()
            - earlier.error_us();
        let theirs = (i128::from(self.server_us) - i128::from(earlier.server_us)) as f64;
        (theirs / ours - 1.0, (self.error_us() + earlier.error_us()) / ours)
    }
}

/// Reads a server's clock as often as [`judge_clock`] needs it. `read` asks the server once, and
/// answers microseconds since 1970.
///
/// # Errors
/// The first of `read`.
///
/// # Cancel safety
/// As safe as `read` is.
pub async fn sample_clock<S, E>(
    server: &mut S,
    read: impl for<'a> Fn(&'a mut S) -> BoxFuture<'a, Result<u64, E>>,
) -> Result<Vec<ClockSample>, E> {
    let mut samples = Vec::new();
    for round in 0..ROUNDS {
        if round > 0 {
            tokio::time::sleep(pause_between(&samples)).await;
        }
        let mut spent = Duration::ZERO;
        for reading in 0..READINGS {
            if reading >= READINGS_MIN && spent > ROUND_MAX {
                break;
            }
            let before = Reading::now();
            let server_us = read(server).await?;
            let sample = ClockSample { before, after: Reading::now(), server_us };
            spent += sample.round_trip();
            samples.push(sample);
        }
    }
    Ok(samples)
}

/// How long to wait before the clock is read again, after these samples of it: so long that the round
/// trip does not hide a clock that runs wrong, unless that would take too long in any case.
fn pause_between(samples: &[ClockSample]) -> Duration {
    let quickest = samples.iter().map(ClockSample::round_trip).min().unwrap_or_default();
    match quickest * ROUND_TRIPS_BETWEEN {
        pause if pause <= PAUSE_MAX => pause.max(PAUSE_MIN),
        _ => PAUSE_MIN,
    }
}

/// What samples of a server's clock say, in the order in which they were taken: `clock-offset` and
/// `clock-rate`. For the rate the quickest of the first third and that of the last third count, so
/// there should be a pause between them.
pub fn judge_clock(samples: &[ClockSample]) -> Vec<Finding> {
    let third = samples.len().div_ceil(3);
    let quickest =
        |samples: &[ClockSample]| samples.iter().copied().min_by_key(ClockSample::round_trip);
    let Some(best) = quickest(samples) else { return Vec::new() };
    let (first, last) = (quickest(&samples[..third]), quickest(&samples[samples.len() - third..]));
    let rate = first.zip(last).map(|(first, last)| last.rate_since(&first));
    let mut findings = vec![judge_offset(best.offset_us(), best.error_us())];
    findings.extend(rate.map(|(rate, error)| judge_rate(rate, error)));
    findings
}

fn judge_offset(offset_us: f64, error_us: f64) -> Finding {
    const CHECK: &str = "clock-offset";
    let (seconds, error) = (offset_us / 1e6, error_us / 1e6);
    let side = if offset_us < 0.0 { "behind" } else { "ahead of" };
    let fact = format!("the server's clock is {:.3} s ± {error:.3} s {side} ours", seconds.abs());
    if offset_us.abs() - error_us <= Duration::from_micros(OFFSET_US_MAX).as_secs_f64() * 1e6 {
        return Finding::ok(CHECK, fact);
    }
    Finding::warn(
        CHECK,
        fact,
        "leases are not affected, but the times that are shown are wrong, and a server that takes \
         over with a clock that is behind gives out fences that do not rise",
        "let both machines follow a time server (chrony, systemd-timesyncd)",
    )
}

fn judge_rate(rate: f64, error: f64) -> Finding {
    const CHECK: &str = "clock-rate";
    let side = if rate < 0.0 { "slower" } else { "faster" };
    let fact = format!(
        "the server's clock went {:.2} % ± {:.2} % {side} than ours while it was watched",
        rate.abs() * 100.0,
        error * 100.0
    );
    if rate + error < -DRIFT_MAX {
        return Finding::warn(
            CHECK,
            fact,
            "a server whose clock runs slow or jumps back keeps leases longer than their ttl, so that \
             locks of holders that died are free late",
            "find out what changes the clock (a virtual machine that was paused, a time server that is \
             wrong) and let it be slewed, not stepped",
        );
    }
    if rate - error > DRIFT_MAX {
        return Finding::hazard(
            CHECK,
            fact,
            "a server whose clock runs or jumps ahead by more than the margin of 1 % ends a lease \
             before its holder's deadline",
            "find out what changes the clock (a virtual machine that was moved, a time server that \
             is wrong) and let it be slewed, not stepped",
        );
    }
    if error > DRIFT_MAX {
        return Finding::unknown(
            CHECK,
            format!("{fact}: the answers took too long to tell"),
            "repeat it when the network and both machines are less busy",
        );
    }
    Finding::ok(CHECK, fact)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::Severity;

    /// A sample that left at `at_ms` and took `round_trip_ms`, of a clock that said so.
    fn sample(at_ms: u64, round_trip_ms: u64, server_ms: u64) -> ClockSample {
        let start = Moment::from_host_ns(0);
        let reading = |ms| Reading {
            moment: start + Duration::from_millis(ms),
            wall_us: 1_000_000_000 + ms * 1000,
        };
        let (before, after) = (reading(at_ms), reading(at_ms + round_trip_ms));
        ClockSample { before, after, server_us: 1_000_000_000 + server_ms * 1000 }
    }

    fn severities(samples: &[ClockSample]) -> Vec<Severity> {
        judge_clock(samples).iter().map(|finding| finding.severity).collect()
    }

    #[test]
    fn a_clock_that_agrees() {
        let samples = [sample(0, 2, 1), sample(500, 2, 501), sample(1000, 2, 1001)];
        assert_eq!(severities(&samples), [Severity::Ok, Severity::Ok]);
        assert!(judge_clock(&[]).is_empty());
    }

    #[test]
    fn slow_answers_want_a_longer_look() {
        let pause =
            |round_trip_ms| pause_between(&[sample(0, round_trip_ms, 0), sample(9, 9000, 0)]);
        assert_eq!(pause(0), PAUSE_MIN);
        assert_eq!(pause(4), Duration::from_millis(400));
        assert_eq!(pause(25), PAUSE_MAX);
        assert_eq!(pause(26), PAUSE_MIN);
        assert_eq!(pause_between(&[]), PAUSE_MIN);
    }

    #[tokio::test]
    async fn a_clock_is_read_often_but_not_for_long() {
        let count = async |takes| {
            let mut server = takes;
            let samples = sample_clock(&mut server, |takes| {
                std::thread::sleep(*takes);
                Box::pin(async { Ok::<u64, ()>(7) })
            });
            let samples = samples.await.unwrap();
            assert!(samples.iter().all(|sample| sample.round_trip() >= takes));
            samples.len()
        };
        let often = count(Duration::ZERO).await;
        assert!((ROUNDS * READINGS_MIN + 1..=ROUNDS * READINGS).contains(&often), "{often}");
        assert_eq!(count(ROUND_MAX / 2).await, ROUNDS * READINGS_MIN);
        let mut left = 5;
        let fails = sample_clock(&mut left, |left| {
            *left -= 1;
            let read = if *left == 0 { Err("gone") } else { Ok(7) };
            Box::pin(async move { read })
        });
        assert_eq!(fails.await.unwrap_err(), "gone");
    }

    #[test]
    fn a_clock_that_is_off() {
        for ahead in [3_000, 60_000] {
            let samples =
                [sample(0, 2, ahead), sample(500, 2, ahead + 500), sample(1000, 2, ahead + 1000)];
            assert_eq!(severities(&samples), [Severity::Warn, Severity::Ok]);
        }
        // Half of the round trip is not held against it.
        let samples = [sample(0, 2400, 2400), sample(100_000, 2400, 102_400)];
        assert_eq!(severities(&samples)[0], Severity::Ok);
    }

    /// B81: one that is slow is no danger.
    #[test]
    fn a_clock_that_runs_fast_or_slow() {
        for (end, severity) in [(1031, Severity::Unsafe), (971, Severity::Warn)] {
            let samples = [sample(0, 2, 1), sample(500, 2, 510), sample(1000, 2, end)];
            assert_eq!(severities(&samples)[1], severity, "{end}");
        }
        // A slow answer counts less than a quick one.
        let samples =
            [sample(0, 2, 1), sample(3, 90, 80), sample(1000, 90, 1080), sample(1100, 2, 1101)];
        assert_eq!(severities(&samples)[1], Severity::Ok);
        let samples = [sample(0, 50, 1), sample(1000, 50, 1001)];
        assert_eq!(severities(&samples)[1], Severity::Unknown);
    }
}
