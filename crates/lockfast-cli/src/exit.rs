//! Every exit code, and the failure that carries one out of a command.
//!
//! Commands that only talk to a store use the codes of `sysexits.h`. `run` leaves those to its
//! command and has few codes of its own, in the range that `timeout` and `env` use.

use std::io;

use lockfast::{Error, ErrorKind};
use serde_json::{Value, json};

/// `doctor`: something that people expect of locks does not hold.
pub(crate) const WARNED: u8 = 1;
/// `doctor`: a lock can be granted twice.
pub(crate) const UNSAFE: u8 = 2;
/// What was typed cannot be right.
pub(crate) const USAGE: u8 = 64;
/// The store cannot be reached, or its answers are of no use.
pub(crate) const UNAVAILABLE: u8 = 69;
/// A fault of Lockfast's own or of the operating system.
pub(crate) const INTERNAL: u8 = 70;
/// What was asked for could not be written out.
pub(crate) const OUTPUT: u8 = 74;
/// Taken, or not held; `refresh`: what was waited for failed.
pub(crate) const NOT_ACQUIRED: u8 = 75;
/// The store or the operating system does not allow it.
pub(crate) const NOT_PERMITTED: u8 = 77;
/// The configuration or the store's URL is wrong.
pub(crate) const CONFIG: u8 = 78;
/// `run`: the lease was lost while the command ran.
pub(crate) const LOST: u8 = 120;
/// `run`: Lockfast itself failed.
pub(crate) const RUN_FAILED: u8 = 125;
/// `run`: the command cannot be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// `run`: there is no such command.
pub(crate) const NOT_FOUND: u8 = 127;

/// `torture`: something was found that the store does not promise to prevent.
pub(crate) const FOUND_ALLOWED: u8 = 1;
/// `torture`: a promise was broken.
pub(crate) const FOUND_BROKEN: u8 = 2;

/// How a command ended: its exit code, or why it failed.
pub(crate) type Outcome = Result<u8, Failure>;

/// The code of a process that a signal ended.
pub(crate) fn of_signal(signal: i32) -> u8 {
    u8::try_from(128_i32.saturating_add(signal)).unwrap_or(u8::MAX)
}

/// Why a command failed, with the code to exit with.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    /// What it is, for programs: one word, stable.
    word: &'static str,
    message: Option<String>,
    /// The lock that was refused, for programs.
    lock: Option<Value>,
    /// Whether the lock is taken, which a correct command meets every day.
    is_refusal: bool,
}

impl Failure {
    /// A failure with a code of its own.
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self { message: Some(message.into()), ..Self::quiet(code) }
    }

    /// A failure that has nothing to say.
    pub(crate) fn quiet(code: u8) -> Self {
        Self { code, word: word_of(code), message: None, lock: None, is_refusal: false }
    }

    /// The lock is taken, as seen here if it was seen.
    pub(crate) fn taken(message: impl Into<String>, lock: Option<Value>) -> Self {
        let failure = Self::new(NOT_ACQUIRED, message);
        Self { word: "taken", lock, is_refusal: true, ..failure }
    }

    /// What was typed cannot be right.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(USAGE, message)
    }

    /// The configuration is wrong.
    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self::new(CONFIG, message)
    }

    /// The operating system refused something that should work.
    pub(crate) fn internal(what: &str, error: impl std::fmt::Display) -> Self {
        Self::new(INTERNAL, format!("{what}: {error}"))
    }

    /// Standard output cannot be written; a reader that went away is nothing to talk about.
    pub(crate) fn output(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::quiet(OUTPUT),
            _ => Self::new(OUTPUT, format!("standard output cannot be written: {error}")),
        }
    }

    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    /// What to tell, if anything.
    pub(crate) fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }

    /// Whether the lock is taken.
    pub(crate) fn is_refusal(&self) -> bool {
        self.is_refusal
    }

    /// The same for programs.
    pub(crate) fn value(&self) -> Value {
        let mut value = json!({
            "level": "error",
            "error": self.word,
            "message": self.message,
            "exit_code": self.code,
        });
        if let Some(lock) = &self.lock {
            value["lock"] = lock.clone();
        }
        value
    }

    /// The same failure as `run` tells it, whose codes must not be taken for its command's.
    pub(crate) fn of_run(mut self) -> Self {
        if matches!(self.code, UNAVAILABLE | INTERNAL | OUTPUT | NOT_PERMITTED | CONFIG) {
            self.code = RUN_FAILED;
        }
        self
    }

    /// The same failure with the code that the user chose for "not acquired".
    pub(crate) fn with_busy_code(mut self, busy: u8) -> Self {
        if self.code == NOT_ACQUIRED {
            self.code = busy;
        }
        self
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match error.kind() {
            // Not what was typed is wrong, but what the store's URL leads to.
            ErrorKind::InvalidConfig if error.backend().is_some() => CONFIG,
            kind => code_of(kind),
        };
        let failure = Self::new(code, format!("{error:#}"));
        let word = match error.kind() {
            ErrorKind::Taken => "taken",
            ErrorKind::StaleFence => "stale_fence",
            ErrorKind::Computation => "computation_failed",
            _ => failure.word,
        };
        Self { word, ..failure }
    }
}

/// What a code means, for programs.
fn word_of(code: u8) -> &'static str {
    match code {
        USAGE => "usage",
        UNAVAILABLE => "unreachable",
        OUTPUT => "output",
        NOT_ACQUIRED => "not_held",
        NOT_PERMITTED => "not_permitted",
        CONFIG => "configuration",
        LOST => "lost",
        NOT_EXECUTABLE => "not_executable",
        NOT_FOUND => "not_found",
        _ => "internal",
    }
}

fn code_of(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::InvalidName
        | ErrorKind::InvalidTtl
        | ErrorKind::InvalidWait
        | ErrorKind::InvalidConfig
        | ErrorKind::InvalidToken
        | ErrorKind::DifferentLock
        | ErrorKind::InvalidHolder
        | ErrorKind::InvalidMetadata => USAGE,
        // A key that is no lock calls for another name, or for a prefix in the store's URL.
        // Nor does waiting help when others use the lock in another way.
        ErrorKind::InvalidUrl
        | ErrorKind::Unsupported
        | ErrorKind::ForeignKey
        | ErrorKind::Conflict => CONFIG,
        ErrorKind::Taken
        | ErrorKind::Lost
        | ErrorKind::NotHeld
        | ErrorKind::AlreadyHeld
        | ErrorKind::Computation
        | ErrorKind::StaleFence => NOT_ACQUIRED,
        ErrorKind::Unreachable
        | ErrorKind::NoQuorum
        | ErrorKind::TooLate
        | ErrorKind::WrongNode
        | ErrorKind::TlsHandshake
        | ErrorKind::CorruptRecord
        | ErrorKind::TokenExhausted => UNAVAILABLE,
        ErrorKind::Permission => NOT_PERMITTED,
        _ => INTERNAL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_keeps_only_its_own_codes() {
        for (code, of_run) in [(USAGE, 64), (CONFIG, 125), (UNAVAILABLE, 125), (NOT_ACQUIRED, 75)] {
            assert_eq!(Failure::quiet(code).of_run().code(), of_run);
        }
        assert_eq!(Failure::quiet(NOT_ACQUIRED).of_run().with_busy_code(9).code(), 9);
        let refusal = Failure::taken("x", None).of_run().with_busy_code(0);
        assert!(refusal.code() == 0 && refusal.is_refusal());
        assert_eq!(Failure::config("x").of_run().value()["error"], "configuration");
        assert_eq!(of_signal(15), 143);
    }

    #[test]
    fn errors_of_the_store_have_codes() {
        for (kind, code) in [
            (ErrorKind::InvalidName, 64),
            (ErrorKind::DifferentLock, 64),
            (ErrorKind::Unreachable, 69),
            (ErrorKind::NoQuorum, 69),
            (ErrorKind::WrongNode, 69),
            (ErrorKind::TlsHandshake, 69),
            (ErrorKind::ForeignKey, 78),
            (ErrorKind::Conflict, 78),
            (ErrorKind::Taken, 75),
            (ErrorKind::StaleFence, 75),
            (ErrorKind::Computation, 75),
            (ErrorKind::Permission, 77),
            (ErrorKind::InvalidUrl, 78),
        ] {
            assert_eq!(Failure::from(Error::new(kind, "x")).code(), code);
        }
        for (error, code) in [
            (Error::new(ErrorKind::InvalidConfig, "x"), 64),
            (Error::new(ErrorKind::InvalidConfig, "x").with_backend("redlock"), 78),
        ] {
            assert_eq!(Failure::from(error).code(), code);
        }
    }
}
