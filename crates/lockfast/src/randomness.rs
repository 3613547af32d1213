//! Random bytes for holder ids, drawn from the operating system many at a time: one system call
//! for each acquisition would be a large part of its cost.

use std::sync::{Mutex, PoisonError};

use lockfast_core::{Error, ErrorKind, Result};

/// Enough for a hundred ids.
const BYTES: usize = 1000;

/// Random bytes that nobody has used.
#[derive(Default)]
pub(crate) struct Randomness(Mutex<Vec<u8>>);

impl Randomness {
    /// Fills `bytes` with what is never given out again.
    pub(crate) fn draw(&self, bytes: &mut [u8]) -> Result<()> {
        let mut left = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if left.len() < bytes.len() {
            left.resize(BYTES.max(bytes.len()), 0);
            if let Err(error) = getrandom::fill(&mut left) {
                left.clear();
                let message = "the operating system gave no random numbers";
                let cause = std::io::Error::other(error.to_string());
                return Err(Error::new(ErrorKind::Internal, message).with_source(cause));
            }
        }
        let rest = left.len() - bytes.len();
        bytes.copy_from_slice(&left[rest..]);
        left.truncate(rest);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn nothing_is_drawn_twice() {
        let randomness = Randomness::default();
        let mut seen = HashSet::new();
        for _ in 0..1000 {
            let mut bytes = [0; 10];
            randomness.draw(&mut bytes).unwrap();
            assert!(seen.insert(bytes), "{bytes:?}");
        }
    }
}
