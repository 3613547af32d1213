//! How the store's thread is called. A thread that sleeps on an idle core needs tens of
//! microseconds to wake up, which is more than a commit that does not wait for the disk. So it
//! stays awake for a moment while requests follow each other closely, and whoever asks looks a few
//! times for the answer before it lets its executor sleep.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use lockfast_core::Moment;
use lockfast_core::batch::Inbox;
use rustix::event::{EventfdFlags, eventfd};

/// How long the thread stays awake for the next request.
const LINGER_NS: u64 = 100_000;
/// A request that follows this soon would have been met by a thread that stays awake.
const CLOSE_NS: u64 = 2 * LINGER_NS;
/// What a request that came in time is worth, up to this many.
const SCORE_MAX: i32 = 32;
/// What staying awake for nothing costs, so that at most a small part of the time is lost so.
const SCORE_LOST: i32 = 8;
/// How many requests must follow each other closely before the thread stays awake.
const SCORE_FIRST: i32 = -16;
/// Nobody looks for an answer that takes longer than this.
const LOOK_NS: u64 = 40_000;
/// How long one look is; the executor has its turn after each.
const LOOK_SPINS: u32 = 8;
/// How often nobody may have joined a batch before it begins without the rest.
const ABSENT_MAX: u32 = 4;

const AWAKE: u8 = 0;
const RUNG: u8 = 1;
const ASLEEP: u8 = 2;

/// Wakes the store's thread, with a system call only if it sleeps.
#[derive(Debug)]
pub(crate) struct Bell {
    event: OwnedFd,
    state: AtomicU8,
    /// How long an answer takes at present; for ever while the thread does not stay awake.
    answer_ns: AtomicU64,
    asking: AtomicUsize,
}

impl Bell {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self {
            event: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
            state: AtomicU8::new(AWAKE),
            answer_ns: AtomicU64::new(u64::MAX),
            asking: AtomicUsize::new(0),
        })
    }

    pub(crate) fn ring(&self) {
        if self.state.swap(RUNG, Ordering::SeqCst) == ASLEEP {
            // It fails only when it is ringing already.
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }

    /// Says that the thread is about to sleep. It must look into the inbox once more after this.
    pub(crate) fn set_asleep(&self) {
        self.state.store(ASLEEP, Ordering::SeqCst);
    }

    /// Says that the thread is awake.
    pub(crate) fn set_awake(&self) {
        self.state.store(AWAKE, Ordering::SeqCst);
    }

    /// Stops the ringing.
    pub(crate) fn silence(&self) {
        // It fails only when it is silent already.
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }

    /// What becomes readable when it rings.
    pub(crate) fn event(&self) -> &OwnedFd {
        &self.event
    }

    fn is_rung(&self) -> bool {
        self.state.load(Ordering::Relaxed) == RUNG
    }

    /// Begins to ask for something, before the request is sent.
    pub(crate) fn begin_asking(&self) -> Asking<'_> {
        let is_alone = self.asking.fetch_add(1, Ordering::Relaxed) == 0;
        let is_close = is_alone && self.answer_ns.load(Ordering::Relaxed) < LOOK_NS;
        Asking { bell: self, looks_until_ns: is_close.then(|| now_ns() + LOOK_NS) }
    }
}

/// A request under way.
#[derive(Debug)]
pub(crate) struct Asking<'a> {
    bell: &'a Bell,
    looks_until_ns: Option<u64>,
}

impl Asking<'_> {
    /// Whether to look for the answer again soon, because it is due, nobody else asks, and the
    /// executor would hardly have fallen asleep by then.
    pub(crate) fn looks_again(&mut self) -> bool {
        let Some(until_ns) = self.looks_until_ns else {
            return false;
        };
        if now_ns() >= until_ns || self.bell.asking.load(Ordering::Relaxed) > 1 {
            self.looks_until_ns = None;
            return false;
        }
        (0..LOOK_SPINS).for_each(|_| std::hint::spin_loop());
        // Another process may need this core to let somebody in.
        std::thread::yield_now();
        true
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.bell.asking.fetch_sub(1, Ordering::Relaxed);
    }
}

/// When it pays for the store's thread to stay awake, learned from when requests come.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Whether whoever asks can run while the thread stays awake.
    has_cores: bool,
    score: i32,
    idle_from_ns: u64,
    work_from_ns: u64,
    answer_ns: u64,
    /// How long a commit takes.
    commit_ns: u64,
    /// How many requests came with the last two batches.
    crowds: [usize; 2],
}

impl Pace {
    pub(crate) fn new() -> Self {
        let cores = std::thread::available_parallelism();
        Self {
            has_cores: cores.is_ok_and(|cores| cores.get() > 1),
            score: SCORE_FIRST,
            idle_from_ns: 0,
            work_from_ns: 0,
            answer_ns: LOOK_NS,
            commit_ns: 0,
            crowds: [0; 2],
        }
    }

    fn stays_awake(&self) -> bool {
        self.has_cores && self.score >= 0
    }

    /// Stays awake until the bell rings, if that is to be expected soon.
    pub(crate) fn linger(&mut self, bell: &Bell) {
        if !self.stays_awake() {
            return;
        }
        let until_ns = now_ns() + LINGER_NS;
        while !bell.is_rung() {
            if now_ns() >= until_ns {
                self.score -= SCORE_LOST;
                // Whoever asks next has to wake us, and should not wait for it.
                bell.answer_ns.store(u64::MAX, Ordering::Relaxed);
                return;
            }
            (0..LOOK_SPINS).for_each(|_| std::hint::spin_loop());
            // Whoever else wants this core goes first.
            std::thread::yield_now();
        }
    }

    /// There are requests.
    pub(crate) fn begin_work(&mut self) {
        self.work_from_ns = now_ns();
        if self.work_from_ns.saturating_sub(self.idle_from_ns) < CLOSE_NS {
            self.score = (self.score + 1).min(SCORE_MAX);
        }
    }

    /// Waits for those who were in the last batches and are just about to ask again, so that they
    /// share a commit: as long as somebody comes, and only for a part of what a commit takes.
    pub(crate) fn gather<T>(&mut self, here: usize, inbox: &Inbox<T>) {
        let expected = self.crowds[0].max(self.crowds[1]);
        if !self.stays_awake() || here >= expected {
            return;
        }
        let until_ns = now_ns() + self.commit_ns / 2;
        let (mut seen, mut absent) = (inbox.len(), 0);
        while here + seen < expected && absent < ABSENT_MAX && now_ns() < until_ns {
            (0..LOOK_SPINS * 8).for_each(|_| std::hint::spin_loop());
            std::thread::yield_now();
            let waiting = inbox.len();
            absent = if waiting > seen { 0 } else { absent + 1 };
            seen = waiting;
        }
    }

    /// So many requests form a batch.
    pub(crate) fn note_batch(&mut self, requests: usize) {
        self.crowds = [self.crowds[1], requests];
    }

    /// A commit began at this moment and is done.
    pub(crate) fn note_commit(&mut self, began: Moment) {
        let took_ns = now_ns().saturating_sub(began.host_ns());
        self.commit_ns = (self.commit_ns * 7 + took_ns) / 8;
    }

    /// They are about to be answered.
    pub(crate) fn end_work(&mut self, bell: &Bell) {
        self.idle_from_ns = now_ns();
        let took_ns = self.idle_from_ns.saturating_sub(self.work_from_ns);
        // Smoothed, or one slow answer would decide about the next.
        self.answer_ns = (self.answer_ns * 7 + took_ns) / 8;
        let expected_ns = if self.stays_awake() { self.answer_ns } else { u64::MAX };
        bell.answer_ns.store(expected_ns, Ordering::Relaxed);
    }
}

fn now_ns() -> u64 {
    Moment::now().host_ns()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn rings(bell: &Bell) -> bool {
        let mut sources = [PollFd::new(bell.event(), PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut sources, Some(&now)).unwrap() > 0
    }

    /// A pace that has seen requests follow each other closely, and the bell to it.
    fn close() -> (Pace, Bell) {
        let (mut pace, bell) = (Pace { has_cores: true, ..Pace::new() }, Bell::new().unwrap());
        for _ in 0..100 {
            pace.begin_work();
            pace.end_work(&bell);
        }
        (pace, bell)
    }

    #[test]
    fn only_who_sleeps_is_woken_by_a_system_call() {
        let bell = Bell::new().unwrap();
        bell.ring();
        assert!(!rings(&bell) && bell.is_rung());
        bell.set_asleep();
        bell.ring();
        assert!(rings(&bell));
        bell.set_awake();
        // However late the system call comes, it is heard once.
        bell.silence();
        assert!(!rings(&bell) && !bell.is_rung());
    }

    #[test]
    fn it_stays_awake_only_while_requests_follow_closely() {
        let (mut pace, bell) = (Pace { has_cores: true, ..Pace::new() }, Bell::new().unwrap());
        assert!(!pace.stays_awake());
        pace.linger(&bell);
        assert_eq!(pace.score, SCORE_FIRST, "it did not even begin to wait");
        let (mut pace, bell) = close();
        assert!(pace.stays_awake() && pace.score == SCORE_MAX);
        for _ in 0..=SCORE_MAX / SCORE_LOST {
            assert!(pace.stays_awake());
            let start = now_ns();
            pace.linger(&bell);
            assert!(now_ns() - start >= LINGER_NS);
        }
        assert!(!pace.stays_awake());
        assert!(!Pace { has_cores: false, ..close().0 }.stays_awake());
    }

    #[test]
    fn only_who_asks_alone_looks_for_an_answer_that_is_due() {
        let (mut pace, bell) = close();
        let mut first = bell.begin_asking();
        assert!(first.looks_again());
        let mut second = bell.begin_asking();
        assert!(!first.looks_again() && !second.looks_again());
        drop((first, second));
        let mut patient = bell.begin_asking();
        let start = now_ns();
        while patient.looks_again() {
            assert!(now_ns() - start < 1_000 * LOOK_NS, "it never lets its executor sleep");
        }
        drop(patient);
        // The disk is slow now.
        pace.answer_ns = 100 * LOOK_NS;
        pace.end_work(&bell);
        assert!(!bell.begin_asking().looks_again());
        // Nobody stays awake any more.
        let (mut pace, bell) = close();
        pace.linger(&bell);
        assert!(!bell.begin_asking().looks_again());
    }

    #[test]
    fn a_batch_waits_for_those_who_come_and_not_for_those_who_do_not() {
        let (mut pace, _bell) = close();
        let inbox = Inbox::new(|| {});
        pace.commit_ns = u64::MAX / 4;
        pace.note_batch(3);
        pace.note_batch(1);
        // Two are missing and nobody comes.
        pace.gather(1, &inbox);
        // They come.
        std::thread::scope(|scope| {
            scope.spawn(|| (0..2).for_each(|item| inbox.push(item)));
            while inbox.is_empty() {
                std::thread::yield_now();
            }
            pace.gather(1, &inbox);
        });
        assert_eq!(inbox.len(), 2);
        pace.note_batch(1);
        let start = now_ns();
        pace.gather(1, &inbox);
        assert!(now_ns() - start < 1_000_000, "whoever is alone waits for nobody");
    }
}
