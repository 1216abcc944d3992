//! From records in a real segment, over a real socket, to the profile.

mod support;

use launchscope::aggregate::profile::{Layer, Profile, WeightedStack};
use launchscope::pipeline::Pipeline;
use shared_abi::counters::{Counter, LaneCounter};
use shared_abi::dictionary::{DefinitionKind, GraphNode, ImageHead};
use shared_abi::record::{
    Activity, ActivityKind, LAUNCH_CHOSEN, LaunchKind, LaunchSample, RecordKind, WindowOutcome,
};
use shared_abi::ring::SLOT_HEADER_WORDS;
use shared_abi::segment::LiveWord;
use shared_abi::status::Status;
use shared_abi::sync::Ordering;
use std::time::Duration;
use support::*;
use zerocopy::{FromZeros, IntoBytes};

fn start() -> (Pipeline, Producer) {
    let socket = fresh_socket();
    let mut pipeline = Pipeline::listen(&socket, None).expect("a fresh socket");
    let producer = Producer::connect(&socket);
    settle(&mut pipeline);
    (pipeline, producer)
}

fn end(mut pipeline: Pipeline, producer: Producer) -> Profile {
    drop(producer);
    settle(&mut pipeline);
    assert_eq!(pipeline.progress().running, 0);
    profile_of(&mut pipeline)
}

fn with_gpu_time(profile: &Profile) -> Vec<&WeightedStack> {
    profile.stacks.iter().filter(|stack| stack.weights.recorded_count > 0.0).collect()
}

/// A kernel's time stands under the Python stack that launched it, scaled from window to run; launches count by
/// their probability.
#[test]
fn kernel_is_joined_to_its_launch_and_scaled() {
    let (pipeline, producer) = start();
    producer.define(
        DefinitionKind::Process,
        1,
        &[b"command=/usr/bin/python3 /srv/serve.py\nexe=/usr/bin/python3\n"],
    );
    producer.define(DefinitionKind::Hook, 1, &[b"cuLaunchKernelEx\tpatched\t"]);
    producer.site(1, "forward", "/srv/model.py", 12);
    producer.site(2, "main", "/srv/serve.py", 3);
    producer.stack(1, &[], &[1, 2]);
    producer.name(1, "_ZN2at6native4fillIfEEvi");
    producer.launch(launch_in_window(LaunchKind::Kernel, 1, 5));
    producer.activities(1, &[kernel(5, 1, 1_000)]);
    producer.window_closed(1, WindowOutcome::Detached);
    producer.count_lane(0, LaneCounter::KernelLaunches, 60);
    producer.count_lane(1, LaneCounter::KernelLaunches, 40);
    producer.count_lane(0, LaneCounter::KernelLaunchesInWindow, 10);
    producer.count(Counter::WindowsOpened, 1);
    let profile = end(pipeline, producer);
    let stacks = with_gpu_time(&profile);
    assert_eq!(stacks.len(), 1);
    assert_eq!(launch_view(&profile, stacks[0]), ["main", "forward", "cuLaunchKernelEx", "at::native::fill"]);
    assert_eq!(stacks[0].capture_view, stacks[0].launch_view);
    assert_eq!(stacks[0].weights.gpu_time_ns, 10_000.0);
    assert_eq!(stacks[0].weights.recorded_gpu_time_ns, 1_000.0);
    let root = profile.frame(stacks[0].launch_view[0]);
    assert_eq!(
        (root.layer, root.name.clone()),
        (Layer::Process, format!("python3 serve.py [{}]", std::process::id()))
    );
    let python = profile.frame(stacks[0].launch_view[2]);
    assert_eq!((python.layer, python.file.as_str(), python.line), (Layer::Python, "/srv/model.py", 12));
    let counted = profile.stacks.iter().find(|stack| stack.device.is_none()).expect("a counted stack");
    assert_eq!(counted.weights.launches, 2.0);
    assert_eq!(launch_view(&profile, counted), ["main", "forward", "cuLaunchKernelEx"]);
    assert_eq!(profile.kernels[0].full_name, "void at::native::fill<float>(int)");
    assert_eq!((profile.kernels[0].share, profile.kernels[0].mean_ns), (1.0, 1_000.0));
    assert_eq!((ledger(&profile, "launches_seen"), ledger(&profile, "joined")), (100, 1));
    assert_eq!(profile.meta.window_count, 1);
}

/// A replayed kernel carries the stack that captured its node, unless the node is another kernel's.
#[test]
fn graph_nodes_carry_the_stack_that_captured_them() {
    let (pipeline, producer) = start();
    for (id, name) in [(1, "replay"), (2, "attention"), (3, "mlp")] {
        producer.site(id, name, "m.py", id);
        producer.stack(id, &[], &[id]);
        producer.name(id, &format!("kernel_{name}"));
    }
    producer.graph(
        7,
        &[
            GraphNode { stack_id: 2, name_id: 2 },
            GraphNode { stack_id: 3, name_id: 3 },
            GraphNode { stack_id: 0, name_id: 0 },
            GraphNode { stack_id: 3, name_id: 0 },
        ],
    );
    producer.launch(LaunchSample { graph_id: 7, ..launch_in_window(LaunchKind::Graph, 1, 9) });
    let node =
        |node: u32, name_id: u32| Activity { graph_node: node, cupti_graph_id: 1, ..kernel(9, name_id, 100) };
    // Node 1 ran another kernel than was captured; node 2 has no stack; node 3 has no name; node 99 does not exist.
    producer.activities(1, &[node(0, 2), node(1, 2), node(2, 1), node(3, 3), node(99, 3)]);
    producer.window_closed(1, WindowOutcome::Detached);
    let profile = end(pipeline, producer);
    let captured: Vec<_> =
        with_gpu_time(&profile).iter().map(|stack| capture_view(&profile, stack)).collect();
    for expected in [
        vec!["attention", "kernel_attention"],
        vec!["mlp", "kernel_mlp"],
        vec!["(capture not known: node name mismatch)", "kernel_attention"],
        vec!["(capture not seen)", "kernel_replay"],
        vec!["(capture not seen)", "kernel_mlp"],
    ] {
        assert!(captured.iter().any(|view| *view == expected), "{expected:?} in {captured:?}");
    }
    let launched = launch_view(&profile, with_gpu_time(&profile)[0]);
    assert_eq!(launched[..3], ["replay", "cuGraphLaunch", "graph #7, 4 nodes"]);
    assert_eq!(ledger(&profile, "name_mismatch"), 1);
    assert_eq!((ledger(&profile, "captured"), ledger(&profile, "capture_unknown")), (2, 2));
    let attention = profile.kernels.iter().find(|kernel| kernel.name == "kernel_attention").expect("listed");
    assert_eq!(attention.captured_share, Some(0.5));
}

/// Definitions that come after the records that refer to them are used all the same.
#[test]
fn late_definitions_are_resolved() {
    let (mut pipeline, producer) = start();
    producer.launch(LaunchSample { graph_id: 1, ..launch_in_window(LaunchKind::Graph, 1, 3) });
    producer.activities(1, &[Activity { graph_node: 0, ..kernel(3, 1, 50) }]);
    settle(&mut pipeline);
    producer.graph(1, &[GraphNode { stack_id: 2, name_id: 1 }]);
    producer.name(1, "late_kernel");
    producer.stack(1, &[], &[1]);
    producer.stack(2, &[], &[2]);
    producer.site(1, "replay", "a.py", 1);
    producer.site(2, "captured", "b.py", 2);
    let profile = end(pipeline, producer);
    let stack = with_gpu_time(&profile)[0];
    assert_eq!(launch_view(&profile, stack), ["replay", "cuGraphLaunch", "graph #1, 1 nodes", "late_kernel"]);
    assert_eq!(capture_view(&profile, stack), ["captured", "late_kernel"]);
    assert_eq!(ledger(&profile, "captured"), 1);
}

/// A site that is defined again keeps its earlier meaning for earlier stacks.
#[test]
fn redefined_site_keeps_its_meaning_for_earlier_stacks() {
    let (pipeline, producer) = start();
    producer.site(1, "old", "a.py", 1);
    producer.stack(1, &[], &[1]);
    producer.site(1, "new", "a.py", 1);
    producer.stack(2, &[], &[1]);
    producer.launch(launch_in_window(LaunchKind::Kernel, 1, 1));
    producer.launch(launch_in_window(LaunchKind::Kernel, 2, 2));
    let profile = end(pipeline, producer);
    let mut views: Vec<_> =
        profile.stacks.iter().map(|stack| launch_view(&profile, stack)[0].clone()).collect();
    views.sort();
    assert_eq!(views, ["new", "old"]);
}

/// An activity without a launch is shown as such, scaled by the overall factor.
#[test]
fn orphan_is_counted_and_shown() {
    let (pipeline, producer) = start();
    producer.name(1, "lonely");
    producer.activities(1, &[kernel(77, 1, 100)]);
    producer.activities(
        1,
        &[Activity { activity_kind: ActivityKind::Memcpy as u32, detail: 2, ..kernel(78, 0, 10) }],
    );
    producer.count_lane(0, LaneCounter::KernelLaunches, 8);
    producer.count_lane(0, LaneCounter::MemoryOperations, 8);
    producer.count_lane(0, LaneCounter::KernelLaunchesInWindow, 4);
    let profile = end(pipeline, producer);
    let stacks = with_gpu_time(&profile);
    assert_eq!(launch_view(&profile, stacks[0]), ["(launch not seen)", "lonely"]);
    assert_eq!(stacks[0].weights.gpu_time_ns, 400.0);
    assert_eq!(launch_view(&profile, stacks[1]), ["(launch not seen)", "Memcpy DtoH"]);
    assert_eq!(ledger(&profile, "orphaned"), 2);
    assert_eq!(profile.joined_share(), 0.0);
}

/// An activity that overtook its launch in the ring is joined all the same.
#[test]
fn launch_after_its_activity_is_joined() {
    let (pipeline, producer) = start();
    producer.activities(1, &[kernel(5, 0, 100)]);
    producer.launch(launch_in_window(LaunchKind::Kernel, 0, 5));
    producer.window_closed(1, WindowOutcome::Slice);
    let profile = end(pipeline, producer);
    assert_eq!((ledger(&profile, "joined"), ledger(&profile, "orphaned")), (1, 0));
}

/// Correlation ids start again in every window: the same id in the next one is another launch.
#[test]
fn windows_do_not_mix() {
    let (pipeline, producer) = start();
    for (window_id, name) in [(1, "first"), (2, "second")] {
        producer.site(window_id, name, "a.py", 1);
        producer.stack(window_id, &[], &[window_id]);
        producer.launch(LaunchSample { window_id, ..launch_in_window(LaunchKind::Kernel, window_id, 1) });
        producer.activities(window_id, &[kernel(1, 0, u64::from(window_id) * 100)]);
        producer.window_closed(window_id, WindowOutcome::Detached);
    }
    let profile = end(pipeline, producer);
    let views: Vec<_> = with_gpu_time(&profile)
        .iter()
        .map(|stack| (launch_view(&profile, stack)[0].clone(), stack.weights.recorded_gpu_time_ns))
        .collect();
    assert_eq!(views, [("second".to_owned(), 200.0), ("first".to_owned(), 100.0)]);
}

/// Times that cannot be are counted and weigh nothing, and so do impossible probabilities.
#[test]
fn impossible_values_are_counted_and_left_out() {
    let (pipeline, producer) = start();
    let reversed = Activity { end_device_ns: 1, ..kernel(1, 0, 1) };
    let absurd = Activity { end_device_ns: u64::MAX, ..kernel(1, 0, 1) };
    let unset = Activity { start_device_ns: 0, ..kernel(1, 0, 1) };
    producer.activities(1, &[reversed, absurd, unset]);
    for probability in [f64::NAN, 0.0, -1.0, 2.0, 1e-300, f64::INFINITY] {
        let flags = LAUNCH_CHOSEN;
        let launch = launch_in_window(LaunchKind::Kernel, 1, 1);
        producer.launch(LaunchSample { flags, inclusion_probability_bits: probability.to_bits(), ..launch });
    }
    let profile = end(pipeline, producer);
    assert_eq!(ledger(&profile, "invalid_time"), 3);
    assert_eq!(ledger(&profile, "invalid_probability"), 6);
    assert!(profile.stacks.is_empty());
}

/// A slot that was reserved and never written holds nobody up for more than a second.
#[test]
fn stuck_slot_is_skipped_after_a_second() {
    let (mut pipeline, producer) = start();
    producer.segment.live(LiveWord::RingHead).fetch_add(1, Ordering::Relaxed);
    producer.launch(launch_in_window(LaunchKind::Kernel, 1, 1));
    settle(&mut pipeline);
    assert_eq!(pipeline.progress().own.launch_samples, 0);
    std::thread::sleep(Duration::from_millis(1100));
    settle(&mut pipeline);
    assert_eq!(pipeline.progress().own.launch_samples, 1);
    let profile = end(pipeline, producer);
    assert_eq!(ledger(&profile, "never_published"), 1);
}

/// A torn slot is counted, those behind it are read.
#[test]
fn torn_slot_is_counted() {
    let (pipeline, producer) = start();
    producer.launch(launch_in_window(LaunchKind::Kernel, 1, 1));
    producer.segment.slot_word(0, SLOT_HEADER_WORDS + 1).fetch_add(1, Ordering::Relaxed);
    producer.launch(launch_in_window(LaunchKind::Kernel, 1, 2));
    let profile = end(pipeline, producer);
    assert_eq!((ledger(&profile, "torn"), ledger(&profile, "launch_samples")), (1, 1));
}

/// Everything that a killed process had published is read, and what it had only begun is counted.
#[test]
fn dead_producer_is_salvaged() {
    let (pipeline, producer) = start();
    producer.site(1, "main", "a.py", 1);
    producer.stack(1, &[], &[1]);
    producer.launch(launch_in_window(LaunchKind::Kernel, 1, 1));
    producer.segment.live(LiveWord::RingHead).fetch_add(3, Ordering::Relaxed);
    producer.segment.live(LiveWord::DictionaryHead).fetch_add(256, Ordering::Relaxed);
    producer.count(Counter::RingDropped, 11);
    let profile = end(pipeline, producer);
    assert_eq!(ledger(&profile, "launch_samples"), 1);
    assert_eq!(ledger(&profile, "never_published"), 3);
    assert_eq!(ledger(&profile, "dictionary_unread_bytes"), 256);
    assert_eq!(ledger(&profile, "ring_dropped"), 11);
    assert_eq!(launch_view(&profile, &profile.stacks[0]), ["main", "cuLaunchKernel"]);
}

/// Statuses are told with their detail, and whether they still hold.
#[test]
fn statuses_are_told() {
    let (pipeline, producer) = start();
    producer.status(Status::CuptiTaken as u32, true, "error 39");
    producer.status(Status::CuptiTaken as u32, false, "");
    producer.status(Status::NoPermission as u32, true, "");
    let profile = end(pipeline, producer);
    let told: Vec<_> = profile
        .statuses
        .iter()
        .map(|status| (status.name.as_str(), status.detail.as_str(), status.holds))
        .collect();
    assert_eq!(told, [("cupti-taken", "error 39", false), ("no-permission", "", true)]);
}

/// What is taken once is not taken again: intervals add up to the whole.
#[test]
fn intervals_do_not_overlap() {
    let (mut pipeline, producer) = start();
    producer.count_lane(0, LaneCounter::KernelLaunches, 5);
    producer.launch(launch_in_window(LaunchKind::Kernel, 0, 1));
    settle(&mut pipeline);
    let first = profile_of(&mut pipeline);
    producer.count_lane(0, LaneCounter::KernelLaunches, 7);
    producer.activities(1, &[kernel(1, 0, 10)]);
    let second = end(pipeline, producer);
    assert_eq!((ledger(&first, "kernel_launches"), ledger(&second, "kernel_launches")), (5, 2));
    assert_eq!((ledger(&first, "launch_samples"), ledger(&second, "launch_samples")), (1, 0));
    // The launch of the first interval is still known in the second.
    assert_eq!((ledger(&second, "joined"), ledger(&second, "orphaned")), (1, 0));
}

/// Records and definitions of kinds that this version does not know are counted.
#[test]
fn nonsense_is_counted() {
    let (pipeline, producer) = start();
    producer.push(RecordKind::LaunchSample, &[&[1, 2, 3]]);
    producer.push(RecordKind::ActivityBatch, &[&[0xff; 16]]);
    producer.push(RecordKind::StatusChanged, &[&[0xff; 256]]);
    producer.define(DefinitionKind::Stack, 1, &[&[0xff; 16]]);
    producer.define(DefinitionKind::Image, 1, &[ImageHead::new_zeroed().as_bytes()]);
    let profile = end(pipeline, producer);
    assert_eq!(ledger(&profile, "invalid_records"), 3);
    assert_eq!(ledger(&profile, "definitions_invalid"), 2);
}

/// A collector that takes over from another one counts from then on.
#[test]
fn second_collector_counts_from_where_the_first_ended() {
    let (pipeline, producer) = start();
    producer.count_lane(0, LaneCounter::KernelLaunches, 100);
    producer.launch(launch_in_window(LaunchKind::Kernel, 0, 1));
    let mut first = pipeline;
    settle(&mut first);
    let socket = fresh_socket();
    let mut second = Pipeline::listen(&socket, None).expect("a fresh socket");
    drop(first);
    let hello = producer.hello("");
    let producer = producer.reconnect(&socket);
    producer.say(hello.as_bytes(), &[std::os::fd::AsRawFd::as_raw_fd(&producer.memory_file)]);
    settle(&mut second);
    producer.count_lane(0, LaneCounter::KernelLaunches, 130);
    producer.launch(launch_in_window(LaunchKind::Kernel, 0, 2));
    let profile = end(second, producer);
    assert_eq!((ledger(&profile, "kernel_launches"), ledger(&profile, "launch_samples")), (30, 1));
}
