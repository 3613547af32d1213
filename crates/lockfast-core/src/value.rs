//! Small values beside the locks, each with a version: whoever writes says which version it has
//! seen, and a write in between is a conflict instead of a lost update.

use std::fmt;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::name::LockName;

/// Which write a value comes from. Two writes never have the same version, also when the value was
/// removed in between. What is in it is the store's business.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Version([u8; 16]);

impl Version {
    /// The version with these bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
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

    /// A value that comes from this write, and that the store keeps for so much longer.
    pub fn new(version: Version, bytes: Vec<u8>, remaining: Option<Duration>) -> Self {
        Self { version, bytes, remaining }
    }

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// No value.
    Nothing,
    /// The value that comes from this write.
    Version(Version),
}

/// Writes a value if what is there is what was expected.
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
