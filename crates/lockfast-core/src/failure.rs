//! A request that was not served, on its way from the wire to whoever asked.

use crate::error::{Error, ErrorKind, Retry};

/// How a store handles a failure before anybody is told: what it does about its connection, and
/// whether it asks again. The default is to do nothing and to tell.
pub trait Handling: Default {
    /// The scheme of the store, which the error names.
    const STORE: &'static str;
}

/// A request that was not served: the error for those who asked, and how the store handles it.
#[derive(Clone, Debug)]
pub struct Failure<H> {
    /// What those are told who asked.
    pub error: Error,
    /// What is done before.
    pub handling: H,
}

impl<H: Handling> Failure<H> {
    /// A failure about which nothing can be done here.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self::from(Error::new(kind, message))
    }

    /// The same, handled in this way.
    #[must_use]
    pub fn with(self, handling: H) -> Self {
        Self { handling, ..self }
    }

    /// The same in other words.
    #[must_use]
    pub fn with_message(self, message: impl Into<String>) -> Self {
        Self { error: self.error.with_message(message), ..self }
    }

    /// The same, which trying again does not help.
    #[must_use]
    pub fn for_good(self) -> Self {
        Self { error: self.error.with_retry(Retry::Never), ..self }
    }

    /// What kind of thing went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.error.kind()
    }

    /// Whether the same can succeed later.
    pub fn retry(&self) -> Retry {
        self.error.retry()
    }

    /// What went wrong, in one sentence.
    pub fn message(&self) -> &str {
        self.error.message()
    }

    /// The error of one of those who asked.
    pub fn to_error(&self) -> Error {
        self.error.clone()
    }
}

/// Two that say the same and are handled in the same way.
impl<H: Handling + PartialEq> PartialEq for Failure<H> {
    fn eq(&self, other: &Self) -> bool {
        let said = |it: &Self| (it.kind(), it.retry(), format!("{:#}", it.error));
        said(self) == said(other) && self.handling == other.handling
    }
}

impl<H: Handling + Eq> Eq for Failure<H> {}

impl<H: Handling> From<Error> for Failure<H> {
    fn from(error: Error) -> Self {
        Self { error: error.with_backend(H::STORE), handling: H::default() }
    }
}
