//! Which faults happen when: the same for the same seed and the same options.
//!
//! Faults come in bursts of one to four, so that they meet each other, with quiet between the
//! bursts, so that something gets done. Nobody has two faults at once.

use std::fmt;
use std::time::Duration;

use lockfast_faults::seed::{Dice, Seed};

use crate::fault::Fault;

/// At most so many faults begin shortly after one another.
const BURST_MAX: u64 = 4;

/// What a schedule follows from.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Where chance begins.
    pub seed: u64,
    /// How long the run lasts.
    pub lasts: Duration,
    /// The ttl of leases, by which everything else is measured.
    pub ttl: Duration,
    /// How many workers there are.
    pub processes: u32,
    /// How many servers of our own there are.
    pub servers: u32,
    /// What happens.
    pub faults: Vec<Fault>,
}

/// To whom or what something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Workers, or the ways between them and the store.
    Workers(Group),
    /// A server of our own.
    Server(u32),
}

/// Some of the workers, of which there are 64 at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group(u64);

impl Group {
    /// This worker.
    fn one(worker: u32) -> Self {
        Self(1_u64.checked_shl(worker).unwrap_or(0))
    }

    /// So many of the first `processes`, chosen by chance.
    fn some(count: u32, processes: u32, dice: &mut Dice) -> Self {
        let mut group = Self(0);
        for worker in 0..processes {
            let missing = u64::from(count - group.0.count_ones());
            if dice.below(u64::from(processes - worker)) < missing {
                group.0 |= Self::one(worker).0;
            }
        }
        group
    }

    /// The numbers of its workers, in order.
    pub fn members(self) -> impl Iterator<Item = u32> {
        (0..u64::BITS).filter(move |worker| self.0 & Self::one(*worker).0 != 0)
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.members().map(|worker| worker.to_string()).collect();
        write!(f, "worker{} {}", if numbers.len() == 1 { "" } else { "s" }, numbers.join(", "))
    }
}

/// One fault of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which of the schedule, from 1.
    pub number: u32,
    /// When it begins, from the start of the run.
    pub at: Duration,
    /// How long it lasts.
    pub lasts: Duration,
    /// What happens.
    pub fault: Fault,
    /// To whom.
    pub target: Target,
    /// For whatever else is left to chance.
    pub chance: u64,
}

impl Entry {
    /// To whom or what, for people.
    pub fn target(&self) -> String {
        match self.target {
            Target::Workers(workers) if self.fault.is_of_link() => format!("the way of {workers}"),
            Target::Workers(workers) => workers.to_string(),
            Target::Server(server) => format!("server {server}"),
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, target) = (self.fault.name(), self.target());
        let (at, lasts) = (self.at.as_secs_f64(), self.lasts.as_secs_f64());
        write!(f, "{:>4}  {at:>9.3} s  {name:<16} {target:<26} for {lasts:.3} s", self.number)
    }
}

/// The faults of a run, in the order in which they begin.
pub fn make(terms: &Terms) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    if terms.faults.is_empty() {
        return entries;
    }
    let mut dice = Seed(terms.seed).of("faults").dice();
    let (ttl, mut now) = (terms.ttl, Duration::ZERO);
    // The end is quiet, so that what was broken is seen to work again.
    let last = terms.lasts.saturating_sub(ttl);
    loop {
        let start = now + dice.time_between(ttl / 4, ttl * 3 / 2);
        for _ in 0..=dice.below(BURST_MAX) {
            let fault = terms.faults[dice.below(terms.faults.len() as u64) as usize];
            let at = start + dice.time_below(ttl);
            let (lasts, target) = (length(fault, ttl, &mut dice), target(fault, terms, &mut dice));
            let chance = dice.number();
            let entry = Entry { number: 0, at, lasts, fault, target, chance };
            if at + lasts <= last && !entries.iter().any(|other| collide(&entry, other)) {
                now = now.max(at + lasts);
                entries.push(entry);
            }
        }
        now = now.max(start);
        if now >= last {
            break;
        }
    }
    entries.sort_by_key(|entry| entry.at);
    for (number, entry) in (1..).zip(&mut entries) {
        entry.number = number;
    }
    entries
}

/// Whether two faults would be at the same thing at once. All servers count as one: what is
/// promised is promised for one server that fails at a time.
fn collide(one: &Entry, other: &Entry) -> bool {
    let same = match (one.target, other.target) {
        (Target::Workers(one), Target::Workers(other)) => one.0 & other.0 != 0,
        (Target::Server(_), Target::Server(_)) => true,
        _ => false,
    };
    same && one.at < other.at + other.lasts && other.at < one.at + one.lasts
}

/// How long a fault lasts.
fn length(fault: Fault, ttl: Duration, dice: &mut Dice) -> Duration {
    let (least, most) = match fault {
        Fault::Kill | Fault::Cut | Fault::LostReplies => (ttl / 20, ttl),
        Fault::Pause => (ttl / 10, ttl * 2),
        Fault::Stall => (ttl / 10, ttl * 3 / 2),
        Fault::Partition => (ttl / 4, ttl * 2),
        Fault::Delay => (ttl / 2, ttl * 2),
        Fault::Clock => (ttl / 2, ttl * 3),
        Fault::Server(_) => (ttl / 5, ttl * 2),
    };
    dice.time_between(least, most)
}

fn target(fault: Fault, terms: &Terms, dice: &mut Dice) -> Target {
    let processes = terms.processes.max(1);
    match fault {
        Fault::Server(_) => Target::Server(dice.below(u64::from(terms.servers.max(1))) as u32),
        // Somebody is left who can take over, unless there are only two.
        Fault::Partition if processes > 2 => {
            let count = 2 + dice.below(u64::from(processes - 2)) as u32;
            Target::Workers(Group::some(count, processes, dice))
        }
        Fault::Partition => Target::Workers(Group::some(processes, processes, dice)),
        _ => Target::Workers(Group::one(dice.below(u64::from(processes)) as u32)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::OF_WORKERS;

    fn terms(seed: u64) -> Terms {
        Terms {
            seed,
            lasts: Duration::from_secs(600),
            ttl: Duration::from_secs(2),
            processes: 4,
            servers: 0,
            faults: OF_WORKERS.to_vec(),
        }
    }

    #[test]
    fn a_seed_makes_the_same_schedule_and_another_another() {
        assert_eq!(make(&terms(7)), make(&terms(7)));
        assert_ne!(make(&terms(7)), make(&terms(8)));
    }

    #[test]
    fn a_schedule_has_everything_and_ends_in_time() {
        for seed in 0..50 {
            let (terms, entries) = (terms(seed), make(&terms(seed)));
            for fault in &terms.faults {
                assert!(entries.iter().any(|entry| entry.fault == *fault), "{seed}: {fault:?}");
            }
            for (place, entry) in entries.iter().enumerate() {
                assert_eq!(entry.number as usize, place + 1);
                assert!(entry.at + entry.lasts <= terms.lasts - terms.ttl, "{entry}");
                let before = &entries[..place];
                assert!(before.iter().all(|other| other.at <= entry.at), "{entry}");
                assert!(!before.iter().any(|other| collide(entry, other)), "{entry}");
            }
        }
    }

    #[test]
    fn a_partition_is_of_several_and_leaves_somebody() {
        let groups = |processes| {
            let faults = vec![Fault::Partition];
            let entries = make(&Terms { processes, faults, ..terms(5) });
            assert!(entries.len() > 20, "{entries:?}");
            let group = |entry: Entry| match entry.target {
                Target::Workers(workers) => workers.members().collect::<Vec<u32>>(),
                Target::Server(_) => panic!("{entry}"),
            };
            entries.into_iter().map(group).collect::<Vec<_>>()
        };
        let of_four = groups(4);
        assert!(of_four.iter().all(|group| (2..=3).contains(&group.len())), "{of_four:?}");
        assert!(of_four.iter().any(|group| group.len() == 3), "{of_four:?}");
        for worker in 0..4 {
            assert!(of_four.iter().any(|group| !group.contains(&worker)), "{worker}");
        }
        assert!(groups(2).iter().all(|group| *group == [0, 1]));
        assert!(groups(64).iter().all(|group| group.len() < 64));
        let entry = Entry {
            number: 1,
            at: Duration::ZERO,
            lasts: Duration::ZERO,
            fault: Fault::Partition,
            target: Target::Workers(Group(0b1101)),
            chance: 0,
        };
        assert_eq!(entry.target(), "the way of workers 0, 2, 3");
    }

    #[test]
    fn faults_meet_and_there_is_quiet_between_them() {
        let entries = make(&terms(3));
        let is_under_way = |at: Duration| {
            entries.iter().filter(|entry| entry.at <= at && at < entry.at + entry.lasts).count()
        };
        let counts: Vec<usize> =
            (0..5980).map(|tenth| is_under_way(Duration::from_millis(tenth * 100))).collect();
        assert!(counts.iter().any(|count| *count > 1), "{counts:?}");
        assert!(counts.iter().filter(|count| **count == 0).count() > 500, "{counts:?}");
    }

    #[test]
    fn no_faults_and_no_time_make_no_schedule() {
        let none = Terms { faults: Vec::new(), ..terms(1) };
        assert!(make(&none).is_empty());
        let short = Terms { lasts: Duration::from_millis(500), ..terms(1) };
        assert!(make(&short).is_empty());
    }
}
