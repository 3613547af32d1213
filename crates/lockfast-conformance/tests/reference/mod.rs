//! The plainest store that keeps the contract, in memory behind one lock, and the ways in which
//! it can be broken on purpose.

pub(crate) mod connection;
pub(crate) mod defect;
pub(crate) mod store;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use lockfast_conformance::Harness;
use lockfast_core::{Address, Backend, BoxFuture, ConnectContext, Result};

use connection::Connection;
use defect::Defect;
use store::{Limits, Store};

/// What a store in one process cannot show.
const IGNORED: &[(&str, &str)] = &[
    ("process::a_killed_holder_frees_its_lock", ONE_PROCESS),
    ("process::a_killed_waiter_delays_nobody", ONE_PROCESS),
    ("process::that_ends_gives_back_what_it_dropped", ONE_PROCESS),
    ("process::a_stopped_holder_loses_its_lease", ONE_PROCESS),
    ("process::a_detached_lease_outlives_its_process", ONE_PROCESS),
    ("process::waiters_of_other_processes_are_woken", ONE_PROCESS),
    ("process::fences_rise_over_processes", ONE_PROCESS),
    ("process::workers_never_overlap", ONE_PROCESS),
    ("process::killed_workers_lose_nothing", ONE_PROCESS),
    ("process::that_dies_leaves_its_barrier", ONE_PROCESS),
    ("process::that_dies_has_counted", ONE_PROCESS),
    ("process::that_dies_leaves_a_refresh_to_the_next", ONE_PROCESS),
    ("process::that_dies_is_followed_as_leader", ONE_PROCESS),
];

const ONE_PROCESS: &str = "it lives in one process";

/// Lends the reference store to the suite, with a defect or without.
pub(crate) struct Reference {
    defect: Option<Defect>,
    limits: Limits,
    ignored: &'static [(&'static str, &'static str)],
    claims_to_be_shared: bool,
    stores: Mutex<HashMap<String, Arc<Store>>>,
    made: AtomicUsize,
}

impl Reference {
    pub(crate) fn with(defect: Option<Defect>) -> Self {
        Self {
            defect,
            limits: Limits::NONE,
            ignored: IGNORED,
            claims_to_be_shared: false,
            stores: Mutex::default(),
            made: AtomicUsize::new(0),
        }
    }

    /// The same for a store that can do less.
    pub(crate) fn limited(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// The same with another pinned list.
    pub(crate) fn ignoring(self, ignored: &'static [(&'static str, &'static str)]) -> Self {
        Self { ignored, ..self }
    }

    /// The same, saying that other processes see its locks, which they do not.
    pub(crate) fn claiming_to_be_shared(self) -> Self {
        Self { claims_to_be_shared: true, ignored: &[], ..self }
    }
}

impl Harness for Reference {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn fresh_url(&self) -> String {
        format!("reference:{}", self.made.fetch_add(1, Ordering::SeqCst))
    }

    fn connect(
        &self,
        address: Address,
        context: ConnectContext,
    ) -> BoxFuture<'static, Result<Arc<dyn Backend>>> {
        let mut stores = self.stores.lock().unwrap();
        let opened = || Store::open(self.defect, self.limits);
        let store = stores.entry(address.body().to_owned()).or_insert_with(opened);
        let store = Arc::clone(store);
        Box::pin(async move { Ok(Arc::new(Connection::new(store, context)) as Arc<dyn Backend>) })
    }

    fn shared_between_processes(&self) -> bool {
        self.claims_to_be_shared
    }

    fn ignored(&self) -> &'static [(&'static str, &'static str)] {
        self.ignored
    }
}
