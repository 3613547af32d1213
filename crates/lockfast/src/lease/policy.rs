//! How a lock is taken and kept: what callers may choose, and the check of every combination.

use std::time::Duration;

use lockfast_core::time::DRIFT;
use lockfast_core::{Error, ErrorKind, Feature, Fence, Moment, Profile, Result, TtlLimits, Wait};

use super::deadline::validity;

/// The lease time of whoever chooses none, on a store that can keep it.
const TTL_DEFAULT: Duration = Duration::from_secs(30);
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);
const REQUEST_TIMEOUT_MAX: Duration = Duration::from_secs(5);
const LOCK_DELAY_TTLS_MAX: u32 = 10;
const RETRIES_MAX: u32 = 100;

/// How long an acquisition may wait.
#[derive(Clone, Copy, Debug, PartialEq)]
enum WaitLimit {
    For(Duration),
    Forever,
}

/// How a lock is taken and kept. The defaults suit most: a lease of 30 s that is renewed every
/// 10 s, and waiting for as long as it takes.
///
/// ```
/// use std::time::Duration;
/// use lockfast::Options;
///
/// let careful = Options::default()
///     .ttl(Duration::from_secs(10))
///     .renew_interval(Duration::from_secs(2))
///     .request_timeout(Duration::from_secs(1))
///     .lock_delay(Duration::from_secs(5)) // so long a holder that was lost has to stop
///     .drift(0.05) // a clock that is known to be bad
///     .wait_forever();
/// let hasty = Options::default().wait(Duration::from_millis(200)).retries(0);
/// # let _ = (careful, hasty);
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    ttl: Option<Duration>,
    wait: WaitLimit,
    lock_delay: Duration,
    drift: f64,
    renew_interval: Option<Duration>,
    request_timeout: Option<Duration>,
    retries: u32,
    floor: Option<Fence>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            ttl: None,
            wait: WaitLimit::Forever,
            lock_delay: Duration::ZERO,
            drift: DRIFT,
            renew_interval: None,
            request_timeout: None,
            retries: 2,
            floor: None,
        }
    }
}

impl Options {
    /// The lease time: how long a holder that hangs or is cut off keeps others out. At least
    /// 100 ms, at most 24 h, and what the store allows
    /// ([`Profile::ttl`](lockfast_core::Profile::ttl)); 30 s unless set, or what the store allows
    /// next to that. See [`Options`] for an example.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Waits at most so long for a taken lock, and for a store that cannot serve it for a while
    /// (it restarts, loads its data, fails over); zero means not to wait. At most 24 h.
    /// See [`Options`] for an example.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = WaitLimit::For(wait);
        self
    }

    /// Waits as long as it takes, but not longer than a minute for a store that fails all the
    /// time. See [`Options`] for an example.
    #[must_use]
    pub fn wait_forever(mut self) -> Self {
        self.wait = WaitLimit::Forever;
        self
    }

    /// Does not wait, neither for a taken lock nor for a store that cannot serve it.
    /// See [`Mutex::with_options`](crate::Mutex::with_options) for an example.
    #[must_use]
    pub fn no_wait(self) -> Self {
        self.wait(Duration::ZERO)
    }

    /// How much longer than the holder believes the store keeps the lock when it is not
    /// released, so that a slow holder has time to stop. At most ten times the ttl.
    /// See [`Options`] for an example.
    #[must_use]
    pub fn lock_delay(mut self, lock_delay: Duration) -> Self {
        self.lock_delay = lock_delay;
        self
    }

    /// By which ratio this machine's clock and the store's may differ in speed; 0.01 unless set.
    /// See [`Options`] for an example.
    #[must_use]
    pub fn drift(mut self, drift: f64) -> Self {
        self.drift = drift;
        self
    }

    /// How often the lease is renewed; a third of the ttl unless set. Two must fit into a lease.
    /// See [`Options`] for an example.
    #[must_use]
    pub fn renew_interval(mut self, renew_interval: Duration) -> Self {
        self.renew_interval = Some(renew_interval);
        self
    }

    /// How long one request may take; a sixth of the ttl, at most 5 s, unless set. Less than a
    /// third of the ttl, so that a second try fits. See [`Options`] for an example.
    #[must_use]
    pub fn request_timeout(mut self, request_timeout: Duration) -> Self {
        self.request_timeout = Some(request_timeout);
        self
    }

    /// How often an acquisition that does not wait is tried again, a moment later, when the store
    /// cannot be reached; twice unless set. One that waits is tried again until its wait ends, but
    /// with 0 never: then every failure is told at once. See [`Options`] for an example.
    #[must_use]
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// The highest fence that the guarded thing has seen; the next grant's is higher.
    /// See [`Mutex::floor`](crate::Mutex::floor) for an example.
    #[must_use]
    pub fn floor(mut self, floor: Fence) -> Self {
        self.floor = Some(floor);
        self
    }

    /// Checks that these options go together, and with this store.
    ///
    /// ```
    /// use std::time::Duration;
    /// use lockfast::{ErrorKind, Locker, Options};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let locker = Locker::connect("memory:").await?;
    /// let second = Duration::from_secs(1);
    /// let options = Options::default().ttl(3 * second).renew_interval(2 * second);
    /// let refused = options.check(locker.profile()).unwrap_err(); // two must fit into a lease
    /// assert_eq!(refused.kind(), ErrorKind::InvalidConfig);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidTtl`], [`ErrorKind::InvalidWait`] or [`ErrorKind::InvalidConfig`];
    /// [`ErrorKind::Unsupported`] for a lock-delay or a floor that the store does not have.
    pub fn check(&self, profile: &Profile) -> Result<()> {
        Policy::new(self, profile).map(|_| ())
    }
}

/// Options that were checked and completed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    pub(crate) ttl: Duration,
    pub(crate) lock_delay: Duration,
    pub(crate) drift: f64,
    pub(crate) renew_interval: Duration,
    pub(crate) request_timeout: Duration,
    pub(crate) retries: u32,
    pub(crate) floor: Option<Fence>,
    /// Whether the keeper renews the lease by itself; otherwise only when it is asked to.
    pub(crate) is_renewed: bool,
    wait: WaitLimit,
}

impl Policy {
    pub(crate) fn new(options: &Options, profile: &Profile) -> Result<Self> {
        let ttl = options.ttl.unwrap_or_else(|| profile.ttl.fit(TTL_DEFAULT));
        check_ttl(ttl, profile)?;
        check_features(options, profile)?;
        check_margins(options, ttl)?;
        if let WaitLimit::For(wait) = options.wait
            && wait > WAIT_MAX
        {
            return Err(Error::new(
                ErrorKind::InvalidWait,
                format!("a wait of {wait:?} is above 24 h; use wait_forever to wait without limit"),
            ));
        }
        let renew_interval = options.renew_interval.unwrap_or(ttl / 3);
        let valid = validity(ttl, options.drift).unwrap_or_default();
        if renew_interval.is_zero() || renew_interval.saturating_mul(2) >= valid {
            return Err(invalid(format!(
                "renewing every {renew_interval:?} does not fit a ttl of {ttl:?}: two renewals \
                 must fit, so use less than {:?}",
                valid / 2
            )));
        }
        let request_timeout = options.request_timeout.unwrap_or((ttl / 6).min(REQUEST_TIMEOUT_MAX));
        if request_timeout.is_zero() || request_timeout >= ttl / 3 {
            return Err(invalid(format!(
                "a request timeout of {request_timeout:?} does not fit a ttl of {ttl:?}: use more \
                 than 0 and less than a third of it"
            )));
        }
        if options.retries > RETRIES_MAX {
            return Err(invalid(format!("{} retries are above {RETRIES_MAX}", options.retries)));
        }
        Ok(Self {
            ttl,
            lock_delay: options.lock_delay,
            drift: options.drift,
            renew_interval,
            request_timeout,
            retries: options.retries,
            floor: options.floor,
            is_renewed: true,
            wait: options.wait,
        })
    }

    /// The same policy for a lease whose ttl was changed while it was held.
    pub(crate) fn with_ttl(self, ttl: Duration, profile: &Profile) -> Result<Self> {
        let options = Options {
            ttl: Some(ttl),
            wait: WaitLimit::Forever,
            lock_delay: self.lock_delay.min(ttl.saturating_mul(LOCK_DELAY_TTLS_MAX)),
            drift: self.drift,
            renew_interval: None,
            request_timeout: None,
            retries: self.retries,
            floor: self.floor,
        };
        let policy = Self::new(&options, profile)?;
        Ok(Self { is_renewed: self.is_renewed, ..policy })
    }

    /// A lease of this length that is asked for once and never renewed by itself.
    pub(crate) fn for_once(options: &Options, ttl: Duration, profile: &Profile) -> Result<Self> {
        let ttl = Some(ttl);
        let options = Options { ttl, renew_interval: None, ..options.clone().no_wait() };
        Ok(Self { is_renewed: false, ..Self::new(&options, profile)? })
    }

    pub(crate) fn wait_from(&self, now: Moment) -> Wait {
        match self.wait {
            WaitLimit::For(Duration::ZERO) => Wait::No,
            WaitLimit::For(span) => Wait::Until(now + span),
            WaitLimit::Forever => Wait::Forever,
        }
    }
}

fn check_ttl(ttl: Duration, profile: &Profile) -> Result<()> {
    TtlLimits::LOCKFAST.check(ttl)?;
    profile.ttl.check(ttl).map_err(|error| error.with_backend(profile.backend))
}

fn check_features(options: &Options, profile: &Profile) -> Result<()> {
    if !options.lock_delay.is_zero() {
        profile.require(Feature::LockDelay)?;
    }
    if options.floor.is_some() {
        profile.require(Feature::Floor)?;
    }
    Ok(())
}

fn check_margins(options: &Options, ttl: Duration) -> Result<()> {
    let Options { drift, lock_delay, .. } = *options;
    if !(0.0..1.0).contains(&drift) {
        return Err(invalid(format!("a drift of {drift} is not a ratio from 0 to below 1")));
    }
    if validity(ttl, drift).is_none() {
        let margins = ttl.as_secs_f64() * drift + 0.002;
        return Err(invalid(format!(
            "a ttl of {ttl:?} minus margins is {:.0} ms, so the lease would end before it began; \
             use a longer ttl or less drift",
            (ttl.as_secs_f64() - margins) * 1000.0
        )));
    }
    if lock_delay > ttl * LOCK_DELAY_TTLS_MAX {
        return Err(invalid(format!(
            "a lock-delay of {lock_delay:?} is more than {LOCK_DELAY_TTLS_MAX} times the ttl of \
             {ttl:?}"
        )));
    }
    Ok(())
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidConfig, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockfast_core::Guarantee;
    use lockfast_core::capability::{Expiry, FenceSurvival, Order, Reach};

    fn profile() -> Profile {
        Profile {
            backend: "memory",
            guarantee: Guarantee::Correctness,
            because: "test",
            order: Order::Fifo,
            expiry: Expiry::Ttl,
            reach: Reach::Process,
            fence: FenceSurvival::Process,
            ttl: TtlLimits::LOCKFAST,
            lacks: &[],
        }
    }

    /// A store that counts in seconds, and can do nothing that a store may lack.
    fn narrow_profile() -> Profile {
        Profile {
            backend: "narrow",
            ttl: TtlLimits {
                min: Duration::from_secs(2),
                max: Duration::from_secs(20),
                step: Duration::from_secs(1),
                because: "its server says so",
            },
            lacks: &[(Feature::LockDelay, "no delay"), (Feature::Floor, "no floor")],
            ..profile()
        }
    }

    #[test]
    fn bad_combinations_are_refused() {
        let ms = Duration::from_millis;
        let hours = |n: u64| Duration::from_secs(n * 3600);
        let ok = Options::default();
        let table: Vec<(Options, ErrorKind, &str)> = vec![
            (ok.clone().ttl(ms(0)), ErrorKind::InvalidTtl, "100ms to 24h"),
            (ok.clone().ttl(Duration::from_nanos(1)), ErrorKind::InvalidTtl, "1ns"),
            (ok.clone().ttl(hours(25)), ErrorKind::InvalidTtl, "24h"),
            (ok.clone().ttl(Duration::MAX), ErrorKind::InvalidTtl, "24h"),
            (ok.clone().wait(Duration::MAX), ErrorKind::InvalidWait, "wait_forever"),
            (ok.clone().wait(hours(25)), ErrorKind::InvalidWait, "24 h"),
            (ok.clone().renew_interval(ms(30_000)), ErrorKind::InvalidConfig, "two renewals"),
            (ok.clone().renew_interval(ms(15_000)), ErrorKind::InvalidConfig, "two renewals"),
            (ok.clone().renew_interval(ms(0)), ErrorKind::InvalidConfig, "two renewals"),
            (ok.clone().request_timeout(ms(10_000)), ErrorKind::InvalidConfig, "third"),
            (ok.clone().request_timeout(ms(0)), ErrorKind::InvalidConfig, "third"),
            (ok.clone().drift(1.0), ErrorKind::InvalidConfig, "drift"),
            (ok.clone().drift(f64::NAN), ErrorKind::InvalidConfig, "drift"),
            (ok.clone().drift(-0.1), ErrorKind::InvalidConfig, "drift"),
            (ok.clone().ttl(ms(100)).drift(0.99), ErrorKind::InvalidConfig, "minus margins is -1"),
            (ok.clone().lock_delay(ms(300_001)), ErrorKind::InvalidConfig, "lock-delay"),
            (ok.clone().lock_delay(Duration::MAX), ErrorKind::InvalidConfig, "lock-delay"),
            (ok.clone().retries(101), ErrorKind::InvalidConfig, "retries"),
        ];
        for (options, kind, words) in table {
            let error = options.check(&profile()).unwrap_err();
            assert_eq!(error.kind(), kind, "{options:?}: {error}");
            assert!(error.to_string().contains(words), "{options:?}: {error}");
        }
    }

    #[test]
    fn good_combinations_pass() {
        let ok = Options::default();
        for options in [
            ok.clone(),
            ok.clone().ttl(Duration::from_millis(100)),
            ok.clone().ttl(Duration::from_secs(86_400)),
            ok.clone().no_wait(),
            ok.clone().wait(Duration::from_secs(86_400)),
            ok.lock_delay(Duration::from_secs(300)),
        ] {
            options.check(&profile()).unwrap();
        }
    }

    #[test]
    fn what_the_store_lacks_is_refused() {
        let ms = Duration::from_millis;
        let ok = Options::default();
        let table: Vec<(Options, ErrorKind, &str)> = vec![
            (ok.clone().ttl(ms(1999)), ErrorKind::InvalidTtl, "2s to 20s in steps of 1s"),
            (ok.clone().ttl(ms(2500)), ErrorKind::InvalidTtl, "narrow: a ttl of 2.5s"),
            (ok.clone().ttl(ms(20_001)), ErrorKind::InvalidTtl, "its server says so"),
            (ok.clone().lock_delay(ms(1)), ErrorKind::Unsupported, "no delay"),
            (ok.clone().floor(Fence::new(1).unwrap()), ErrorKind::Unsupported, "no floor"),
        ];
        for (options, kind, words) in table {
            options.check(&profile()).unwrap();
            let error = options.check(&narrow_profile()).unwrap_err();
            assert_eq!(error.kind(), kind, "{options:?}: {error}");
            assert!(error.to_string().contains(words), "{options:?}: {error}");
        }
    }

    #[test]
    fn a_ttl_that_nobody_chose_fits_the_store() {
        let ttl = |options: &Options, profile| Policy::new(options, &profile).unwrap().ttl;
        let ok = Options::default();
        assert_eq!(ttl(&ok, profile()), TTL_DEFAULT);
        assert_eq!(ttl(&ok, narrow_profile()), Duration::from_secs(20));
        let chosen = Duration::from_secs(7);
        assert_eq!(ttl(&ok.ttl(chosen), narrow_profile()), chosen);
    }
}
