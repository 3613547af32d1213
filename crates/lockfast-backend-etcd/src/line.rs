//! The line of one lock as its keys tell: in the order in which they were made, with everybody in
//! front who has the lock. Free of I/O.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use lockfast_core::queue::{Ahead, check_use};
use lockfast_core::{HolderId, LockName, Mode, Moment};

use crate::key::{Maker, Space};
use crate::record::{Record, State};
use crate::wire::KeyValue;

/// A claim in the line.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: Vec<u8>,
    /// The revision at which it was made: its place, and its fence.
    pub(crate) revision: i64,
    /// The revision at which it was written last.
    pub(crate) written: i64,
    pub(crate) lease: i64,
    /// Whose it is, if Lockfast's.
    pub(crate) holder: Option<HolderId>,
    pub(crate) mode: Mode,
    /// What it holds, if Lockfast wrote that.
    pub(crate) record: Option<Record>,
    /// When it was seen to get its turn, while its holder has not confirmed that.
    pub(crate) unconfirmed: Option<Moment>,
    /// Since when it certainly has its turn: nobody ahead of it can be missing.
    pub(crate) sure: Option<Moment>,
    pub(crate) origin: Origin,
}

/// What is known of whether a claim was granted when its key was made. Its holder knows that it has the
/// lock if it was; otherwise it was behind somebody then, and has to hear that its turn came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Unknown,
    /// The cluster was asked at this moment.
    Asked(Moment),
    /// It was, or nobody can tell.
    Settled,
}

/// A lock that more have at once is left to the leases of those who have it: each would cost a read.
const DOUBTFUL_MAX: usize = 16;
/// When the cluster is asked again that did not answer.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Which claim it is: the revision at which its key was made, and the key. One that is made anew has
/// the same key, and another place.
pub(crate) type Place = (i64, Vec<u8>);

/// All claims of one lock.
#[derive(Debug, Default)]
pub(crate) struct Line {
    granted: BTreeMap<Place, Entry>,
    waiting: BTreeMap<Place, Entry>,
    places: HashMap<Vec<u8>, i64>,
    /// Who went since it was last compared with what was read.
    left: HashMap<Vec<u8>, i64>,
    /// Nobody who was made up to this revision is missing, whatever the server did not tell.
    whole: i64,
    ahead: Ahead,
}

impl Entry {
    /// What a key of the lock means. `None` for a key of another lock, whose name goes on with a
    /// slash, and for one that is no claim.
    pub(crate) fn read(space: &Space, name: &LockName, kv: &KeyValue) -> Option<Self> {
        let (found, maker) = space.read(&kv.key)?;
        if found != *name || (maker == Maker::Nobody && kv.lease == 0) {
            return None;
        }
        let holder = match maker {
            Maker::Holder(holder) => Some(holder),
            Maker::Other | Maker::Nobody => None,
        };
        let record = Record::read(&kv.value);
        Some(Self {
            key: kv.key.clone(),
            revision: kv.create_revision,
            written: kv.mod_revision,
            lease: kv.lease,
            holder,
            mode: record.as_ref().map_or(Mode::Exclusive, |record| record.mode),
            record,
            unconfirmed: None,
            sure: None,
            origin: Origin::Unknown,
        })
    }

    /// Whether its key says what it said when it was made, and not that it waits: its holder has the lock,
    /// or has not heard yet that it does not.
    fn is_as_made(&self) -> bool {
        self.written == self.revision && self.record.is_some() && !self.is_waiting()
    }

    /// Whether its holder does not wait.
    pub(crate) fn is_trying(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.state == State::Trying)
    }

    /// Where it stands.
    pub(crate) fn place(&self) -> Place {
        (self.revision, self.key.clone())
    }

    /// Whether its holder did not know that it has its turn when it wrote last.
    pub(crate) fn is_waiting(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.state == State::Waiting)
    }
}

impl Line {
    /// The line as it was seen at once.
    pub(crate) fn of(entries: impl IntoIterator<Item = Entry>) -> Self {
        let mut line = Self::default();
        for entry in entries {
            line.places.insert(entry.key.clone(), entry.revision);
            line.waiting.insert((entry.revision, entry.key.clone()), entry);
        }
        line.settle(None);
        line
    }

    /// A key was made or written. Returns who got the lock.
    pub(crate) fn put(&mut self, entry: Entry, now: Moment) -> Vec<Place> {
        let place = (entry.revision, entry.key.clone());
        if let Some(known) = self.granted.get_mut(&place).or(self.waiting.get_mut(&place)) {
            let unconfirmed = known.unconfirmed.filter(|_| entry.is_waiting());
            let (sure, origin) = (known.sure, known.origin);
            *known = Entry { unconfirmed, sure, origin, mode: known.mode, ..entry };
            return Vec::new();
        }
        self.places.insert(entry.key.clone(), entry.revision);
        self.waiting.insert(place.clone(), entry);
        let granted = self.settle(Some(now));
        if let Some(entry) = self.granted.get_mut(&place) {
            // It was the first when it was made, and knows.
            entry.unconfirmed = entry.unconfirmed.filter(|_| entry.is_waiting());
            entry.origin = Origin::Settled;
        }
        granted
    }

    /// A key was deleted. Returns its claim, whether that had the lock, and who got it.
    pub(crate) fn remove(&mut self, key: &[u8], now: Moment) -> Option<(Entry, bool, Vec<Place>)> {
        let place = (self.places.remove(key)?, key.to_vec());
        self.left.insert(place.1.clone(), place.0);
        let (entry, was_granted) = match self.granted.remove(&place) {
            Some(entry) => (entry, true),
            None => (self.waiting.remove(&place)?, false),
        };
        if was_granted {
            self.ahead = Ahead::default();
            self.granted.values().for_each(|entry| self.ahead.count(entry.mode));
        }
        Some((entry, was_granted, self.settle(Some(now))))
    }

    /// Removes what was made up to a revision and is not in the line as it was read then: it is gone,
    /// and that was not told. Returns who got the lock.
    pub(crate) fn remove_missing(&mut self, read: &Self, at: i64, now: Moment) -> Vec<Place> {
        let is_missing = |(key, revision): &(&Vec<u8>, &i64)| {
            **revision <= at && read.places.get(*key).is_none_or(|it| it != *revision)
        };
        let missing: Vec<Vec<u8>> =
            self.places.iter().filter(is_missing).map(|(key, _)| key.clone()).collect();
        let removed = missing.iter().filter_map(|key| self.remove(key, now));
        removed.flat_map(|(_, _, granted)| granted).collect()
    }

    /// Whether everybody who was read is in it, or has gone since it was last asked that: then no news
    /// of a claim that was made before is missing.
    pub(crate) fn misses_nobody_of(&mut self, read: &Self) -> bool {
        let left = std::mem::take(&mut self.left);
        let mut places = read.places.iter();
        places.all(|(key, at)| self.places.get(key) == Some(at) || left.get(key) == Some(at))
    }

    /// It is certain by now that nobody who was made up to a revision is missing. Whoever had its turn
    /// as far as was known has it at the latest since now.
    pub(crate) fn prove(&mut self, at: i64, now: Moment) {
        self.whole = at.max(self.whole);
        self.left.clear();
        let whole = self.whole;
        let is_new = |entry: &&mut Entry| entry.sure.is_none() && entry.revision <= whole;
        for entry in self.granted.values_mut().filter(is_new) {
            entry.sure = Some(now);
            entry.unconfirmed = entry.is_waiting().then_some(now);
        }
    }

    /// Whether somebody has its turn as far as is known for so long, and that is not certain.
    pub(crate) fn has_unsure_turn(&self, now: Moment, age: Duration) -> bool {
        let is_old = |entry: &Entry| entry.unconfirmed.is_some_and(|it| now.since(it) > age);
        self.granted.values().any(|entry| entry.sure.is_none() && is_old(entry))
    }

    /// Those who certainly have their turn for so long and may not know it, because their keys say nothing
    /// of that: whether they were granted when their keys were made is to be asked now.
    pub(crate) fn take_doubtful(&mut self, now: Moment, age: Duration) -> Vec<Place> {
        if self.granted.len() > DOUBTFUL_MAX {
            return Vec::new();
        }
        let is_due = |entry: &Entry| match entry.origin {
            Origin::Unknown => entry.sure.is_some_and(|since| now.since(since) >= age),
            Origin::Asked(at) => now.since(at) >= ASK_AGAIN,
            Origin::Settled => false,
        };
        let mut taken = Vec::new();
        for (place, entry) in &mut self.granted {
            let is_ours = entry.holder.is_some();
            if is_ours && entry.unconfirmed.is_none() && entry.is_as_made() && is_due(entry) {
                entry.origin = Origin::Asked(now);
                taken.push(place.clone());
            }
        }
        taken
    }

    /// Whether a claim was granted when its key was made is known now. One that was not, and whose key was
    /// not written since, has not confirmed its turn.
    pub(crate) fn tell_origin(&mut self, place: &Place, was_granted: bool) {
        let Some(entry) = self.granted.get_mut(place) else { return };
        entry.origin = Origin::Settled;
        if !was_granted && entry.is_as_made() {
            entry.unconfirmed = entry.sure;
        }
    }

    /// Lets everybody have the lock whose rule holds, in order. The first who has to wait ends
    /// that: nobody overtakes.
    fn settle(&mut self, now: Option<Moment>) -> Vec<Place> {
        let mut granted = Vec::new();
        while let Some(first) = self.waiting.first_entry() {
            if !self.ahead.allows(first.get().mode) {
                break;
            }
            let (place, mut entry) = first.remove_entry();
            self.ahead.count(entry.mode);
            let is_sure = entry.revision <= self.whole;
            (entry.unconfirmed, entry.sure) = (now, now.filter(|_| is_sure));
            granted.push(place.clone());
            self.granted.insert(place, entry);
        }
        granted
    }

    /// Who has the lock.
    pub(crate) fn granted(&self) -> impl Iterator<Item = &Entry> {
        self.granted.values()
    }

    /// Who waits for it, in order.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Entry> {
        self.waiting.values()
    }

    /// How many wait. Those who do not wait have a claim as well, until they have seen that they are
    /// refused.
    pub(crate) fn waiting_count(&self) -> usize {
        self.waiting.values().filter(|entry| !entry.is_trying()).count()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Whether the same claims are in it.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.places == other.places
    }

    /// The claim with this key.
    pub(crate) fn find(&self, key: &[u8]) -> Option<&Entry> {
        let place = (*self.places.get(key)?, key.to_vec());
        self.granted.get(&place).or_else(|| self.waiting.get(&place))
    }

    /// Whether the claim at this place certainly has the lock.
    pub(crate) fn is_proved(&self, place: &Place) -> bool {
        self.whole >= place.0 && self.is_granted(place)
    }

    /// Whether the claim at this place has the lock.
    pub(crate) fn is_granted(&self, place: &Place) -> bool {
        self.granted.contains_key(place)
    }

    /// A name is used either with shared or with permit claims, and all permits agree on their
    /// number: whoever came later with another use has to go.
    pub(crate) fn check_use(&self, asked: Mode, revision: i64) -> lockfast_core::Result<()> {
        let all = self.granted.values().chain(self.waiting.values());
        let earlier = all.filter(|entry| entry.revision < revision).map(|entry| entry.mode);
        check_use(earlier, asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(revision: i64, mode: Mode, state: State) -> Entry {
        let record = Record { mode, state, since_us: 0, label: None };
        let key = format!("a/{revision:x}").into_bytes();
        let written = revision;
        let record = Some(record);
        let holder = Some(HolderId::from_bytes([7; 16]));
        let (unconfirmed, sure, origin) = (None, None, Origin::Unknown);
        Entry { key, revision, written, lease: 7, holder, mode, record, unconfirmed, sure, origin }
    }

    fn revisions<'a>(entries: impl Iterator<Item = &'a Entry>) -> Vec<i64> {
        entries.map(|entry| entry.revision).collect()
    }

    #[test]
    fn whoever_came_first_has_it_and_nobody_overtakes() {
        let (now, permit) = (Moment::now(), Mode::permit(2).unwrap());
        use Mode::{Exclusive, Shared};
        let table = [
            (vec![Exclusive, Exclusive], 1),
            (vec![Shared, Shared, Exclusive, Shared], 2),
            (vec![Exclusive, Shared], 1),
            (vec![permit, permit, permit], 2),
            (vec![permit, Exclusive, permit], 1),
        ];
        for (modes, granted) in table {
            let entries = (1..).zip(&modes).map(|(at, mode)| entry(at, *mode, State::Waiting));
            let line = Line::of(entries.clone());
            let expected: Vec<i64> = (1..=granted).collect();
            assert_eq!(revisions(line.granted()), expected, "{modes:?}");
            let mut grown = Line::default();
            entries.for_each(|entry| drop(grown.put(entry, now)));
            assert_eq!(revisions(grown.granted()), expected, "{modes:?} one by one");
            assert_eq!(grown.waiting_count(), modes.len() - granted as usize);
        }
    }

    /// B237
    #[test]
    fn who_only_tries_is_not_waiting() {
        let states = [State::Held, State::Trying, State::Waiting, State::Trying];
        let entries = (1..).zip(states).map(|(at, state)| entry(at, Mode::Exclusive, state));
        assert_eq!(Line::of(entries).waiting_count(), 1);
    }

    #[test]
    fn who_leaves_lets_the_next_in() {
        let now = Moment::now();
        let modes = [Mode::Exclusive, Mode::Shared, Mode::Shared, Mode::Exclusive];
        let entries = (1..).zip(modes).map(|(at, mode)| entry(at, mode, State::Waiting));
        let mut line = Line::of(entries);
        let (_, was_granted, next) = line.remove(b"a/1", now).unwrap();
        assert!(was_granted);
        assert_eq!(next.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [2, 3]);
        let (_, was_granted, next) = line.remove(b"a/2", now).unwrap();
        assert!(was_granted && next.is_empty());
        assert!(line.remove(b"a/2", now).is_none());
        let (_, _, next) = line.remove(b"a/3", now).unwrap();
        assert_eq!(next.len(), 1);
        line.remove(b"a/4", now).unwrap();
        assert!(line.is_empty());
    }

    /// B106: the end of a claim was not told, and so much else was that the line is never as it was
    /// read.
    #[test]
    fn what_is_missing_in_a_look_is_gone() {
        let now = Moment::now();
        let seen = |revisions: &[i64]| {
            let entries = revisions.iter().map(|at| entry(*at, Mode::Exclusive, State::Waiting));
            Line::of(entries)
        };
        let mut line = seen(&[1, 2, 3, 9]);
        let granted = line.remove_missing(&seen(&[2, 3, 4]), 5, now);
        assert_eq!(granted, [(2, b"a/2".to_vec())], "the first is gone");
        assert_eq!(revisions(line.granted()), [2]);
        assert_eq!(revisions(line.waiting()), [3, 9], "the last was made after the look");
        let mut line = seen(&[7]);
        assert!(line.remove_missing(&seen(&[]), 6, now).is_empty());
        assert_eq!(revisions(line.granted()), [7]);
    }

    /// B200: news of a claim was lost, or that of its end came before it was read.
    #[test]
    fn a_line_in_which_somebody_is_missing_is_not_whole() {
        let now = Moment::now();
        let seen = |revisions: &[i64]| {
            let entries = revisions.iter().map(|at| entry(*at, Mode::Exclusive, State::Waiting));
            Line::of(entries)
        };
        let mut line = seen(&[1, 3, 4]);
        line.remove(b"a/1", now);
        assert!(line.misses_nobody_of(&seen(&[1, 3])), "the first has gone");
        assert!(!line.misses_nobody_of(&seen(&[1, 3])), "it had gone before");
        assert!(!line.misses_nobody_of(&seen(&[2, 3])), "nobody told of the second");
        assert!(line.misses_nobody_of(&seen(&[3])));
    }

    /// B209: whoever has its turn when the line is read first is given up as soon as anybody else.
    #[test]
    fn a_turn_that_was_there_before_counts_from_the_look() {
        let (now, modes) = (Moment::now(), [State::Waiting, State::Held]);
        for state in modes {
            let mut line = Line::of([entry(1, Mode::Exclusive, state.clone())]);
            line.prove(3, now);
            let unconfirmed = line.granted().map(|entry| entry.unconfirmed).collect::<Vec<_>>();
            assert_eq!(unconfirmed, [(state == State::Waiting).then_some(now)]);
        }
    }

    /// B283: a claim whose process died before it heard that it has to wait says that it is held, as one
    /// does that was the first.
    #[test]
    fn who_never_heard_that_it_has_to_wait_does_not_confirm_its_turn() {
        let (start, age) = (Moment::now(), Duration::from_secs(1));
        let unconfirmed =
            |line: &Line| line.granted().map(|entry| entry.unconfirmed).collect::<Vec<_>>();
        for state in [State::Held, State::Trying] {
            let mut line = Line::of([entry(2, Mode::Exclusive, state)]);
            line.prove(3, start);
            assert_eq!(line.take_doubtful(start, age), []);
            let later = start + age;
            let places = [(2, b"a/2".to_vec())];
            assert_eq!(line.take_doubtful(later, age), places);
            assert_eq!(line.take_doubtful(later, age), [], "it is asked");
            assert_eq!(line.take_doubtful(later + ASK_AGAIN, age), places, "again");
            line.tell_origin(&places[0], false);
            assert_eq!(unconfirmed(&line), [Some(start)]);
            assert_eq!(line.take_doubtful(later + ASK_AGAIN * 2, age), [], "it is known");
            let written = 9;
            line.put(Entry { written, ..entry(2, Mode::Exclusive, State::Held) }, later);
            assert_eq!(unconfirmed(&line), [None], "it says so now");
        }
        let mut line = Line::of([entry(2, Mode::Exclusive, State::Held)]);
        line.prove(3, start);
        let asked = line.take_doubtful(start + age, age);
        line.tell_origin(&asked[0], true);
        assert_eq!(unconfirmed(&line), [None], "it was the first");
        let written = 9;
        let mut line = Line::of([Entry { written, ..entry(2, Mode::Exclusive, State::Held) }]);
        line.prove(9, start);
        assert_eq!(line.take_doubtful(start + age, age), [], "it was written since");
        let mut line = Line::default();
        line.put(entry(2, Mode::Exclusive, State::Held), start);
        line.prove(3, start);
        assert_eq!(line.take_doubtful(start + age, age), [], "it was seen to come first");
    }

    #[test]
    fn a_turn_is_confirmed_by_whoever_waited_for_it() {
        let now = Moment::now();
        let mut line = Line::default();
        line.put(entry(1, Mode::Exclusive, State::Held), now);
        assert!(line.granted().all(|entry| entry.unconfirmed.is_none()), "it knows");
        line.put(entry(2, Mode::Exclusive, State::Waiting), now);
        line.remove(b"a/1", now);
        assert!(line.granted().all(|entry| entry.unconfirmed.is_some()));
        let written = 9;
        line.put(Entry { written, ..entry(2, Mode::Exclusive, State::Waiting) }, now);
        assert!(line.granted().all(|entry| entry.unconfirmed.is_some()), "it moved");
        line.put(Entry { written, ..entry(2, Mode::Exclusive, State::Held) }, now);
        assert!(line.granted().all(|entry| entry.unconfirmed.is_none()));
    }
}
