//! What keeps a batch from being written. It is answered to every request of the batch, so it can
//! be copied, which [`Error`] cannot.

use lockfast_core::{Error, ErrorKind};

/// Why something did not work.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) kind: ErrorKind,
    pub(crate) message: String,
    pub(crate) scope: Scope,
}

/// How far a failure reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// One lock; the rest of the batch goes on.
    Lock,
    /// The batch.
    Batch,
    /// The store: what was in it is gone, and all leases are lost.
    Gone,
}

impl Failure {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), scope: Scope::Batch }
    }

    /// The public error.
    pub(crate) fn to_error(&self) -> Error {
        Error::new(self.kind, self.message.clone()).with_backend("embedded")
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error.to_string())
    }
}
