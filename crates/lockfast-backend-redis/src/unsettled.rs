//! Claims whose acquisition ended without a clear answer: it was dropped, or the answer was lost. Each
//! may be granted or wait, so that its release must say as what it waits, and asking again must find
//! out what became of it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use lockfast_core::HolderId;

use crate::claim::Claim;
use crate::store::lock;

/// Whoever gave up releases, so that there are never many. Beyond so many all are forgotten; what is
/// then left in a queue goes when its turn comes.
const CLAIMS_MAX: usize = 100_000;

/// Those of one server or cluster.
#[derive(Default)]
pub(crate) struct Unsettled {
    claims: Mutex<HashMap<HolderId, Arc<Claim>>>,
    is_any: AtomicBool,
}

impl Unsettled {
    pub(crate) fn note(&self, claim: &Arc<Claim>) {
        let mut claims = lock(&self.claims);
        if claims.len() >= CLAIMS_MAX {
            claims.clear();
        }
        claims.insert(claim.holder, Arc::clone(claim));
        self.is_any.store(true, Ordering::Release);
    }

    pub(crate) fn find(&self, holder: HolderId) -> Option<Arc<Claim>> {
        let is_any = self.is_any.load(Ordering::Acquire);
        if is_any { lock(&self.claims).get(&holder).map(Arc::clone) } else { None }
    }

    /// What became of it is known.
    pub(crate) fn settle(&self, holder: HolderId) {
        if self.is_any.load(Ordering::Acquire) {
            let mut claims = lock(&self.claims);
            claims.remove(&holder);
            self.is_any.store(!claims.is_empty(), Ordering::Release);
        }
    }
}
