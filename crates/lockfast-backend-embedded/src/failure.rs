//! What keeps a batch from being written, and how far that reaches.

use lockfast_core::failure::Handling;

/// Why something did not work. It is answered to every request of a batch.
pub(crate) type Failure = lockfast_core::Failure<Scope>;

/// How far a failure reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Scope {
    /// One lock; the rest of the batch goes on.
    Lock,
    /// The batch.
    #[default]
    Batch,
    /// The store: what was in it is gone, and all leases are lost.
    Gone,
}

impl Handling for Scope {
    const STORE: &'static str = "embedded";
}
