//! Who held a lock when: recorded hold intervals, and what must never be seen in them.
//!
//! An interval starts when the grant had arrived and ends before the release is sent, so it lies
//! within the real one. All processes of a machine share the clock, so comparing them needs no
//! search for an order.

mod holds;

use std::fmt;
use std::sync::Mutex;

pub use holds::{Clash, Fences, Holds, Use};

use lockfast_core::{Fence, Moment};

/// One hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// When the grant had arrived, in [`Moment::host_ns`].
    pub start_ns: u64,
    /// When the release was about to be sent.
    pub end_ns: u64,
    /// The grant's fence.
    pub fence: u64,
    /// Whether it is meant to exclude every other hold.
    pub exclusive: bool,
}

impl Interval {
    fn usage(&self) -> Use {
        if self.exclusive { Use::Exclusive } else { Use::Shared }
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {}] with fence {}", self.start_ns, self.end_ns, self.fence)
    }
}

/// Holds of one lock, recorded by many tasks.
#[derive(Debug, Default)]
pub struct History(Mutex<Vec<Interval>>);

impl History {
    /// Records a hold that ends now.
    pub fn record(&self, start: Moment, fence: Fence, exclusive: bool) {
        let interval = Interval {
            start_ns: start.host_ns(),
            end_ns: Moment::now().host_ns(),
            fence: fence.get(),
            exclusive,
        };
        self.0.lock().expect("no panic").push(interval);
    }

    /// What was recorded.
    pub fn intervals(&self) -> Vec<Interval> {
        self.0.lock().expect("no panic").clone()
    }
}

/// The first pair of holds that should have excluded each other.
pub fn find_overlap(intervals: &[Interval]) -> Option<(Interval, Interval)> {
    let (clashes, _) = replay(intervals);
    clashes.first().map(|(earlier, later)| (intervals[*earlier], intervals[*later]))
}

/// How many holds there were at once, at most.
pub fn most_at_once(intervals: &[Interval]) -> usize {
    replay(intervals).1
}

/// Which holds clashed, and how many there were at once.
fn replay(intervals: &[Interval]) -> (Vec<(usize, usize)>, usize) {
    let mut edges: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * intervals.len());
    for (at, interval) in intervals.iter().enumerate() {
        edges.push((interval.start_ns, true, at));
        edges.push((interval.end_ns, false, at));
    }
    // One that took no time ends after it started; any other end comes before a start.
    edges.sort_by_key(|(at_ns, starts, at)| {
        let instant = intervals[*at].start_ns == intervals[*at].end_ns;
        (*at_ns, *starts || instant, !starts)
    });
    let mut holds = Holds::default();
    let mut clashes = Vec::new();
    for (at_ns, starts, at) in edges {
        let id = at as u64;
        if starts {
            holds.begin(id, intervals[at].usage(), at_ns);
        } else {
            let met = holds.prove(id, at_ns);
            clashes.extend(met.iter().map(|clash| (at, clash.later as usize)));
            holds.end(id);
        }
    }
    (clashes, holds.most())
}

/// The first pair of holds of which the later has not the higher fence. Only holds that exclude
/// each other have an order: of two that are shared, the one that was granted first may be the
/// last to hear of it. No two holds may share a fence.
pub fn find_fence_disorder(intervals: &[Interval]) -> Option<(Interval, Interval)> {
    let mut order: Vec<usize> = (0..intervals.len()).collect();
    order.sort_by_key(|at| intervals[*at].start_ns);
    let mut fences = Fences::default();
    order.into_iter().find_map(|at| {
        let interval = intervals[at];
        let earlier = fences.arrive(at as u64, interval.usage(), interval.fence)?;
        Some((intervals[earlier as usize], interval))
    })
}

/// Panics if exclusive holds overlapped or fences did not rise.
pub fn assert_excluded(intervals: &[Interval]) {
    if let Some((first, second)) = find_overlap(intervals) {
        panic!("two held it at once: {first} and {second}");
    }
    if let Some((first, second)) = find_fence_disorder(intervals) {
        panic!("fences did not rise: {first} was before {second}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(start_ns: u64, end_ns: u64, fence: u64, exclusive: bool) -> Interval {
        Interval { start_ns, end_ns, fence, exclusive }
    }

    #[test]
    fn overlaps_are_found_and_neighbours_are_not() {
        let apart = [hold(0, 10, 1, true), hold(10, 20, 2, true), hold(30, 40, 3, true)];
        assert_eq!(find_overlap(&apart), None);
        let within = [hold(0, 100, 1, true), hold(10, 20, 2, true)];
        assert!(find_overlap(&within).is_some());
        let readers = [hold(0, 100, 1, false), hold(10, 20, 2, false)];
        assert_eq!(find_overlap(&readers), None);
        let writer = [hold(0, 100, 1, false), hold(5, 6, 2, false), hold(50, 60, 3, true)];
        assert!(find_overlap(&writer).is_some());
    }

    #[test]
    fn fences_are_compared_only_where_there_is_an_order() {
        assert!(find_fence_disorder(&[hold(0, 1, 7, true), hold(2, 3, 7, true)]).is_some());
        assert!(find_fence_disorder(&[hold(0, 1, 8, true), hold(2, 3, 7, true)]).is_some());
        let together = [hold(0, 10, 8, false), hold(5, 15, 7, false)];
        assert_eq!(find_fence_disorder(&together), None);
        let heard_late = [hold(20, 30, 7, false), hold(0, 10, 8, false)];
        assert_eq!(find_fence_disorder(&heard_late), None);
        let written_late = [hold(20, 30, 7, true), hold(0, 10, 8, false)];
        assert!(find_fence_disorder(&written_late).is_some());
        let hidden = [hold(50, 60, 1, true), hold(55, 90, 2, true), hold(10, 20, 3, true)];
        assert!(find_fence_disorder(&hidden).is_some());
    }

    #[test]
    fn the_most_at_once() {
        let holds = [hold(0, 10, 1, false), hold(5, 15, 2, false), hold(10, 20, 3, false)];
        assert_eq!(most_at_once(&holds), 2);
        assert_eq!(most_at_once(&[]), 0);
    }
}
