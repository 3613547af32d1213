//! How quickly a server answers, against how long leases last.

use std::time::Duration;

use super::Finding;

/// Of a lease, one request may take a sixth unless it is set otherwise.
const REQUESTS_PER_TTL: u32 = 6;
/// From here on leases of a few seconds are in danger.
const P99_MAX: Duration = Duration::from_millis(300);

/// What round trips say (`latency`): which leases are too short for this way to the server.
pub fn judge_latency(round_trips: &[Duration]) -> Option<Finding> {
    const CHECK: &str = "latency";
    let mut sorted = round_trips.to_vec();
    sorted.sort_unstable();
    let at = |percent: usize| sorted.get((sorted.len().saturating_sub(1)) * percent / 100).copied();
    let (p50, p99) = (at(50)?, at(99)?);
    // The slowest answers are seldom among a few; twice as long is still likely.
    let ttl_min = (p99 * 2 * REQUESTS_PER_TTL).max(Duration::from_millis(100));
    let fact = format!(
        "of {} round trips half took {} and all but the slowest hundredth {}: good for leases from {} \
         on",
        sorted.len(),
        shown(p50),
        shown(p99),
        shown(ttl_min)
    );
    if p99 <= P99_MAX {
        return Some(Finding::ok(CHECK, fact));
    }
    Some(Finding::warn(
        CHECK,
        fact,
        "shorter leases are lost when the answer to a renewal comes too late",
        "use longer leases (ttl), or a store that is nearer or less busy",
    ))
}

/// With as many digits as anybody needs.
fn shown(span: Duration) -> String {
    let ms = span.as_secs_f64() * 1e3;
    match ms {
        1000.0.. => format!("{:.1} s", ms / 1e3),
        10.0.. => format!("{ms:.0} ms"),
        _ => format!("{ms:.2} ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::Severity;

    #[test]
    fn quick_and_slow_answers() {
        let ms = Duration::from_millis;
        assert!(judge_latency(&[]).is_none());
        let quick = judge_latency(&[ms(1); 50]).unwrap();
        assert_eq!(quick.severity, Severity::Ok);
        assert!(quick.fact.contains("from 100 ms on"), "{}", quick.fact);
        let mut samples = vec![ms(2); 99];
        samples.extend([ms(700); 2]);
        let slow = judge_latency(&samples).unwrap();
        assert_eq!(slow.severity, Severity::Warn);
        assert!(slow.fact.contains("half took 2.00 ms"), "{}", slow.fact);
        assert!(slow.fact.contains("from 8.4 s on"), "{}", slow.fact);
    }
}
