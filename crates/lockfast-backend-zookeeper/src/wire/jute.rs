//! Records as ZooKeeper writes them: big-endian numbers, and text and lists with their length.

/// Collects the fields of a record.
#[derive(Debug, Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn int(mut self, value: i32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(crate) fn long(mut self, value: i64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(crate) fn bool(mut self, value: bool) -> Self {
        self.0.push(u8::from(value));
        self
    }

    pub(crate) fn bytes(self, value: &[u8]) -> Self {
        // A record that is this long is refused by every server long before the length overflows.
        let mut this = self.int(i32::try_from(value.len()).unwrap_or(i32::MAX));
        this.0.extend(value);
        this
    }

    pub(crate) fn text(self, value: &str) -> Self {
        self.bytes(value.as_bytes())
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// The record with its length before it.
    pub(crate) fn into_frame(self) -> Vec<u8> {
        Self::default().bytes(&self.0).0
    }
}

impl From<Vec<u8>> for Writer {
    /// Goes on with a record that was begun.
    fn from(begun: Vec<u8>) -> Self {
        Self(begun)
    }
}

/// Takes a record apart. Each answer is `None` when the record ends too early.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(record: &'a [u8]) -> Self {
        Self(record)
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn int(&mut self) -> Option<i32> {
        self.take(4)?.try_into().ok().map(i32::from_be_bytes)
    }

    pub(crate) fn long(&mut self) -> Option<i64> {
        self.take(8)?.try_into().ok().map(i64::from_be_bytes)
    }

    pub(crate) fn bool(&mut self) -> Option<bool> {
        Some(self.take(1)? != [0])
    }

    /// Bytes that are absent (length -1) are empty.
    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        match self.int()? {
            -1 => Some(&[]),
            length => self.take(usize::try_from(length).ok()?),
        }
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let record = Writer::default().int(-7).long(1 << 40).bool(true).text("ä").bytes(&[1, 2]);
        let bytes = record.into_bytes();
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.int(), Some(-7));
        assert_eq!(reader.long(), Some(1 << 40));
        assert_eq!(reader.bool(), Some(true));
        assert_eq!(reader.text(), Some("ä"));
        assert_eq!(reader.bytes(), Some(&[1, 2][..]));
        assert!(reader.rest().is_empty());
    }

    #[test]
    fn a_record_that_ends_too_early_is_nothing() {
        let bytes = Writer::default().int(5).into_bytes();
        assert_eq!(Reader::new(&bytes).bytes(), None);
        assert_eq!(Reader::new(&bytes).long(), None);
        assert_eq!(Reader::new(&[0xff; 4]).bytes(), Some(&[][..]));
        assert_eq!(Reader::new(&[0xff, 0xff, 0xff, 0xfe]).bytes(), None);
        assert_eq!(Reader::new(&[]).bool(), None);
        assert_eq!(Writer::default().int(1).into_frame(), [0, 0, 0, 4, 0, 0, 0, 1]);
    }
}
