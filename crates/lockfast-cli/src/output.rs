//! What is printed: data on standard output, everything else on standard error.
//!
//! With `--json` each line of ours on standard error is a JSON object as well, but for the log of `-v`.
//! Nothing that came from outside reaches a terminal unescaped, colours appear only on a terminal that
//! wants them, and a locale without UTF-8 gets ASCII.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::SystemTime;

use lockfast_core::error;

use serde_json::{Value, json};

use crate::exit::Failure;

/// The width of a terminal that does not say it, and the least that a table is pressed into.
const COLUMNS_USUAL: u16 = 80;
const COLUMNS_MIN: u16 = 40;

/// How a process of ours is told that it prints JSON.
const JSON: &str = "json";

/// Where and how to print.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    json: bool,
    quiet: bool,
    terminal: bool,
    colour: bool,
    unicode: bool,
    out_colour: bool,
}

impl Output {
    /// As the environment says; a quiet one tells nothing about waiting and a taken lock.
    pub(crate) fn new(json: bool, quiet: bool) -> Self {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        let wanted = !dumb && !set("NO_COLOR");
        let terminal = io::stderr().is_terminal() && !dumb;
        Self {
            json,
            quiet,
            terminal,
            colour: terminal && wanted,
            unicode: locale_is_utf8(),
            out_colour: wanted && io::stdout().is_terminal(),
        }
    }

    /// For a process of ours that was told this [`Output::form`].
    pub(crate) fn of_form(form: Option<&OsStr>) -> Self {
        Self::new(form.is_some_and(|form| form == JSON), false)
    }

    /// How a process that this one starts is told to print.
    pub(crate) fn form(&self) -> &'static str {
        if self.json { JSON } else { "text" }
    }

    /// The width of the terminal that shows standard output, if one does.
    pub(crate) fn columns(&self) -> Option<u16> {
        let out = io::stdout();
        if !out.is_terminal() {
            return None;
        }
        let told = rustix::termios::tcgetwinsize(out).ok().map(|size| size.ws_col);
        Some(told.filter(|columns| *columns > 0).unwrap_or(COLUMNS_USUAL).max(COLUMNS_MIN))
    }

    /// Whether data is printed as JSON.
    pub(crate) fn json(&self) -> bool {
        self.json
    }

    /// Whether somebody looks at standard error on a terminal that can move its cursor.
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Whether notes are told at all.
    pub(crate) fn tells(&self) -> bool {
        !self.quiet
    }

    /// Whether standard error shows colours.
    pub(crate) fn colour(&self) -> bool {
        self.colour
    }

    /// Tells something that needs no action.
    pub(crate) fn note(&self, message: &str) {
        match (self.quiet, self.json) {
            (true, _) => {}
            (false, true) => report(&json!({ "level": "note", "message": message })),
            (false, false) => self.tell("", "lockfast", message),
        }
    }

    /// Tells something that somebody should look at.
    pub(crate) fn warn(&self, message: &str) {
        match self.json {
            true => report(&json!({ "level": "warning", "message": message })),
            false => self.tell("33", "lockfast: warning", message),
        }
    }

    /// Tells why it did not work, if there is something to tell.
    pub(crate) fn fail(&self, failure: &Failure) {
        match failure.message() {
            None => {}
            Some(_) if self.quiet && failure.is_refusal() => {}
            Some(_) if self.json => report(&failure.value()),
            Some(message) => self.tell("31", "lockfast", message),
        }
    }

    fn tell(&self, colour: &str, prefix: &str, message: &str) {
        let message = self.text(message);
        let line = if self.colour && !colour.is_empty() {
            format!("\u{1b}[1;{colour}m{prefix}:\u{1b}[0m {message}\n")
        } else {
            format!("{prefix}: {message}\n")
        };
        // There is nobody left to tell when standard error is closed.
        let _ = io::stderr().write_all(line.as_bytes());
    }

    /// Text as this terminal may see it, on one line.
    pub(crate) fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        printable(text, self.unicode)
    }

    /// Text for standard output as this terminal may see it, in a colour if it shows them.
    pub(crate) fn painted(&self, colour: &str, text: &str) -> String {
        let text = self.text(text);
        match self.out_colour && !colour.is_empty() {
            true => format!("\u{1b}[{colour}m{text}\u{1b}[0m"),
            false => text.into_owned(),
        }
    }

    /// Several lines of text of our own, each as this terminal may see it.
    pub(crate) fn lines(&self, text: &str) -> String {
        text.split('\n').map(|line| self.text(line)).collect::<Vec<_>>().join("\n")
    }

    /// Prints a line of human text on standard output.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn line(&self, text: &str) -> Result<(), Failure> {
        write_out(&format!("{}\n", self.text(text)))
    }

    /// Prints a table on standard output, whose cells are [`Output::text`] already.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn table(&self, table: &str) -> Result<(), Failure> {
        write_out(&format!("{}\n", self.lines(table)))
    }

    /// Prints a JSON value on a line of standard output.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn value(&self, value: &Value) -> Result<(), Failure> {
        write_out(&format!("{value}\n"))
    }
}

/// Prints a JSON value on a line of standard error.
fn report(value: &Value) {
    // There is nobody left to tell when standard error is closed.
    let _ = io::stderr().write_all(format!("{value}\n").as_bytes());
}

/// Writes text to standard output and makes sure that it arrived.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn write_out(text: &str) -> Result<(), Failure> {
    write_bytes(text.as_bytes())
}

/// The same with what may be no text.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn write_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| Failure::output(&error))
}

/// Escapes what a terminal would obey, what would pass for a line of ours, and what the terminal
/// cannot show when it knows no UTF-8.
fn printable(text: &str, unicode: bool) -> Cow<'_, str> {
    let text = error::printable(text);
    if unicode || text.is_ascii() {
        return text;
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match character {
            _ if character.is_ascii() => shown.push(character),
            '“' | '”' => shown.push('"'),
            '…' => shown.push_str("..."),
            _ => shown.extend(character.escape_default()),
        }
    }
    Cow::Owned(shown)
}

fn locale_is_utf8() -> bool {
    let value = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .filter_map(std::env::var_os)
        .find(|value| !value.is_empty());
    value.is_some_and(|value| {
        let value = value.to_string_lossy().to_ascii_lowercase();
        value.contains("utf-8") || value.contains("utf8")
    })
}

/// A time for people and programs alike: RFC 3339 in UTC, to the millisecond.
pub(crate) fn timestamp(at: SystemTime) -> String {
    match jiff::Timestamp::try_from(at) {
        Ok(at) => format!("{at:.3}"),
        Err(_) => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_are_not_obeyed() {
        assert_eq!(printable("a\u{1b}[2Jb\u{9b}", true), "a\\u{1b}[2Jb\\u{9b}");
        assert_eq!(printable("é “x” …", false), "\\u{e9} \"x\" ...");
        assert_eq!(printable("é\n\u{202e}", true), "é\\n\\u{202e}");
    }

    #[test]
    fn times_are_rfc_3339() {
        let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(1_500);
        assert_eq!(timestamp(at), "1970-01-01T00:00:01.500Z");
    }
}
