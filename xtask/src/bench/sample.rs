//! Several measurements of one thing, taken in turns with those it is compared with, so that a
//! disturbance meets all alike.

/// Measurements of one thing, round by round.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample(Vec<f64>);

impl Sample {
    /// Adds this round's measurement.
    pub(super) fn add(&mut self, value: f64) {
        self.0.push(value);
    }

    /// The one in the middle.
    pub(super) fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        match (sorted.get(sorted.len() / 2), sorted.len() % 2) {
            (None, _) => f64::NAN,
            (Some(upper), 1) => *upper,
            (Some(upper), _) => f64::midpoint(sorted[sorted.len() / 2 - 1], *upper),
        }
    }

    /// The greatest.
    pub(super) fn most(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::max)
    }

    /// Half of the way from the least to the greatest, in percent of the middle.
    pub(super) fn spread(&self) -> f64 {
        let least = self.0.iter().copied().fold(f64::NAN, f64::min);
        (self.most() - least) / 2.0 / self.median() * 100.0
    }

    /// The ratio to another, round by round.
    pub(super) fn over(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(ours, theirs)| ours / theirs).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_and_the_spread() {
        let sample = Sample(vec![4.0, 1.0, 2.0]);
        assert!((sample.median() - 2.0).abs() < 1e-9);
        assert!((sample.spread() - 75.0).abs() < 1e-9);
        assert!((Sample(vec![1.0, 4.0]).median() - 2.5).abs() < 1e-9);
        assert!(Sample::default().median().is_nan());
    }

    #[test]
    fn ratios_are_made_within_a_round() {
        let ratio = Sample(vec![2.0, 30.0]).over(&Sample(vec![1.0, 10.0]));
        assert!((ratio.median() - 2.5).abs() < 1e-9);
    }
}
