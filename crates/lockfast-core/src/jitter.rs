//! Chance, so that many do not do at one moment what they do once in a while.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number from 0 to below 1 that spreads what would otherwise happen at one moment. It is no
/// secret, so one system call per process is enough.
pub fn jitter() -> f64 {
    static STATE: OnceLock<AtomicU64> = OnceLock::new();
    let state = STATE.get_or_init(|| AtomicU64::new(getrandom::u64().unwrap_or_default()));
    // SplitMix64: a counter and a mixer.
    let mut number = state.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
    number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (number >> 40) as f64 / (1_u64 << 24) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_spread_from_0_to_1() {
        let mut tenths = [0_u32; 10];
        (0..10_000).for_each(|_| tenths[(jitter() * 10.0) as usize] += 1);
        // Ten standard deviations: chance alone does not leave these bounds.
        assert!(tenths.iter().all(|count| (700..1300).contains(count)), "{tenths:?}");
    }
}
