//! When windows begin: gaps drawn uniformly from half to one and a half times a mean, so that no period of the engine
//! can hide from them or be favoured by them.
//!
//! The mean starts at one second and doubles to the configured period, so that a short run is seen and a long one pays
//! the configured price.

use crate::sampler::Random;
use core::time::Duration;

const FIRST_MEAN: Duration = Duration::from_secs(1);

/// Draws the times between windows.
#[derive(Debug)]
pub struct Schedule {
    mean: Duration,
    period: Duration,
    random: Random,
}

impl Schedule {
    /// With this mean period in the long run.
    pub fn new(period: Duration, seed: u64) -> Self {
        Self { mean: FIRST_MEAN.min(period), period, random: Random::new(seed) }
    }

    /// From the first launch to the first window.
    pub fn first_wait(&mut self) -> Duration {
        self.mean.mul_f64(0.2 + 0.8 * self.random.open_unit())
    }

    /// From the end of one window to the next.
    pub fn next_wait(&mut self) -> Duration {
        let wait = self.mean.mul_f64(0.5 + self.random.open_unit());
        self.mean = (self.mean * 2).min(self.period);
        wait
    }

    /// The mean that the next gap is drawn from.
    pub fn mean(&self) -> Duration {
        self.mean
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In the long run gaps have the configured mean, and spread over half to one and a half times it.
    #[test]
    fn gaps_have_the_configured_mean_and_spread() {
        let mut schedule = Schedule::new(Duration::from_secs(10), 42);
        let gaps: Vec<f64> = (0..4000).map(|_| schedule.next_wait().as_secs_f64()).skip(10).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        assert!((9.8..10.2).contains(&mean), "{mean}");
        assert!(gaps.iter().all(|gap| (5.0..15.0).contains(gap)));
        assert!(gaps.iter().any(|gap| *gap < 5.5) && gaps.iter().any(|gap| *gap > 14.5));
    }

    /// A run of a few seconds gets windows too.
    #[test]
    fn first_windows_come_early() {
        let mut schedule = Schedule::new(Duration::from_secs(10), 7);
        assert!(schedule.first_wait() <= Duration::from_secs(1));
        assert!(schedule.next_wait() <= Duration::from_millis(1500));
    }
}
