//! What this client has asked for, by holder, and by what nodes call a holder where others can
//! hear it: a digest, because whoever knows a holder's id can release what it holds.

use std::collections::HashMap;
use std::sync::Arc;

use lockfast_core::HolderId;

use crate::claim::Claim;

/// All claims.
#[derive(Default)]
pub(crate) struct Roster {
    claims: HashMap<HolderId, Arc<Claim>>,
    /// Only of those that were called by it, or may be.
    tags: HashMap<String, HolderId>,
}

impl Roster {
    pub(crate) fn get(&self, holder: HolderId) -> Option<&Arc<Claim>> {
        self.claims.get(&holder)
    }

    /// Takes a claim in. Returns the one that the holder had before.
    pub(crate) fn insert(&mut self, claim: &Arc<Claim>) -> Option<Arc<Claim>> {
        self.claims.insert(claim.holder, Arc::clone(claim))
    }

    /// From now on nodes may call this claim.
    pub(crate) fn expect_calls(&mut self, claim: &Claim) {
        if self.claims.contains_key(&claim.holder) {
            self.tags.insert(claim.tag().to_owned(), claim.holder);
        }
    }

    /// The claim that a node calls so. A call may come before the answer that lets us expect it.
    pub(crate) fn find_tag(&mut self, tag: &str) -> Option<&Arc<Claim>> {
        if !self.tags.contains_key(tag) {
            let claim = self.claims.values().find(|claim| claim.tag() == tag)?;
            self.tags.insert(tag.to_owned(), claim.holder);
        }
        self.claims.get(self.tags.get(tag)?)
    }

    pub(crate) fn remove(&mut self, holder: HolderId) -> Option<Arc<Claim>> {
        let claim = self.claims.remove(&holder)?;
        if let Some(tag) = claim.known_tag() {
            self.tags.remove(tag);
        }
        Some(claim)
    }

    /// Keeps only what is still of use.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(&Claim) -> bool) {
        self.claims.retain(|_, claim| is_kept(claim));
        let claims = &self.claims;
        self.tags.retain(|_, holder| claims.contains_key(holder));
    }
}
