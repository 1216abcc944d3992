//! x86-64 code: which bytes of an entry can move, and how they and the jumps are written.

use super::trampoline::SLOT_BYTES;
use super::{PatchRefusal, Plan};
use core::ffi::c_void;
use core::ptr;
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction};
use shared_abi::sync::{AtomicU64, Ordering};

/// `jmp rel32`.
const JUMP_BYTES: usize = 5;
/// Five bytes and the longest instruction that may straddle their end.
const MAX_MOVED: usize = JUMP_BYTES + 14;
/// A function is searched this far for branches into its entry.
const MAX_SEARCH: usize = 4096;
/// Place of the relay in a slot, behind the trampoline.
const RELAY_OFFSET: usize = 32;
const _: () = assert!(MAX_MOVED + JUMP_BYTES <= RELAY_OFFSET && RELAY_OFFSET + 14 <= SLOT_BYTES);

/// Decides which bytes of a function would be replaced, or why none.
///
/// # Safety
/// `function` is readable for `symbol_bytes`, or for 4 + 19 bytes where that is not known.
pub unsafe fn plan(function: *const u8, symbol_bytes: Option<usize>) -> Result<Plan, PatchRefusal> {
    let readable = symbol_bytes.unwrap_or(4 + MAX_MOVED).min(MAX_SEARCH);
    // SAFETY: by the contract of this function.
    let code = unsafe { core::slice::from_raw_parts(function, readable) };
    let start = function as u64;
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let (mut offset, mut moved_bytes) = (0, 0);
    while moved_bytes < JUMP_BYTES {
        if !decoder.can_decode() {
            return Err(PatchRefusal::TooShort);
        }
        decoder.decode_out(&mut instruction);
        if moved_bytes == 0 && offset == 0 && instruction.code() == Code::Endbr64 {
            offset = instruction.len();
            continue;
        }
        check_movable(&instruction, moved_bytes == 0)?;
        moved_bytes += instruction.len();
    }
    let plan = Plan { offset, moved_bytes };
    let replaced = start + offset as u64 + 1..start + (offset + moved_bytes) as u64;
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            break;
        }
        let target = instruction.near_branch_target();
        if target != 0 && replaced.contains(&target) {
            return Err(PatchRefusal::BranchInside);
        }
    }
    Ok(plan)
}

fn check_movable(instruction: &Instruction, is_first: bool) -> Result<(), PatchRefusal> {
    if instruction.is_invalid() {
        return Err(PatchRefusal::DoesNotDecode);
    }
    match instruction.flow_control() {
        FlowControl::Next => {}
        FlowControl::UnconditionalBranch
        | FlowControl::IndirectBranch
        | FlowControl::Call
        | FlowControl::IndirectCall
            if is_first =>
        {
            return Err(PatchRefusal::AlreadyPatched);
        }
        FlowControl::Return
        | FlowControl::Interrupt
        | FlowControl::Exception
        | FlowControl::UnconditionalBranch
        | FlowControl::IndirectBranch => return Err(PatchRefusal::TooShort),
        _ => return Err(PatchRefusal::RelativeInstruction),
    }
    if instruction.is_ip_rel_memory_operand() {
        return Err(PatchRefusal::RelativeInstruction);
    }
    Ok(())
}

/// Writes trampoline and relay into a slot and returns their addresses.
///
/// # Safety
/// `slot` is writable for [`SLOT_BYTES`], within 2 GiB of `function`; `plan` is of that function.
pub unsafe fn write_slot(
    slot: *mut u8,
    function: *const u8,
    plan: Plan,
    replacement: *const c_void,
) -> (*const u8, *const u8) {
    let moved = function.wrapping_add(plan.offset);
    let back = slot.wrapping_add(plan.moved_bytes);
    let relay = slot.wrapping_add(RELAY_OFFSET);
    // SAFETY: all writes lie in the slot, all reads in the function (assertion above, contract of this function).
    unsafe {
        ptr::copy_nonoverlapping(moved, slot, plan.moved_bytes);
        let jump_back = jump(back as usize, moved as usize + plan.moved_bytes);
        ptr::copy_nonoverlapping(jump_back.as_ptr(), back, JUMP_BYTES);
        // jmp [rip + 0]; the address follows.
        ptr::copy_nonoverlapping([0xff, 0x25, 0, 0, 0, 0].as_ptr(), relay, 6);
        ptr::copy_nonoverlapping((replacement as u64).to_le_bytes().as_ptr(), relay.add(6), 8);
    }
    (slot, relay)
}

/// `jmp rel32` from one address to another within 2 GiB.
pub fn jump(from: usize, to: usize) -> [u8; JUMP_BYTES] {
    let distance = (to as i64 - (from + JUMP_BYTES) as i64) as i32;
    let [a, b, c, d] = distance.to_le_bytes();
    [0xe9, a, b, c, d]
}

/// Replaces an entry. The jump becomes visible by one store where it lies inside an aligned word, which the 16-byte
/// aligned entries of every known driver do; behind an `endbr64` it straddles two, and then nobody may be running the
/// function, which holds in cuInit, where we are injected.
///
/// # Safety
/// `at` is writable for `moved_bytes`, which are whole instructions that execute elsewhere from now on.
pub unsafe fn write_jump(at: *mut u8, jump: [u8; JUMP_BYTES], moved_bytes: usize) {
    let within = at as usize % 8;
    if within + JUMP_BYTES <= 8 {
        let word = at.wrapping_sub(within).cast::<AtomicU64>();
        // SAFETY: the aligned word around `at` lies in the same page, which is writable.
        let word = unsafe { &*word };
        let mut bytes = word.load(Ordering::Relaxed).to_le_bytes();
        for (to, from) in bytes.iter_mut().skip(within).zip(jump) {
            *to = from;
        }
        // Release: whoever runs the jump sees the trampoline.
        word.store(u64::from_le_bytes(bytes), Ordering::Release);
    } else {
        // SAFETY: by the contract of this function.
        unsafe { ptr::copy_nonoverlapping(jump.as_ptr(), at, JUMP_BYTES) };
    }
    let _ = moved_bytes;
}
