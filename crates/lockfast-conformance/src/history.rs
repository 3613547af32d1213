//! Who held a lock when: recorded hold intervals, and what must never be seen in them.
//!
//! An interval starts when the grant had arrived and ends before the release is sent, so it lies
//! within the real one. All processes of a machine share the clock, so comparing them needs no
//! search for an order.

use std::fmt;
use std::sync::Mutex;

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
    fn overlaps(&self, other: &Self) -> bool {
        self.start_ns < other.end_ns && other.start_ns < self.end_ns
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
    let mut sorted = intervals.to_vec();
    sorted.sort_by_key(|interval| (interval.start_ns, interval.end_ns));
    for (at, first) in sorted.iter().enumerate() {
        // Whoever starts after the end of this one overlaps it no more, nor do those behind.
        let rivals = sorted[at + 1..].iter().take_while(|other| other.start_ns < first.end_ns);
        for other in rivals {
            if (first.exclusive || other.exclusive) && first.overlaps(other) {
                return Some((*first, *other));
            }
        }
    }
    None
}

/// The first pair of holds of which the later has not the higher fence. Only holds that exclude
/// each other have an order: of two that are shared, the one that was granted first may be the
/// last to hear of it. No two holds may share a fence.
pub fn find_fence_disorder(intervals: &[Interval]) -> Option<(Interval, Interval)> {
    let mut sorted = intervals.to_vec();
    sorted.sort_by_key(|interval| interval.fence);
    for pair in sorted.windows(2) {
        if pair[0].fence == pair[1].fence {
            return Some((pair[0], pair[1]));
        }
    }
    // With rising fences, nothing may end before one of a lower fence had started.
    let later =
        |a: Option<Interval>, b: Interval| a.filter(|a| a.start_ns > b.start_ns).or(Some(b));
    let (mut latest, mut latest_exclusive) = (None, None);
    for interval in sorted {
        let rival = if interval.exclusive { latest } else { latest_exclusive };
        if let Some(earlier) = rival.filter(|rival: &Interval| interval.end_ns < rival.start_ns) {
            return Some((earlier, interval));
        }
        latest = later(latest, interval);
        if interval.exclusive {
            latest_exclusive = later(latest_exclusive, interval);
        }
    }
    None
}

/// How many holds there were at once, at most.
pub fn most_at_once(intervals: &[Interval]) -> usize {
    let mut edges: Vec<(u64, bool)> = intervals
        .iter()
        .flat_map(|interval| [(interval.start_ns, true), (interval.end_ns, false)])
        .collect();
    // An end at the same moment as a start comes first.
    edges.sort_unstable();
    let (mut now, mut most) = (0_usize, 0);
    for (_, starts) in edges {
        now = if starts { now + 1 } else { now.saturating_sub(1) };
        most = most.max(now);
    }
    most
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
