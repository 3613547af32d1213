//! The store's one fence counter. It never goes back, is never behind the wall clock (so that it
//! also rises when the store's data was lost), and stays below 2^53.

use lockfast_core::{Error, ErrorKind, Fence, Result};

/// How far ahead of the store a caller's floor may be: a gate that saw more is not of this store.
const FLOOR_AHEAD_MAX_US: u64 = 60_000_000;

/// The last fence that was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FenceCounter(u64);

impl FenceCounter {
    /// A counter that goes on from `last`.
    pub(crate) fn after(last: u64) -> Self {
        Self(last)
    }

    /// The last fence that was handed out; 0 before the first.
    pub(crate) fn last(self) -> u64 {
        self.0
    }

    /// The next fence, above `floor`.
    pub(crate) fn next(&mut self, wall_us: u64, floor: u64) -> Result<Fence> {
        let number = (self.0.saturating_add(1)).max(wall_us).max(floor.saturating_add(1));
        let fence = Fence::new(number)?;
        self.0 = number;
        Ok(fence)
    }

    /// Refuses a floor that would carry the counter far into the future.
    pub(crate) fn check_floor(self, wall_us: u64, floor: u64) -> Result<()> {
        let highest = self.0.max(wall_us).saturating_add(FLOOR_AHEAD_MAX_US);
        if floor <= highest {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::InvalidToken,
            format!(
                "the floor {floor} is more than 60 s ahead of this store, which is at {}; it is \
                 the fence of another store, or a clock is wrong",
                self.0.max(wall_us)
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_fence_is_above_everything_known() {
        for (last, wall_us, floor, expected) in
            [(0, 0, 0, 1), (7, 5, 0, 8), (7, 50, 0, 50), (7, 50, 60, 61), (100, 50, 60, 101)]
        {
            let mut counter = FenceCounter::after(last);
            assert_eq!(counter.next(wall_us, floor).unwrap().get(), expected);
            assert_eq!(counter.last(), expected);
        }
    }

    #[test]
    fn an_exhausted_counter_stays_where_it_is() {
        let mut counter = FenceCounter::after(Fence::LIMIT - 1);
        let error = counter.next(0, 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TokenExhausted);
        assert_eq!(counter.last(), Fence::LIMIT - 1);
    }

    #[test]
    fn a_floor_may_be_a_minute_ahead() {
        let counter = FenceCounter::after(1_000);
        assert!(counter.check_floor(5_000, 5_000 + 60_000_000).is_ok());
        assert!(counter.check_floor(0, 1_000 + 60_000_000).is_ok());
        let error = counter.check_floor(5_000, 5_001 + 60_000_000).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidToken);
    }
}
