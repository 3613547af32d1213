//! What a store lends the suite.

use std::sync::Arc;

use lockfast_core::{Address, Backend, BoxFuture, ConnectContext, Result};

/// A store under test. One value serves the whole run, and every child process makes its own.
pub trait Harness: Send + Sync + 'static {
    /// The first part of every trial's name, as `memory`.
    fn name(&self) -> &'static str;

    /// The URL of a new, empty store. Connecting to it twice reaches the same store.
    fn fresh_url(&self) -> String;

    /// Connects to a store that [`Harness::fresh_url`] named, perhaps in another process.
    fn connect(
        &self,
        address: Address,
        context: ConnectContext,
    ) -> BoxFuture<'static, Result<Arc<dyn Backend>>>;

    /// Whether another process that connects to the same URL sees the same locks.
    fn shared_between_processes(&self) -> bool;

    /// The cases that this store cannot run, as `group::case`, each with the reason. The list is
    /// pinned: a name that is no case fails the run, and so does a case that needs several
    /// processes and is missing here although the store lives in one.
    fn ignored(&self) -> &'static [(&'static str, &'static str)];
}
