//! The suite that every store passes, on `embedded:`.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lockfast_conformance::Harness;
use lockfast_core::{Address, Backend, BoxFuture, ConnectContext, Result};
use tempfile::TempDir;

/// Every store is a directory of its own; all of them go when the run ends.
struct Embedded {
    dir: TempDir,
    stores: AtomicUsize,
}

impl Harness for Embedded {
    fn name(&self) -> &'static str {
        "embedded"
    }

    fn fresh_url(&self) -> String {
        let number = self.stores.fetch_add(1, Ordering::Relaxed);
        format!("embedded:{}/{number}", self.dir.path().display())
    }

    fn connect(
        &self,
        address: Address,
        context: ConnectContext,
    ) -> BoxFuture<'static, Result<Arc<dyn Backend>>> {
        lockfast_backend_embedded::connect(address, context)
    }

    fn shared_between_processes(&self) -> bool {
        true
    }

    fn ignored(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }
}

fn main() -> ExitCode {
    match tempfile::tempdir() {
        Ok(dir) => lockfast_conformance::main(Embedded { dir, stores: AtomicUsize::new(0) }),
        Err(_) => ExitCode::FAILURE,
    }
}
