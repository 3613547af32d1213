//! The rule by examples, and every short line with every order of leaving: nobody who watches whom
//! it is told to watch misses its turn, and nobody is woken more often than it must be.

use super::*;
use crate::error::ErrorKind;

const E: Mode = Mode::Exclusive;
const S: Mode = Mode::Shared;

fn permit(limit: u32) -> Mode {
    Mode::permit(limit).unwrap()
}

fn waits(watch: Range<usize>) -> Standing {
    Standing::Waits { watch }
}

#[test]
fn who_is_granted_and_who_watches_whom() {
    let (two, three) = (permit(2), permit(3));
    let table: &[(&[Mode], Mode, Standing)] = &[
        (&[], E, Standing::Granted),
        (&[E], E, waits(0..1)),
        (&[E, S, S], E, waits(2..3)),
        (&[S], E, waits(0..1)),
        (&[], S, Standing::Granted),
        (&[S, S], S, Standing::Granted),
        (&[E], S, waits(0..1)),
        (&[S, E, S], S, waits(1..2)),
        (&[E, S, E, S], S, waits(2..3)),
        (&[two], two, Standing::Granted),
        (&[two, two], two, waits(0..2)),
        (&[two, two, two, two], two, waits(2..4)),
        (&[three, three, three], three, waits(0..3)),
        (&[two, E, two], two, waits(1..2)),
        (&[E, two, two, two], two, waits(2..4)),
        (&[E], permit(1), waits(0..1)),
        (&[permit(1)], permit(1), waits(0..1)),
        // What must not be there is not let in either.
        (&[S, S], two, waits(0..2)),
        (&[two], permit(9), Standing::Granted),
    ];
    for (ahead, mode, expected) in table {
        assert_eq!(standing(ahead, *mode), *expected, "{mode} behind {ahead:?}");
    }
}

#[test]
fn a_name_is_used_in_one_way() {
    let (two, three) = (permit(2), permit(3));
    for (ahead, asked) in [(vec![], two), (vec![E, two], two), (vec![S], E), (vec![E], S)] {
        check_use(ahead, asked).unwrap();
    }
    for (ahead, asked) in [(vec![two], three), (vec![E, two], S), (vec![S], two)] {
        assert_eq!(check_use(ahead, asked).unwrap_err().kind(), ErrorKind::Conflict);
    }
}

/// One in the line of the model.
#[derive(Clone)]
struct Contender {
    id: usize,
    mode: Mode,
    /// The ids of those it watches; nobody when it was told that it is granted.
    watched: Vec<usize>,
    wakes: u32,
}

/// A line in which everybody looks when it comes, and again when one of those whom it watches has
/// left.
#[derive(Clone)]
struct Line(Vec<Contender>);

impl Line {
    fn of(modes: &[Mode]) -> Self {
        let mut line = Self(Vec::new());
        for (id, mode) in modes.iter().enumerate() {
            line.0.push(Contender { id, mode: *mode, watched: Vec::new(), wakes: 0 });
            line.look(id);
        }
        line
    }

    fn standing(&self, at: usize) -> Standing {
        let ahead: Vec<Mode> = self.0[..at].iter().map(|contender| contender.mode).collect();
        standing(&ahead, self.0[at].mode)
    }

    fn look(&mut self, at: usize) {
        let watched = match self.standing(at) {
            Standing::Granted => 0..0,
            Standing::Waits { watch } => watch,
        };
        self.0[at].watched = self.0[watched].iter().map(|contender| contender.id).collect();
    }

    /// One leaves. Returns how many look again and are not granted.
    fn leave(&mut self, at: usize) -> usize {
        let gone = self.0.remove(at).id;
        let mut in_vain = 0;
        for at in 0..self.0.len() {
            if self.0[at].watched.contains(&gone) {
                self.0[at].wakes += 1;
                self.look(at);
                in_vain += usize::from(!self.0[at].watched.is_empty());
            }
        }
        in_vain
    }

    /// What each believes is so.
    fn check(&self) {
        for (at, contender) in self.0.iter().enumerate() {
            let is_granted = self.standing(at) == Standing::Granted;
            assert_eq!(is_granted, contender.watched.is_empty(), "missed at {at}: {}", self);
        }
    }
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let modes: Vec<String> = self.0.iter().map(|one| one.mode.to_string()).collect();
        f.write_str(&modes.join(", "))
    }
}

/// Every line of so many with these modes.
fn lines(length: usize, modes: &[Mode]) -> Vec<Vec<Mode>> {
    let mut lines = vec![Vec::new()];
    for _ in 0..length {
        lines = lines
            .iter()
            .flat_map(|line| modes.iter().map(move |mode| [&line[..], &[*mode]].concat()))
            .collect();
    }
    lines
}

const LENGTH: usize = 6;

fn uses() -> [Vec<Mode>; 4] {
    [vec![E, S], vec![E, permit(1)], vec![E, permit(2)], vec![E, permit(3)]]
}

/// Whoever leaves, holder or waiter, in whatever order: nobody misses its turn.
#[test]
fn nobody_misses_its_turn() {
    fn leave_in_every_order(line: &Line) {
        line.check();
        for at in 0..line.0.len() {
            let mut next = line.clone();
            next.leave(at);
            leave_in_every_order(&next);
        }
    }
    for modes in uses() {
        for line in lines(LENGTH, &modes) {
            leave_in_every_order(&Line::of(&line));
        }
    }
}

/// When only holders leave, in whatever order: a waiter for a shared lock is woken once, for its
/// grant; one for an exclusive lock once for each of the sharers just before it; one for one of N
/// permits N times at most. Who leaves wakes at most one in vain, or N - 1 who want permits.
#[test]
fn nobody_is_woken_needlessly_often() {
    fn release_in_every_order(line: &Line, start: &[Mode], in_vain_max: usize) {
        for (at, contender) in line.0.iter().enumerate() {
            let wakes_max = match contender.mode {
                Mode::Shared => 1,
                Mode::Exclusive => {
                    let before = start[..contender.id].iter().rev();
                    before.take_while(|mode| **mode != E).count().max(1)
                }
                Mode::Permit { limit } => limit.get() as usize,
            };
            let wakes = contender.wakes as usize;
            assert!(wakes <= wakes_max, "{wakes} wakes of {} in {start:?}", contender.id);
            if contender.watched.is_empty() {
                let mut next = line.clone();
                let in_vain = next.leave(at);
                assert!(in_vain <= in_vain_max, "{in_vain} in vain: {line}");
                release_in_every_order(&next, start, in_vain_max);
            }
        }
    }
    for (modes, in_vain_max) in uses().into_iter().zip([1, 1, 1, 2]) {
        for line in lines(LENGTH, &modes) {
            release_in_every_order(&Line::of(&line), &line, in_vain_max);
        }
    }
}

/// Fewer than the N nearest would not do: each of them can be the one that leaves.
#[test]
fn one_less_would_miss_a_turn() {
    let line = Line::of(&[permit(3); 5]);
    let Standing::Waits { watch } = line.standing(4) else { panic!("three are ahead") };
    for unwatched in watch.clone() {
        let stay: Vec<usize> = watch.clone().filter(|place| *place != unwatched).collect();
        let ahead = vec![permit(3); stay.len()];
        // All but the watched ones that stay have left, and none of them told.
        assert_eq!(standing(&ahead, permit(3)), Standing::Granted);
    }
}
