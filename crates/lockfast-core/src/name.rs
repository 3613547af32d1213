//! The name of a lock, checked once so that nothing below has to.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use unicode_normalization::is_nfc;

use crate::error::{Error, ErrorKind, Result, quote};

/// The name of a lock: 1–255 bytes of UTF-8 in normal form C, case-sensitive, without control,
/// bidirectional or invisible characters.
///
/// The same text means the same lock on every store, and different texts mean different locks:
/// `a`, `A`, `a/b` and `{a}` are four locks.
///
/// ```
/// use lockfast_core::LockName;
///
/// assert!(LockName::new("orders/nightly-report").is_ok());
/// let refused = LockName::new("a\u{202e}b").unwrap_err();
/// assert!(refused.to_string().contains("invisible character U+202E"));
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockName(Arc<str>);

impl LockName {
    /// The longest name, in bytes.
    pub const BYTES_MAX: usize = 255;

    /// Checks a name.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`], saying which rule was broken and where.
    pub fn new(name: impl AsRef<str>) -> Result<Self> {
        let name = name.as_ref();
        match flaw(name) {
            None => Ok(Self(Arc::from(name))),
            Some(flaw) => Err(refuse(name, &flaw)),
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// As [`LockName::new`], for what parses text.
///
/// ```
/// use lockfast_core::LockName;
///
/// # fn main() -> lockfast_core::Result<()> {
/// let name: LockName = "orders/nightly-report".parse()?;
/// assert_eq!(name.as_str(), "orders/nightly-report");
/// # Ok(())
/// # }
/// ```
impl FromStr for LockName {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::new(name)
    }
}

fn refuse(name: &str, flaw: &str) -> Error {
    Error::new(
        ErrorKind::InvalidName,
        format!(
            "{} is not a lock name: {flaw}; use 1 to {} bytes of UTF-8 text without control or \
             invisible characters",
            quote(name),
            LockName::BYTES_MAX
        ),
    )
}

/// The first rule that `name` breaks.
fn flaw(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("it is empty".into());
    }
    if name.len() > LockName::BYTES_MAX {
        return Some(format!("it has {} bytes, at most {}", name.len(), LockName::BYTES_MAX));
    }
    if name == "." || name == ".." {
        return Some("it is reserved".into());
    }
    for (at, character) in name.char_indices() {
        let kind = if character.is_control() {
            "control"
        } else if is_invisible(character) {
            "invisible"
        } else {
            continue;
        };
        return Some(format!("{kind} character U+{:04X} at byte {at}", u32::from(character)));
    }
    if name.starts_with(char::is_whitespace) || name.ends_with(char::is_whitespace) {
        return Some("it starts or ends with a space".into());
    }
    if !is_nfc(name) {
        return Some("it is not normalised (Unicode NFC)".into());
    }
    None
}

/// Characters that people cannot see or that reorder what they see.
pub(crate) fn is_invisible(character: char) -> bool {
    matches!(
        u32::from(character),
        0x00AD                 // soft hyphen
        | 0x034F               // combining grapheme joiner
        | 0x061C               // Arabic letter mark
        | 0x115F..=0x1160      // Hangul fillers
        | 0x17B4..=0x17B5      // Khmer inherent vowels
        | 0x180B..=0x180F      // Mongolian separators
        | 0x200B..=0x200F      // zero-width characters and direction marks
        | 0x2028..=0x202E      // line separators, bidirectional overrides
        | 0x2060..=0x206F      // word joiner, isolates, deprecated controls
        | 0x3164               // Hangul filler
        | 0xFE00..=0xFE0F      // variation selectors
        | 0xFEFF               // byte order mark
        | 0xFFA0               // half-width Hangul filler
        | 0xFFF0..=0xFFFB      // interlinear annotations
        | 0xE0000..=0xE0FFF    // tags and supplementary variation selectors
    )
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl std::borrow::Borrow<str> for LockName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for LockName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_names_say_which_rule() {
        let long = "x".repeat(256);
        let table: &[(&str, &str)] = &[
            ("", "empty"),
            (&long, "256 bytes, at most 255"),
            ("a\0b", "control character U+0000 at byte 1"),
            ("a\nb", "control character U+000A"),
            ("a\r", "control character U+000D"),
            ("a\tb", "control character U+0009"),
            (" a", "space"),
            ("a ", "space"),
            (".", "reserved"),
            ("..", "reserved"),
            ("a\u{202e}", "invisible character U+202E"),
            ("a\u{200b}b", "invisible character U+200B"),
            ("\u{feff}a", "invisible character U+FEFF"),
            ("e\u{301}", "not normalised"),
        ];
        for (name, expected) in table {
            let error = LockName::new(name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidName, "{name:?}");
            assert!(error.to_string().contains(expected), "{name:?}: {error}");
        }
    }

    #[test]
    fn a_huge_name_is_cut_in_the_message() {
        let error = LockName::new("n".repeat(2_000_000)).unwrap_err();
        assert!(error.to_string().len() < 400, "{} bytes", error.to_string().len());
    }

    #[test]
    fn similar_names_are_different_locks() {
        let names = ["a", "A", "a/b", "{a}", "a}{b", "a*", "é", "日本", "a b", "'; DROP TABLE--"];
        let checked: std::collections::HashSet<_> =
            names.iter().map(|name| LockName::new(name).unwrap()).collect();
        assert_eq!(checked.len(), names.len());
    }
}
