//! In: one launch of a thread. Out: whether its stack is taken, and with which probability it was chosen.
//! Drops when: never. Runs on: the launching thread.
//!
//! Allocates: no. Locks: no. Syscalls: none. Cost: one decrement and one comparison for a launch that is not chosen.
//!
//! Every launch is chosen independently with probability `p`, by counting down a geometric variate. `p` follows the
//! thread's own launch rate so that about `target` launches are chosen per sampling window; it is changed only at
//! moments that do not depend on the variate's outcome, which a geometric variate, having no memory, does not notice.
//! So each sample carries the exact probability with which it was taken, given the past: Horvitz-Thompson weights
//! 1/p are unbiased (Horvitz, Thompson 1952), and there is no preference for the first launches of a window.

use shared_abi::sync::{AtomicU32, Ordering};

/// Counts sampling windows; advanced by the helper thread, read by every launching thread.
#[derive(Debug, Default)]
pub struct Epoch(AtomicU32);

impl Epoch {
    /// Begins the next sampling window.
    pub fn advance(&self) {
        // Relaxed: nothing is published with it; a thread that sees it late adapts late.
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    /// The current sampling window.
    #[inline(always)]
    pub fn current(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Sampler of one class of launches on one thread.
#[derive(Debug)]
pub struct Sampler {
    /// Launches until the next chosen one, 1 meaning the next.
    countdown: u64,
    probability: f64,
    /// Launches to choose per sampling window; infinity means all.
    target: f64,
    epoch: u32,
    seen_in_epoch: u64,
    chosen_since_change: f64,
    random: Random,
}

impl Sampler {
    /// A sampler that chooses about `target` launches per sampling window, or all.
    pub fn new(target: Option<f64>, seed: u64, epoch: u32) -> Self {
        let target = target.unwrap_or(f64::INFINITY);
        let mut sampler = Self {
            countdown: 1,
            probability: 1.0,
            target,
            epoch,
            seen_in_epoch: 0,
            chosen_since_change: 0.0,
            random: Random::new(seed),
        };
        sampler.draw();
        sampler
    }

    /// Looks at one launch: the probability with which it was chosen, or `None`.
    #[inline(always)]
    pub fn choose(&mut self, epoch: u32) -> Option<f64> {
        if epoch != self.epoch {
            self.adapt(epoch);
        }
        self.seen_in_epoch += 1;
        self.countdown -= 1;
        if self.countdown > 0 { None } else { Some(self.chosen()) }
    }

    #[cold]
    fn adapt(&mut self, epoch: u32) {
        let windows = f64::from(epoch.wrapping_sub(self.epoch).max(1));
        let launches_per_window = self.seen_in_epoch as f64 / windows;
        self.probability =
            if launches_per_window > self.target { self.target / launches_per_window } else { 1.0 };
        self.epoch = epoch;
        self.seen_in_epoch = 0;
        self.chosen_since_change = 0.0;
        self.draw();
    }

    #[cold]
    fn chosen(&mut self) -> f64 {
        let probability = self.probability;
        self.chosen_since_change += 1.0;
        // A burst in a thread's first window, or a rate that rose: halve until the next window knows the rate.
        if self.chosen_since_change >= self.target.max(1.0) {
            self.probability /= 2.0;
            self.chosen_since_change = 0.0;
        }
        self.draw();
        probability
    }

    /// Geometric on 1, 2, ...: the number of trials up to the first success, by inversion.
    fn draw(&mut self) {
        self.countdown = if self.probability >= 1.0 {
            1
        } else {
            let trials = self.random.open_unit().ln() / (-self.probability).ln_1p();
            // `as` saturates; the bound keeps the countdown far from overflow.
            1 + trials.min(1e15) as u64
        };
    }
}

/// xorshift64* (Vigna 2016): small, good enough for sampling, no state shared between threads.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Any seed; zero is replaced.
    pub fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..4 {
            random.next();
        }
        random
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Uniform in (0, 1).
    pub fn open_unit(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) * (1.0 / (1u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Weighted by 1/p, samples give the number of launches back, whatever the rate does.
    #[test]
    fn weights_add_up_to_the_launches() {
        let rates = [50_000u64, 10, 200_000, 1, 3_000, 0, 0, 40_000];
        let (mut estimate, mut truth, mut samples) = (0.0, 0.0, 0u64);
        for seed in 1..40 {
            let mut sampler = Sampler::new(Some(200.0), seed, 0);
            for (epoch, launches) in rates.iter().enumerate() {
                for _ in 0..*launches {
                    truth += 1.0;
                    if let Some(probability) = sampler.choose(epoch as u32) {
                        estimate += 1.0 / probability;
                        samples += 1;
                    }
                }
            }
        }
        let error = (estimate / truth - 1.0f64).abs();
        assert!(error < 0.02, "estimate is off by {error}");
        // A window whose rate was not foreseen halves p after every `target` samples.
        let halvings = |launches: &u64| (*launches as f64 / 200.0).max(1.0).log2() + 2.0;
        let bound: f64 = rates.iter().map(|launches| 200.0 * halvings(launches)).sum();
        assert!((samples as f64 / 39.0) < bound, "{} samples a thread, bound {bound}", samples / 39);
    }

    /// At a steady rate about `target` launches are chosen per window, at any place in it.
    #[test]
    fn steady_rate_meets_target_without_preferring_the_start() {
        let mut sampler = Sampler::new(Some(100.0), 7, 0);
        let (mut chosen, mut early) = (0u32, 0u32);
        for epoch in 0..200u32 {
            for launch in 0..20_000 {
                if sampler.choose(epoch).is_some() && epoch > 1 {
                    chosen += 1;
                    early += u32::from(launch < 10_000);
                }
            }
        }
        let per_window = f64::from(chosen) / 198.0;
        assert!((90.0..110.0).contains(&per_window), "{per_window} a window");
        let share = f64::from(early) / f64::from(chosen);
        assert!((0.47..0.53).contains(&share), "{share} in the first half");
    }

    /// Without a target every launch is chosen, with certainty.
    #[test]
    fn no_target_chooses_every_launch() {
        let mut sampler = Sampler::new(None, 1, 0);
        assert!((0..10_000u32).all(|launch| sampler.choose(launch / 100) == Some(1.0)));
    }

    /// A thread that falls silent after a burst is sampled again at once, not after the burst's countdown.
    #[test]
    fn slow_thread_after_a_burst_is_sampled_in_full() {
        let mut sampler = Sampler::new(Some(20.0), 3, 0);
        for _ in 0..1_000_000 {
            sampler.choose(0);
        }
        sampler.choose(1);
        let chosen = (0..10).filter(|_| sampler.choose(3).is_some()).count();
        assert_eq!(chosen, 10);
    }
}
