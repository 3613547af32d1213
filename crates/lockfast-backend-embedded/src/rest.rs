//! How the store's thread sleeps: until there is a request, a message from another client, the
//! death of one that stands in somebody's way, or the end of a lease or wait.

use std::os::fd::{AsFd as _, OwnedFd};

use lockfast_core::{ClientId, Moment};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::batch::Chore;
use crate::client::is_hung_up;
use crate::store::{SLOW_POLL_NS, Store};

/// How many batches may follow each other without a look at the pipes.
const BUSY_MAX: u32 = 16;

impl Store {
    /// Sleeps until there is something to do, and finds out what.
    pub(crate) fn rest(&mut self) {
        let is_idle = self.ops.is_empty() && self.chores.is_empty();
        // Whoever waits or watches needs to hear more than the bell.
        if is_idle && self.waiting.is_empty() && self.feeds.is_empty() {
            self.pace.linger(&self.bell);
        }
        self.bell.set_asleep();
        if self.ops.is_empty() {
            self.inbox.take_into(&mut self.ops);
        }
        let has_work = !self.ops.is_empty() || !self.chores.is_empty();
        self.busy = if has_work { self.busy + 1 } else { 0 };
        if has_work && self.busy < BUSY_MAX && self.waiting.is_empty() {
            self.bell.set_awake();
            return;
        }
        self.busy = 0;
        let (rang, woken, told, ended) = self.sleep(has_work);
        self.bell.set_awake();
        if rang {
            self.bell.silence();
        }
        if rang && self.ops.is_empty() {
            self.inbox.take_into(&mut self.ops);
        }
        if woken {
            self.read_wake();
        }
        if told {
            self.read_events();
        }
        for client in ended {
            // Its pipe stays hung up and would wake us for ever.
            self.peers.forget(client);
            self.chores.push(Chore::Reap(client));
        }
    }

    /// Waits for: the bell, a message, an event, the end of clients.
    fn sleep(&self, only_look: bool) -> (bool, bool, bool, Vec<ClientId>) {
        let timeout_ns = if only_look { Some(0) } else { self.time_left_ns() };
        let timeout = timeout_ns.map(|left_ns| Timespec {
            tv_sec: (left_ns / 1_000_000_000) as i64,
            tv_nsec: (left_ns % 1_000_000_000) as i64,
        });
        let mut sources = vec![
            PollFd::new(self.bell.event(), PollFlags::IN),
            PollFd::new(&self.wake, PollFlags::IN),
        ];
        let watch = self.watch.as_ref().unwrap_or(&self.wake);
        sources.push(PollFd::new(watch, PollFlags::IN));
        // Only those in somebody's way: the death of others is none of our business.
        let blockers = self.waiting.blockers();
        let peers = self.peers.pipes().filter(|(client, _)| blockers.contains(client));
        let peers: Vec<_> = peers.collect();
        sources.extend(peers.iter().map(|(_, pipe)| PollFd::new(*pipe, PollFlags::IN)));
        if poll(&mut sources, timeout.as_ref()).is_err() {
            // Interrupted: look at everything again.
            return (true, true, self.watch.is_some(), Vec::new());
        }
        let is_ready = |at: usize| !sources[at].revents().is_empty();
        let ended = peers
            .iter()
            .zip(3..)
            .filter(|((_, pipe), at)| is_ready(*at) && is_hung_up(pipe.as_fd()))
            .map(|((client, _), _)| *client)
            .collect();
        (is_ready(0), is_ready(1), self.watch.is_some() && is_ready(2), ended)
    }

    fn time_left_ns(&self) -> Option<u64> {
        let poll_ns = (!self.waiting.is_empty() || !self.feeds.is_empty())
            .then_some(self.polled_ns + SLOW_POLL_NS);
        let next_ns = match (poll_ns, self.waiting.next_due_ns()) {
            (Some(poll_ns), Some(due_ns)) => poll_ns.min(due_ns),
            (next_ns, None) | (None, next_ns) => next_ns?,
        };
        Some(next_ns.saturating_sub(Moment::now().host_ns()))
    }

    fn read_wake(&mut self) {
        let mut received = std::mem::take(&mut self.received);
        drain(&self.wake, &mut received);
        self.hear(&mut received);
        self.received = received;
    }

    pub(crate) fn read_events(&mut self) {
        let mut received = std::mem::take(&mut self.received_events);
        self.watch.iter().for_each(|watch| drain(watch, &mut received));
        self.hear(&mut received);
        self.received_events = received;
    }
}

/// Reads all that a pipe holds.
fn drain(pipe: &OwnedFd, received: &mut Vec<u8>) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(count @ 1..) = rustix::io::read(pipe, &mut bytes) {
        received.extend_from_slice(&bytes[..count]);
        if count < bytes.len() {
            break;
        }
    }
}
