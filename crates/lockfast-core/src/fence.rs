//! Fencing tokens.
//!
//! A fence that nobody checks protects nothing: a paused holder wakes up, believes in its lease
//! and writes. The resource it writes to must refuse a fence lower than one it has seen. The crate
//! `lockfast-fence` has what does that.

use std::cmp::Ordering;
use std::fmt;

use crate::error::{Error, ErrorKind, Result, quote};
use crate::name::LockName;

/// The number that orders the grants of one lock. It has no order of its own, because fences of
/// different locks or stores must not be compared: see [`FencingToken`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fence(u64);

impl Fence {
    /// The first number that no store hands out any more. Below it a Lua or JavaScript number
    /// still holds every integer.
    pub const LIMIT: u64 = 1 << 53;

    /// The fence of a stored number.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidToken`] for zero, [`ErrorKind::TokenExhausted`] from [`Fence::LIMIT`].
    pub fn new(number: u64) -> Result<Self> {
        match number {
            0 => Err(Error::new(
                ErrorKind::InvalidToken,
                "0 is not a fencing token: fences begin at 1; pass the one that the guard tells",
            )),
            Self::LIMIT.. => Err(Error::new(
                ErrorKind::TokenExhausted,
                format!("fence {number} is not below 2^53; the store's fence must be repaired"),
            )),
            _ => Ok(Self(number)),
        }
    }

    /// Reads a fence as printed: decimal digits and nothing else.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidToken`].
    pub fn parse(text: &str) -> Result<Self> {
        let invalid = || {
            Error::new(
                ErrorKind::InvalidToken,
                format!(
                    "{} is not a fencing token: expected digits only, from 1 to {}",
                    quote(text),
                    Self::LIMIT - 1
                ),
            )
        };
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(invalid());
        }
        let number = text.parse().map_err(|_| invalid())?;
        Self::new(number).map_err(|_| invalid())
    }

    /// The number, for storing and sending.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fence({})", self.0)
    }
}

/// A fence together with the lock it belongs to.
///
/// ```
/// use lockfast_core::{Fence, FencingToken, LockName};
///
/// # fn main() -> lockfast_core::Result<()> {
/// let token = FencingToken { lock: LockName::new("account/7")?, fence: Fence::parse("41")? };
/// assert!(token.compare(&token)?.is_eq());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FencingToken {
    /// The lock.
    pub lock: LockName,
    /// Its fence.
    pub fence: Fence,
}

impl FencingToken {
    /// Which of two tokens of one lock was granted later.
    ///
    /// # Errors
    /// [`ErrorKind::DifferentLock`] when they belong to different locks.
    pub fn compare(&self, other: &Self) -> Result<Ordering> {
        if self.lock != other.lock {
            return Err(Error::new(
                ErrorKind::DifferentLock,
                format!("its fence says nothing about lock {}", quote(other.lock.as_str())),
            )
            .with_lock(&self.lock));
        }
        Ok(self.fence.0.cmp(&other.fence.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_digits_are_a_fence() {
        for text in ["", "-1", "+1", "1e9", " 7", "7 ", "0", "18446744073709551616", "٣", "0x10"] {
            assert_eq!(Fence::parse(text).unwrap_err().kind(), ErrorKind::InvalidToken, "{text}");
        }
        assert_eq!(Fence::parse("42").unwrap().get(), 42);
    }

    #[test]
    fn a_fence_never_wraps() {
        assert_eq!(Fence::new(1 << 53).unwrap_err().kind(), ErrorKind::TokenExhausted);
        assert_eq!(Fence::new(u64::MAX).unwrap_err().kind(), ErrorKind::TokenExhausted);
        assert_eq!(Fence::new((1 << 53) - 1).unwrap().get(), (1 << 53) - 1);
    }

    #[test]
    fn tokens_of_different_locks_do_not_compare() {
        let token = |lock: &str, fence| FencingToken {
            lock: LockName::new(lock).unwrap(),
            fence: Fence::new(fence).unwrap(),
        };
        assert_eq!(token("a", 2).compare(&token("a", 1)).unwrap(), Ordering::Greater);
        let error = token("a", 2).compare(&token("b", 1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DifferentLock);
    }
}
