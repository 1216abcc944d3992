//! Everything that is counted. Lane counters are written by one thread each, with plain adds; process counters
//! by any thread, with atomic adds. All only ever grow, so a reader may take them at any moment.

macro_rules! counters {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(usize)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// All of them, in the order of their index.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
            /// Its name in files and on the page.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

counters! {
    /// Counters of one launching thread, by their index in its lane (16 fit).
    LaneCounter {
        /// Kernel launches that entered a hook (captured ones not included).
        KernelLaunches = "kernel_launches",
        /// Graph launches that entered a hook.
        GraphLaunches = "graph_launches",
        /// Copies and memsets that entered a hook (captured ones not included).
        MemoryOperations = "memory_operations",
        /// Launches, copies and memsets that were captured into a graph instead of run.
        CapturedOperations = "captured_operations",
        /// Kernel launches of which a sample was taken.
        KernelLaunchesSampled = "kernel_launches_sampled",
        /// Graph launches of which a sample was taken.
        GraphLaunchesSampled = "graph_launches_sampled",
        /// Copies and memsets of which a sample was taken.
        MemoryOperationsSampled = "memory_operations_sampled",
        /// Kernel launches inside a CUPTI window.
        KernelLaunchesInWindow = "kernel_launches_in_window",
        /// Graph launches inside a CUPTI window.
        GraphLaunchesInWindow = "graph_launches_in_window",
        /// Copies and memsets inside a CUPTI window.
        MemoryOperationsInWindow = "memory_operations_in_window",
        /// Operations that waited at the closed gate.
        HeldAtGate = "held_at_gate",
        /// Nanoseconds that they waited.
        HeldAtGateNs = "held_at_gate_ns",
        /// Operations that were not looked at because the thread was already inside a hook.
        Reentered = "reentered",
    }
}

counters! {
    /// Counters of the process, by their index in the header.
    Counter {
        /// Records dropped because the ring was full.
        RingDropped = "ring_dropped",
        /// Records whose slot the collector had given up on before they were published.
        RingTooLate = "ring_too_late",
        /// Definitions dropped because the dictionary was full.
        DictionaryDropped = "dictionary_dropped",
        /// Stacks that found no room in the stack table.
        StackTableFull = "stack_table_full",
        /// Python sites that found no room in the site table.
        SiteTableFull = "site_table_full",
        /// Native stacks that ended before the outermost frame.
        NativeTruncated = "native_truncated",
        /// Python stacks that ended before the outermost frame.
        PythonTruncated = "python_truncated",
        /// CUPTI windows that were opened.
        WindowsOpened = "windows_opened",
        /// CUPTI windows that were closed and detached.
        WindowsClosed = "windows_closed",
        /// Windows skipped because a stream was capturing.
        WindowsSkippedCapture = "windows_skipped_capture",
        /// Windows skipped because the gate did not become quiet before its deadline.
        WindowsSkippedBusy = "windows_skipped_busy",
        /// Windows skipped because another tool holds CUPTI.
        WindowsSkippedTaken = "windows_skipped_taken",
        /// Attempts to detach that met their deadline and left CUPTI attached for a while longer.
        DetachDeferred = "detach_deferred",
        /// Nanoseconds during which the gate was closed.
        GateClosedNs = "gate_closed_ns",
        /// The longest time that the gate was closed, in nanoseconds.
        GateClosedMaxNs = "gate_closed_max_ns",
        /// Nanoseconds during which windows recorded.
        WindowOpenNs = "window_open_ns",
        /// Activity records that CUPTI delivered.
        ActivityReceived = "activity_received",
        /// Activity records with zero, reversed or absurd times.
        ActivityInvalidTime = "activity_invalid_time",
        /// Activity records of a kind or size that this version does not read.
        ActivityUnknown = "activity_unknown",
        /// Activity records that CUPTI itself dropped.
        ActivityDroppedByCupti = "activity_dropped_by_cupti",
        /// Activity buffers that CUPTI asked for and could not get.
        ActivityBufferRefused = "activity_buffer_refused",
        /// Graph nodes whose stack was taken at capture.
        GraphNodesCaptured = "graph_nodes_captured",
        /// Graph nodes that have no capture stack.
        GraphNodesUnknown = "graph_nodes_unknown",
        /// Graphs or executable graphs that found no room in their table.
        GraphTableFull = "graph_table_full",
        /// Python stacks refused by a sanity check.
        PythonRefused = "python_refused",
        /// Panics caught at an extern "C" edge.
        PanicsCaught = "panics_caught",
        /// Threads that found no lane of their own and share the last one.
        LaneShared = "lane_shared",
        /// Kernel names that found no room in the name table.
        NameTableFull = "name_table_full",
    }
}

/// Index in a lane of the counter of hook 0: calls of each hooked function by the lane's thread.
pub const HOOK_HITS_INDEX: usize = 16;
/// Hooks that have a counter of their own in a lane.
pub const HOOK_HITS_CAPACITY: usize = crate::segment::LANE_BYTES as usize / 8 - HOOK_HITS_INDEX;

const _: () = assert!(LaneCounter::ALL.len() <= HOOK_HITS_INDEX);
const _: () = assert!(Counter::ALL.len() <= crate::segment::COUNTER_CAPACITY);
