//! How old the news of a turn can be. Whatever the cluster agreed on after it answered a request
//! was agreed on after that request was sent, so that what a watch tells with a higher revision
//! happened after that moment.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use lockfast_core::Moment;

use crate::store::lock;

const KEPT_MAX: usize = 32;
/// So that many requests at once do not push out the older ones.
const GAP: Duration = Duration::from_millis(10);

/// Moments before which nothing above a revision happened.
#[derive(Debug, Default)]
pub(crate) struct Pulses(Mutex<VecDeque<(Moment, i64)>>);

impl Pulses {
    /// A request that was sent then was answered at this revision, by agreement of the cluster.
    pub(crate) fn note(&self, sent: Moment, revision: i64) {
        let mut kept = lock(&self.0);
        if kept.back().is_some_and(|(last, known)| {
            sent.since(*last) < GAP || revision < *known || !last.has_passed(sent)
        }) {
            return;
        }
        if kept.len() == KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back((sent, revision));
    }

    /// The latest known moment that is certainly before what happened at a revision.
    pub(crate) fn before(&self, revision: i64) -> Option<Moment> {
        let kept = lock(&self.0);
        kept.iter().rev().find(|(_, known)| *known < revision).map(|(sent, _)| *sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_moment_before() {
        let pulses = Pulses::default();
        let start = Moment::now();
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(pulses.before(100), None);
        pulses.note(at(0), 10);
        pulses.note(at(5), 11);
        pulses.note(at(100), 10);
        pulses.note(at(200), 20);
        pulses.note(at(300), 19);
        assert_eq!(pulses.before(10), None);
        assert_eq!(pulses.before(11), Some(at(100)));
        assert_eq!(pulses.before(20), Some(at(100)));
        assert_eq!(pulses.before(21), Some(at(200)));
        for more in 0..100 {
            pulses.note(at(1000 + more * 20), 30);
        }
        assert_eq!(pulses.before(30), None, "it is forgotten");
    }
}
