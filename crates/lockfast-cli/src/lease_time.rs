//! The lease time on the command line. One that the store cannot keep becomes the next that it can,
//! with a warning: a script goes on working when its store is changed, and a shorter or longer
//! lease lets nobody else in.

use std::time::Duration;

use lockfast::{Options, Profile, TtlLimits};
use lockfast_core::view::{brief, exact};

use crate::args::Times;
use crate::exit::Failure;
use crate::output::Output;
use crate::plan;

const TTL_DEFAULT: Duration = Duration::from_secs(30);

/// A lease time, and how often the lease is renewed if that was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseTime {
    pub(crate) ttl: Duration,
    pub(crate) renew_interval: Option<Duration>,
    /// Whether nobody chose the ttl.
    is_default: bool,
}

impl LeaseTime {
    /// The lease time that was chosen, or the default.
    pub(crate) fn of(chosen: Option<Duration>) -> Self {
        let ttl = chosen.unwrap_or(TTL_DEFAULT);
        Self { ttl, renew_interval: None, is_default: chosen.is_none() }
    }

    /// The lease time that was typed.
    ///
    /// # Errors
    /// When a duration is not one, or two renewals do not fit.
    pub(crate) fn typed(times: &Times) -> Result<Self, Failure> {
        let mut time = Self::of(times.ttl.as_deref().map(plan::ttl).transpose()?);
        if let Some(renew) = &times.renew {
            let interval = plan::span("--renew", renew, Duration::from_millis(1))?;
            if interval * 2 > time.ttl {
                return Err(Failure::usage(format!(
                    "--renew {} does not fit --ttl {}: two renewals must fit into a lease",
                    brief(interval),
                    brief(time.ttl)
                )));
            }
            time.renew_interval = Some(interval);
        }
        Ok(time)
    }

    /// The options with these times.
    pub(crate) fn apply_to(self, options: Options) -> Options {
        let options = options.ttl(self.ttl);
        match self.renew_interval {
            Some(interval) => options.renew_interval(interval),
            None => options,
        }
    }

    /// What the store can keep of it; says so when that is something else.
    #[must_use]
    pub(crate) fn fit(self, profile: &Profile, output: &Output) -> Self {
        let fitting = self.fitting(profile);
        if let Some(warning) = self.warning(fitting, profile) {
            output.warn(&warning);
        }
        fitting
    }

    fn fitting(self, profile: &Profile) -> Self {
        // What no store can keep is a slip, and is left to be refused.
        if profile.ttl.allow(self.ttl) || !TtlLimits::LOCKFAST.allow(self.ttl) {
            return self;
        }
        let ttl = profile.ttl.fit(self.ttl);
        let renew_interval = match self.renew_interval {
            Some(interval) if ttl < self.ttl => Some(interval.min(ttl / 3)),
            chosen => chosen,
        };
        Self { ttl, renew_interval, ..self }
    }

    fn warning(self, fitting: Self, profile: &Profile) -> Option<String> {
        let is_other_interval = self.renew_interval != fitting.renew_interval;
        if self.ttl == fitting.ttl || (self.is_default && !is_other_interval) {
            return None;
        }
        let mut warning = format!("a ttl of {} becomes {}", exact(self.ttl), exact(fitting.ttl));
        match (self.renew_interval, fitting.renew_interval) {
            (Some(chosen), Some(used)) if chosen != used => {
                let times = [exact(chosen), exact(used)];
                warning += &format!(", and renewing every {} every {}", times[0], times[1]);
            }
            _ => {}
        }
        warning += &format!(": {} keeps leases of {}", profile.backend, profile.ttl);
        Some(warning)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockfast::Guarantee;
    use lockfast_core::capability::{Expiry, FenceSurvival, Order, Reach};

    const SECOND: Duration = Duration::from_secs(1);

    fn profile(ttl: TtlLimits) -> Profile {
        Profile {
            backend: "narrow",
            guarantee: Guarantee::Efficiency,
            because: "a test",
            order: Order::Fifo,
            expiry: Expiry::Ttl,
            reach: Reach::Network,
            fence: FenceSurvival::DataLoss,
            ttl,
            lacks: &[],
        }
    }

    fn chosen(ttl: Duration, renew_interval: Option<Duration>) -> LeaseTime {
        LeaseTime { renew_interval, ..LeaseTime::of(Some(ttl)) }
    }

    fn narrow() -> Profile {
        profile(TtlLimits {
            min: 2 * SECOND,
            max: 40 * SECOND,
            step: SECOND,
            because: "the server counts in seconds",
        })
    }

    #[test]
    fn what_the_store_cannot_keep_becomes_what_it_can_with_a_warning() {
        let chosen = chosen(3600 * SECOND, Some(600 * SECOND));
        let fitting = chosen.fitting(&narrow());
        assert_eq!(fitting.ttl, 40 * SECOND);
        assert_eq!(fitting.renew_interval, Some(40 * SECOND / 3));
        assert_eq!(
            chosen.warning(fitting, &narrow()).unwrap(),
            "a ttl of 1h becomes 40s, and renewing every 10m every 13.333333333s: narrow keeps \
             leases of 2s to 40s in steps of 1s (the server counts in seconds)"
        );
        let chosen = self::chosen(SECOND / 2, Some(SECOND / 10));
        let fitting = chosen.fitting(&narrow());
        assert_eq!(fitting, LeaseTime { ttl: 2 * SECOND, ..chosen });
        let warning = chosen.warning(fitting, &narrow()).unwrap();
        assert!(warning.starts_with("a ttl of 500ms becomes 2s: narrow keeps"), "{warning}");
    }

    #[test]
    fn what_the_store_can_keep_stays_without_a_word() {
        let chosen = chosen(3 * SECOND, Some(SECOND));
        assert_eq!(chosen.fitting(&narrow()), chosen);
        assert_eq!(chosen.warning(chosen, &narrow()), None);
        let odd = self::chosen(Duration::from_millis(123), None);
        assert_eq!(odd.fitting(&profile(TtlLimits::LOCKFAST)), odd);
    }

    #[test]
    fn what_nobody_chose_fits_without_a_word() {
        let mut limits = narrow().ttl;
        limits.max = 20 * SECOND;
        let default = LeaseTime::of(None);
        let fitting = default.fitting(&profile(limits));
        assert_eq!((default.ttl, fitting.ttl), (TTL_DEFAULT, 20 * SECOND));
        assert_eq!(default.warning(fitting, &profile(limits)), None);
        let renewed = LeaseTime { renew_interval: Some(12 * SECOND), ..default };
        let fitting = renewed.fitting(&profile(limits));
        let warning = renewed.warning(fitting, &profile(limits)).unwrap();
        assert!(warning.contains("renewing every 12s every 6.6"), "{warning}");
    }

    #[test]
    fn what_no_store_can_keep_is_left_to_be_refused() {
        for ttl in [Duration::ZERO, Duration::from_millis(99), 25 * 3600 * SECOND] {
            assert_eq!(chosen(ttl, None).fitting(&narrow()), chosen(ttl, None));
        }
    }
}
