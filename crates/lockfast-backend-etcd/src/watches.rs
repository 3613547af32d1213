//! What is watched, and what is known of it: the lines of the locks that this process waits for, and
//! the keys of those that it has.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use lockfast_core::{LockName, Moment};
use tokio::sync::{Notify, mpsc};

use crate::failure::Failure;
use crate::line::{Line, Place};
use crate::store::{Store, lock};
use crate::wire::{Event, WatchCancelRequest, WatchCreateRequest, WatchOp};

/// How long a line is watched that nobody here waits in.
const IDLE: Duration = Duration::from_secs(10);
/// How long nothing is heard of a line before it is looked at.
const QUIET: Duration = Duration::from_secs(5);
/// How long a line is not looked at, however much is heard of it: something may not have been told.
const UNREAD_MAX: Duration = Duration::from_secs(10);
/// How long a watch may take to be there.
const OPENING_MAX: Duration = Duration::from_secs(5);

/// What a watch is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    /// All claims of a lock.
    Line(LockName),
    /// One key that we have.
    Key(Vec<u8>),
}

/// A line that is watched.
struct WatchedLine {
    number: i64,
    view: View,
    used: Moment,
    /// When something was last heard of it.
    heard: Moment,
    /// When it was last looked at, or its watch was asked for.
    read: Moment,
    /// Why it cannot be watched.
    refused: Option<Failure>,
}

impl WatchedLine {
    /// Whether it is to be looked at.
    fn is_due(&self, now: Moment) -> bool {
        let is_open = matches!(self.view, View::Open { .. });
        is_open && (now.since(self.heard) > QUIET || now.since(self.read) > UNREAD_MAX)
    }

    /// Whether its watch should be there, and is not.
    fn is_unanswered(&self, now: Moment) -> bool {
        matches!(self.view, View::Opening(_)) && now.since(self.read) > OPENING_MAX
    }
}

pub(crate) enum View {
    /// The watch is not there yet, or what was there before it is not known: these came since.
    Opening(Vec<Event>),
    /// The line as it was read at a revision, with everything that came since up to another.
    Open { line: Line, read: i64, known: i64 },
}

/// A key that is watched.
struct WatchedKey {
    number: i64,
    /// The revision at which it was made.
    revision: i64,
}

/// All that is watched.
pub(crate) struct Watches {
    subjects: Mutex<Subjects>,
    commands: mpsc::UnboundedSender<WatchOp>,
    /// The stream is to be opened anew on the same connection, because of an old token.
    pub(crate) stale: Notify,
    /// The stream does not answer.
    pub(crate) silent: Notify,
}

#[derive(Default)]
struct Subjects {
    lines: HashMap<LockName, WatchedLine>,
    keys: HashMap<Vec<u8>, WatchedKey>,
    numbers: HashMap<i64, Subject>,
    last_number: i64,
    /// The watches that were asked for, in order, until that is answered.
    asked: VecDeque<i64>,
    /// The keys whose watches are there, and that are to be looked at.
    unsure: Vec<(Vec<u8>, i64)>,
    /// Whether there is a stream.
    is_served: bool,
}

impl Subjects {
    /// A subject gets a new number, so that what comes under the old one is not mistaken.
    fn renumber(&mut self, subject: &Subject) -> Option<i64> {
        let number = self.last_number + 1;
        let before = match subject {
            Subject::Line(name) => {
                let watched = self.lines.get_mut(name)?;
                watched.view = View::Opening(Vec::new());
                watched.read = Moment::now();
                std::mem::replace(&mut watched.number, number)
            }
            Subject::Key(key) => {
                let watched = self.keys.get_mut(key)?;
                std::mem::replace(&mut watched.number, number)
            }
        };
        self.last_number = number;
        self.numbers.remove(&before);
        self.numbers.insert(number, subject.clone());
        Some(number)
    }
}

impl Watches {
    /// Nothing is watched yet; what is sent to the receiver is to be written to the stream.
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<WatchOp>) {
        let (commands, receiver) = mpsc::unbounded_channel();
        let (stale, silent) = (Notify::new(), Notify::new());
        (Self { subjects: Mutex::default(), commands, stale, silent }, receiver)
    }

    fn command(&self, op: WatchOp) {
        // Nobody listens only when the store is closed.
        let _ = self.commands.send(op);
    }

    /// What a watch is for, while that number is in use.
    pub(crate) fn subject(&self, number: i64) -> Option<Subject> {
        lock(&self.subjects).numbers.get(&number).cloned()
    }

    /// The number of the watch whose creation is answered. Servers refuse without saying which one,
    /// but in the order in which they were asked.
    pub(crate) fn answered(&self, said: i64) -> i64 {
        let asked = &mut lock(&self.subjects).asked;
        let at = asked.iter().position(|number| *number == said).unwrap_or(0);
        asked.remove(at).unwrap_or(said)
    }

    /// Whether anybody is known to be in the line of a lock.
    pub(crate) fn is_busy(&self, name: &LockName) -> bool {
        self.with_line(name, |line| !line.is_empty()).unwrap_or(false)
    }

    /// Looks at the line of a lock, if it is known.
    pub(crate) fn with_line<T>(&self, name: &LockName, look: impl FnOnce(&Line) -> T) -> Option<T> {
        match &lock(&self.subjects).lines.get(name)?.view {
            View::Open { line, .. } => Some(look(line)),
            View::Opening(_) => None,
        }
    }

    /// Whether a claim has the lock, and whoever may be ahead of it was read from the store after it
    /// was made: then no news of one is missing.
    pub(crate) fn is_proved(&self, name: &LockName, place: &Place) -> bool {
        self.with_line(name, |line| line.is_proved(place)).unwrap_or(false)
    }

    /// Looks at all lines that are known.
    pub(crate) fn for_each_line(&self, mut look: impl FnMut(&LockName, &mut Line)) {
        for (name, watched) in &mut lock(&self.subjects).lines {
            if let View::Open { line, .. } = &mut watched.view {
                look(name, line);
            }
        }
    }

    /// See [`Line::tell_origin`].
    pub(crate) fn tell_origin(&self, name: &LockName, place: &Place, was_granted: bool) {
        if let Some(watched) = lock(&self.subjects).lines.get_mut(name)
            && let View::Open { line, .. } = &mut watched.view
        {
            line.tell_origin(place, was_granted);
        }
    }

    /// Why a lock cannot be watched.
    pub(crate) fn refusal(&self, name: &LockName) -> Option<Failure> {
        lock(&self.subjects).lines.get(name)?.refused.clone()
    }

    /// A lock cannot be watched.
    pub(crate) fn refuse(&self, name: &LockName, failure: Failure) {
        if let Some(watched) = lock(&self.subjects).lines.get_mut(name) {
            watched.refused = Some(failure);
        }
    }

    /// Watches a line from now on.
    pub(crate) fn open_line(&self, store: &Store, name: &LockName) {
        let mut subjects = lock(&self.subjects);
        let now = Moment::now();
        if let Some(watched) = subjects.lines.get_mut(name) {
            watched.used = now;
            if watched.refused.take().is_none() {
                return;
            }
        } else {
            let view = View::Opening(Vec::new());
            let watched =
                WatchedLine { number: 0, view, used: now, heard: now, read: now, refused: None };
            subjects.lines.insert(name.clone(), watched);
        }
        self.create(store, &mut subjects, &Subject::Line(name.clone()));
    }

    /// Watches a key from now on.
    pub(crate) fn open_key(&self, store: &Store, key: Vec<u8>, revision: i64) {
        let mut subjects = lock(&self.subjects);
        let watched = WatchedKey { number: 0, revision };
        subjects.keys.insert(key.clone(), watched);
        self.create(store, &mut subjects, &Subject::Key(key));
    }

    fn create(&self, store: &Store, subjects: &mut Subjects, subject: &Subject) {
        if let Some(number) = subjects.renumber(subject) {
            subjects.asked.push_back(number);
            self.command(creation(store, subject, number));
        }
    }

    /// Watches something anew whose watch has ended, if that is its number.
    pub(crate) fn renew(&self, store: &Store, number: i64) {
        let mut subjects = lock(&self.subjects);
        if let Some(subject) = subjects.numbers.get(&number).cloned() {
            self.create(store, &mut subjects, &subject);
        }
    }

    /// Watches a line anew of which not everything was told.
    pub(crate) fn reopen_line(&self, store: &Store, name: &LockName) {
        let mut subjects = lock(&self.subjects);
        let Some(watched) = subjects.lines.get(name) else { return };
        self.command(cancelation(watched.number));
        self.create(store, &mut subjects, &Subject::Line(name.clone()));
    }

    /// Watches everything anew.
    pub(crate) fn renew_all(&self, store: &Store) {
        let mut subjects = lock(&self.subjects);
        subjects.is_served = true;
        subjects.unsure.clear();
        subjects.asked.clear();
        let lines = subjects.lines.keys().cloned().map(Subject::Line);
        let all: Vec<Subject> =
            lines.chain(subjects.keys.keys().cloned().map(Subject::Key)).collect();
        all.iter().for_each(|subject| self.create(store, &mut subjects, subject));
    }

    /// What was known is not known any more.
    pub(crate) fn forget_views(&self) {
        let mut subjects = lock(&self.subjects);
        subjects.is_served = false;
        for watched in subjects.lines.values_mut() {
            watched.view = View::Opening(Vec::new());
        }
        subjects.unsure.clear();
    }

    /// Does not watch a key any more.
    pub(crate) fn close_key(&self, key: &[u8]) {
        let mut subjects = lock(&self.subjects);
        if let Some(watched) = subjects.keys.remove(key) {
            subjects.numbers.remove(&watched.number);
            self.command(cancelation(watched.number));
        }
    }

    /// Closes the lines that nobody wants any more, and returns those of which nothing was heard for
    /// so long that they are to be looked at, with their numbers.
    pub(crate) fn sort_lines(&self, store: &Store, now: Moment) -> Vec<(LockName, i64)> {
        let (mut idle, mut quiet, mut is_silent) = (Vec::new(), Vec::new(), false);
        let mut guard = lock(&self.subjects);
        let subjects = &mut *guard;
        let asked = &subjects.asked;
        for (name, watched) in &mut subjects.lines {
            if store.claims.has_lock(name) {
                watched.used = now;
                if watched.is_due(now) {
                    (watched.heard, watched.read) = (now, now);
                    quiet.push((name.clone(), watched.number));
                }
                is_silent |= watched.is_unanswered(now) && asked.contains(&watched.number);
            } else if now.since(watched.used) > IDLE {
                idle.push((name.clone(), watched.number));
            }
        }
        for (name, number) in idle {
            subjects.lines.remove(&name);
            subjects.numbers.remove(&number);
            self.command(cancelation(number));
        }
        if is_silent && subjects.is_served {
            self.silent.notify_one();
        }
        quiet
    }

    /// The number of a line that is to be looked at now, unless it was just before.
    pub(crate) fn look_now(&self, name: &LockName, now: Moment, gap: Duration) -> Option<i64> {
        let mut subjects = lock(&self.subjects);
        let watched = subjects.lines.get_mut(name)?;
        let is_open = matches!(watched.view, View::Open { .. });
        if !is_open || now.since(watched.read) < gap {
            return None;
        }
        watched.read = now;
        Some(watched.number)
    }

    /// The watch of a key is there: it is to be looked at.
    pub(crate) fn look_soon(&self, key: Vec<u8>, number: i64) {
        lock(&self.subjects).unsure.push((key, number));
    }

    /// The keys that are to be looked at, with the numbers of their watches and the revisions at
    /// which they were made.
    pub(crate) fn take_unsure(&self) -> Vec<(Vec<u8>, i64, i64)> {
        let mut subjects = lock(&self.subjects);
        let unsure = std::mem::take(&mut subjects.unsure);
        let find = |(key, number): (Vec<u8>, i64)| {
            let watched = subjects.keys.get(&key).filter(|watched| watched.number == number)?;
            Some((key, number, watched.revision))
        };
        unsure.into_iter().filter_map(find).collect()
    }

    /// Changes what is known of a line whose watch has this number.
    pub(crate) fn change_line<T>(
        &self,
        name: &LockName,
        number: i64,
        change: impl FnOnce(&mut View) -> T,
    ) -> Option<T> {
        let mut subjects = lock(&self.subjects);
        let watched = subjects.lines.get_mut(name).filter(|watched| watched.number == number)?;
        watched.heard = Moment::now();
        Some(change(&mut watched.view))
    }
}

fn creation(store: &Store, subject: &Subject, number: i64) -> WatchOp {
    let (key, range_end) = match subject {
        Subject::Line(name) => {
            let span = store.space.span_of(name);
            (span.from, span.to)
        }
        Subject::Key(key) => (key.clone(), Vec::new()),
    };
    WatchOp::Create(WatchCreateRequest {
        key,
        range_end,
        // From now on: the server serves what is past much later.
        start_revision: 0,
        prev_kv: true,
        watch_id: number,
    })
}

fn cancelation(number: i64) -> WatchOp {
    WatchOp::Cancel(WatchCancelRequest { watch_id: number })
}
