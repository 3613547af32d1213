//! Random choices that can be made again: one seed for a run, one stream of numbers for a case.

use std::time::Duration;

use lockfast_core::ClientId;

/// The environment variable that replays a run.
pub const SEED_VARIABLE: &str = "LOCKFAST_SEED";

/// Where a stream of random numbers starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub u64);

impl Seed {
    /// The seed that the environment asks for, or a new one.
    pub fn of_run() -> Self {
        let asked = std::env::var(SEED_VARIABLE).ok();
        if let Some(seed) = asked.and_then(|text| text.parse().ok()) {
            return Self(seed);
        }
        let random = ClientId::random().expect("random numbers");
        Self(random.as_bytes().iter().fold(0, |seed, byte| seed << 8 | u64::from(*byte)))
    }

    /// The seed of one case or worker of the run.
    pub fn of(self, subject: &str) -> Self {
        // FNV-1a: stable between builds, unlike the standard library's hasher.
        let hash = subject.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(self.0 ^ hash)
    }

    /// The numbers that follow from this seed.
    pub fn dice(self) -> Dice {
        Dice(self.0)
    }
}

/// A stream of random numbers (SplitMix64).
#[derive(Debug)]
pub struct Dice(u64);

impl Dice {
    /// A number below `end`, which is not zero.
    pub fn below(&mut self, end: u64) -> u64 {
        self.number() % end
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ number >> 31
    }

    /// True once in `times` times.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// A time shorter than `end`.
    pub fn time_below(&mut self, end: Duration) -> Duration {
        let end = u64::try_from(end.as_micros()).unwrap_or(u64::MAX).max(1);
        Duration::from_micros(self.below(end))
    }

    /// A time from `start` on that is shorter than `end`.
    pub fn time_between(&mut self, start: Duration, end: Duration) -> Duration {
        start + self.time_below(end.saturating_sub(start))
    }
}
