//! The rule of the queue against what `memory:` and `embedded:` answer, by random stories.

use std::sync::Arc;

use lockfast_conformance::{Harness, model};
use lockfast_core::{Address, Backend, BoxFuture, ConnectContext, Result};

/// One store, at this URL.
struct At(&'static str, String);

impl Harness for At {
    fn name(&self) -> &'static str {
        self.0
    }

    fn fresh_url(&self) -> String {
        self.1.clone()
    }

    fn connect(
        &self,
        address: Address,
        context: ConnectContext,
    ) -> BoxFuture<'static, Result<Arc<dyn Backend>>> {
        lockfast_backend_embedded::connect(address, context)
    }

    fn shared_between_processes(&self) -> bool {
        false
    }

    fn ignored(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }
}

#[test]
fn memory_decides_by_the_rule() {
    model::check(At("memory", "memory:model".into()));
}

#[test]
fn embedded_decides_by_the_rule() -> std::io::Result<()> {
    let dir = tempfile::tempdir()?;
    model::check(At("embedded", format!("embedded:{}", dir.path().display())));
    Ok(())
}
