//! Those of this process who want the same lock at the same time. They share what is read of its
//! line, so that entering costs each the same however many there are.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockfast_core::{LockName, Moment};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::failure::{self, Failure};
use crate::layout::{Line, lock_path, sequence_of};
use crate::store::lock;
use crate::wire::Session;

/// For how long a lock most likely is as it was found.
const OUTLOOK: Duration = Duration::from_secs(10);
/// Of how many locks that is remembered.
const OUTLOOKS_MAX: usize = 1024;

type Answer = Result<Arc<Line>, Failure>;
type Asker = oneshot::Sender<Answer>;

/// All who have claims in this process, by lock.
#[derive(Default)]
pub(crate) struct Crowds {
    /// By session and lock: a list is on its way, and these came too late for it.
    lists: Mutex<HashMap<(i64, LockName), Vec<Asker>>>,
    by_lock: Mutex<HashMap<LockName, Crowd>>,
    /// How locks were found by those of this process, and when that was.
    outlooks: Mutex<HashMap<LockName, (Moment, Outlook)>>,
}

/// How a lock was found, and most likely still is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outlook {
    Free,
    /// Somebody had to wait for it.
    Wanted,
}

/// Those of one lock.
#[derive(Default)]
struct Crowd {
    size: usize,
    /// The nodes of their claims, by number.
    nodes: HashMap<i32, String>,
    /// The path of the claim that had the lock last and gives it back.
    given_back: Option<String>,
}

/// One of them, until it is dropped.
pub(crate) struct Member {
    crowds: Arc<Crowds>,
    name: LockName,
    /// The number of its node.
    number: Mutex<Option<i32>>,
}

impl Crowds {
    /// One more has a claim.
    pub(crate) fn join(self: &Arc<Self>, name: &LockName) -> Member {
        lock(&self.by_lock).entry(name.clone()).or_default().size += 1;
        Member { crowds: Arc::clone(self), name: name.clone(), number: Mutex::default() }
    }

    /// Somebody has found a lock like this.
    pub(crate) fn note(&self, name: &LockName, outlook: Outlook) {
        let now = Moment::now();
        let mut outlooks = lock(&self.outlooks);
        if outlooks.len() >= OUTLOOKS_MAX {
            outlooks.retain(|_, (at, _)| now.since(*at) < OUTLOOK);
        }
        if outlooks.len() < OUTLOOKS_MAX || outlooks.contains_key(name) {
            outlooks.insert(name.clone(), (now, outlook));
        }
    }

    /// How a lock was found lately, if anybody has looked.
    pub(crate) fn outlook(&self, name: &LockName) -> Option<Outlook> {
        let outlooks = lock(&self.outlooks);
        let (at, outlook) = outlooks.get(name)?;
        (Moment::now().since(*at) < OUTLOOK).then_some(*outlook)
    }

    /// One of this process that has a lock gives it back.
    pub(crate) fn note_given_back(&self, name: &LockName, path: &str) {
        if let Some(crowd) = lock(&self.by_lock).get_mut(name) {
            crowd.given_back = Some(path.to_owned());
        }
    }

    /// Whether the claim at a path is one of this process that had the lock, and gives it back.
    pub(crate) fn has_given_back(&self, name: &LockName, path: &str) -> bool {
        let crowds = lock(&self.by_lock);
        crowds.get(name).is_some_and(|crowd| crowd.given_back.as_deref() == Some(path))
    }

    /// The line of a lock, as the servers tell it after everything that was sent in this session
    /// before. It is sent at once, or together with that of others when one is on its way.
    pub(crate) fn list(
        self: &Arc<Self>,
        runtime: &Handle,
        session: &Arc<Session>,
        name: &LockName,
    ) -> impl Future<Output = Answer> + Send + use<> {
        let (asker, answer) = oneshot::channel();
        let is_first = match lock(&self.lists).entry((session.id, name.clone())) {
            Entry::Occupied(mut others) => {
                others.get_mut().push(asker);
                None
            }
            Entry::Vacant(place) => {
                place.insert(Vec::new());
                Some(asker)
            }
        };
        if let Some(asker) = is_first {
            let reading = session.children(&lock_path(name));
            let (crowds, session) = (Arc::clone(self), Arc::clone(session));
            let name = name.clone();
            runtime.spawn(async move { crowds.answer(session, name, reading, asker).await });
        }
        async move { answer.await.unwrap_or_else(|_| Err(failure::of_end())) }
    }

    /// Passes on the answer to one list, and asks again as long as others have come meanwhile.
    async fn answer(
        &self,
        session: Arc<Session>,
        name: LockName,
        first: impl Future<Output = Result<Vec<String>, Failure>>,
        asker: Asker,
    ) {
        let key = (session.id, name);
        let mut askers = vec![asker];
        let mut read = first.await;
        loop {
            let answer = read.map(|children| Arc::new(Line::read(children)));
            for asker in askers {
                // Whoever has gone meanwhile need not know.
                let _ = asker.send(answer.clone());
            }
            askers = match lock(&self.lists).entry(key.clone()) {
                Entry::Occupied(mut others) if !others.get().is_empty() => {
                    mem::take(others.get_mut())
                }
                Entry::Occupied(none) => {
                    none.remove();
                    return;
                }
                Entry::Vacant(_) => return,
            };
            // After they came, so it has what they had sent.
            read = session.children(&lock_path(&key.1)).await;
        }
    }
}

impl Member {
    /// How many in this process have a claim on the lock.
    pub(crate) fn crowd_size(&self) -> usize {
        lock(&self.crowds.by_lock).get(&self.name).map_or(0, |crowd| crowd.size)
    }

    /// Its node is made. Tells that of the claim just before it, if that is one of this process: each
    /// number is given once, so there is nobody in between.
    pub(crate) fn enter(&self, node: &str) -> Option<String> {
        let number = sequence_of(node)?;
        let left = lock(&self.number).replace(number);
        let mut crowds = lock(&self.crowds.by_lock);
        let nodes = &mut crowds.get_mut(&self.name)?.nodes;
        left.and_then(|left| nodes.remove(&left));
        nodes.insert(number, node.to_owned());
        nodes.get(&(number - 1)).cloned()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let number = lock(&self.number).take();
        let mut crowds = lock(&self.crowds.by_lock);
        if let Entry::Occupied(mut crowd) = crowds.entry(self.name.clone()) {
            number.and_then(|number| crowd.get_mut().nodes.remove(&number));
            crowd.get_mut().size -= 1;
            if crowd.get().size == 0 {
                crowd.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_is_counted_by_lock() {
        let crowds = Arc::new(Crowds::default());
        let name = |text: &str| LockName::new(text).unwrap();
        let first = crowds.join(&name("a"));
        let other = crowds.join(&name("b"));
        assert_eq!([&first, &other].map(Member::crowd_size), [1, 1]);
        let second = crowds.join(&name("a"));
        assert_eq!([&first, &second, &other].map(Member::crowd_size), [2, 2, 1]);
        drop(second);
        assert_eq!(first.crowd_size(), 1);
        drop((first, other));
        assert!(lock(&crowds.by_lock).is_empty());
    }

    #[test]
    fn how_a_lock_was_found_is_remembered() {
        let crowds = Crowds::default();
        let name = |number: usize| LockName::new(format!("a{number}")).unwrap();
        assert_eq!(crowds.outlook(&name(0)), None);
        for number in 0..2 * OUTLOOKS_MAX {
            crowds.note(&name(number), Outlook::Free);
        }
        crowds.note(&name(0), Outlook::Wanted);
        assert_eq!(crowds.outlook(&name(0)), Some(Outlook::Wanted));
        assert_eq!(crowds.outlook(&name(1)), Some(Outlook::Free));
        assert_eq!(crowds.outlook(&name(OUTLOOKS_MAX)), None);
        assert_eq!(lock(&crowds.outlooks).len(), OUTLOOKS_MAX);
    }

    #[test]
    fn who_has_given_back_is_known_as_long_as_somebody_wants_the_lock() {
        let crowds = Arc::new(Crowds::default());
        let name = LockName::new("a").unwrap();
        let members = [(); 2].map(|()| crowds.join(&name));
        assert!(!crowds.has_given_back(&name, "/a/7"));
        crowds.note_given_back(&name, "/a/7");
        assert!(crowds.has_given_back(&name, "/a/7") && !crowds.has_given_back(&name, "/a/8"));
        crowds.note_given_back(&name, "/a/8");
        assert!(!crowds.has_given_back(&name, "/a/7"));
        drop(members);
        assert!(!crowds.has_given_back(&name, "/a/8"));
        crowds.note_given_back(&name, "/a/8");
        assert!(lock(&crowds.by_lock).is_empty());
    }

    #[test]
    fn who_is_just_ahead_is_known() {
        let crowds = Arc::new(Crowds::default());
        let name = LockName::new("a").unwrap();
        let node = |number: i32| format!("_c_x-lock-{number:010}");
        let [first, second, third] = [(); 3].map(|()| crowds.join(&name));
        assert_eq!(first.enter(&node(7)), None);
        assert_eq!(second.enter(&node(8)), Some(node(7)));
        // Somebody else may be in between.
        assert_eq!(third.enter(&node(10)), None);
        // One that lines up again has left its place.
        assert_eq!(first.enter(&node(11)), Some(node(10)));
        assert_eq!(second.enter(&node(12)), Some(node(11)));
        drop(second);
        assert_eq!(third.enter(&node(13)), None);
    }
}
