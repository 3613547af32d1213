//! The only public error: what went wrong, whether trying again can help, and where it happened.
//!
//! Outcomes that a correct program meets every day (the lock is taken, the lease was lost when
//! releasing) are enums in [`grant`](crate::grant). They become an error only where a method has
//! no better way to say "you do not have it".

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::fence::{Fence, FencingToken};
use crate::grant::{LossCause, Refusal};
use crate::name::{LockName, is_invisible};
use crate::request::Mode;
use crate::vote::NodeVote;

/// A result with Lockfast's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What kind of thing went wrong; stable, for programs to match on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The lock's name breaks a rule of [`LockName`].
    InvalidName,
    /// The lease time is outside what the store or Lockfast allows.
    InvalidTtl,
    /// The waiting time is not one.
    InvalidWait,
    /// Options that are wrong alone or together.
    InvalidConfig,
    /// A store URL that cannot be read, or an option that the store does not know.
    InvalidUrl,
    /// A fencing token that is not one.
    InvalidToken,
    /// A holder id that is not one.
    InvalidHolder,
    /// A label or reason that is too long or not printable.
    InvalidMetadata,
    /// Somebody else has the lock, and it did not become free in the time allowed.
    Taken,
    /// The lease ended without its holder's asking.
    Lost,
    /// The caller does not hold what it wanted to renew or release.
    NotHeld,
    /// The holder already has this lock in another way, so that waiting would never end.
    AlreadyHeld,
    /// The name is in use in a way that does not go with the request (another permit limit, say).
    Conflict,
    /// Two things of different locks were put together: their tokens compared, say.
    DifferentLock,
    /// What is written to has seen a later grant; [`Error::fence_seen`] says which.
    StaleFence,
    /// The store cannot be reached, or did not answer in time.
    Unreachable,
    /// Too few nodes of a store agreed, or could be asked; [`Error::votes`] says what each said.
    NoQuorum,
    /// The store answered too late for its answer to be of use.
    TooLate,
    /// The server is one that does not decide about locks, a replica for example.
    WrongNode,
    /// The encrypted connection could not be set up.
    TlsHandshake,
    /// The store or the operating system does not allow it.
    Permission,
    /// The store cannot do this.
    Unsupported,
    /// Something in the store is not what Lockfast wrote there.
    CorruptRecord,
    /// The lock's name is in use in the store for something that is no lock.
    ForeignKey,
    /// Somebody else computed what was waited for, and failed.
    Computation,
    /// The store's fence cannot rise any more.
    TokenExhausted,
    /// The process was forked; leases and connections stay with the parent.
    ForkedProcess,
    /// A blocking call was made where blocking is not allowed.
    BlockingInAsync,
    /// A fault of Lockfast's own or of the operating system.
    Internal,
}

/// Whether doing the same again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Retry {
    /// The same call will fail the same way.
    Never,
    /// The same call may succeed; every operation is idempotent for its holder.
    Later,
}

/// What went wrong, with the store and the lock where they are known. It can be told to all whom it
/// concerns: a clone shares the cause.
///
/// `{}` prints one sentence without the cause, which [`source`](std::error::Error::source) returns, so
/// that whoever prints a chain of errors prints it once. `{:#}` and `{:?}` print the causes, too.
///
/// ```
/// use lockfast_core::{Error, ErrorKind};
///
/// let error = Error::new(ErrorKind::Internal, "the file cannot be read")
///     .with_backend("embedded")
///     .with_source(std::io::Error::other("disk full"));
/// assert_eq!(error.to_string(), "embedded: the file cannot be read");
/// assert_eq!(format!("{error:#}"), "embedded: the file cannot be read: disk full");
/// ```
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    retry: Retry,
    message: String,
    backend: Option<&'static str>,
    lock: Option<LockName>,
    is_without_effect: bool,
    detail: Detail,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

#[derive(Clone)]
enum Detail {
    None,
    Refusal(Refusal),
    Loss(LossCause),
    Votes(Vec<NodeVote>),
    Seen(Fence),
}

impl Error {
    /// An error of this kind. The message is one sentence without a final stop: what was given,
    /// what is allowed, what to do next.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let retry = match kind {
            ErrorKind::Taken
            | ErrorKind::Unreachable
            | ErrorKind::NoQuorum
            | ErrorKind::WrongNode
            | ErrorKind::TooLate => Retry::Later,
            _ => Retry::Never,
        };
        Self(Box::new(Inner {
            kind,
            retry,
            message: message.into(),
            backend: None,
            lock: None,
            is_without_effect: false,
            detail: Detail::None,
            source: None,
        }))
    }

    /// The error of an acquisition that was refused.
    pub fn taken(lock: &LockName, refusal: Refusal) -> Self {
        let mut error = Self::new(ErrorKind::Taken, refusal.to_string()).with_lock(lock);
        error.0.detail = Detail::Refusal(refusal);
        error
    }

    /// The error of a request on which too few nodes agreed, of how many are needed.
    pub fn no_quorum(needed: usize, votes: Vec<NodeVote>) -> Self {
        let (nodes, said) = (votes.len(), crate::vote::list(&votes));
        let message = format!("no quorum: {needed} of {nodes} nodes must agree ({said})");
        let mut error = Self::new(ErrorKind::NoQuorum, message);
        error.0.detail = Detail::Votes(votes);
        error
    }

    /// The error of using a lease that was lost.
    pub fn lost(lock: &LockName, cause: LossCause) -> Self {
        let mut error =
            Self::new(ErrorKind::Lost, format!("the lease was lost: {cause}")).with_lock(lock);
        error.0.detail = Detail::Loss(cause);
        error
    }

    /// The error of a token at a gate that has seen a later one.
    ///
    /// ```
    /// use lockfast_core::{Error, ErrorKind, Fence, FencingToken, LockName};
    ///
    /// # fn main() -> lockfast_core::Result<()> {
    /// let token = FencingToken { lock: LockName::new("account/7")?, fence: Fence::new(41)? };
    /// let refused = Error::stale_fence(&token, Fence::new(42)?);
    /// assert_eq!(refused.kind(), ErrorKind::StaleFence);
    /// assert_eq!(refused.fence_seen(), Some(Fence::new(42)?));
    /// # Ok(())
    /// # }
    /// ```
    pub fn stale_fence(token: &FencingToken, seen: Fence) -> Self {
        let message = format!(
            "fence {} is stale, {seen} was seen: a later holder was here; undo what was not \
             written yet and acquire the lock again, with {seen} as the floor",
            token.fence
        );
        let mut error = Self::new(ErrorKind::StaleFence, message).with_lock(&token.lock);
        error.0.detail = Detail::Seen(seen);
        error
    }

    /// The error of asking for a lock in a way that does not go with how it is in use.
    pub fn conflict(asked: Mode, stored: Mode) -> Self {
        let clash = match (asked, stored) {
            (Mode::Permit { limit: asked }, Mode::Permit { limit: stored }) => {
                format!("limit {asked}, stored {stored}")
            }
            _ => format!("asked for {asked}, in use as {stored}"),
        };
        Self::new(ErrorKind::Conflict, format!("everybody must use it the same way: {clash}"))
    }

    /// The error of a holder that asks for a lock which it has, or waits for, in another mode.
    pub fn already_held(asked: Mode, held: Mode) -> Self {
        let message = format!(
            "this holder already asked for it as {held}; release that before asking for {asked}"
        );
        Self::new(ErrorKind::AlreadyHeld, message)
    }

    /// The error of a floor that is too far ahead of the clock of the server that is asked.
    pub fn floor_ahead() -> Self {
        Self::new(
            ErrorKind::InvalidToken,
            "the floor is more than a minute ahead of the server's clock, so it is not a fence \
             that this server gave",
        )
    }

    /// Names the store.
    #[must_use]
    pub fn with_backend(mut self, backend: &'static str) -> Self {
        self.0.backend = Some(backend);
        self
    }

    /// Names the lock.
    #[must_use]
    pub fn with_lock(mut self, lock: &LockName) -> Self {
        self.0.lock = Some(lock.clone());
        self
    }

    /// Keeps the cause.
    #[must_use]
    pub fn with_source(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        self.0.source = Some(Arc::from(source.into()));
        self
    }

    /// Says it in other words.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.0.message = message.into();
        self
    }

    /// Says that nothing was changed, which is certain.
    #[must_use]
    pub fn without_effect(mut self) -> Self {
        self.0.is_without_effect = true;
        self.0.message.push_str("; nothing was done");
        self
    }

    /// Overrides whether trying again can help.
    #[must_use]
    pub fn with_retry(mut self, retry: Retry) -> Self {
        self.0.retry = retry;
        self
    }

    /// What kind of error this is.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What went wrong, without the store, the lock and the cause.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Whether it is certain that nothing was changed; otherwise that depends on the kind, and a
    /// request that was not answered may have been carried out.
    pub fn is_without_effect(&self) -> bool {
        self.0.is_without_effect
    }

    /// Whether doing the same again can help.
    pub fn retry(&self) -> Retry {
        self.0.retry
    }

    /// The lock, where one was meant.
    pub fn lock(&self) -> Option<&LockName> {
        self.0.lock.as_ref()
    }

    /// The store's scheme, where one was reached.
    pub fn backend(&self) -> Option<&'static str> {
        self.0.backend
    }

    /// Who has the lock, for [`ErrorKind::Taken`].
    pub fn refusal(&self) -> Option<&Refusal> {
        match &self.0.detail {
            Detail::Refusal(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// What each node said, for [`ErrorKind::NoQuorum`], and for [`ErrorKind::Taken`] where
    /// several nodes decide together.
    pub fn votes(&self) -> &[NodeVote] {
        match &self.0.detail {
            Detail::Votes(votes) => votes,
            Detail::Refusal(refusal) => &refusal.votes,
            _ => &[],
        }
    }

    /// The highest fence that a gate has seen, for [`ErrorKind::StaleFence`]: the floor of the next
    /// acquisition.
    ///
    /// ```
    /// use lockfast_core::{Error, ErrorKind};
    ///
    /// assert_eq!(Error::new(ErrorKind::Lost, "for another reason").fence_seen(), None);
    /// ```
    pub fn fence_seen(&self) -> Option<Fence> {
        match self.0.detail {
            Detail::Seen(seen) => Some(seen),
            _ => None,
        }
    }

    /// Why the lease ended, for [`ErrorKind::Lost`].
    pub fn loss(&self) -> Option<&LossCause> {
        match &self.0.detail {
            Detail::Loss(cause) => Some(cause),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(lock) = &self.0.lock {
            write!(f, "lock {}: ", quote(lock.as_str()))?;
        }
        if let Some(backend) = self.0.backend {
            write!(f, "{backend}: ")?;
        }
        // Servers and other programs have a part in it, and in its causes.
        f.write_str(&printable(&self.0.message))?;
        let mut cause = std::error::Error::source(self).filter(|_| f.alternate());
        while let Some(error) = cause {
            write!(f, ": {}", printable(&error.to_string()))?;
            cause = error.source();
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({:?}, {:?}, \"{self:#}\")", self.0.kind, self.0.retry)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

/// Text that came from outside as people may see it, on one line: what a terminal would obey, what
/// nobody can see and what reorders the rest is escaped, so that no text passes for another.
///
/// ```
/// use lockfast_core::error::printable;
///
/// assert_eq!(printable("nightly\nbackup: free"), "nightly\\nbackup: free");
/// ```
pub fn printable(text: &str) -> Cow<'_, str> {
    if is_printable(text) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    text.chars().for_each(|character| show(&mut shown, character));
    Cow::Owned(shown)
}

/// Whether people can be shown a text as it is: see [`printable`].
pub fn is_printable(text: &str) -> bool {
    text.chars().all(|character| !character.is_control() && !is_invisible(character))
}

fn show(shown: &mut String, character: char) {
    if character.is_control() {
        shown.extend(character.escape_default());
    } else if is_invisible(character) {
        shown.extend(character.escape_unicode());
    } else {
        shown.push(character);
    }
}

/// Shows what was given: in quotes, escaped so that no terminal obeys it, cut at 80 characters.
pub fn quote(given: &str) -> String {
    const CHARACTERS_MAX: usize = 80;
    let mut shown = String::from("\"");
    for (at, character) in given.chars().enumerate() {
        match character {
            _ if at == CHARACTERS_MAX => {
                shown.push('…');
                break;
            }
            '"' | '\\' => shown.extend(['\\', character]),
            _ => show(&mut shown, character),
        }
    }
    shown.push('"');
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_is_escaped_and_cut() {
        assert_eq!(quote("a\u{1b}[31m\n"), "\"a\\u{1b}[31m\\n\"");
        assert_eq!(quote("a\u{202e}b"), "\"a\\u{202e}b\"");
        assert_eq!(quote(&"x".repeat(81)).chars().count(), 83);
    }

    /// B31: a label could fake a line of its own.
    #[test]
    fn what_others_wrote_stays_on_its_line() {
        assert_eq!(printable("a\nb\u{1b}\u{202e}\u{85}é"), "a\\nb\\u{1b}\\u{202e}\\u{85}é");
        let source = std::io::Error::other("ERROR:\n\u{2066}x");
        let error = Error::new(ErrorKind::Internal, "it said\r").with_source(source);
        assert_eq!(format!("{error:#}"), "it said\\r: ERROR:\\n\\u{2066}x");
        for cause in [
            LossCause::Revoked { reason: "a\nb".into() },
            LossCause::Taken { by: Some("a\nb".into()) },
            LossCause::Expired { last_failure: Some("a\nb".into()) },
        ] {
            assert!(is_printable(&cause.to_string()), "{cause:?}");
        }
    }

    #[test]
    fn an_error_names_lock_store_and_cause() {
        let error = Error::new(ErrorKind::Unreachable, "the database cannot be opened")
            .with_lock(&LockName::new("a").unwrap())
            .with_backend("embedded")
            .with_source(std::io::Error::other("disk full"));
        assert_eq!(
            error.to_string(),
            "lock \"a\": embedded: the database cannot be opened",
            "its source is told by whoever prints the chain"
        );
        let all = format!("{error:#}");
        assert_eq!(all, "lock \"a\": embedded: the database cannot be opened: disk full");
        let outer = Error::new(ErrorKind::Internal, "it failed").with_source(error.clone());
        assert_eq!(format!("{outer:#}"), format!("it failed: {error}: disk full"));
        assert_eq!(error.retry(), Retry::Later);
    }

    #[test]
    fn a_clone_says_all_that_the_error_says() {
        let name = LockName::new("a").unwrap();
        let cause = LossCause::Revoked { reason: "b".into() };
        let error = Error::lost(&name, cause.clone())
            .with_retry(Retry::Later)
            .with_source(std::io::Error::other("c"));
        let clone = error.clone();
        assert_eq!(format!("{clone:?}"), format!("{error:?}"));
        assert_eq!((clone.loss(), clone.lock()), (Some(&cause), Some(&name)));
        assert_eq!(std::error::Error::source(&clone).unwrap().to_string(), "c");
    }

    #[test]
    fn a_conflict_names_both_sides() {
        let permits = |limit| Mode::permit(limit).unwrap();
        let error = Error::conflict(permits(3), permits(4)).to_string();
        assert!(error.ends_with("limit 3, stored 4"), "{error}");
        let error = Error::conflict(Mode::Shared, permits(4)).to_string();
        assert!(error.ends_with("asked for shared, in use as one of 4 permits"), "{error}");
    }
}
