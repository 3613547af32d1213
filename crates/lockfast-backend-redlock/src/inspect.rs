//! Looking at locks: what a quorum of the nodes agrees on is what there is.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use lockfast_backend_redis::node::{read_label, write_client};
use lockfast_core::{
    ClientId, Error, HolderView, Label, LockName, LockView, NodeVote, Query, Result, Vote,
};

use crate::ballot::Said;
use crate::inquiry::Answer;
use crate::node::Node;
use crate::record::{self, Keys, Seen};
use crate::script;
use crate::store::{Store, lock};
use crate::wire::Reply;

/// How many labels of others are remembered.
const LABELS_MAX: usize = 10_000;
/// How many locks one look carries.
const LOOKS_MAX: usize = 256;

/// What one node shows of a lock.
#[derive(Clone, Debug, Default)]
struct Glimpse {
    seen: Option<Seen>,
    callers: usize,
}

/// What the nodes show of a lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sight {
    /// Of those that answered.
    glimpses: Vec<Glimpse>,
    /// How many did not, which may have anything.
    silent: usize,
}

impl Sight {
    fn seen(&self) -> impl Iterator<Item = &Seen> {
        self.glimpses.iter().filter_map(|glimpse| glimpse.seen.as_ref())
    }

    /// On how many nodes that answered this value is.
    fn count(&self, value: &[u8]) -> usize {
        self.seen().filter(|seen| seen.value == value).count()
    }

    /// Whether a quorum may have this value.
    pub(crate) fn may_be_held(&self, value: &[u8], quorum: usize) -> bool {
        self.count(value) + self.silent >= quorum
    }

    /// The holds that a quorum may have, the likeliest first: the same value on so many nodes, some of
    /// which may be silent, for as long as it will be on so many.
    pub(crate) fn holds(&self, quorum: usize) -> Vec<Seen> {
        let mut holds: Vec<Seen> = Vec::new();
        for seen in self.seen().filter(|seen| self.may_be_held(&seen.value, quorum)) {
            if holds.iter().any(|hold| hold.value == seen.value) {
                continue;
            }
            let same = self.seen().filter(|other| other.value == seen.value);
            let mut lefts: Vec<Duration> =
                same.map(|seen| seen.left.unwrap_or(Duration::MAX)).collect();
            lefts.sort_unstable_by(|a, b| b.cmp(a));
            let left = lefts.get(quorum.min(lefts.len()) - 1).copied();
            holds.push(Seen { left: left.filter(|left| *left != Duration::MAX), ..seen.clone() });
        }
        holds.sort_by_key(|hold| std::cmp::Reverse(self.count(&hold.value)));
        holds
    }

    /// How many wait, as a quorum knows.
    fn waiting(&self, quorum: usize) -> usize {
        let mut counts: Vec<usize> = self.glimpses.iter().map(|glimpse| glimpse.callers).collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        counts.get(quorum - 1).copied().unwrap_or(0)
    }
}

impl Store {
    /// Looks at what is asked for.
    pub(crate) async fn inspect(self: &Arc<Self>, query: Query) -> Result<Vec<LockView>> {
        match query {
            Query::Name(name) => self.view_all(vec![name]).await,
            Query::Prefix { prefix, after, limit } => self.list(&prefix, after, limit).await,
        }
    }

    /// Locks with their holders' labels.
    pub(crate) async fn view_all(self: &Arc<Self>, names: Vec<LockName>) -> Result<Vec<LockView>> {
        let quorum = self.config.quorum;
        let mut views = Vec::with_capacity(names.len());
        for some in names.chunks(LOOKS_MAX) {
            let sights = self.look(some.to_vec()).await?;
            let holds: Vec<Option<Seen>> =
                sights.iter().map(|sight| sight.holds(quorum).into_iter().next()).collect();
            let clients = holds.iter().flatten().filter_map(Seen::claim).map(|(client, _)| client);
            let labels = labels(self, clients.collect()).await;
            for ((name, sight), hold) in some.iter().zip(&sights).zip(holds) {
                let holder = hold.map(|seen| seen.view(|client| labels.get(client).cloned()));
                views.push(LockView::new(
                    name.clone(),
                    holder.into_iter().collect(),
                    sight.waiting(quorum),
                ));
            }
        }
        Ok(views)
    }

    /// What the nodes show of some locks.
    pub(crate) async fn look(&self, names: Vec<LockName>) -> Result<Vec<Sight>> {
        let (asked, prefix) = (names.clone(), self.config.prefix().to_owned());
        let answers = self
            .ask_all(move |pipeline| {
                script::INSPECT.call(pipeline, 2 * asked.len(), 0);
                for name in &asked {
                    let keys = Keys { prefix: &prefix, name: name.as_str() };
                    keys.write_lock(pipeline);
                    keys.write_aside(pipeline, "callers");
                }
            })
            .await;
        let answers = self.require_quorum(answers).await?;
        let silent = self.nodes.len() - answers.len();
        let mut sights = vec![Sight { silent, ..Sight::default() }; names.len()];
        for replies in answers {
            let entries = replies.into_iter().next().and_then(|reply| reply.into_list().ok());
            for (sight, entry) in sights.iter_mut().zip(entries.unwrap_or_default()) {
                let fields = entry.into_list().unwrap_or_default();
                let callers = fields.get(2).and_then(Reply::as_int).unwrap_or(0);
                let callers = usize::try_from(callers).unwrap_or(0);
                sight.glimpses.push(Glimpse { seen: Seen::read(&fields), callers });
            }
        }
        Ok(sights)
    }

    /// The answers, if there are enough.
    pub(crate) async fn require_quorum(&self, answers: Vec<Answer>) -> Result<Vec<Vec<Reply>>> {
        let answered = answers.iter().filter(|answer| answer.is_ok()).count();
        if answered >= self.config.quorum {
            return Ok(answers.into_iter().filter_map(std::result::Result::ok).collect());
        }
        let votes = answers.into_iter().map(|answer| match answer {
            Ok(_) => Said::Granted,
            Err(failure) => Said::Failed(failure),
        });
        Err(self.no_quorum(votes.collect(), &HashMap::new()))
    }

    /// The error of a request on which too few nodes agreed.
    pub(crate) fn no_quorum(&self, votes: Vec<Said>, labels: &HashMap<ClientId, Label>) -> Error {
        Error::no_quorum(self.config.quorum, self.name_votes(&votes, labels))
            .with_backend("redlock")
    }

    /// Votes as people read them.
    pub(crate) fn name_votes(
        &self,
        votes: &[Said],
        labels: &HashMap<ClientId, Label>,
    ) -> Vec<NodeVote> {
        let name = |(node, said): (&Arc<Node>, &Said)| {
            let vote = match said {
                Said::Granted | Said::Own(_) => Vote::Granted,
                Said::TooLow(seen) => match lockfast_core::Fence::new(*seen) {
                    Ok(seen) => Vote::FenceTooLow { seen },
                    Err(error) => Vote::Unreachable { why: error.to_string() },
                },
                Said::Ahead(_) => Vote::FenceTooHigh,
                Said::Held(seen) => {
                    Vote::Held { by: seen.view(|client| labels.get(client).cloned()) }
                }
                Said::Failed(failure) => Vote::Unreachable { why: failure.message().to_owned() },
                Said::Late(limit) => Vote::Late { limit: *limit },
                Said::Nothing => {
                    Vote::Unreachable { why: "not asked, because no quorum could be had".into() }
                }
            };
            NodeVote { node: node.name.clone(), vote }
        };
        self.nodes.iter().zip(votes).map(name).collect()
    }

    /// A lock as those who are refused see it.
    pub(crate) async fn name_refusal(
        self: &Arc<Self>,
        name: &LockName,
        votes: &[Said],
    ) -> (LockView, Vec<NodeVote>) {
        let held = || {
            votes.iter().filter_map(|said| match said {
                Said::Held(seen) => Some(seen),
                _ => None,
            })
        };
        let clients = held().filter_map(Seen::claim).map(|(client, _)| client).collect();
        let labels = labels(self, clients).await;
        let same = |seen: &&Seen| held().filter(|other| other.value == seen.value).count();
        // Whoever has most of the nodes is in the way.
        let most = held().max_by_key(same);
        let holders: Vec<HolderView> =
            most.map(|seen| seen.view(|client| labels.get(client).cloned())).into_iter().collect();
        // Not every node that was heard before it was decided has heard of all of them yet.
        let waiting = held().map(|seen| seen.callers).max().unwrap_or(0);
        let lock = LockView::new(name.clone(), holders, waiting);
        (lock, self.name_votes(votes, &labels))
    }
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
    let asked = unknown.clone();
    let answers = store
        .ask_all(move |pipeline| {
            pipeline.command(1 + asked.len());
            pipeline.part("MGET");
            for client in &asked {
                pipeline.part_of(&[record::CLIENT_KEY, &write_client(*client)]);
            }
        })
        .await;
    let mut known = lock(&store.labels);
    if known.len() > LABELS_MAX {
        known.clear();
    }
    // A label is for people only: any node that knows it will do.
    for replies in answers.into_iter().flatten() {
        let values = replies.into_iter().next().and_then(|reply| reply.into_list().ok());
        for (client, value) in unknown.iter().zip(values.unwrap_or_default()) {
            let stored = value.as_text().and_then(|value| value.get(record::LINK_CHARS..));
            if let Some(label) = stored.and_then(read_label) {
                known.insert(*client, label.clone());
                found.insert(*client, label);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What nodes show, as a letter and for how many ms it is there, or `-`.
    fn sight(shown: &str, silent: usize) -> Sight {
        let glimpse = |shown: &str| {
            let seen = shown.split_at_checked(1).filter(|(value, _)| *value != "-");
            let seen = seen.map(|(value, left_ms)| Seen {
                value: value.into(),
                left: left_ms.parse().ok().map(Duration::from_millis),
                callers: 0,
                place: None,
            });
            Glimpse { seen, callers: 0 }
        };
        Sight { glimpses: shown.split_whitespace().map(glimpse).collect(), silent }
    }

    /// B139: what nodes that are silent may have counts.
    #[test]
    fn a_hold_is_what_a_quorum_may_have() {
        let table = [
            ("x30 x50 x40", 0, 2, "x40"),
            ("x30 x50 -", 0, 2, "x30"),
            ("x30 - -", 0, 2, ""),
            ("x30 -", 1, 2, "x30"),
            ("- -", 1, 2, ""),
            ("x30 y20", 1, 2, "x30 y20"),
            ("y20 x30 x40 -", 1, 3, "x30"),
            ("y20 x30 x40", 2, 3, "x30 y20"),
        ];
        for (shown, silent, quorum, expected) in table {
            let holds = sight(shown, silent).holds(quorum);
            let write = |hold: &Seen| {
                let left = hold.left.map(|left| left.as_millis().to_string());
                String::from_utf8_lossy(&hold.value).into_owned() + &left.unwrap_or_default()
            };
            let found: Vec<String> = holds.iter().map(write).collect();
            assert_eq!(found.join(" "), expected, "{shown}, {silent} silent");
        }
    }
}
