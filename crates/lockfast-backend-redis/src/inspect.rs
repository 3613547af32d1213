//! Looking at locks: one by name, or all whose names start alike, which takes a walk through all
//! keys of the server.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use lockfast_core::{ClientId, Label, LockName, LockView, Moment, Result};
use tokio::sync::oneshot;

use crate::backend::{Redis, ask_at, receive};
use crate::batch::{LOCKS_MAX, Op, Plain};
use crate::record::{self, Keys, Seen};
use crate::slot;
use crate::store::{Store, lock};
use crate::wire::{Failure, Pipeline, Reply, failure};

/// How many labels are remembered before all are asked for again.
const LABELS_MAX: usize = 4096;
/// How long a renewal waits for the label of whoever has the lock now.
const SOON: Duration = Duration::from_millis(100);
/// How many keys one step of a listing looks at.
const SCAN_KEYS: &str = "1000";

/// How many names one walk through all keys keeps for the pages that follow, and for how long.
const LISTED_MAX: usize = 100_000;
const LISTED_FOR: Duration = Duration::from_secs(10);

/// Names that were found and not shown yet, so that the next page needs no walk through all keys.
#[derive(Debug)]
pub(crate) struct Listing {
    prefix: String,
    /// The last that was shown.
    last: Option<LockName>,
    names: BTreeSet<LockName>,
    /// Whether there were no more.
    is_whole: bool,
    walked: Moment,
}

impl Listing {
    /// Whether this is asked for next.
    fn goes_on(&self, prefix: &str, after: Option<&LockName>) -> bool {
        let is_young = Moment::now().since(self.walked) < LISTED_FOR;
        is_young && after.is_some() && self.prefix == prefix && self.last.as_ref() == after
    }

    fn take(&mut self, count: usize) -> Vec<LockName> {
        let taken: Vec<LockName> = (0..count).map_while(|_| self.names.pop_first()).collect();
        if let Some(last) = taken.last() {
            self.last = Some(last.clone());
        }
        taken
    }
}

impl Redis {
    pub(crate) async fn name_holders(&self, name: &LockName, seen: &Seen) -> LockView {
        let clients = seen.holders.iter().filter_map(|holder| holder.claim).map(|(id, _)| id);
        let labels = labels(&self.store, clients.collect()).await;
        seen.view(name, |client| labels.get(client).cloned())
    }

    pub(crate) async fn look_at(&self, names: Vec<LockName>) -> Result<Vec<LockView>> {
        let mut views = Vec::with_capacity(names.len());
        for names in names.chunks(LOCKS_MAX) {
            let seen = look(&self.store, names.to_vec()).await?;
            let holders = seen.iter().flat_map(|(_, seen)| &seen.holders);
            let clients = holders.filter_map(|holder| holder.claim).map(|(id, _)| id).collect();
            let labels = labels(&self.store, clients).await;
            let label = |client: &ClientId| labels.get(client).cloned();
            views.extend(seen.iter().map(|(name, seen)| seen.view(name, label)));
        }
        Ok(views)
    }

    /// The first `limit` locks after `after`.
    pub(crate) async fn list(
        &self,
        prefix: &str,
        after: Option<&LockName>,
        limit: usize,
    ) -> Result<Vec<LockView>> {
        let known = lock(&self.listing).take();
        let mut listing = match known.filter(|it| it.goes_on(prefix, after)) {
            Some(listing) => listing,
            None => self.walk(prefix, after, limit).await?,
        };
        let mut views: Vec<LockView> = Vec::new();
        while views.len() < limit {
            let names = listing.take(limit - views.len());
            if names.is_empty() && listing.is_whole {
                break;
            } else if names.is_empty() {
                let last = listing.last.clone();
                listing = self.walk(prefix, last.as_ref(), limit).await?;
                continue;
            }
            // Some may have become free since they were found.
            let found = self.look_at(names).await?;
            views.extend(found.into_iter().filter(|it| !it.holders.is_empty() || it.waiting > 0));
        }
        *lock(&self.listing) = Some(listing);
        Ok(views)
    }

    /// Walks through all keys for the first names after `after` that Lockfast holds. Many more than
    /// `limit` are kept, because another walk is what costs.
    async fn walk(&self, prefix: &str, after: Option<&LockName>, limit: usize) -> Result<Listing> {
        let most = limit.max(LISTED_MAX);
        let mut names: BTreeSet<LockName> = BTreeSet::new();
        let mut is_whole = true;
        for server in self.store.servers() {
            is_whole &= self.walk_on(&server, (prefix, after), most, &mut names).await?;
        }
        let (prefix, last) = (prefix.to_owned(), after.cloned());
        Ok(Listing { prefix, last, names, is_whole, walked: Moment::now() })
    }

    /// Walks through the keys of one server. Returns whether all names found room.
    async fn walk_on(
        &self,
        server: &Store,
        (prefix, after): (&str, Option<&LockName>),
        most: usize,
        best: &mut BTreeSet<LockName>,
    ) -> Result<bool> {
        let own = self.store.config().prefix.clone();
        let pattern = format!("{}*", escape_pattern(&format!("{own}{prefix}")));
        let mut cursor = "0".to_owned();
        let mut is_whole = true;
        loop {
            let (from, pattern) = (cursor.clone(), pattern.clone());
            let replies = ask_at(server, move |pipeline| {
                let parts = ["SCAN", &from, "MATCH", &pattern, "COUNT", SCAN_KEYS];
                pipeline.all(&[&parts[..], &["TYPE", "string"]].concat());
            })
            .await?;
            let (next, keys) = read_scan(replies).map_err(|failure| failure.to_error())?;
            let names = keys
                .iter()
                .filter(|key| !key.starts_with(record::RESERVED))
                .filter_map(|key| LockName::new(key.strip_prefix(own.as_str())?).ok())
                .filter(|name| after.is_none_or(|after| name > after));
            for name in self.keep_held(server, names.collect()).await? {
                best.insert(name);
                if best.len() > most {
                    is_whole = false;
                    best.pop_last();
                }
            }
            if next == "0" {
                return Ok(is_whole);
            }
            cursor = next;
        }
    }

    /// Those of the names whose value is one of ours.
    async fn keep_held(&self, server: &Store, names: Vec<LockName>) -> Result<Vec<LockName>> {
        if names.is_empty() {
            return Ok(names);
        }
        let prefix = self.store.config().prefix.clone();
        let asked = names.clone();
        let is_cluster = self.store.cluster.is_some();
        let replies = ask_at(server, move |pipeline| {
            if !is_cluster {
                pipeline.command(1 + asked.len());
                pipeline.part("MGET");
            }
            for name in &asked {
                // Keys of different slots do not go together.
                if is_cluster {
                    pipeline.command(2);
                    pipeline.part("GET");
                }
                Keys { prefix: &prefix, name: name.as_str() }.write_lock(pipeline);
            }
        })
        .await?;
        let values = match is_cluster {
            true => Some(replies),
            false => replies.into_iter().next().and_then(|reply| reply.into_list().ok()),
        };
        let is_ours = |value: &Reply| {
            value.as_text().is_some_and(|value| {
                value == record::SHARED_MARK || record::read_hold(value).is_some()
            })
        };
        let held = names.into_iter().zip(values.unwrap_or_default());
        Ok(held.filter(|(_, value)| is_ours(value)).map(|(name, _)| name).collect())
    }
}

/// Looks at some locks.
pub(crate) async fn look(
    store: &Arc<Store>,
    names: Vec<LockName>,
) -> Result<Vec<(LockName, Seen)>> {
    // All are asked before the first answer is waited for.
    let runs = store.runs(&names, |_| false);
    let looks: Vec<_> = runs.map(|some| look_once(store, some.to_vec())).collect();
    let mut found = Vec::with_capacity(names.len());
    for look in looks {
        found.extend(look.await?);
    }
    Ok(found)
}

/// Looks at locks in one call.
fn look_once(
    store: &Arc<Store>,
    names: Vec<LockName>,
) -> impl Future<Output = Result<Vec<(LockName, Seen)>>> + use<> {
    let (asker, answer) = oneshot::channel();
    let slot = names.first().and_then(|it| slot::of_lock(&store.config().prefix, it.as_str()));
    let (asked, prefix) = (names.clone(), store.config().prefix.clone());
    let inspect = &store.scripts().inspect;
    let write = move |pipeline: &mut Pipeline| {
        inspect.call(pipeline, 3 * asked.len(), 0);
        for name in &asked {
            let keys = Keys { prefix: &prefix, name: name.as_str() };
            keys.write_lock(pipeline);
            keys.write_aside(pipeline, "queue");
            keys.write_aside(pipeline, "shared");
        }
    };
    store.submit(Op::Plain(Plain { write: Box::new(write), asker, slot, tries: 0 }));
    async move { read_looks(names, receive(answer).await?) }
}

fn read_looks(names: Vec<LockName>, replies: Vec<Reply>) -> Result<Vec<(LockName, Seen)>> {
    let views = replies.into_iter().next().and_then(|reply| reply.into_list().ok());
    let mut found = Vec::with_capacity(names.len());
    for (name, view) in names.into_iter().zip(views.unwrap_or_default()) {
        if let Some(failure) = view.failure() {
            return Err(failure.to_error().with_lock(&name));
        }
        let seen = view.into_list().ok().and_then(|fields| Seen::read(&fields));
        let nonsense = || failure::of_nonsense("a look of another form").to_error();
        found.push((name, seen.ok_or_else(nonsense)?));
    }
    Ok(found)
}

/// The labels of those who took leases from us, but not for longer than a moment: the other
/// leases of the batch wait for them, and a node of a cluster may be silent.
pub(crate) async fn labels_soon(
    store: &Arc<Store>,
    clients: HashSet<ClientId>,
) -> HashMap<ClientId, Label> {
    if clients.is_empty() {
        return HashMap::new();
    }
    let asked = Arc::clone(store);
    let soon = async move { tokio::time::timeout(SOON, labels(&asked, clients)).await };
    store.runtime.spawn(soon).await.ok().and_then(std::result::Result::ok).unwrap_or_default()
}

/// The labels of these clients, as far as they are known.
pub(crate) async fn labels(
    store: &Arc<Store>,
    clients: HashSet<ClientId>,
) -> HashMap<ClientId, Label> {
    let mut found = HashMap::with_capacity(clients.len());
    let mut unknown = Vec::new();
    {
        let known = lock(&store.labels);
        for client in clients {
            match known.get(&client) {
                _ if client == store.client => drop(found.insert(client, store.label.clone())),
                Some(label) => drop(found.insert(client, label.clone())),
                None => unknown.push(client),
            }
        }
    }
    if unknown.is_empty() {
        return found;
    }
    let mut answers = Vec::new();
    for asked in store.runs(&unknown, |_| false).map(<[_]>::to_vec) {
        let (asker, answer) = oneshot::channel();
        let first = asked.first().map(|client| record::write_client(*client)).unwrap_or_default();
        let slot = Some(slot::of_key(&format!("{}{first}", record::CLIENT_KEY)));
        let write = move |pipeline: &mut Pipeline| {
            pipeline.command(1 + asked.len());
            pipeline.part("MGET");
            for client in &asked {
                pipeline.part_of(&[record::CLIENT_KEY, &record::write_client(*client)]);
            }
        };
        store.submit(Op::Plain(Plain { write: Box::new(write), asker, slot, tries: 0 }));
        answers.push(answer);
    }
    let mut replies = Vec::new();
    for answer in answers {
        // A label is for people only: without one the rest is still of use.
        replies.extend(receive(answer).await.unwrap_or_default());
    }
    let values = (!replies.is_empty()).then(|| Reply::join(replies).into_list().ok()).flatten();
    let mut known = lock(&store.labels);
    if known.len() > LABELS_MAX {
        known.clear();
    }
    for (client, value) in unknown.into_iter().zip(values.unwrap_or_default()) {
        let label = value.as_text().and_then(|value| record::read_label(value.get(8..)?));
        if let Some(label) = label {
            known.insert(client, label.clone());
            found.insert(client, label);
        }
    }
    found
}

/// Text that a pattern matches to the letter.
pub fn escape_pattern(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, '*' | '?' | '[' | ']' | '\\' | '^') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

/// The next cursor and the keys of a SCAN.
pub fn read_scan(replies: Vec<Reply>) -> Result<(String, Vec<String>), Failure> {
    let nonsense = || failure::of_nonsense("a SCAN of another form");
    let parts = replies.into_iter().next().and_then(|reply| reply.into_list().ok());
    let mut parts = parts.ok_or_else(nonsense)?.into_iter();
    let cursor = parts.next().and_then(|cursor| cursor.as_text().map(str::to_owned));
    let keys = parts.next().and_then(|keys| keys.into_list().ok());
    let (Some(cursor), Some(keys)) = (cursor, keys) else { return Err(nonsense()) };
    // A key that is not UTF-8 is not the name of a lock.
    let keys = keys.iter().filter_map(|key| key.as_text().map(str::to_owned));
    Ok((cursor, keys.collect()))
}
