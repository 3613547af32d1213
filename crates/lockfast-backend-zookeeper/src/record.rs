//! What a claim's node holds: who made it and how it stands, as lines of text.

use std::fmt::Write as _;
use std::time::Duration;

use lockfast_core::{Fence, Label};

const FIRST_LINE: &str = "lockfast 1";
const REASON_CHARACTERS_MAX: usize = 1024;

/// The data of a claim's node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) label: Label,
    /// How long it lasts without renewal, with its lock-delay.
    pub(crate) lasts: Duration,
    /// Its fence; absent as long as that is the transaction that made the node.
    pub(crate) fence: Option<Fence>,
    /// Whether it had the lock when this was written. A claim that got it at once never says so.
    pub(crate) held: bool,
    /// Why it is taken away.
    pub(crate) reason: Option<String>,
}

impl Record {
    /// The record as stored.
    pub(crate) fn write(&self) -> Vec<u8> {
        let Label { program, host, pid, text, .. } = &self.label;
        let mut lines = format!("{FIRST_LINE}\nprogram {program}\nhost {host}\npid {pid}\n");
        let mut add = |line: std::fmt::Arguments<'_>| {
            // Writing to a string cannot fail.
            let _ = lines.write_fmt(format_args!("{line}\n"));
        };
        if let Some(text) = text {
            add(format_args!("text {text}"));
        }
        add(format_args!("lasts {}", self.lasts.as_millis()));
        if let Some(fence) = self.fence {
            add(format_args!("fence {fence}"));
        }
        if self.held {
            add(format_args!("held"));
        }
        if let Some(reason) = &self.reason {
            add(format_args!("reason {reason}"));
        }
        lines.into_bytes()
    }

    /// `None` for what another program wrote.
    pub(crate) fn read(data: &[u8]) -> Option<Self> {
        let mut lines = std::str::from_utf8(data).ok()?.lines();
        if lines.next() != Some(FIRST_LINE) {
            return None;
        }
        let label = Label::new(String::new(), String::new(), 0);
        let mut record =
            Self { label, lasts: Duration::ZERO, fence: None, held: false, reason: None };
        for line in lines {
            let (key, value) = line.split_once(' ').unwrap_or((line, ""));
            match key {
                "program" => record.label.program = value.to_owned(),
                "host" => record.label.host = value.to_owned(),
                "pid" => record.label.pid = value.parse().ok()?,
                "text" => record.label.text = Some(value.to_owned()),
                "lasts" => record.lasts = Duration::from_millis(value.parse().ok()?),
                "fence" => record.fence = Some(Fence::parse(value).ok()?),
                "held" => record.held = true,
                "reason" => record.reason = Some(value.to_owned()),
                // A newer version may add more.
                _ => {}
            }
        }
        Some(record)
    }
}

/// A reason fits on one line, and is not longer than anybody reads.
pub(crate) fn one_line(reason: &str) -> String {
    let characters = reason.chars().map(|c| if c.is_control() { ' ' } else { c });
    characters.take(REASON_CHARACTERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_its_text() {
        let label = Label::of_this_process().with_text("nightly ünd more").unwrap();
        let plain = Record {
            label,
            lasts: Duration::from_millis(1500),
            fence: None,
            held: false,
            reason: None,
        };
        let full = Record {
            fence: Some(Fence::new(7).unwrap()),
            held: true,
            reason: Some(one_line("over\nthere")),
            ..plain.clone()
        };
        for record in [plain, full] {
            assert_eq!(Record::read(&record.write()), Some(record));
        }
    }

    #[test]
    fn what_others_wrote_is_not_ours() {
        for data in [&b""[..], b"10.0.0.7", b"lockfast 2\n", b"lockfast 1\npid x\n", b"\xff"] {
            assert_eq!(Record::read(data), None);
        }
        assert!(Record::read(b"lockfast 1\nfuture 7\npid 7\n").is_some());
    }
}
