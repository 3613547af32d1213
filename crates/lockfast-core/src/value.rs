//! Small values beside the locks, each with a version: whoever writes says which version it has
//! seen, and a write in between is a conflict instead of a lost update.

use std::fmt;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::name::LockName;

/// Which write a value comes from. Two writes never have the same version, also when the value was
/// removed in between. What is in it is the store's business.
///
/// ```
/// use lockfast_core::{Version, VersionedValue};
///
/// /// Whether a page that was made from the value of this version has to be made again.
/// fn is_old(made_from: Version, now: &VersionedValue) -> bool {
///     now.version != made_from
/// }
///
/// let version = Version::from_bytes([7; 16]);
/// assert_eq!(version.as_bytes(), &[7; 16]); // to be kept beside the page
/// let now = VersionedValue::new(version, b"10".to_vec(), None);
/// assert!(!is_old(version, &now));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Version([u8; 16]);

impl Version {
    /// The version with these bytes. See [`Version`] for an example.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bytes. See [`Version`] for an example.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Version({self})")
    }
}

/// A value as it was read.
///
/// ```
/// use lockfast_core::{Version, VersionedValue};
///
/// fn stock(value: &VersionedValue) -> Option<u32> {
///     std::str::from_utf8(&value.bytes).ok()?.parse().ok()
/// }
///
/// let version = Version::from_bytes([7; 16]);
/// let read = VersionedValue::new(version, b"10".to_vec(), None);
/// assert_eq!(stock(&read), Some(10));
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct VersionedValue {
    /// Which write it comes from.
    pub version: Version,
    /// What was written.
    pub bytes: Vec<u8>,
    /// How much longer the store keeps it, by the store's clock; `None` for as long as nobody
    /// removes it.
    pub remaining: Option<Duration>,
}

impl VersionedValue {
    /// The longest value, in bytes.
    pub const BYTES_MAX: usize = 64 * 1024;

    /// A value that comes from this write, and that the store keeps for so much longer. See [`VersionedValue`] for an
    /// example.
    pub fn new(version: Version, bytes: Vec<u8>, remaining: Option<Duration>) -> Self {
        Self { version, bytes, remaining }
    }

    /// Refuses a value that is too long.
    ///
    /// ```
    /// use lockfast_core::VersionedValue;
    ///
    /// assert!(VersionedValue::check(b"10").is_ok());
    /// assert!(VersionedValue::check(&[0; VersionedValue::BYTES_MAX + 1]).is_err());
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`] for a value that is too long.
    pub fn check(bytes: &[u8]) -> Result<()> {
        if bytes.len() <= Self::BYTES_MAX {
            return Ok(());
        }
        let message = format!(
            "a value of {} bytes is too long: it may have {}; keep what is longer elsewhere and \
             write where it is",
            bytes.len(),
            Self::BYTES_MAX
        );
        Err(Error::new(ErrorKind::InvalidConfig, message))
    }
}

impl fmt::Debug for VersionedValue {
    /// The bytes may be a secret, so only their number is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VersionedValue")
            .field("version", &self.version)
            .field("bytes", &self.bytes.len())
            .field("remaining", &self.remaining)
            .finish()
    }
}

/// What must be there for a write to happen.
///
/// ```
/// use lockfast_core::{Expected, VersionedValue};
///
/// /// What must still be there, for one who has read this.
/// fn unchanged(read: Option<&VersionedValue>) -> Expected {
///     read.map_or(Expected::Nothing, |value| Expected::Version(value.version))
/// }
/// assert_eq!(unchanged(None), Expected::Nothing);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// No value.
    Nothing,
    /// The value that comes from this write.
    Version(Version),
}

/// Writes a value if what is there is what was expected.
///
/// ```
/// use lockfast_core::{Change, Expected, LockName, WriteRequest};
///
/// # fn main() -> lockfast_core::Result<()> {
/// let request = WriteRequest {
///     name: LockName::new("stock/7")?,
///     expected: Expected::Nothing, // only if nobody has written it before
///     change: Change::Put { bytes: b"10".to_vec(), keep: None },
///     id: [7; 16], // random, and the same when it is sent again
/// };
/// assert!(!format!("{request:?}").contains("id"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct WriteRequest {
    /// Of which name. A lock may have the same name; the two do not know of each other.
    pub name: LockName,
    /// What must be there.
    pub expected: Expected,
    /// What shall be there.
    pub change: Change,
    /// Random bytes by which a repetition of this write is known, when its answer was lost.
    pub id: [u8; 16],
}

/// What a write does.
///
/// ```
/// use std::time::Duration;
/// use lockfast_core::Change;
///
/// /// How much longer a store keeps something, if not for ever.
/// fn keep(change: &Change) -> Option<Duration> {
///     match change {
///         Change::Put { keep, .. } => *keep,
///         Change::Remove => Some(Duration::ZERO),
///     }
/// }
/// assert_eq!(keep(&Change::Put { bytes: b"10".to_vec(), keep: None }), None);
/// ```
#[derive(Clone)]
pub enum Change {
    /// Puts this value there.
    Put {
        /// At most [`VersionedValue::BYTES_MAX`].
        bytes: Vec<u8>,
        /// For how long, by the store's clock; `None` for as long as nobody removes it.
        keep: Option<Duration>,
    },
    /// Leaves no value there.
    Remove,
}

impl fmt::Debug for WriteRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WriteRequest { name, expected, change, .. } = self;
        let mut shown = f.debug_struct("WriteRequest");
        shown.field("name", name).field("expected", expected).field("change", change);
        shown.finish_non_exhaustive()
    }
}

impl fmt::Debug for Change {
    /// The bytes may be a secret, so only their number is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Put { bytes, keep } => {
                let mut shown = f.debug_struct("Put");
                shown.field("bytes", &bytes.len()).field("keep", keep).finish()
            }
            Self::Remove => f.write_str("Remove"),
        }
    }
}

/// What became of a write.
///
/// ```
/// use lockfast_core::WriteOutcome;
///
/// fn told(outcome: &WriteOutcome) -> &'static str {
///     match outcome {
///         WriteOutcome::Written(Some(_)) => "written",
///         WriteOutcome::Written(None) => "removed",
///         WriteOutcome::Conflict(Some(_)) => "somebody else has written",
///         WriteOutcome::Conflict(None) => "somebody else has removed it",
///     }
/// }
/// assert_eq!(told(&WriteOutcome::Conflict(None)), "somebody else has removed it");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// It is done; the version of what is there now, `None` after a removal.
    Written(Option<Version>),
    /// Something else was there, which is this, and nothing was changed.
    Conflict(Option<VersionedValue>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_a_value_is_not_shown() {
        let bytes = b"secret".to_vec();
        let version = Version::from_bytes([0xab; 16]);
        let value = VersionedValue { version, bytes: bytes.clone(), remaining: None };
        assert_eq!(
            format!("{value:?}"),
            format!(
                "VersionedValue {{ version: Version({}), bytes: 6, remaining: None }}",
                "ab".repeat(16)
            )
        );
        let change = Change::Put { bytes, keep: None };
        assert_eq!(format!("{change:?}"), "Put { bytes: 6, keep: None }");
    }

    #[test]
    fn a_value_that_is_too_long_is_refused() {
        assert!(VersionedValue::check(&vec![0; VersionedValue::BYTES_MAX]).is_ok());
        let error = VersionedValue::check(&vec![0; VersionedValue::BYTES_MAX + 1]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        assert!(error.message().contains("65537 bytes"), "{error}");
    }
}
