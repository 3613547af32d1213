//! Looking at locks.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use lockfast_core::{HolderView, LockName, LockView, Query};
use tokio::task::JoinSet;

use crate::acquire::fence_of;
use crate::batch::range;
use crate::failure::Failure;
use crate::key::{Maker, Span};
use crate::line::{Entry, Line};
use crate::store::Store;
use crate::wire::{KeyValue, RangeRequest};

/// How many keys are read at once.
const PAGE: i64 = 1000;
/// How many leases are asked about at once.
const LEASES_MAX: usize = 64;

impl Store {
    pub(crate) async fn inspect(self: &Arc<Self>, query: Query) -> Result<Vec<LockView>, Failure> {
        match query {
            Query::Name(name) => {
                let found = self.read_line(&name).await?;
                let entries = found.kvs.iter();
                let line = Line::of(entries.filter_map(|kv| Entry::read(&self.space, &name, kv)));
                Ok(vec![self.view(&name, &line).await])
            }
            Query::Prefix { prefix, after, limit } => {
                let mut lines = self.read_lines(&prefix).await?;
                lines.retain(|name, _| after.as_ref().is_none_or(|after| name > after));
                let mut views = Vec::new();
                for (name, line) in lines.into_iter().take(limit) {
                    views.push(self.view(&name, &line).await);
                }
                Ok(views)
            }
        }
    }

    /// All locks whose names start so, and that look like locks.
    pub(crate) async fn read_lines(
        &self,
        prefix: &str,
    ) -> Result<BTreeMap<LockName, Line>, Failure> {
        let (kvs, _) = self.read_all(&self.space.span_of_all(prefix)).await?;
        let mut entries: BTreeMap<LockName, Vec<Entry>> = BTreeMap::new();
        for kv in &kvs {
            if let Some((name, entry)) = self.read_claim(kv)
                && name.as_str().starts_with(prefix)
            {
                entries.entry(name).or_default().push(entry);
            }
        }
        Ok(entries.into_iter().map(|(name, entries)| (name, Line::of(entries))).collect())
    }

    /// The claim that a key is, of whichever lock. Others keep all sorts of things in a cluster.
    pub(crate) fn read_claim(&self, kv: &KeyValue) -> Option<(LockName, Entry)> {
        let (name, maker) = self.space.read(&kv.key)?;
        if maker == Maker::Nobody || kv.lease == 0 {
            return None;
        }
        let entry = Entry::read(&self.space, &name, kv)?;
        Some((name, entry))
    }

    /// All keys of a span as they were at one revision, page by page.
    pub(crate) async fn read_all(&self, span: &Span) -> Result<(Vec<KeyValue>, i64), Failure> {
        let (mut kvs, mut revision, mut from) = (Vec::new(), 0, span.from.clone());
        loop {
            let page = Span { from: from.clone(), to: span.to.clone() };
            let request = RangeRequest { revision, ..range(&page, PAGE) };
            let found = self.link.range(request).await?;
            if revision == 0 {
                revision = found.header.as_ref().map_or(0, |header| header.revision);
            }
            kvs.extend(found.kvs);
            match kvs.last() {
                Some(last) if found.more => {
                    from = last.key.clone();
                    from.push(0);
                }
                _ => return Ok((kvs, revision)),
            }
        }
    }

    /// The lock as people may see it.
    pub(crate) async fn view(&self, name: &LockName, line: &Line) -> LockView {
        let holders = self.views(line.granted()).await;
        LockView::new(name.clone(), holders, line.waiting_count())
    }

    /// Holders as people may see them.
    pub(crate) async fn views<'a>(
        &self,
        entries: impl Iterator<Item = &'a Entry>,
    ) -> Vec<HolderView> {
        let entries: Vec<&Entry> = entries.collect();
        let remaining = self.remaining(entries.iter().map(|entry| entry.lease).collect()).await;
        let view = |entry: &&Entry| {
            HolderView::new(
                entry.mode,
                entry.record.as_ref().map(|record| record.since()),
                remaining.get(&entry.lease).copied().unwrap_or_default(),
            )
            .with_fence(entry.holder.and_then(|_| fence_of(entry.revision).ok()))
            .with_label(entry.record.as_ref().and_then(|record| record.label.clone()))
        };
        entries.iter().map(view).collect()
    }

    /// How much longer these leases last. It is for people only: what is not known is left out.
    async fn remaining(&self, leases: HashSet<i64>) -> HashMap<i64, Duration> {
        let mut left = leases.into_iter().filter(|lease| *lease != 0);
        let mut asking = JoinSet::new();
        let mut known = HashMap::new();
        loop {
            while asking.len() < LEASES_MAX
                && let Some(lease) = left.next()
            {
                let link = Arc::clone(&self.link);
                let ask = async move { link.time_to_live(lease).await };
                asking.spawn_on(ask, &self.context.runtime);
            }
            match asking.join_next().await {
                Some(Ok(Ok(answer))) => {
                    let seconds = u64::try_from(answer.ttl).unwrap_or(0);
                    known.insert(answer.id, Duration::from_secs(seconds));
                }
                Some(_) => {}
                None => return known,
            }
        }
    }
}
