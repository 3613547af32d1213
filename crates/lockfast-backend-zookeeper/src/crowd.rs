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

/// For so long after somebody had to wait, others most likely want the lock.
const WANTED: Duration = Duration::from_secs(10);
/// How many such locks are remembered.
const WANTED_MAX: usize = 1024;

type Answer = Result<Arc<Line>, Failure>;
type Asker = oneshot::Sender<Answer>;

/// All who have claims in this process, by lock.
#[derive(Default)]
pub(crate) struct Crowds {
    /// By session and lock: a list is on its way, and these came too late for it.
    lists: Mutex<HashMap<(i64, LockName), Vec<Asker>>>,
    by_lock: Mutex<HashMap<LockName, Crowd>>,
    /// The locks that somebody of this process had to wait for, and when that was.
    wanted: Mutex<HashMap<LockName, Moment>>,
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

    /// Somebody has to wait for a lock.
    pub(crate) fn note_wait(&self, name: &LockName) {
        let now = Moment::now();
        let mut wanted = lock(&self.wanted);
        if wanted.len() >= WANTED_MAX {
            wanted.retain(|_, at| now.since(*at) < WANTED);
        }
        if wanted.len() < WANTED_MAX || wanted.contains_key(name) {
            wanted.insert(name.clone(), now);
        }
    }

    /// Whether somebody had to wait for a lock lately.
    pub(crate) fn is_wanted(&self, name: &LockName) -> bool {
        let wanted = lock(&self.wanted);
        wanted.get(name).is_some_and(|at| Moment::now().since(*at) < WANTED)
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
    /// Whether nobody else in this process has a claim on the lock.
    pub(crate) fn is_alone(&self) -> bool {
        lock(&self.crowds.by_lock).get(&self.name).is_none_or(|crowd| crowd.size <= 1)
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
        assert!(first.is_alone() && other.is_alone());
        let second = crowds.join(&name("a"));
        assert!(!first.is_alone() && !second.is_alone() && other.is_alone());
        drop(second);
        assert!(first.is_alone());
        drop((first, other));
        assert!(lock(&crowds.by_lock).is_empty());
    }

    #[test]
    fn a_lock_that_was_waited_for_is_remembered() {
        let crowds = Crowds::default();
        let name = |number: usize| LockName::new(format!("a{number}")).unwrap();
        assert!(!crowds.is_wanted(&name(0)));
        for number in 0..2 * WANTED_MAX {
            crowds.note_wait(&name(number));
        }
        assert!(crowds.is_wanted(&name(0)) && !crowds.is_wanted(&name(WANTED_MAX)));
        assert_eq!(lock(&crowds.wanted).len(), WANTED_MAX);
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
