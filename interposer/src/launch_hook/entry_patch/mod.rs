//! Hooks a driver function by patching its entry, so that every caller passes by, whatever way it got the address.
//!
//! ```text
//! function   jmp relay          (5 bytes over whole instructions)
//! relay      jmp [rip]; dq replacement
//! trampoline the instructions that were there, then jmp back behind them
//! ```
//!
//! Relay and trampoline lie in a page within 2 GiB of the function. All of them are written before the page becomes
//! executable and before the first jump: no page is ever writable and executable but the function's own, for the
//! length of one store. Nothing is ever unpatched.
//!
//! Runs on: the thread that arms. Allocates: yes. Locks: no. Syscalls: open and read of /proc/self/maps, mmap, mprotect.

#[cfg(target_arch = "x86_64")]
mod x86_64; // reads and writes x86-64 code
#[cfg(target_arch = "x86_64")]
use x86_64 as arch;
#[cfg(not(target_arch = "x86_64"))]
mod unsupported; // refuses
#[cfg(not(target_arch = "x86_64"))]
use unsupported as arch;
mod trampoline; // pages within reach

use super::preload::real_symbol;
use super::table::{Hook, Way};
use bindings::dl::Library;
use core::ffi::c_void;
use core::fmt;
use core::ptr::{self, NonNull};
use shared_abi::sync::Ordering;
pub use trampoline::{MemoryMap, TrampolineArena};

/// Why a function's entry was left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchRefusal {
    /// The driver does not have it.
    NoSuchFunction,
    /// Its first bytes are no instructions that we know.
    DoesNotDecode,
    /// It begins with a jump or call: another tool has patched it.
    AlreadyPatched,
    /// An instruction that would move refers to its own address.
    RelativeInstruction,
    /// It ends before five bytes can be replaced.
    TooShort,
    /// Code further on jumps into the bytes that would be replaced.
    BranchInside,
    /// No page is free within 2 GiB.
    NoPageWithinReach,
    /// The kernel does not let us write there.
    NotWritable,
    /// This processor's entries are not patched yet.
    UnsupportedProcessor,
}

impl fmt::Display for PatchRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSuchFunction => "this driver does not have it",
            Self::DoesNotDecode => "its first bytes do not decode",
            Self::AlreadyPatched => "it begins with a jump or call, as another tool's patch would",
            Self::RelativeInstruction => "an instruction at its entry refers to its own address",
            Self::TooShort => "it ends before five bytes can be replaced",
            Self::BranchInside => "code of its own jumps into its entry",
            Self::NoPageWithinReach => "no page is free within 2 GiB of it",
            Self::NotWritable => "its page cannot be made writable",
            Self::UnsupportedProcessor => "entries are not patched on this processor",
        })
    }
}

/// Which bytes of a function are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Where the jump goes: behind an `endbr64`, otherwise at the start.
    pub offset: usize,
    /// Whole instructions there, at least the length of the jump.
    pub moved_bytes: usize,
}

/// A driver function in memory, with the size of its symbol where that is known.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// Its entry.
    pub address: NonNull<u8>,
    /// Bytes of its symbol.
    pub symbol_bytes: Option<usize>,
}

/// A function that is ready to be patched: its trampoline and relay are written.
struct Prepared<'a> {
    hook: &'a Hook,
    function: NonNull<u8>,
    plan: Plan,
    trampoline: *const u8,
    relay: *const u8,
}

/// Patches every hook's function in libcuda and reports each outcome.
pub fn install_all(
    hooks: &[Hook],
    libcuda: &Library,
    report: &mut dyn FnMut(&Hook, Result<(), PatchRefusal>),
) {
    let find = |hook: &Hook| {
        real_symbol(libcuda.handle().as_ptr(), hook.name)
            .map(|symbol| Function { address: symbol.cast(), symbol_bytes: symbol_bytes(symbol) })
    };
    let targets: Vec<_> = hooks.iter().map(|hook| (hook, find(hook))).collect();
    install(&targets, &mut TrampolineArena::new(MemoryMap::of_this_process()), report);
}

/// Patches functions whose address and size are known.
pub fn install(
    targets: &[(&Hook, Option<Function>)],
    arena: &mut TrampolineArena,
    report: &mut dyn FnMut(&Hook, Result<(), PatchRefusal>),
) {
    let mut prepared: Vec<Prepared<'_>> = Vec::new();
    let mut aliases: Vec<(&Hook, NonNull<u8>)> = Vec::new();
    for (hook, function) in targets {
        let Some(function) = *function else {
            report(hook, Err(PatchRefusal::NoSuchFunction));
            continue;
        };
        if prepared.iter().any(|other| other.function == function.address) {
            aliases.push((hook, function.address));
            continue;
        }
        match prepare(hook, function, arena) {
            Ok(ready) => prepared.push(ready),
            Err(refusal) => report(hook, Err(refusal)),
        }
    }
    let sealed = arena.seal();
    for ready in &prepared {
        let outcome = if sealed { patch(ready) } else { Err(PatchRefusal::NotWritable) };
        report(ready.hook, outcome);
        for (alias, _) in aliases.iter().filter(|(_, function)| *function == ready.function) {
            if outcome.is_ok() {
                set_original(alias, ready.trampoline);
            }
            report(alias, outcome);
        }
    }
}

fn prepare<'a>(
    hook: &'a Hook,
    Function { address: function, symbol_bytes }: Function,
    arena: &mut TrampolineArena,
) -> Result<Prepared<'a>, PatchRefusal> {
    // SAFETY: the function's symbol is mapped and readable for its size; without a size, code goes on for a page's
    // rest at least, and `plan` reads no further than the instructions it needs.
    let plan = unsafe { arch::plan(function.as_ptr(), symbol_bytes) }?;
    let slot = arena.slot_near(function.as_ptr() as usize).ok_or(PatchRefusal::NoPageWithinReach)?;
    // SAFETY: the slot is writable, unused and large enough; the plan's bytes are readable.
    let (trampoline, relay) =
        unsafe { arch::write_slot(slot, function.as_ptr(), plan, (hook.replacement)()) };
    Ok(Prepared { hook, function, plan, trampoline, relay })
}

fn patch(ready: &Prepared<'_>) -> Result<(), PatchRefusal> {
    let at = ready.function.as_ptr().wrapping_add(ready.plan.offset);
    let jump = arch::jump(at as usize, ready.relay as usize);
    let unlocked = Unlocked::around(at as usize, ready.plan.moved_bytes).ok_or(PatchRefusal::NotWritable)?;
    // Before the jump: a launch may pass by the moment it is there.
    set_original(ready.hook, ready.trampoline);
    // SAFETY: the bytes are writable now, and whole instructions that were copied to the trampoline.
    unsafe { arch::write_jump(at, jump, ready.plan.moved_bytes) };
    drop(unlocked);
    Ok(())
}

fn set_original(hook: &Hook, trampoline: *const u8) {
    hook.way.store(Way::Patched as u32, Ordering::Relaxed);
    // Release: the trampoline's bytes are visible to whoever forwards to it.
    hook.original.store(trampoline.cast_mut().cast::<c_void>(), Ordering::Release);
}

/// Text that may be written while this lives; afterwards it has the protection of before.
struct Unlocked {
    start: usize,
    bytes: usize,
}

const PAGE_BYTES: usize = 4096;
const TEXT: libc::c_int = libc::PROT_READ | libc::PROT_EXEC;

impl Unlocked {
    fn around(address: usize, bytes: usize) -> Option<Self> {
        let start = address & !(PAGE_BYTES - 1);
        let end = (address + bytes).next_multiple_of(PAGE_BYTES);
        let unlocked = Self { start, bytes: end - start };
        // Executable all the while: other threads may be running other functions of the page.
        unlocked.protect(TEXT | libc::PROT_WRITE).then_some(unlocked)
    }

    fn protect(&self, protection: libc::c_int) -> bool {
        // SAFETY: pages of a mapped function; only their protection changes.
        unsafe { libc::mprotect(self.start as *mut c_void, self.bytes, protection) == 0 }
    }
}

impl Drop for Unlocked {
    fn drop(&mut self) {
        self.protect(TEXT);
    }
}

/// Size of the symbol at this very address, if the image's symbol table has one.
fn symbol_bytes(address: NonNull<c_void>) -> Option<usize> {
    #[repr(C)]
    struct ElfSymbol {
        name: u32,
        info: u8,
        other: u8,
        section: u16,
        value: u64,
        bytes: u64,
    }
    const RTLD_DL_SYMENT: libc::c_int = 1;
    unsafe extern "C" {
        fn dladdr1(
            address: *const c_void,
            info: *mut libc::Dl_info,
            extra: *mut *mut c_void,
            flags: libc::c_int,
        ) -> libc::c_int;
    }
    // SAFETY: all zeros is a valid Dl_info.
    let mut info: libc::Dl_info = unsafe { core::mem::zeroed() };
    let mut symbol: *mut c_void = ptr::null_mut();
    // SAFETY: both pointers are valid for the call.
    let found = unsafe { dladdr1(address.as_ptr(), &mut info, &mut symbol, RTLD_DL_SYMENT) };
    if found == 0 || symbol.is_null() || info.dli_saddr != address.as_ptr() {
        return None;
    }
    // SAFETY: RTLD_DL_SYMENT gives a pointer to the image's own Elf64_Sym.
    let bytes = unsafe { (*symbol.cast::<ElfSymbol>()).bytes } as usize;
    (bytes > 0).then_some(bytes)
}
