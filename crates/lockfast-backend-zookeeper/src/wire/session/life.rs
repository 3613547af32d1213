//! When a session was certainly alive.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use lockfast_core::Moment;

use super::Proof;
use crate::store::lock;

/// Follows what is sent and answered.
pub(super) struct Life {
    pub(super) proof: Proof,
    /// The last moment at which something was sent that was answered and proves it.
    alive_at: Arc<Mutex<Moment>>,
    /// When the pings were sent that are not answered: they are in this order.
    pings: VecDeque<Moment>,
}

impl Life {
    pub(super) fn new(proof: Proof, alive_at: Arc<Mutex<Moment>>) -> Self {
        Self { proof, alive_at, pings: VecDeque::new() }
    }

    pub(super) fn ping(&mut self, now: Moment) {
        self.pings.push_back(now);
    }

    pub(super) fn answer_ping(&mut self) {
        if let Some(sent) = self.pings.pop_front() {
            self.answer(sent, false);
        }
    }

    /// What was sent then is answered.
    pub(super) fn answer(&self, sent: Moment, is_change: bool) {
        if is_change || self.proof == Proof::Any {
            let mut alive_at = lock(&self.alive_at);
            *alive_at = alive_at.later_of(sent);
        }
    }

    /// Nothing that was sent is answered any more.
    pub(super) fn break_off(&mut self) {
        self.pings.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_answered_proves_when_it_was_sent() {
        let start = Moment::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        for (proof, by_ping, by_read) in [(Proof::Any, at(1), at(2)), (Proof::Change, start, start)]
        {
            let alive_at = Arc::new(Mutex::new(start));
            let mut life = Life::new(proof, Arc::clone(&alive_at));
            life.ping(at(1));
            life.ping(at(5));
            life.answer_ping();
            assert_eq!(*lock(&alive_at), by_ping);
            life.answer(at(2), false);
            assert_eq!(*lock(&alive_at), by_read);
            life.answer(at(3), true);
            life.answer(at(1), true);
            assert_eq!(*lock(&alive_at), at(3));
            life.break_off();
            life.answer_ping();
            assert_eq!(*lock(&alive_at), at(3));
        }
    }
}
