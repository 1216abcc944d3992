//! Walks the calling thread's native frames by cached unwind rules.
//!
//! Allocates: no. Locks: no. Syscalls: see `stack_bounds`.
//! Cost: about 8 ns a frame with its rule in the cache, 0.3 µs without, at most [`MAX_MISSES`] of those a sample.

use super::eh_frame::{ImageFinder, RuleContext, rule_for};
use super::stack_bounds::StackMemory;
use super::unwind_rules::{CallerBp, Cfa, Generation, PackedRule, Rule, RuleCache};
use core::ops::Range;

/// Frames kept of one stack.
pub const MAX_NATIVE_FRAMES: usize = 128;
/// Rules read from .eh_frame for one sample: 16 at 0.3 µs cap it at about 5 µs. The next sample goes on from there.
pub const MAX_MISSES: u32 = 16;

/// The registers that unwinding needs.
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    /// Instruction pointer.
    pub pc: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer, or whatever the code keeps in rbp.
    pub bp: u64,
}

impl Registers {
    /// Of the place that this is inlined into.
    #[inline(always)]
    pub fn here() -> Self {
        let (pc, sp, bp);
        // SAFETY: reads three registers. One block without pushes, so that one unwind rule holds for all three.
        unsafe {
            core::arch::asm!(
                "lea {pc}, [rip]",
                "mov {sp}, rsp",
                "mov {bp}, rbp",
                pc = out(reg) pc,
                sp = out(reg) sp,
                bp = out(reg) bp,
                options(nomem, nostack, preserves_flags),
            );
        }
        Self { pc, sp, bp }
    }
}

/// Whether a walk reached the outermost frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walked {
    /// It did.
    Whole,
    /// It did not: too deep, too many rules missing, or a frame that cannot be passed.
    Truncated,
}

/// Return addresses, innermost first.
#[derive(Debug)]
pub struct NativeFrames {
    addresses: [u64; MAX_NATIVE_FRAMES],
    count: usize,
}

impl NativeFrames {
    /// None.
    pub fn new() -> Self {
        Self { addresses: [0; MAX_NATIVE_FRAMES], count: 0 }
    }

    /// The addresses of the last walk.
    #[inline]
    pub fn addresses(&self) -> &[u64] {
        self.addresses.get(..self.count).unwrap_or(&[])
    }

    #[inline(always)]
    fn push(&mut self, address: u64) -> bool {
        let Some(slot) = self.addresses.get_mut(self.count) else { return false };
        *slot = address;
        self.count += 1;
        true
    }
}

/// What all threads share.
#[derive(Debug)]
pub struct NativeUnwinder {
    /// Rules by return address.
    pub rules: RuleCache,
    /// Images by address.
    pub images: ImageFinder,
    /// Frames in here are left out: our own library.
    pub own_avma: Range<u64>,
}

impl NativeUnwinder {
    /// Walks from `registers` outwards. Over 40 lines: it is one loop, and its state must stay in registers.
    ///
    /// The registers stay three plain variables on purpose: as a struct in an `Option` they were stored and loaded
    /// again in one 16-byte piece, which the processor cannot forward: 20 ns a frame instead of 8.
    pub fn walk(
        &self,
        registers: Registers,
        stack: &StackMemory<'_>,
        context: &mut RuleContext,
        frames: &mut NativeFrames,
    ) -> Walked {
        frames.count = 0;
        let generation = self.rules.generation();
        let mut misses_left = MAX_MISSES;
        let Registers { mut pc, mut sp, mut bp } = registers;
        loop {
            let mut rule = match self.rules.get(generation, pc) {
                Some(rule) => rule,
                None if misses_left == 0 => return Walked::Truncated,
                None => {
                    misses_left -= 1;
                    self.read_rule(generation, pc, context)
                }
            };
            let mut base = if rule.cfa_is_sp() { sp } else { bp };
            if !rule.cfa_is_sp() && !rule.cfa_is_bp() {
                if rule.is_outermost() {
                    return Walked::Whole;
                }
                if rule.cfa_is_at_bp() {
                    let Some(at_bp) = stack.word(bp.wrapping_add(rule.cfa_offset())) else {
                        return Walked::Truncated;
                    };
                    base = at_bp.wrapping_sub(rule.cfa_offset());
                } else if self.has_frame_pointer(sp, bp, stack) {
                    rule = FRAME_POINTER;
                } else {
                    return Walked::Truncated;
                }
            }
            let cfa = base.wrapping_add(rule.cfa_offset());
            // Stacks grow down: a caller whose frame is not above ours is not a caller.
            if cfa <= sp {
                return Walked::Truncated;
            }
            let Some(caller) = stack.word(cfa.wrapping_sub(8)) else { return Walked::Truncated };
            if !rule.bp_is_same() {
                let base = if rule.bp_is_at_cfa() { cfa } else { bp };
                let Some(saved) = stack.word(base.wrapping_add(rule.bp_offset())) else {
                    return Walked::Truncated;
                };
                bp = saved;
            }
            if caller == 0 {
                return Walked::Whole;
            }
            (pc, sp) = (caller, cfa);
            if !self.own_avma.contains(&pc) && !frames.push(pc) {
                return Walked::Truncated;
            }
        }
    }

    #[cold]
    fn read_rule(&self, generation: Generation, pc: u64, context: &mut RuleContext) -> PackedRule {
        // Code outside every image (a JIT's) is not remembered: its pages come and go without notice.
        let Some(image) = self.images.find(pc.wrapping_sub(1)) else { return PackedRule::new(Rule::Odd) };
        let rule = PackedRule::new(rule_for(&image, pc, context));
        self.rules.put(generation, pc, rule);
        rule
    }

    /// A frame without a rule may still keep a frame pointer. It is believed only when it leads back into an image.
    #[cold]
    fn has_frame_pointer(&self, sp: u64, bp: u64, stack: &StackMemory<'_>) -> bool {
        let is_frame = bp >= sp && bp.is_multiple_of(8);
        let caller = stack.word(bp.wrapping_add(8)).filter(|_| is_frame);
        caller.is_some_and(|pc| self.images.find(pc.wrapping_sub(1)).is_some())
    }
}

/// The rule of a function that pushed rbp and copied rsp to it.
const FRAME_POINTER: PackedRule =
    PackedRule::new(Rule::Step { cfa: Cfa::Bp, cfa_offset: 16, bp: CallerBp::AtCfa, bp_offset: -16 });
