//! The only place that reads a clock.
//!
//! Rust's `Instant` stops while the machine sleeps, so a lease measured with it would outlive a
//! closed laptop lid. [`Moment`] reads two clocks that count differently wrong (`BOOTTIME` counts
//! suspend but is slewed by NTP, `MONOTONIC_RAW` is never slewed but stops in suspend) and always
//! believes the one that says more time has passed.

use std::fmt;
use std::future::{Future, pending};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::watch;

/// By which ratio this machine's clock and a store's may differ in speed, unless a lock is made with
/// another: so much of its ttl a holder does not rely on.
pub const DRIFT: f64 = 0.01;

/// A point in time on this machine, for measuring how long ago something was.
///
/// ```
/// use std::time::Duration;
/// use lockfast_core::Moment;
///
/// let start = Moment::now();
/// let deadline = start + Duration::from_secs(30);
/// assert!(!deadline.has_passed(Moment::now()));
/// assert!(deadline.remaining(Moment::now()) <= Duration::from_secs(30));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Moment {
    boot_ns: u64,
    raw_ns: u64,
}

impl Moment {
    /// The present moment.
    pub fn now() -> Self {
        Self { boot_ns: clock::boot_ns(), raw_ns: clock::raw_ns() }
    }

    /// How long ago `earlier` was: the greater advance of the two clocks.
    pub fn since(self, earlier: Self) -> Duration {
        let boot = self.boot_ns.saturating_sub(earlier.boot_ns);
        let raw = self.raw_ns.saturating_sub(earlier.raw_ns);
        Duration::from_nanos(boot.max(raw))
    }

    /// Whether this moment is not after `now`, by either clock.
    pub fn has_passed(self, now: Self) -> bool {
        now.boot_ns >= self.boot_ns || now.raw_ns >= self.raw_ns
    }

    /// How much time is left until this moment, by the clock that says less; zero once passed.
    pub fn remaining(self, now: Self) -> Duration {
        let boot = self.boot_ns.saturating_sub(now.boot_ns);
        let raw = self.raw_ns.saturating_sub(now.raw_ns);
        Duration::from_nanos(boot.min(raw))
    }

    /// The earlier of two moments.
    pub fn earlier_of(self, other: Self) -> Self {
        if other.boot_ns < self.boot_ns { other } else { self }
    }

    /// The later of two moments.
    pub fn later_of(self, other: Self) -> Self {
        if other.boot_ns > self.boot_ns { other } else { self }
    }

    /// This moment less `span`.
    pub fn before(self, span: Duration) -> Self {
        let span = nanos(span);
        Self {
            boot_ns: self.boot_ns.saturating_sub(span),
            raw_ns: self.raw_ns.saturating_sub(span),
        }
    }

    /// Nanoseconds since this machine started, sleep included: the same number for every process
    /// of the machine. For ordering, and for telling another local process.
    pub fn host_ns(self) -> u64 {
        self.boot_ns
    }

    /// The moment that another local process named by [`Moment::host_ns`].
    pub fn from_host_ns(host_ns: u64) -> Self {
        let now = Self::now();
        let raw_ns = if host_ns >= now.boot_ns {
            now.raw_ns.saturating_add(host_ns - now.boot_ns)
        } else {
            now.raw_ns.saturating_sub(now.boot_ns - host_ns)
        };
        Self { boot_ns: host_ns, raw_ns }
    }
}

impl std::ops::Add<Duration> for Moment {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        let span = nanos(span);
        Self {
            boot_ns: self.boot_ns.saturating_add(span),
            raw_ns: self.raw_ns.saturating_add(span),
        }
    }
}

/// What the time is: by this machine's clock, or as far ahead of it as a test has set it. The lease
/// engine and the store in memory ask such a clock, so that a test need not wait for a lease to end.
///
/// ```
/// use std::time::Duration;
/// use lockfast_core::time::Clock;
///
/// let clock = Clock::settable();
/// let deadline = clock.now() + Duration::from_secs(30);
/// clock.advance(Duration::from_secs(30));
/// assert!(deadline.has_passed(clock.now()));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Clock(Option<Arc<Ahead>>);

/// How far a clock is ahead, and who wants to know when that changes.
struct Ahead {
    by: watch::Sender<Duration>,
    listeners: Mutex<Vec<Listener>>,
}

type Listener = Box<dyn Fn() + Send + Sync>;

impl Clock {
    /// A clock that can be set ahead. The default one cannot.
    pub fn settable() -> Self {
        let by = watch::Sender::new(Duration::ZERO);
        Self(Some(Arc::new(Ahead { by, listeners: Mutex::default() })))
    }

    /// The present moment.
    pub fn now(&self) -> Moment {
        Moment::now() + self.ahead()
    }

    /// When this machine's own clock reaches what this one will then call `moment`.
    pub fn on_machine(&self, moment: Moment) -> Moment {
        moment.before(self.ahead())
    }

    /// Sets it ahead by so much, and tells all who asked for that. The machine's clock stays as it is.
    pub fn advance(&self, by: Duration) {
        let Some(ahead) = &self.0 else { return };
        ahead.by.send_modify(|sum| *sum = sum.saturating_add(by));
        let listeners = ahead.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.iter().for_each(|listener| listener());
    }

    /// Calls `listener`, which must not block, each time after the clock was set ahead.
    pub fn on_advance(&self, listener: impl Fn() + Send + Sync + 'static) {
        if let Some(ahead) = &self.0 {
            let mut listeners = ahead.listeners.lock().unwrap_or_else(PoisonError::into_inner);
            listeners.push(Box::new(listener));
        }
    }

    /// Ends when the clock is set ahead after this call.
    ///
    /// # Cancel safety
    /// Safe: it only looks.
    pub fn advanced(&self) -> impl Future<Output = ()> + Send + use<> {
        let changes = self.0.as_ref().map(|ahead| ahead.by.subscribe());
        async move {
            let Some(mut changes) = changes else { return pending().await };
            if changes.changed().await.is_err() {
                // Nobody has the clock any more.
                pending::<()>().await;
            }
        }
    }

    fn ahead(&self) -> Duration {
        self.0.as_ref().map_or(Duration::ZERO, |ahead| *ahead.by.borrow())
    }
}

impl fmt::Debug for Ahead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ahead").field(&*self.by.borrow()).finish()
    }
}

/// A moment on our clock and, not before it, one on a server's: what that server's clock says later
/// can then be placed on ours.
#[derive(Clone, Copy, Debug)]
pub struct ClockPair {
    /// On ours.
    pub sent: Moment,
    /// On the server's, in µs.
    pub server_us: u64,
}

impl ClockPair {
    /// A moment that is not after the one that the server's clock names.
    pub fn locate(self, server_us: u64) -> Moment {
        match server_us.checked_sub(self.server_us) {
            Some(after) => self.sent + Duration::from_micros(after),
            None => self.sent.before(Duration::from_micros(self.server_us - server_us)),
        }
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// The wall clock, for what people read and as a lower bound for fences; it never decides expiry.
#[allow(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
pub fn wall_clock() -> SystemTime {
    SystemTime::now()
}

/// Microseconds since 1970 on the wall clock.
pub fn wall_clock_us() -> u64 {
    let since_1970 = wall_clock().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX)
}

/// For how long the machine has slept since it was started.
pub fn time_asleep() -> Duration {
    Duration::from_nanos(clock::boot_ns().saturating_sub(clock::awake_ns()))
}

/// An alarm clock that also goes off when the machine slept past the hour, and that can be rung
/// by hand. For a thread that must not depend on anybody's executor.
#[doc(hidden)]
#[derive(Debug)]
pub struct Alarm(clock::Timer);

impl Alarm {
    /// An alarm that is not set.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub fn new() -> std::io::Result<Self> {
        clock::Timer::new().map(Self)
    }

    /// Blocks until `at` (not at all if that has passed), or until [`Alarm::ring`] is called;
    /// a ring from before the call counts.
    ///
    /// # Errors
    /// When the operating system refuses, which it has no reason to.
    pub fn wait(&self, at: Option<Moment>) -> std::io::Result<()> {
        // Zero would disarm the timer.
        self.0.wait(at.map(|at| at.boot_ns.max(1)))
    }

    /// Ends the present or the next wait.
    pub fn ring(&self) {
        self.0.ring();
    }
}

mod clock {
    use std::io;
    use std::os::fd::OwnedFd;

    use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
    use rustix::io::Errno;
    use rustix::time::{
        ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec,
        clock_gettime, timerfd_create, timerfd_settime,
    };

    const NANOS_PER_SECOND: u64 = 1_000_000_000;

    fn read(id: ClockId) -> u64 {
        let time = clock_gettime(id);
        // Both clocks start at zero when the machine does and never run back.
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
        seconds.saturating_mul(NANOS_PER_SECOND).saturating_add(nanos)
    }

    pub(super) fn boot_ns() -> u64 {
        read(ClockId::Boottime)
    }

    pub(super) fn raw_ns() -> u64 {
        read(ClockId::MonotonicRaw)
    }

    pub(super) fn awake_ns() -> u64 {
        read(ClockId::Monotonic)
    }

    #[derive(Debug)]
    pub(super) struct Timer {
        clock: OwnedFd,
        bell: OwnedFd,
    }

    impl Timer {
        pub(super) fn new() -> io::Result<Self> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let clock = timerfd_create(TimerfdClockId::Boottime, flags)?;
            let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
            Ok(Self { clock, bell })
        }

        pub(super) fn wait(&self, at_ns: Option<u64>) -> io::Result<()> {
            let never = Timespec { tv_sec: 0, tv_nsec: 0 };
            let at = at_ns.map_or(never, |at_ns| Timespec {
                tv_sec: i64::try_from(at_ns / NANOS_PER_SECOND).unwrap_or(i64::MAX),
                tv_nsec: i64::try_from(at_ns % NANOS_PER_SECOND).unwrap_or(0),
            });
            let when = Itimerspec { it_interval: never, it_value: at };
            timerfd_settime(&self.clock, TimerfdTimerFlags::ABSTIME, &when)?;
            let mut sources =
                [PollFd::new(&self.clock, PollFlags::IN), PollFd::new(&self.bell, PollFlags::IN)];
            match poll(&mut sources, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let mut count = [0; 8];
            match rustix::io::read(&self.bell, &mut count) {
                Ok(_) | Err(Errno::AGAIN) => Ok(()),
                Err(error) => Err(error.into()),
            }
        }

        pub(super) fn ring(&self) {
            // It fails only when the bell is already ringing.
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Moment = Moment { boot_ns: 1_000, raw_ns: 500 };

    #[test]
    fn suspend_counts() {
        // The machine slept 40 ns: only one clock noticed.
        let woken = Moment { boot_ns: 1_050, raw_ns: 510 };
        assert_eq!(woken.since(START), Duration::from_nanos(50));
        assert!((START + Duration::from_nanos(50)).has_passed(woken));
    }

    #[test]
    fn a_clock_slowed_by_ntp_does_not_lengthen_a_lease() {
        let slewed = Moment { boot_ns: 1_090, raw_ns: 600 };
        assert_eq!(slewed.since(START), Duration::from_nanos(100));
        let deadline = START + Duration::from_nanos(100);
        assert!(deadline.has_passed(slewed));
        assert_eq!(deadline.remaining(slewed), Duration::ZERO);
    }

    #[test]
    fn nothing_overflows() {
        let end = START + Duration::MAX;
        assert!(!end.has_passed(Moment::now()));
        assert_eq!(START.before(Duration::MAX).host_ns(), 0);
    }

    #[test]
    fn another_process_sees_the_same_moment() {
        let here = Moment::now() + Duration::from_secs(5);
        let there = Moment::from_host_ns(here.host_ns());
        let off = there.remaining(here).max(here.remaining(there));
        assert!(off < Duration::from_millis(50), "{off:?}");
    }

    #[tokio::test]
    async fn a_clock_that_is_set_ahead_tells_everybody() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let hour = Duration::from_secs(3600);
        let clock = Clock::settable();
        let heard = Arc::new(AtomicUsize::new(0));
        clock.on_advance({
            let heard = Arc::clone(&heard);
            move || {
                heard.fetch_add(1, Ordering::SeqCst);
            }
        });
        let (start, advanced) = (clock.now(), clock.advanced());
        clock.clone().advance(hour);
        advanced.await;
        assert!(clock.now().since(start) >= hour);
        assert_eq!(heard.load(Ordering::SeqCst), 1);
        // The machine's clock has not moved.
        assert!(clock.on_machine(start + hour).since(start) < hour / 2);
        assert!(Clock::default().now().since(start) < hour / 2);
        clock.advance(Duration::MAX);
        assert!(clock.now().since(start) > hour);
    }

    #[test]
    fn an_alarm_goes_off_or_is_rung() {
        let alarm = Arc::new(Alarm::new().unwrap());
        let start = Moment::now();
        alarm.wait(Some(start + Duration::from_millis(20))).unwrap();
        assert!(Moment::now().since(start) >= Duration::from_millis(20));
        alarm.wait(Some(start)).unwrap();
        alarm.ring();
        alarm.wait(None).unwrap();
        let ringer = std::thread::spawn({
            let alarm = Arc::clone(&alarm);
            move || alarm.ring()
        });
        alarm.wait(None).unwrap();
        ringer.join().unwrap();
    }
}
