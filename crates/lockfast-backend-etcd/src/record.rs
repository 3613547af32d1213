//! What the key of a claim holds: lines of text that people can read. Other programs may write
//! anything there, and are taken for what they are: somebody who wants the lock alone.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use lockfast_core::{Label, Mode};

const FIRST_LINE: &str = "lockfast 1";

/// A claim as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) mode: Mode,
    pub(crate) state: State,
    /// When it was written, in µs of the writer's wall clock.
    pub(crate) since_us: u64,
    pub(crate) label: Option<Label>,
}

/// What its holder, or whoever ended it, knew of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It did not have its turn when it was written.
    Waiting,
    /// Its holder has it, or was not behind anybody when it was written.
    Held,
    /// The same, of somebody who does not wait.
    Trying,
    /// Its holder is about to delete it because nobody prolonged it.
    Expired,
    /// An operator is about to delete it.
    Revoked { reason: String },
}

impl Record {
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut text = String::from(FIRST_LINE);
        let mut line = |name: &str, value: &dyn std::fmt::Display| {
            // Writing to a string cannot fail.
            let _ = write!(text, "\n{name}={}", escape(&value.to_string()));
        };
        match self.mode {
            Mode::Exclusive => line("mode", &"exclusive"),
            Mode::Shared => line("mode", &"shared"),
            Mode::Permit { limit } => line("permits", &limit),
        }
        match &self.state {
            State::Waiting => line("state", &"waiting"),
            State::Held => line("state", &"held"),
            State::Trying => line("state", &"trying"),
            State::Expired => line("state", &"expired"),
            State::Revoked { reason } => {
                line("state", &"revoked");
                line("reason", reason);
            }
        }
        line("since", &self.since_us);
        if let Some(label) = &self.label {
            line("program", &label.program);
            line("host", &label.host);
            line("pid", &label.pid);
            if let Some(words) = &label.text {
                line("text", words);
            }
        }
        text.into_bytes()
    }

    /// Reads what Lockfast wrote; `None` for anything else.
    pub(crate) fn read(value: &[u8]) -> Option<Self> {
        let mut lines = std::str::from_utf8(value).ok()?.split('\n');
        if lines.next() != Some(FIRST_LINE) {
            return None;
        }
        let fields: Vec<(&str, String)> = lines
            .filter_map(|line| line.split_once('='))
            .map(|(name, value)| (name, unescape(value)))
            .collect();
        let field = |wanted: &str| {
            fields.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.as_str())
        };
        let mode = match (field("mode"), field("permits")) {
            (Some("exclusive"), _) => Mode::Exclusive,
            (Some("shared"), _) => Mode::Shared,
            (None, Some(limit)) => Mode::permit(limit.parse().ok()?).ok()?,
            _ => return None,
        };
        let state = match field("state")? {
            "waiting" => State::Waiting,
            "held" => State::Held,
            "trying" => State::Trying,
            "expired" => State::Expired,
            "revoked" => State::Revoked { reason: field("reason")?.to_owned() },
            _ => return None,
        };
        let pid = field("pid").and_then(|pid| pid.parse().ok());
        let label = match (field("program"), field("host"), pid) {
            (Some(program), Some(host), Some(pid)) => Some(
                Label::new(program.to_owned(), host.to_owned(), pid)
                    .with_stored_text(field("text").map(str::to_owned)),
            ),
            _ => None,
        };
        Some(Self { mode, state, since_us: field("since")?.parse().ok()?, label })
    }

    /// When it was written.
    pub(crate) fn since(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_micros(self.since_us)
    }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n")
}

fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(character) = rest.next() {
        match (character, character == '\\') {
            (_, true) => match rest.next() {
                Some('n') => plain.push('\n'),
                Some(other) => plain.push(other),
                None => {}
            },
            (character, false) => plain.push(character),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let label =
            Label::new("p".into(), "h=1".into(), 7).with_stored_text(Some("a\\n = b".into()));
        let modes = [Mode::Exclusive, Mode::Shared, Mode::permit(3).unwrap()];
        let states = [
            State::Waiting,
            State::Held,
            State::Trying,
            State::Expired,
            State::Revoked { reason: "a\nstate=held\\".into() },
        ];
        for mode in modes {
            for state in &states {
                for label in [None, Some(label.clone())] {
                    let record = Record { mode, state: state.clone(), since_us: 5, label };
                    assert_eq!(Record::read(&record.write()), Some(record));
                }
            }
        }
    }

    #[test]
    fn what_others_write_is_not_taken_for_ours() {
        let table: [&[u8]; 7] = [
            b"",
            b"x",
            b"\xff",
            b"lockfast 1",
            b"lockfast 1\nmode=exclusive\nstate=held",
            b"lockfast 1\npermits=0\nstate=held\nsince=1",
            b"lockfast 2\nmode=exclusive\nstate=held\nsince=1",
        ];
        for value in table {
            assert_eq!(Record::read(value), None, "{value:?}");
        }
    }
}
