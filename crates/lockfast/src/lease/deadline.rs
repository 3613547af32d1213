//! The one formula for how long a lease may be believed in.

use std::time::Duration;

use lockfast_core::{Grant, Moment};

/// What is taken off every lease besides the relative drift: the resolution of a store's clock.
const RESOLUTION: Duration = Duration::from_millis(2);

/// How long a holder may believe in a lease of `ttl` when clocks may differ by the ratio `drift`;
/// `None` when nothing is left.
pub(crate) fn validity(ttl: Duration, drift: f64) -> Option<Duration> {
    let margin = ttl.mul_f64(drift).checked_add(RESOLUTION)?;
    ttl.checked_sub(margin).filter(|left| !left.is_zero())
}

/// The deadline of a lease that the store began to count at `from` or later.
pub(crate) fn deadline(from: Moment, ttl: Duration, drift: f64) -> Moment {
    from + validity(ttl, drift).unwrap_or_default()
}

/// The deadline of a grant that `ttl` was asked for.
pub(crate) fn deadline_of(grant: &Grant, ttl: Duration, drift: f64) -> Moment {
    deadline(grant.from, grant.lasts(ttl), drift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_margin_is_drift_and_two_milliseconds() {
        assert_eq!(validity(Duration::from_secs(10), 0.01), Some(Duration::from_millis(9_898)));
        assert_eq!(validity(Duration::from_millis(100), 0.99), None);
    }

    proptest::proptest! {
        #[test]
        fn the_holder_never_believes_longer_than_the_store(ttl_ms in 100_u64..86_400_000, drift in 0.0_f64..0.9) {
            let ttl = Duration::from_millis(ttl_ms);
            if let Some(valid) = validity(ttl, drift) {
                proptest::prop_assert!(valid + RESOLUTION <= ttl);
            }
        }
    }
}
