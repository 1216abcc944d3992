//! x86-64: which instructions of a function's entry can give way to a jump, and what they look like elsewhere.
//!
//! A jump takes five bytes. All instructions that begin in them are moved, so that a thread returns behind them at the
//! start of an instruction. `endbr64` stays where it is, because indirect calls must land on it. Only the five bytes are
//! written; what is left of the last moved instruction is never run.

use super::refusal::Why;
use super::trampoline::{ORIGINAL_OFFSET, SLOT_BYTES};
use iced_x86::{Code, Decoder, DecoderError, DecoderOptions, FlowControl, Instruction, Register};

/// Bytes of the jump that replaces the entry.
pub const JUMP_BYTES: usize = 5;
/// Of a function without a size in the symbol table, this much is searched for branches into the entry.
const SEARCHED_WITHOUT_SIZE: usize = 4096;
/// Longest stretch that is searched.
const SEARCHED_AT_MOST: usize = 64 * 1024;
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// The part of a function's entry that gives way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Bytes before the jump: those of `endbr64`, or none.
    pub patch_offset: usize,
    /// Bytes of the moved instructions.
    pub moved_bytes: usize,
}

/// How many bytes of a function [`inspect`] wants to see.
pub fn bytes_to_read(symbol_bytes: Option<usize>) -> usize {
    symbol_bytes.unwrap_or(SEARCHED_WITHOUT_SIZE).min(SEARCHED_AT_MOST)
}

/// Decides whether the entry of the function at `address` can be replaced. `code` is what [`bytes_to_read`] asked for, and
/// no more than the function.
pub fn inspect(code: &[u8], address: usize) -> Result<Entry, Why> {
    let mut decoder = decoder(code, address)?;
    let mut patch_offset = 0;
    let mut end = 0;
    while end - patch_offset < JUMP_BYTES {
        let offset = end as u8;
        let instruction = decoder.decode();
        if decoder.last_error() == DecoderError::NoMoreBytes {
            return Err(Why::SymbolTooShort { bytes: code.len() as u8 });
        }
        end += instruction.len();
        if offset == 0 && instruction.code() == Code::Endbr64 {
            patch_offset = end;
            continue;
        }
        check_movable(&instruction, offset, usize::from(offset) == patch_offset)?;
    }
    let entry = Entry { patch_offset, moved_bytes: end - patch_offset };
    check_branches(code, address, end).map(|()| entry)
}

/// The content of the slot at `slot_address` for a function that [`inspect`] has accepted.
pub fn slot_content(
    code: &[u8],
    address: usize,
    entry: Entry,
    slot_address: usize,
    replacement: usize,
) -> Result<[u8; SLOT_BYTES], Why> {
    let mut content = SlotWriter { content: [0xcc; SLOT_BYTES], used: 0 };
    // jmp [rip + 0], followed by where to
    content.put(&[0xff, 0x25, 0, 0, 0, 0])?;
    content.put(&replacement.to_le_bytes())?;
    content.used = ORIGINAL_OFFSET;
    if entry.patch_offset != 0 {
        content.put(&ENDBR64)?;
    }
    let moved = entry.patch_offset..entry.patch_offset + entry.moved_bytes;
    let first = address + entry.patch_offset;
    let mut decoder = decoder(code.get(moved).ok_or(Why::NoMemoryMap)?, first)?;
    while decoder.can_decode() {
        let offset = (entry.patch_offset + decoder.position()) as u8;
        let instruction = decoder.decode();
        let bytes = code.get(usize::from(offset)..usize::from(offset) + instruction.len());
        let moved = relocated(&decoder, &instruction, bytes.unwrap_or_default(), slot_address + content.used);
        content.put(moved.ok_or(Why::Unmovable { offset })?.bytes())?;
    }
    let back = jump(slot_address + content.used, first + entry.moved_bytes).ok_or(Why::NoPageInReach)?;
    content.put(&back)?;
    Ok(content.content)
}

/// A near jump; None when it does not reach.
pub fn jump(from: usize, to: usize) -> Option<[u8; JUMP_BYTES]> {
    let distance = i32::try_from((to as i64).checked_sub(from as i64 + JUMP_BYTES as i64)?).ok()?;
    let [a, b, c, d] = distance.to_le_bytes();
    Some([0xe9, a, b, c, d])
}

/// A jump to itself: threads that come by while the rest of a jump is written wait here.
pub const WAIT_HERE: [u8; 2] = [0xeb, 0xfe];

struct SlotWriter {
    content: [u8; SLOT_BYTES],
    used: usize,
}

impl SlotWriter {
    fn put(&mut self, bytes: &[u8]) -> Result<(), Why> {
        let end = self.used + bytes.len();
        // At most 4 + 19 + 5 bytes follow ORIGINAL_OFFSET, so that a slot is always long enough.
        self.content.get_mut(self.used..end).ok_or(Why::NoPageInReach)?.copy_from_slice(bytes);
        self.used = end;
        Ok(())
    }
}

struct Moved {
    bytes: [u8; 15],
    length: usize,
}

impl Moved {
    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// The instruction as it must read at `to`. Its displacement is adjusted when it is relative to RIP; the result is
/// decoded again and must be the same instruction with the same operands.
fn relocated(decoder: &Decoder<'_>, instruction: &Instruction, bytes: &[u8], to: usize) -> Option<Moved> {
    let mut moved = Moved { bytes: [0; 15], length: bytes.len() };
    moved.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
    if instruction.is_ip_rel_memory_operand() {
        let offsets = decoder.get_constant_offsets(instruction);
        if instruction.memory_base() != Register::RIP || offsets.displacement_size() != 4 {
            return None;
        }
        let next = to.checked_add(bytes.len())? as i64;
        let distance = i32::try_from((instruction.ip_rel_memory_address() as i64).checked_sub(next)?).ok()?;
        let start = offsets.displacement_offset();
        moved.bytes.get_mut(start..start + 4)?.copy_from_slice(&distance.to_le_bytes());
    }
    let again = self::decoder(moved.bytes(), to).ok()?.decode();
    (again == *instruction && again.len() == instruction.len()).then_some(moved)
}

fn check_movable(instruction: &Instruction, offset: u8, is_first: bool) -> Result<(), Why> {
    if instruction.is_invalid() {
        return Err(Why::Undecodable { offset });
    }
    match instruction.flow_control() {
        FlowControl::Next => Ok(()),
        FlowControl::UnconditionalBranch
        | FlowControl::IndirectBranch
        | FlowControl::Call
        | FlowControl::IndirectCall
            if is_first =>
        {
            Err(Why::AlreadyPatched)
        }
        FlowControl::UnconditionalBranch
        | FlowControl::IndirectBranch
        | FlowControl::Return
        | FlowControl::Interrupt
        | FlowControl::Exception => Err(Why::TooShort { offset }),
        FlowControl::ConditionalBranch
        | FlowControl::Call
        | FlowControl::IndirectCall
        | FlowControl::XbeginXabortXend => Err(Why::Unmovable { offset }),
    }
}

/// Refuses a function in which a branch leads into its first `end` bytes: it would land inside the jump, or count one call
/// twice. A call of the function by itself is a call like any other. Data among the code may be taken for a branch, which
/// errs to the safe side.
fn check_branches(code: &[u8], address: usize, end: usize) -> Result<(), Why> {
    let entry = address as u64..(address + end) as u64;
    let mut decoder = decoder(code, address)?;
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        let offset = decoder.position() as u32;
        decoder.decode_out(&mut instruction);
        let target = match instruction.flow_control() {
            FlowControl::UnconditionalBranch
            | FlowControl::ConditionalBranch
            | FlowControl::Call
            | FlowControl::XbeginXabortXend => instruction.near_branch_target(),
            _ => continue,
        };
        let calls_itself = target == entry.start && instruction.flow_control() == FlowControl::Call;
        if entry.contains(&target) && !calls_itself {
            return Err(Why::BranchIntoEntry { offset });
        }
    }
    Ok(())
}

fn decoder(code: &[u8], address: usize) -> Result<Decoder<'_>, Why> {
    // It fails for a bitness other than 16, 32 and 64 only.
    Decoder::try_with_ip(64, code, address as u64, DecoderOptions::NONE).map_err(|_| Why::Architecture)
}
