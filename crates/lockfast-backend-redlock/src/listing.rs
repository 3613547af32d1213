//! Listing locks in pages. A node can only be asked for all of its keys, in no order, so what one
//! look through them has found serves the pages that follow.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use lockfast_backend_redis::node::{escape_pattern, read_hold, read_scan};
use lockfast_core::{LockName, LockView, Moment, Result};

use crate::ballot::Said;
use crate::node::Node;
use crate::record::{self, Keys};
use crate::store::{Store, lock};
use crate::wire::{Failure, Pipeline, Reply};

const SCAN_KEYS: &str = "1000";
/// How many names one look through the keys brings back at most.
const NAMES_MAX: usize = 100_000;
/// For how long they serve. Whoever turns pages more slowly sees what is there by then.
const FRESH: Duration = Duration::from_secs(10);

/// What was found for a listing and is not yet shown.
pub(crate) struct Listing {
    prefix: String,
    /// Where the next page begins.
    after: Option<LockName>,
    names: BTreeSet<LockName>,
    /// Whether there is nothing beyond them.
    is_all: bool,
    found: Moment,
}

impl Listing {
    fn serves(&self, prefix: &str, after: Option<&LockName>) -> bool {
        self.prefix == prefix
            && self.after.as_ref() == after
            && after.is_some()
            && Moment::now().since(self.found) < FRESH
    }

    /// Takes the next names out.
    fn turn(&mut self, count: usize) -> Vec<LockName> {
        let names: Vec<LockName> =
            std::iter::from_fn(|| self.names.pop_first()).take(count).collect();
        self.after = names.last().cloned().or(self.after.take());
        names
    }

    fn is_over(&self) -> bool {
        self.names.is_empty() && self.is_all
    }
}

impl Store {
    /// The locks that start with `prefix`.
    pub(crate) async fn list(
        self: &Arc<Self>,
        prefix: &str,
        mut after: Option<LockName>,
        limit: usize,
    ) -> Result<Vec<LockView>> {
        let mut views = Vec::new();
        while views.len() < limit {
            let found = lock(&self.listing).take();
            let found = found.filter(|listing| listing.serves(prefix, after.as_ref()));
            let mut listing = match found {
                Some(listing) if !listing.names.is_empty() => listing,
                _ => self.search(prefix, after).await?,
            };
            let names = listing.turn(limit - views.len());
            let shown = self.view_all(names).await?;
            let is_used = |view: &LockView| !view.holders.is_empty() || view.waiting > 0;
            views.extend(shown.into_iter().filter(is_used));
            if listing.is_over() {
                break;
            }
            after = listing.after.clone();
            *lock(&self.listing) = Some(listing);
        }
        Ok(views)
    }

    /// Looks through the keys. What a quorum has is on one of any N − q + 1 nodes.
    async fn search(&self, prefix: &str, after: Option<LockName>) -> Result<Listing> {
        let mut names = BTreeSet::new();
        let (mut votes, mut scanned) = (Vec::new(), 0);
        for node in &self.nodes {
            if scanned > self.nodes.len() - self.config.quorum {
                break;
            }
            let answer = self.scan(node, prefix, after.as_ref(), &mut names).await;
            scanned += usize::from(answer.is_ok());
            votes.push(answer.map_or_else(Said::Failed, |()| Said::Granted));
        }
        if scanned <= self.nodes.len() - self.config.quorum {
            return Err(self.no_quorum(votes, &HashMap::new()));
        }
        let is_all = names.len() < NAMES_MAX;
        Ok(Listing { prefix: prefix.to_owned(), after, names, is_all, found: Moment::now() })
    }

    /// Adds the first names that a node has.
    async fn scan(
        &self,
        node: &Node,
        prefix: &str,
        after: Option<&LockName>,
        best: &mut BTreeSet<LockName>,
    ) -> std::result::Result<(), Failure> {
        let own = self.config.prefix().to_owned();
        let pattern = format!("{}*", escape_pattern(&format!("{own}{prefix}")));
        let mut cursor = "0".to_owned();
        loop {
            let (from, pattern) = (cursor.clone(), pattern.clone());
            let write = move |pipeline: &mut Pipeline| {
                let parts = ["SCAN", &from, "MATCH", &pattern, "COUNT", SCAN_KEYS];
                pipeline.all(&[&parts[..], &["TYPE", "string"]].concat());
            };
            let (next, keys) = read_scan(self.ask_one(node, write).await?)?;
            let names: Vec<LockName> = keys
                .iter()
                .filter(|key| !key.starts_with(record::RESERVED))
                .filter_map(|key| LockName::new(key.strip_prefix(own.as_str())?).ok())
                .filter(|name| after.is_none_or(|after| name > after) && !best.contains(name))
                .filter(|name| best.len() < NAMES_MAX || best.last().is_some_and(|it| name < it))
                .collect();
            for name in self.keep_held(node, names).await? {
                best.insert(name);
                if best.len() > NAMES_MAX {
                    best.pop_last();
                }
            }
            if next == "0" {
                return Ok(());
            }
            cursor = next;
        }
    }

    /// Those of the names whose value on the node is one of ours.
    async fn keep_held(
        &self,
        node: &Node,
        names: Vec<LockName>,
    ) -> std::result::Result<Vec<LockName>, Failure> {
        if names.is_empty() {
            return Ok(names);
        }
        let (asked, prefix) = (names.clone(), self.config.prefix().to_owned());
        let replies = self
            .ask_one(node, move |pipeline| {
                pipeline.command(1 + asked.len());
                pipeline.part("MGET");
                for name in &asked {
                    Keys { prefix: &prefix, name: name.as_str() }.write_lock(pipeline);
                }
            })
            .await?;
        let values = replies.into_iter().next().and_then(|reply| reply.into_list().ok());
        let is_ours = |value: &Reply| value.as_text().and_then(read_hold).is_some();
        let held = names.into_iter().zip(values.unwrap_or_default());
        Ok(held.filter(|(_, value)| is_ours(value)).map(|(name, _)| name).collect())
    }
}
