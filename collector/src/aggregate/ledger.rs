//! What was seen, sampled, joined and lost, in words. Nothing vanishes without a line here.

use super::profile::LedgerLine;
use crate::model::counts::{EngineCounts, OwnCounts};
use shared_abi::counters::{Counter, LaneCounter};

/// All lines: launches, windows, activities, then losses of either side.
pub fn lines(engine: &EngineCounts, own: &OwnCounts) -> Vec<LedgerLine> {
    let mut lines = launch_lines(engine);
    lines.extend(window_lines(engine));
    lines.extend(activity_lines(engine, own));
    let own_lines = own.lines().into_iter();
    lines.extend(own_lines.map(|(key, text, count, is_loss)| line(key, text, count, is_loss)));
    lines.extend(
        LOSSES.iter().map(|(counter, text)| line(counter.name(), text, engine.process(*counter), true)),
    );
    lines
}

/// Counters of the engine's side that are losses.
const LOSSES: &[(Counter, &str)] = &[
    (Counter::RingDropped, "records dropped because the ring was full"),
    (Counter::RingTooLate, "records written after the collector had given up on their slot"),
    (Counter::DictionaryDropped, "definitions dropped because the dictionary was full"),
    (Counter::StackTableFull, "stacks that found no room in the stack table"),
    (Counter::SiteTableFull, "Python sites that found no room in the site table"),
    (Counter::NameTableFull, "kernel names that found no room in the name table"),
    (Counter::GraphTableFull, "graphs that found no room in their table"),
    (Counter::GraphNodesUnknown, "graph nodes captured without a stack"),
    (Counter::NativeTruncated, "native stacks cut before the outermost frame"),
    (Counter::PythonTruncated, "Python stacks cut before the outermost frame"),
    (Counter::PythonRefused, "Python stacks refused by a sanity check"),
    (Counter::ActivityInvalidTime, "GPU activities with impossible times"),
    (Counter::ActivityUnknown, "GPU activities of a kind that this version does not read"),
    (Counter::ActivityDroppedByCupti, "GPU activities dropped by CUPTI itself"),
    (Counter::ActivityBufferRefused, "activity buffers that CUPTI asked for and did not get"),
    (Counter::DetachDeferred, "attempts to detach CUPTI that had to be put off"),
    (Counter::PanicsCaught, "internal errors caught in the engine process"),
];

fn line(key: &str, text: &str, count: u64, is_loss: bool) -> LedgerLine {
    LedgerLine { key: key.to_owned(), text: text.to_owned(), count, is_loss }
}

fn sum(engine: &EngineCounts, counters: [LaneCounter; 3]) -> u64 {
    counters.into_iter().fold(0, |sum, counter| sum.saturating_add(engine.lanes(counter)))
}

fn launch_lines(engine: &EngineCounts) -> Vec<LedgerLine> {
    use LaneCounter::*;
    let seen = sum(engine, [KernelLaunches, GraphLaunches, MemoryOperations]);
    let sampled = sum(engine, [KernelLaunchesSampled, GraphLaunchesSampled, MemoryOperationsSampled]);
    let in_windows = sum(engine, [KernelLaunchesInWindow, GraphLaunchesInWindow, MemoryOperationsInWindow]);
    vec![
        line("launches_seen", "launches, copies and memsets seen", seen, false),
        line("launches_sampled", "of these, sampled with their stack", sampled, false),
        line(
            "launches_not_chosen",
            "of these, counted only (not chosen by the sampler)",
            seen.saturating_sub(sampled),
            false,
        ),
        line("launches_in_windows", "of these, made inside a CUPTI window", in_windows, false),
        line("kernel_launches", "kernel launches", engine.lanes(KernelLaunches), false),
        line("graph_launches", "graph launches", engine.lanes(GraphLaunches), false),
        line("memory_operations", "copies and memsets", engine.lanes(MemoryOperations), false),
        line(
            "captured_operations",
            "operations captured into graphs",
            engine.lanes(CapturedOperations),
            false,
        ),
        line(
            "graph_nodes_captured",
            "graph nodes captured with a stack",
            engine.process(Counter::GraphNodesCaptured),
            false,
        ),
        line("reentered", "operations inside another hook, not looked at", engine.lanes(Reentered), false),
    ]
}

fn window_lines(engine: &EngineCounts) -> Vec<LedgerLine> {
    let process = |key, text, counter| line(key, text, engine.process(counter), false);
    vec![
        process("windows_opened", "CUPTI windows opened", Counter::WindowsOpened),
        process("windows_closed", "CUPTI windows closed and detached", Counter::WindowsClosed),
        process("window_open_ns", "nanoseconds during which windows recorded", Counter::WindowOpenNs),
        process(
            "windows_skipped_capture",
            "windows skipped because a stream was capturing",
            Counter::WindowsSkippedCapture,
        ),
        process(
            "windows_skipped_busy",
            "windows skipped because the GPU stayed busy",
            Counter::WindowsSkippedBusy,
        ),
        process(
            "windows_skipped_taken",
            "windows skipped because another tool held CUPTI",
            Counter::WindowsSkippedTaken,
        ),
        process("gate_closed_ns", "nanoseconds during which the gate was closed", Counter::GateClosedNs),
        process(
            "gate_closed_max_ns",
            "longest time that the gate was closed, in nanoseconds",
            Counter::GateClosedMaxNs,
        ),
        line(
            "held_at_gate",
            "operations that waited at the gate",
            engine.lanes(LaneCounter::HeldAtGate),
            false,
        ),
        line(
            "held_at_gate_ns",
            "nanoseconds that they waited",
            engine.lanes(LaneCounter::HeldAtGateNs),
            false,
        ),
    ]
}

/// Received by the interposer = invalid + unknown + arrived here + lost on the way.
fn activity_lines(engine: &EngineCounts, own: &OwnCounts) -> Vec<LedgerLine> {
    let received = engine.process(Counter::ActivityReceived);
    let invalid = engine.process(Counter::ActivityInvalidTime);
    let set_aside = invalid.saturating_add(engine.process(Counter::ActivityUnknown));
    let on_the_way = received.saturating_sub(set_aside).saturating_sub(own.activities);
    vec![
        line("activity_received", "GPU activities that CUPTI delivered", received, false),
        line("activity_lost_in_ring", "GPU activities that did not reach the collector", on_the_way, true),
    ]
}

#[cfg(test)]
mod tests {
    use super::lines;
    use crate::model::counts::{EngineCounts, OwnCounts};
    use std::collections::HashSet;

    /// Keys are what scripts look for: no two lines share one.
    #[test]
    fn ledger_keys_are_unique() {
        let lines = lines(&EngineCounts::default(), &OwnCounts::default());
        let keys: HashSet<&str> = lines.iter().map(|line| line.key.as_str()).collect();
        assert_eq!(keys.len(), lines.len());
    }
}
