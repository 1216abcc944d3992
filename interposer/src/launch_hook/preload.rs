//! The other way in: LD_PRELOAD puts our dlsym, cuGetProcAddress and driver functions in front of the real ones.
//!
//! A preloaded library lands in every process, shells and compilers too. Until libcuda is in the process, nothing happens:
//! no thread, no output, no library loaded. A name that cannot be the driver's leaves for the real dlsym before any of this
//! file runs, with its registers and its return address as they were, because RTLD_NEXT and RTLD_DEFAULT depend on who asks.
//!
//! What a look-up finds is compared **by address** with the driver's hooked functions, so that versions, aliases and
//! per-thread default streams need no rules of their own, and another library's function of the same name stays untouched.
//! A function that is patched already is handed out as it is: its entry leads to us anyway.
//!
//! | who asks | what happens |
//! | --- | --- |
//! | dlsym(handle, name) | the real one is asked; a hooked function's address is exchanged |
//! | dlsym(RTLD_DEFAULT, name of one of our exports) | looked up behind us, then as above: without libcuda it stays null |
//! | dlsym(RTLD_NEXT, the same) | from an object before us: as above; from behind us: the real one, untouched |
//! | cuGetProcAddress, cuGetProcAddress_v2 | the real one is asked; the address it gives is exchanged |
//! | the dynamic linker | binds to our export, which jumps to the replacement |
//!
//! Not seen: libraries opened with RTLD_DEEPBIND, which get the C library's dlsym; dlvsym, which nobody uses on libcuda.
//!
//! Allocates: the dynamic linker may. Locks: the dynamic linker's. Syscalls: none, but for those of the dynamic linker when it looks for libcuda.
//! Cost: a name that cannot be the driver's, none that can be measured (48 ns with and without); a driver's name 180 ns instead
//! of 55; a call of an exported driver function one load and two jumps. Being preloaded at all costs a process 0.3 ms.

use super::HOOKS;
use super::entry_patch::Errno;
use super::real_dlsym;
use super::table::{Hook, Way};
use crate::guard::{kill_switch, panic_fence};
use crate::with_exported_names;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::{self, NonNull};
use shared_abi::sync::{AtomicBool, AtomicPtr, Ordering};

/// CUDA_ERROR_STUB_LIBRARY: what a driver function returns that is not backed by a driver.
pub const NO_DRIVER: c_int = 34;

/// What the stub of dlsym does next.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DlsymAnswer {
    /// The result, when `is_final`.
    pub address: *mut c_void,
    /// Zero: leave for the real dlsym as if we had never been asked.
    pub is_final: usize,
}

impl DlsymAnswer {
    const PASS: Self = Self { address: ptr::null_mut(), is_final: 0 };

    fn is(address: *mut c_void) -> Self {
        Self { address, is_final: 1 }
    }
}

/// dlsym for names that begin with `cu` and a capital letter. `caller` is the return address.
///
/// # Safety
///
/// The caller's own arguments to dlsym; `name` is not null.
pub unsafe extern "C" fn on_dlsym(handle: *mut c_void, name: *const c_char, caller: usize) -> DlsymAnswer {
    panic_fence(DlsymAnswer::PASS, || {
        if kill_switch::is_off() || own_image().contains(&caller) {
            return DlsymAnswer::PASS;
        }
        // SAFETY: the caller passes a C string, as dlsym asks.
        let name = unsafe { CStr::from_ptr(name) };
        let errno = Errno::save();
        // Before the real dlsym is asked, so that dlerror tells of that one alone.
        let driver = Driver::seen();
        drop(errno);
        look_up(driver, handle, name, caller)
    })
}

/// The real dlsym's address for the stub. Null when there is none.
pub extern "C" fn find_real_dlsym() -> *mut c_void {
    panic_fence(ptr::null_mut(), real_dlsym::address)
}

fn look_up(driver: Option<&'static Driver>, handle: *mut c_void, name: &CStr, caller: usize) -> DlsymAnswer {
    let exchanged = |found: *mut c_void| driver.map_or(found, |driver| driver.exchange(found));
    let is_export = EXPORTS.contains(&name);
    if handle == libc::RTLD_NEXT {
        let nearer = if is_export { real_dlsym::find_between(caller, own_image().start, name) } else { None };
        return match nearer {
            None => DlsymAnswer::PASS,
            Some(nearer) if nearer.is_null() => DlsymAnswer::is(exchanged(behind_us(name))),
            Some(nearer) => DlsymAnswer::is(nearer),
        };
    }
    if handle == libc::RTLD_DEFAULT && !is_export {
        return DlsymAnswer::PASS;
    }
    // SAFETY: the caller's own handle, for which it answers to the real dlsym.
    let found = or_null(unsafe { real_dlsym::find(handle, name) });
    if own_image().contains(&(found as usize)) {
        // Global scope, and we come first in it.
        return DlsymAnswer::is(exchanged(without_us(caller, name)));
    }
    DlsymAnswer::is(exchanged(found))
}

/// What RTLD_DEFAULT finds for `caller` where it has found us: the next in the global scope, or else in the caller's own scope.
fn without_us(caller: usize, name: &CStr) -> *mut c_void {
    let next = behind_us(name);
    if !next.is_null() {
        return next;
    }
    let scoped = or_null(real_dlsym::find_in_scope_of(caller, name));
    if !scoped.is_null() && !own_image().contains(&(scoped as usize)) {
        return scoped;
    }
    // Nothing; asked once more, because dlerror is to tell of a look-up that failed.
    behind_us(name)
}

/// The symbol in the objects behind us in the global scope.
fn behind_us(name: &CStr) -> *mut c_void {
    or_null(real_dlsym::find_behind_us(name))
}

fn or_null(found: Option<NonNull<c_void>>) -> *mut c_void {
    found.map_or(ptr::null_mut(), NonNull::as_ptr)
}

/// The driver's functions as first seen in this process.
pub struct Driver {
    is_ready: AtomicBool,
    functions: [AtomicPtr<c_void>; MAX_HOOKS],
    get_proc_address: [AtomicPtr<c_void>; 2],
}

/// Hooks beyond these would not be seen by preloading; a test compares it with the table.
pub const MAX_HOOKS: usize = 256;

static DRIVER: Driver = Driver {
    is_ready: AtomicBool::new(false),
    functions: [const { AtomicPtr::new(ptr::null_mut()) }; MAX_HOOKS],
    get_proc_address: [const { AtomicPtr::new(ptr::null_mut()) }; 2],
};

impl Driver {
    /// The driver, if libcuda is in this process. It is not loaded; but once seen, it stays loaded, because its addresses
    /// are kept.
    pub fn seen() -> Option<&'static Self> {
        // Acquire, with the Release below: whoever sees it ready sees all addresses.
        if DRIVER.is_ready.load(Ordering::Acquire) {
            return Some(&DRIVER);
        }
        let libcuda = bindings::dl::Library::already_loaded(c"libcuda.so.1")?;
        let find = |name: &CStr| or_null(real_dlsym::find_in(&libcuda, name));
        // Threads that come here at once all store the same. Relaxed: see the Release below.
        for (function, hook) in DRIVER.functions.iter().zip(HOOKS.iter()) {
            function.store(find(hook.name), Ordering::Relaxed);
        }
        for (function, name) in
            DRIVER.get_proc_address.iter().zip([c"cuGetProcAddress", c"cuGetProcAddress_v2"])
        {
            function.store(find(name), Ordering::Relaxed);
        }
        DRIVER.is_ready.store(true, Ordering::Release);
        Some(&DRIVER)
    }

    /// What to hand out for an address that a look-up has found.
    pub fn exchange(&self, found: *mut c_void) -> *mut c_void {
        if found.is_null() || kill_switch::is_off() {
            return found;
        }
        let is_found = |function: &AtomicPtr<c_void>| function.load(Ordering::Relaxed) == found;
        match self.get_proc_address.iter().position(is_found) {
            Some(0) => return get_proc_address as *mut c_void,
            Some(_) => return get_proc_address_v2 as *mut c_void,
            None => {}
        }
        let known = self.functions.iter().zip(HOOKS.iter()).find(|(function, _)| is_found(function));
        known.map_or(found, |(_, hook)| hand_out(hook, found))
    }
}

/// cuGetProcAddress(symbol, result, version, flags)
///
/// "C-unwind", and the driver is called outside the fence: a thread that is cancelled in there unwinds through us.
unsafe extern "C-unwind" fn get_proc_address(
    symbol: *const c_char,
    result: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> c_int {
    type Real = unsafe extern "C-unwind" fn(*const c_char, *mut *mut c_void, c_int, u64) -> c_int;
    let Some(real) = real_get_proc_address(0) else { return NO_DRIVER };
    // SAFETY: the driver's function of this name, which has this signature.
    let real: Real = unsafe { core::mem::transmute(real.as_ptr()) };
    // SAFETY: the caller's own arguments.
    let status = unsafe { real(symbol, result, version, flags) };
    // SAFETY: as above.
    unsafe { exchange_result(status, result) };
    status
}

/// cuGetProcAddress_v2(symbol, result, version, flags, why)
///
/// See [`get_proc_address`].
unsafe extern "C-unwind" fn get_proc_address_v2(
    symbol: *const c_char,
    result: *mut *mut c_void,
    version: c_int,
    flags: u64,
    why: *mut c_void,
) -> c_int {
    type Real =
        unsafe extern "C-unwind" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_void) -> c_int;
    let Some(real) = real_get_proc_address(1) else { return NO_DRIVER };
    // SAFETY: the driver's function of this name, which has this signature.
    let real: Real = unsafe { core::mem::transmute(real.as_ptr()) };
    // SAFETY: the caller's own arguments.
    let status = unsafe { real(symbol, result, version, flags, why) };
    // SAFETY: as above.
    unsafe { exchange_result(status, result) };
    status
}

fn real_get_proc_address(form: usize) -> Option<NonNull<c_void>> {
    // Relaxed: this function's caller was handed out after the addresses were stored.
    DRIVER.get_proc_address.get(form).and_then(|function| NonNull::new(function.load(Ordering::Relaxed)))
}

/// Exchanges what cuGetProcAddress has found.
///
/// # Safety
///
/// `result` is the caller's argument to cuGetProcAddress, which has returned `status`.
unsafe fn exchange_result(status: c_int, result: *mut *mut c_void) {
    if status != 0 || result.is_null() {
        return;
    }
    panic_fence((), || {
        // SAFETY: the driver has written there.
        unsafe { *result = DRIVER.exchange(*result) };
    });
}

/// The address to give to somebody who asked for a hooked function.
fn hand_out(hook: &Hook, real: *mut c_void) -> *mut c_void {
    // Acquire, with the Release in entry_patch: a patched function leads to us by itself.
    if hook.way.load(Ordering::Acquire) == Way::Patched as u32 {
        return real;
    }
    // Release, and before the replacement is handed out, so that it never finds null. When the function is being patched at
    // this moment, the trampoline is there already or will overwrite this; both forward correctly.
    let _ = hook.original.compare_exchange(ptr::null_mut(), real, Ordering::Release, Ordering::Relaxed);
    let preloaded = Way::Preloaded as u32;
    for way in [Way::None, Way::Callback] {
        // Relaxed: reported only.
        let _ = hook.way.compare_exchange(way as u32, preloaded, Ordering::Relaxed, Ordering::Relaxed);
    }
    (hook.replacement)().cast_mut()
}

macro_rules! exports {
    ($($name:ident)*) => {
        /// The driver functions that we export; their order is that of [`PLAIN_TARGETS`].
        pub const EXPORTS: &[&CStr] = &[$(bindings::dl::c_name(concat!(stringify!($name), "\0"))),*];
    };
}
with_exported_names!(exports);

/// Where each exported driver function jumps to; null until it is first called.
pub static PLAIN_TARGETS: [AtomicPtr<c_void>; EXPORTS.len()] =
    [const { AtomicPtr::new(ptr::null_mut()) }; EXPORTS.len()];

/// Finds where an exported driver function jumps to. Never null.
pub extern "C" fn plain_target(index: usize) -> *mut c_void {
    let nowhere = no_driver as *mut c_void;
    panic_fence(nowhere, || {
        let _errno = Errno::save();
        let Some(name) = EXPORTS.get(index) else { return nowhere };
        let driver = Driver::seen();
        // What the dynamic linker would have bound to: the next in the global scope, which may be another tool's function;
        // or libcuda itself, when it was opened into a scope of its own.
        let mut real = behind_us(name);
        if real.is_null() {
            let libcuda = bindings::dl::Library::already_loaded(c"libcuda.so.1");
            real = or_null(libcuda.and_then(|libcuda| real_dlsym::find_in(&libcuda, name)));
        }
        if real.is_null() {
            // Not kept: libcuda may come yet.
            return nowhere;
        }
        let target = driver.map_or(real, |driver| driver.exchange(real));
        if let Some(slot) = PLAIN_TARGETS.get(index) {
            // Release: with the stub's load; the hook's original was stored before.
            slot.store(target, Ordering::Release);
        }
        target
    })
}

extern "C" fn no_driver() -> c_int {
    NO_DRIVER
}

static IS_PRELOADED: AtomicBool = AtomicBool::new(false);

/// Whether the dynamic linker loaded this library before the program started, as LD_PRELOAD and /etc/ld.so.preload ask.
pub fn is_preloaded() -> bool {
    // Relaxed: written before the program's first instruction, or before dlopen returns.
    IS_PRELOADED.load(Ordering::Relaxed)
}

/// The constructor's only work. A preloaded library stands before the C library in the order of loading; one that was opened
/// stands behind it.
pub fn note_way_in() {
    let (ours, libc) = (own_image().start, libc::dlvsym as *const () as usize);
    let is_first = real_dlsym::first_loaded_of(ours, libc) == Some(ours);
    // Relaxed: see `is_preloaded`.
    IS_PRELOADED.store(is_first, Ordering::Relaxed);
}

unsafe extern "C" {
    #[link_name = "__ehdr_start"]
    static IMAGE_START: u8;
    #[link_name = "_end"]
    static IMAGE_END: u8;
}

/// The addresses of this library.
fn own_image() -> core::ops::Range<usize> {
    (&raw const IMAGE_START) as usize..(&raw const IMAGE_END) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The exports and the hook table name the same functions, and all of them fit.
    #[test]
    fn exports_are_the_hooked_functions() {
        let exported: BTreeSet<&CStr> = EXPORTS.iter().copied().skip(2).collect();
        let hooked: BTreeSet<&CStr> = HOOKS.iter().map(|hook| hook.name).collect();
        assert_eq!(exported, hooked);
        assert_eq!(EXPORTS[..2], [c"cuGetProcAddress", c"cuGetProcAddress_v2"]);
        assert!(HOOKS.len() <= MAX_HOOKS);
    }

    /// Without libcuda an exported driver function says that there is no driver, and forgets that it was asked.
    #[test]
    fn export_without_driver_says_so() {
        let target = plain_target(2);
        assert_eq!(target, no_driver as *mut c_void);
        assert!(PLAIN_TARGETS[2].load(Ordering::Relaxed).is_null());
        assert_eq!(no_driver(), NO_DRIVER);
        assert!(Driver::seen().is_none());
        assert!(!is_preloaded());
    }
}
