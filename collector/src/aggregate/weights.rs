//! From recorded to estimated GPU time: launches are counted exactly, windows record some of them.

use crate::model::counts::EngineCounts;
use shared_abi::counters::LaneCounter;
use shared_abi::record::LaunchKind;

/// What one recorded activity stands for, by the kind of its launch. At least 1 each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factors {
    kernel: f64,
    graph: f64,
    memory: f64,
    overall: f64,
}

impl Factors {
    /// Exact launches over launches in windows, per kind.
    pub fn of(counts: &EngineCounts) -> Self {
        let kernel =
            [LaneCounter::KernelLaunches, LaneCounter::KernelLaunchesInWindow].map(|c| counts.lanes(c));
        let graph = [LaneCounter::GraphLaunches, LaneCounter::GraphLaunchesInWindow].map(|c| counts.lanes(c));
        let memory =
            [LaneCounter::MemoryOperations, LaneCounter::MemoryOperationsInWindow].map(|c| counts.lanes(c));
        let sum = |index: usize| {
            [kernel, graph, memory].iter().fold(0u64, |sum, pair| sum.saturating_add(pair[index]))
        };
        Self {
            kernel: ratio(kernel[0], kernel[1]),
            graph: ratio(graph[0], graph[1]),
            memory: ratio(memory[0], memory[1]),
            overall: ratio(sum(0), sum(1)),
        }
    }

    /// The factor for activities of a launch of this kind; orphans have none and take the overall factor.
    pub fn factor(&self, kind: Option<LaunchKind>) -> f64 {
        match kind {
            Some(LaunchKind::Kernel | LaunchKind::CooperativeKernel) => self.kernel,
            Some(LaunchKind::Graph) => self.graph,
            Some(LaunchKind::Memory) => self.memory,
            None => self.overall,
        }
    }
}

fn ratio(exact: u64, in_window: u64) -> f64 {
    if in_window == 0 { 1.0 } else { (exact as f64 / in_window as f64).max(1.0) }
}

#[cfg(test)]
mod tests {
    use super::ratio;

    /// Recorded time is never made smaller, and nothing is divided by zero.
    #[test]
    fn factor_is_at_least_one() {
        assert_eq!(ratio(1000, 10), 100.0);
        assert_eq!(ratio(5, 10), 1.0);
        assert_eq!(ratio(5, 0), 1.0);
    }
}
