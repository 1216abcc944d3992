//! Random bytes through everything that reads a segment. Must neither panic nor hang nor grow without bound.

use super::mapping::open_mapped;
use super::{ProcessDrain, Writer};
use crate::model::counts::OwnCounts;
use crate::model::definitions::Definitions;
use crate::model::sample::RawSample;
use memmap2::{MmapMut, MmapRaw};
use shared_abi::dictionary::{DefinitionKind, define};
use shared_abi::ring::push;
use shared_abi::segment::{Identity, Segment, Sizes};
use std::ptr::NonNull;
use zerocopy::FromZeros;

/// A small segment: the whole of it is reachable by short inputs.
const SIZES: Sizes = Sizes { lane_count: 2, slot_count: 8, dictionary_bytes: 8192 };

/// What came out of a hostile segment.
#[derive(Debug, Default)]
pub struct Fuzzed {
    /// Its definitions.
    pub definitions: Definitions,
    /// Its samples.
    pub samples: Vec<RawSample>,
    /// What was counted over it.
    pub counts: OwnCounts,
}

/// Drains a segment made of `bytes` as a hostile process could write it, and hands on what came out.
///
/// The first byte chooses: raw bytes as the segment, a sound header with random words laid over it, or well-formed
/// records and definitions with random contents.
pub fn fuzz_entry(bytes: &[u8]) -> Fuzzed {
    let mut found = Fuzzed::default();
    let Some((mode, rest)) = bytes.split_first() else { return found };
    let Ok(mut memory) = MmapMut::map_anon(SIZES.segment_bytes() as usize) else { return found };
    if mode % 3 == 0 {
        let length = rest.len().min(memory.len());
        memory[..length].copy_from_slice(&rest[..length]);
    } else {
        fill(&mut memory, *mode, rest);
    }
    let Ok((segment, mapping)) = open_mapped(MmapRaw::from(memory)) else { return found };
    let mut drain = ProcessDrain::new(segment, mapping);
    let Fuzzed { definitions, samples, counts } = &mut found;
    for (now_ns, writer) in
        [(0, Writer::Alive), (2_000_000_000, Writer::Alive), (3_000_000_000, Writer::Ended)]
    {
        drain.pass(now_ns, writer, definitions, counts, &mut |sample| samples.push(sample));
    }
    found
}

fn fill(memory: &mut MmapMut, mode: u8, rest: &[u8]) {
    let Some(base) = NonNull::new(memory.as_mut_ptr()) else { return };
    // SAFETY: the map has exactly SIZES.segment_bytes() zero bytes, page-aligned, and outlives `segment`.
    let segment = unsafe { Segment::create(base, SIZES, Identity::new_zeroed()) };
    if mode % 3 == 1 {
        let length = memory.len();
        for chunk in rest.chunks_exact(12) {
            let at = u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]) as usize % (length / 8);
            // Identity (the first 256 bytes) stays sound, otherwise nothing is read.
            let at = at.max(32) * 8;
            memory[at..at + 8].copy_from_slice(&chunk[4..]);
        }
        return;
    }
    let mut rest = rest;
    while let Some(([kind, id, length], tail)) = rest.split_first_chunk() {
        let (payload, tail) = tail.split_at(usize::from(*length).min(tail.len()));
        // Odd kinds are records, even ones definitions; a full ring or dictionary is what the limits are for.
        if kind & 1 == 1 {
            let _full = push(&segment, u16::from(kind >> 1) % 6, u64::from(*id), &[payload]);
        } else if let Some(kind) = DefinitionKind::from_u16(u16::from(kind >> 1) % 8) {
            let _full = define(&segment, kind, u32::from(*id), &[payload]);
        }
        rest = tail;
    }
}
