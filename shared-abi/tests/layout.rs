//! Sizes and offsets of everything that crosses the process boundary, and that `ABI.md` says the same: every field at its
//! place, every counter, status and kind under its number, and the hash of the layout's source.
#![cfg(not(loom))]

use shared_abi::counters::{Counter, LaneCounter};
use shared_abi::dictionary::{DefinitionKind, GraphHead, GraphNode, ImageHead, SiteHead, StackHead};
use shared_abi::handover::{Hello, ImageFile, Welcome};
use shared_abi::record::{
    ACTIVITIES_PER_RECORD, Activity, ActivityHeader, LaunchSample, RecordKind, StatusChanged, WindowClosed,
};
use shared_abi::ring::{PAYLOAD_BYTES, SLOT_HEADER_WORDS, SLOT_WORDS};
use shared_abi::segment::{COUNTER_CAPACITY, COUNTERS_OFFSET, HEADER_BYTES, Identity, LiveWord, Sizes};
use shared_abi::status::Status;
use shared_abi::version::{ABI_VERSION, MAGIC};
use std::mem::{offset_of, size_of};

const ABI_MD: &str = include_str!("../ABI.md");

/// One struct: its name, its size and its fields as (offset, size, name).
struct Shape {
    name: &'static str,
    bytes: usize,
    fields: Vec<(usize, usize, &'static str)>,
}

fn bytes_of_field<Whole, Field>(_of: fn(&Whole) -> &Field) -> usize {
    size_of::<Field>()
}

macro_rules! shape {
    ($name:ident: $($field:ident)*) => {
        Shape {
            name: stringify!($name),
            bytes: size_of::<$name>(),
            fields: vec![$((
                offset_of!($name, $field),
                bytes_of_field(|whole: &$name| &whole.$field),
                stringify!($field),
            ),)*],
        }
    };
}

fn shapes() -> Vec<Shape> {
    vec![
        shape!(Identity: magic abi_version header_bytes segment_bytes lanes_offset lane_count lane_bytes ring_offset
            slot_count slot_bytes dictionary_offset dictionary_bytes process_id reserved_0 armed_host_ns armed_wall_ns
            boot_id library_version reserved_1),
        shape!(LaunchSample: host_ns inclusion_probability_bits stream context handle thread_id launch_kind flags
            stack_id name_id graph_id window_id correlation_id hook call_ns lane reserved),
        shape!(ActivityHeader: window_id count reserved),
        shape!(Activity: start_device_ns end_device_ns bytes activity_kind correlation_id name_id graph_node
            cupti_graph_id device context_id stream_id detail reserved),
        shape!(WindowClosed: opened_host_ns closed_host_ns mean_period_ns attach_gate_ns detach_gate_ns activities
            dropped_by_cupti invalid_times reserved window_id outcome launches graph_launches),
        shape!(StatusChanged: host_ns code holds text_bytes text),
        shape!(SiteHead: line first_line name_bytes file_bytes),
        shape!(StackHead: native_count python_count flags),
        shape!(ImageHead: bias_avma start_avma end_avma build_id build_id_bytes path_bytes),
        shape!(GraphHead: node_count unknown_count),
        shape!(GraphNode: stack_id name_id),
        shape!(Hello: magic abi_version kind segment_bytes process_id reserved token library_version),
        shape!(ImageFile: kind image_id reserved),
        shape!(Welcome: magic abi_version verdict reserved),
    ]
}

/// Sizes that other programs and stored rings rely on.
#[test]
fn sizes_are_what_the_contract_says() {
    let sizes: Vec<_> = shapes().into_iter().map(|shape| (shape.name, shape.bytes)).collect();
    let expected = [
        ("Identity", 256),
        ("LaunchSample", 88),
        ("ActivityHeader", 16),
        ("Activity", 64),
        ("WindowClosed", 88),
        ("StatusChanged", 256),
        ("SiteHead", 16),
        ("StackHead", 8),
        ("ImageHead", 64),
        ("GraphHead", 8),
        ("GraphNode", 8),
        ("Hello", 128),
        ("ImageFile", 16),
        ("Welcome", 24),
    ];
    assert_eq!(sizes, expected);
}

/// No struct has a gap, an overlap or a field that this test does not know.
#[test]
fn fields_follow_each_other_without_padding() {
    for shape in shapes() {
        let mut end = 0;
        for (offset, bytes, field) in &shape.fields {
            assert_eq!(*offset, end, "{}::{field}", shape.name);
            end = offset + bytes;
        }
        assert_eq!(end, shape.bytes, "fields of {}", shape.name);
    }
}

/// What a slot carries is a multiple of eight bytes and fits.
#[test]
fn records_fit_their_slot_in_whole_words() {
    assert_eq!((SLOT_WORDS, SLOT_HEADER_WORDS, PAYLOAD_BYTES), (64, 4, 480));
    assert_eq!(ACTIVITIES_PER_RECORD, 7);
    let batch = size_of::<ActivityHeader>() + ACTIVITIES_PER_RECORD * size_of::<Activity>();
    for bytes in [size_of::<LaunchSample>(), batch, size_of::<WindowClosed>(), size_of::<StatusChanged>()] {
        assert!(bytes <= PAYLOAD_BYTES && bytes.is_multiple_of(8), "{bytes}");
    }
}

/// Live words have a cache line pair each and stay clear of the identity and the counters.
#[test]
fn live_words_share_no_cache_line() {
    let words = [
        LiveWord::RingHead,
        LiveWord::RingTail,
        LiveWord::DictionaryHead,
        LiveWord::AgentHeartbeatNs,
        LiveWord::CollectorHeartbeatNs,
        LiveWord::StatusBits,
    ];
    for (index, word) in words.into_iter().enumerate() {
        assert_eq!(word as u64, 256 + 128 * index as u64);
        assert!(has_row(&[&(word as u64).to_string(), "8", &format!("`{word:?}`")]), "ABI.md lacks {word:?}");
    }
    assert_eq!(COUNTERS_OFFSET + COUNTER_CAPACITY as u64 * 8, HEADER_BYTES);
}

/// The default segment is as large as its documentation says.
#[test]
fn default_sizes_add_up() {
    assert_eq!(Sizes::DEFAULT.segment_bytes(), 4096 + 256 * 1024 + 16_384 * 512 + (32 << 20));
}

/// Numbers of statuses are bits of one word and never move; every one of them has words for people.
#[test]
fn statuses_have_a_bit_and_words() {
    for status in Status::ALL {
        assert!((*status as u32) < 64);
        assert_eq!(Status::from_u32(*status as u32), Some(*status));
        assert!(!status.name().is_empty() && !status.text().is_empty());
    }
    assert_eq!(Status::from_u32(63), None);
}

/// Every number decodes to the kind that encodes to it, and unknown ones to none.
#[test]
fn kinds_decode_to_themselves() {
    for number in 1..=4 {
        assert_eq!(RecordKind::from_u16(number).map(|kind| kind as u16), Some(number));
    }
    for number in 1..=7 {
        assert_eq!(DefinitionKind::from_u16(number).map(|kind| kind as u16), Some(number));
    }
    for unknown in [0, 8, u16::MAX] {
        assert!(RecordKind::from_u16(unknown).is_none() && DefinitionKind::from_u16(unknown).is_none());
    }
}

/// `ABI.md` has a section for every struct, which names its size and every field at its offset.
#[test]
fn abi_md_maps_every_field() {
    for shape in shapes() {
        let title = format!("### {}: {} bytes", shape.name, shape.bytes);
        let section = section(&title).unwrap_or_else(|| panic!("ABI.md lacks the heading `{title}`"));
        for (offset, bytes, field) in shape.fields {
            let cells = [offset.to_string(), bytes.to_string(), format!("`{field}`")];
            let found =
                section.lines().any(|line| row_starts_with(line, &cells.each_ref().map(String::as_str)));
            assert!(found, "ABI.md, {title}: no row `| {} |`", cells.join(" | "));
        }
    }
}

/// `ABI.md` lists every counter, status and kind under its number.
#[test]
fn abi_md_lists_every_number() {
    let lane = LaneCounter::ALL.iter().map(|counter| (*counter as u64, counter.name()));
    let process = Counter::ALL.iter().map(|counter| (*counter as u64, counter.name()));
    let status = Status::ALL.iter().map(|status| (u64::from(*status as u32), status.name()));
    let kinds = (1..=4).filter_map(RecordKind::from_u16).map(|kind| (kind as u64, format!("{kind:?}")));
    let definitions =
        (1..=7).filter_map(DefinitionKind::from_u16).map(|kind| (kind as u64, format!("{kind:?}")));
    let named = lane.chain(process).chain(status).map(|(number, name)| (number, name.to_owned()));
    for (number, name) in named.chain(kinds).chain(definitions) {
        assert!(
            has_row(&[&number.to_string(), &format!("`{name}`")]),
            "ABI.md lacks `| {number} | `{name}` |`"
        );
    }
}

/// `ABI.md` is about this version and this magic.
#[test]
fn abi_md_names_the_version() {
    assert!(ABI_MD.contains(&format!("ABI version: {ABI_VERSION}\n")));
    assert!(ABI_MD.contains("`LNCHSCP\\0`"));
    assert_eq!(&MAGIC.to_le_bytes(), b"LNCHSCP\0");
}

/// Who changes a layout opens `ABI.md`, describes the change there, and puts the new hash in.
#[test]
fn layout_changes_only_together_with_abi_md() {
    let sources = [
        ("counters.rs", include_str!("../src/counters.rs")),
        ("dictionary.rs", include_str!("../src/dictionary.rs")),
        ("handover.rs", include_str!("../src/handover.rs")),
        ("record.rs", include_str!("../src/record.rs")),
        ("ring.rs", include_str!("../src/ring.rs")),
        ("segment.rs", include_str!("../src/segment.rs")),
        ("status.rs", include_str!("../src/status.rs")),
        ("version.rs", include_str!("../src/version.rs")),
        ("words.rs", include_str!("../src/words.rs")),
    ];
    let current = sources.map(|(file, source)| format!("layout {file} {:016x}", hash(&layout_of(source))));
    let stale: Vec<_> = current.iter().filter(|line| !ABI_MD.contains(line.as_str())).collect();
    assert!(
        stale.is_empty(),
        "a layout changed: describe it in shared-abi/ABI.md, bump ABI_VERSION if a released version would misread it, \
         and write these lines there: {stale:#?}"
    );
}

/// The part of a source file that lays bytes out: structs, enums, constants and the tables of counters and statuses,
/// without comments and white space, so that neither a comment nor a formatter changes the hash.
fn layout_of(source: &str) -> String {
    let mut layout = String::new();
    let mut inside = false;
    for line in source.lines() {
        let code = line.split("//").next().unwrap_or_default();
        let opens_block = ["pub struct ", "pub enum ", "counters! {", "statuses! {", "pub const "]
            .iter()
            .any(|start| code.starts_with(start));
        inside |= opens_block && !code.starts_with("pub const fn ");
        if inside {
            layout.extend(code.chars().filter(|letter| !letter.is_whitespace()));
        }
        let closes_block =
            code.starts_with('}') || (!code.starts_with(' ') && code.trim_end().ends_with(';'));
        let one_line_block = opens_block && code.trim_end().ends_with('}');
        inside &= !(closes_block || one_line_block);
    }
    assert!(!inside, "the last block did not end");
    layout
}

/// FNV-1a.
fn hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn section(title: &str) -> Option<&'static str> {
    let (_, rest) = ABI_MD.split_once(&format!("{title}\n"))?;
    Some(rest.split_once("\n#").map_or(rest, |(section, _)| section))
}

fn has_row(cells: &[&str]) -> bool {
    ABI_MD.lines().any(|line| row_starts_with(line, cells))
}

fn row_starts_with(line: &str, cells: &[&str]) -> bool {
    let mut found = line.trim_start_matches('|').split('|').map(str::trim);
    cells.iter().all(|cell| found.next() == Some(*cell))
}
