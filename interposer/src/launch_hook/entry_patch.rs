//! Hooks a driver function by writing a jump to our replacement over its entry.
//!
//! All of a function's callers come through its one entry, whatever way they found it, so this catches every launch and
//! costs one jump. Once hooked, stay hooked: nothing is ever unpatched, because threads may be on their way through a
//! trampoline; off is a branch in the replacement. A function whose entry is not proven movable is refused and left as it
//! is, byte for byte.
//!
//! Seen on driver 580.159.04: all 103 hooked functions are accepted, each has an address of its own, aligned to 16, and at
//! least 143 bytes. A call through a patched entry costs 0.7 ns more.
//!
//! Allocates: yes. Locks: the dynamic linker's. Syscalls: mmap, mprotect, membarrier, reading the memory map.
//! Used while arming only. Preserves errno.

use super::memory_map::Region;
use super::moved_code::{self, Entry};
use super::real_dlsym;
use super::refusal::{EntryBytes, Installed, PatchRefusal, Why};
use super::table::{Hook, Way};
use super::text_write::WritableEntry;
use super::trampoline::{ORIGINAL_OFFSET, Slot, TrampolineArena};
use bindings::dl::Library;
use core::ffi::c_void;
use core::ptr::{self, NonNull};
use shared_abi::sync::Ordering;

/// Patches every hook's function in libcuda and reports each. A hook that is patched already is reported as such and left
/// alone, so that calling it twice does no harm.
pub fn install_all(
    hooks: &'static [Hook],
    libcuda: &Library,
    report: &mut dyn FnMut(&'static Hook, Result<Installed, PatchRefusal>),
) {
    let errno = Errno::save();
    let mut arena = TrampolineArena::new();
    let mut seen: Vec<(NonNull<u8>, &'static Hook)> = Vec::new();
    let mut prepared = Vec::new();
    for hook in hooks {
        let Some(function) = real_dlsym::find_in(libcuda, hook.name) else {
            report(hook, Err(PatchRefusal { why: Why::NoSuchFunction, entry: EntryBytes::default() }));
            continue;
        };
        let function = function.cast::<u8>();
        if let Some((_, other)) = seen.iter().find(|(address, _)| *address == function) {
            report(hook, Ok(Installed::SameAs(other.name)));
            continue;
        }
        seen.push((function, hook));
        if hook.way.load(Ordering::Relaxed) == Way::Patched as u32 {
            report(hook, Ok(Installed::Patched));
            continue;
        }
        // SAFETY: the driver's function of the hook's name, for which its replacement is written.
        match unsafe { prepare(hook, function, real_dlsym::symbol_bytes(function), &mut arena) } {
            Ok(patch) => prepared.push((hook, patch)),
            Err(refusal) => report(hook, Err(refusal)),
        }
    }
    let sealed = arena.seal();
    for (hook, patch) in prepared {
        let result = sealed.map_err(|why| patch.refusal(why)).and_then(|()| patch.commit(hook));
        report(hook, result.map(|()| Installed::Patched));
    }
    drop(errno);
}

/// Patches one function.
///
/// # Safety
///
/// `function` is the address of a function with the signature of the hook's replacement.
pub unsafe fn install(
    hook: &Hook,
    function: NonNull<u8>,
    symbol_bytes: Option<usize>,
    arena: &mut TrampolineArena,
) -> Result<(), PatchRefusal> {
    let _errno = Errno::save();
    // SAFETY: the caller's promise.
    let patch = unsafe { prepare(hook, function, symbol_bytes, arena) }?;
    arena.seal().map_err(|why| patch.refusal(why))?;
    patch.commit(hook)
}

/// A function that can be patched, with its trampoline written but nothing leading to it.
struct Patch {
    function: usize,
    region: Region,
    entry: Entry,
    slot: Slot,
    entry_bytes: EntryBytes,
}

/// Decides whether `function` can be patched and writes its trampoline.
///
/// # Safety
///
/// As for [`install`].
unsafe fn prepare(
    hook: &Hook,
    function: NonNull<u8>,
    symbol_bytes: Option<usize>,
    arena: &mut TrampolineArena,
) -> Result<Patch, PatchRefusal> {
    let address = function.as_ptr() as usize;
    let without_bytes = |why| PatchRefusal { why, entry: EntryBytes::default() };
    let region = arena.map().map_err(without_bytes)?.region_of(address);
    let region = region.filter(is_private_code).ok_or(without_bytes(Why::NotCode))?;
    let symbol_bytes = symbol_bytes.filter(|bytes| *bytes != 0);
    let readable = moved_code::bytes_to_read(symbol_bytes).min(region.end - address);
    // SAFETY: these bytes lie in one readable region of the memory map; the driver's text stays mapped.
    let code = unsafe { core::slice::from_raw_parts(function.as_ptr(), readable) };
    let entry_bytes = EntryBytes::of(code);
    let refuse = |why| PatchRefusal { why, entry: entry_bytes };
    let entry = moved_code::inspect(code, address).map_err(refuse)?;
    let slot = arena.slot_near(address).map_err(refuse)?;
    let replacement = (hook.replacement)() as usize;
    let content =
        moved_code::slot_content(code, address, entry, slot.address(), replacement).map_err(refuse)?;
    arena.write(slot, &content);
    Ok(Patch { function: address, region, entry, slot, entry_bytes })
}

impl Patch {
    fn refusal(&self, why: Why) -> PatchRefusal {
        PatchRefusal { why, entry: self.entry_bytes }
    }

    /// Makes the function's entry lead to the hook's replacement.
    fn commit(&self, hook: &Hook) -> Result<(), PatchRefusal> {
        let at = self.function + self.entry.patch_offset;
        let jump = moved_code::jump(at, self.slot.address()).ok_or(self.refusal(Why::NoPageInReach))?;
        let writable = WritableEntry::open(at, self.region).map_err(|why| self.refusal(why))?;
        let original: *mut c_void = ptr::with_exposed_provenance_mut(self.slot.address() + ORIGINAL_OFFSET);
        // Release, and before the jump is written: the replacement, which can be reached from then on, must never find it
        // null, nor find the patched function itself, which would lead back to the replacement. A preloaded hook is
        // changed over at once: its callers have the replacement's address, and it now forwards to the trampoline.
        hook.original.store(original, Ordering::Release);
        // Release: with whoever sees Patched and hands out the function's own address.
        hook.way.store(Way::Patched as u32, Ordering::Release);
        writable.write(jump);
        Ok(())
    }
}

fn is_private_code(region: &Region) -> bool {
    let needed = libc::PROT_READ | libc::PROT_EXEC;
    region.is_private && region.protection & needed == needed
}

/// Puts errno back when it goes out of scope.
pub(super) struct Errno(i32);

impl Errno {
    pub(super) fn save() -> Self {
        Self(super::trampoline::errno())
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        // SAFETY: errno of this thread.
        unsafe { *libc::__errno_location() = self.0 };
    }
}
