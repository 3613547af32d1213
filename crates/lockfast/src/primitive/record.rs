//! What a refresh keeps in the store, and what that is worth to one who reads it.

use std::time::Duration;

use lockfast_core::TtlLimits;

/// By how much the times of a store may be longer than what was asked for, because it rounds up.
const ROUNDING: Duration = Duration::from_millis(10);

/// What is kept under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// What was computed.
    Value,
    /// Only that something was done.
    Mark,
}

/// For how long a value is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    pub(super) fresh_for: Duration,
    /// For how much longer it is good enough while somebody computes the next.
    pub(super) stale_for: Duration,
}

impl Terms {
    /// How long the store keeps it.
    pub(super) fn kept_for(self) -> Duration {
        self.fresh_for.saturating_add(self.stale_for)
    }
}

/// What a record is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Worth {
    Fresh,
    /// Good enough while somebody computes the next.
    Stale,
    Nothing,
}

/// One byte that says what it is, the two times of whoever wrote it in milliseconds, and the value.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// `None` says that there is no value any more. Such a record is not just removed, so that whoever
    /// computes from what was before does not store that as fresh.
    pub(super) kind: Option<Kind>,
    pub(super) terms: Terms,
    pub(super) bytes: Vec<u8>,
}

impl Record {
    /// What is written before the value.
    pub(super) const HEADER_BYTES: usize = 1 + 2 * size_of::<u64>();

    /// A record that says that there is no value any more.
    pub(super) fn invalid() -> Self {
        let terms = Terms { fresh_for: Duration::ZERO, stale_for: Duration::ZERO };
        Self { kind: None, terms, bytes: Vec::new() }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let kind = match self.kind {
            Some(Kind::Value) => b'v',
            Some(Kind::Mark) => b'm',
            None => b'-',
        };
        let mut bytes = vec![kind];
        for time in [self.terms.fresh_for, self.terms.stale_for] {
            let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            bytes.extend_from_slice(&ms.to_be_bytes());
        }
        bytes.extend_from_slice(&self.bytes);
        bytes
    }

    /// `None` for what no refresh has written.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let kind = match kind {
            b'v' => Some(Kind::Value),
            b'm' => Some(Kind::Mark),
            b'-' => None,
            _ => return None,
        };
        let (fresh_for, rest) = rest.split_first_chunk()?;
        let (stale_for, bytes) = rest.split_first_chunk()?;
        let time = |ms: &[u8; 8]| Duration::from_millis(u64::from_be_bytes(*ms));
        let terms = Terms { fresh_for: time(fresh_for), stale_for: time(stale_for) };
        Some(Self { kind, terms, bytes: bytes.to_vec() })
    }

    /// What it is worth to one who reads it on these terms while the store, whose times have these
    /// limits, keeps it for so much longer. It is fresh if both the writer's terms and the reader's
    /// say so, and good enough if the reader's do.
    ///
    /// One that is kept for longer than it was written for is from the future: the store's clock was
    /// set back, or another program has written it. Its age is not known, so it is worth nothing.
    pub(super) fn worth(
        &self,
        remaining: Option<Duration>,
        reader: Terms,
        limits: &TtlLimits,
    ) -> Worth {
        let kept_for = self.terms.kept_for();
        let at_most = kept_for.max(limits.fit(kept_for)).saturating_add(ROUNDING);
        let Some(remaining) = remaining.filter(|remaining| *remaining <= at_most) else {
            return Worth::Nothing;
        };
        // A store may count in whole seconds, and says those that are left for certain. So what is just
        // as old as it may be is good.
        let age = kept_for.saturating_sub(remaining);
        if self.kind.is_none() || age > reader.kept_for() {
            Worth::Nothing
        } else if age <= self.terms.fresh_for.min(reader.fresh_for) {
            Worth::Fresh
        } else {
            Worth::Stale
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn terms(fresh_for: u32, stale_for: u32) -> Terms {
        Terms { fresh_for: fresh_for * SECOND, stale_for: stale_for * SECOND }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for kind in [Some(Kind::Value), Some(Kind::Mark), None] {
            let record = Record { kind, terms: terms(300, 60), bytes: b"EUR 1.08".to_vec() };
            let bytes = record.to_bytes();
            assert_eq!(bytes.len(), Record::HEADER_BYTES + 8);
            assert_eq!(Record::parse(&bytes), Some(record));
        }
        for other in [&b""[..], b"v", b"v1234567890123456"[..16].as_ref(), b"x1234567890123456"] {
            assert_eq!(Record::parse(other), None, "{other:?}");
        }
    }

    /// B185: neither a clock that was set back nor the longer times of another program keep a value
    /// good for longer than whoever reads it accepts.
    #[test]
    fn the_terms_of_the_reader_count() {
        let ms = Duration::from_millis;
        // Written for 300 s and 60 s, read so long before it ends, on terms that are shorter, the same
        // and longer.
        let (short, same, long) = (terms(10, 5), terms(300, 60), terms(3600, 3600));
        let table = [
            (360 * SECOND, [Worth::Fresh; 3]),
            (350 * SECOND, [Worth::Fresh; 3]),
            (346 * SECOND, [Worth::Stale, Worth::Fresh, Worth::Fresh]),
            (344 * SECOND, [Worth::Nothing, Worth::Fresh, Worth::Fresh]),
            (60 * SECOND, [Worth::Nothing, Worth::Fresh, Worth::Fresh]),
            (59 * SECOND, [Worth::Nothing, Worth::Stale, Worth::Stale]),
            (360 * SECOND + ROUNDING, [Worth::Fresh; 3]),
            (360 * SECOND + ROUNDING + ms(1), [Worth::Nothing; 3]),
            (3600 * SECOND, [Worth::Nothing; 3]),
        ];
        let record = Record { kind: Some(Kind::Value), terms: same, bytes: Vec::new() };
        for (remaining, expected) in table {
            let worth = [short, same, long]
                .map(|reader| record.worth(Some(remaining), reader, &TtlLimits::LOCKFAST));
            assert_eq!(worth, expected, "{remaining:?}");
        }
        assert_eq!(record.worth(None, long, &TtlLimits::LOCKFAST), Worth::Nothing, "without end");
        let invalid = Record::invalid();
        assert_eq!(invalid.worth(Some(ms(1)), long, &TtlLimits::LOCKFAST), Worth::Nothing);
    }

    /// A store that keeps no shorter time than two seconds is not taken for one whose clock is wrong.
    #[test]
    fn a_store_may_keep_it_longer_than_it_was_asked_to() {
        let limits = TtlLimits { min: 2 * SECOND, step: SECOND, ..TtlLimits::LOCKFAST };
        let own = Terms { fresh_for: SECOND / 2, stale_for: Duration::ZERO };
        let record = Record { kind: Some(Kind::Mark), terms: own, bytes: Vec::new() };
        assert_eq!(record.worth(Some(2 * SECOND), own, &limits), Worth::Fresh);
        assert_eq!(record.worth(Some(3 * SECOND), own, &limits), Worth::Nothing);
    }
}
