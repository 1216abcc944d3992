//! The other door: our addresses instead of the driver's, for whoever asks the dynamic linker or the driver for them.
//!
//! A function is known by its address, not by the name it was asked by: cuGetProcAddress maps names, versions and
//! per-thread default streams to libcuda's own symbols, and one function has one address.
//!
//! Runs on: any thread that looks a driver function up. Allocates: no. Locks: those of the dynamic linker.
//! Syscalls: none of ours.

use super::HOOKS;
use super::table::{Hook, Way};
use bindings::cuda_driver::sys::{CUDA_ERROR_NOT_INITIALIZED, CUDA_SUCCESS, CUresult};
use bindings::dl::Library;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::{self, NonNull};
use shared_abi::sync::{AtomicPtr, AtomicU32, Ordering};

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The C library's own dlsym; null until it is first needed.
pub static REAL_DLSYM: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Finds the C library's own dlsym: by version, since a look-up by name alone would find ours.
pub extern "C" fn find_real_dlsym() -> *mut c_void {
    let known = REAL_DLSYM.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    let versions = [c"GLIBC_2.34", c"GLIBC_2.2.5", c"GLIBC_2.17"];
    // SAFETY: C strings; RTLD_NEXT skips this library where it exports a dlsym of its own.
    let found = versions
        .into_iter()
        .map(|version| unsafe { dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) });
    let real = found.into_iter().find(|address| !address.is_null()).unwrap_or(ptr::null_mut());
    REAL_DLSYM.store(real, Ordering::Relaxed);
    real
}

unsafe extern "C" {
    fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void;
}

/// A symbol as the C library itself finds it. The handle is one of the dynamic linker's.
#[allow(clippy::not_unsafe_ptr_arg_deref)] // A handle is opaque: the linker validates it.
pub fn real_symbol(handle: *mut c_void, name: &CStr) -> Option<NonNull<c_void>> {
    let real = find_real_dlsym();
    if real.is_null() {
        return None;
    }
    // SAFETY: the address is dlsym's.
    let dlsym = unsafe { core::mem::transmute::<*mut c_void, Dlsym>(real) };
    // SAFETY: a handle from the dynamic linker and a C string.
    NonNull::new(unsafe { dlsym(handle, name.as_ptr()) })
}

/// dlsym for names that begin with "cu", with a real handle.
///
/// # Safety
/// As for dlsym.
pub unsafe extern "C" fn dlsym_of_driver(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: by the contract of this function; the name is not null, the caller has looked at it.
    let name = unsafe { CStr::from_ptr(name) };
    match real_symbol(handle, name) {
        Some(address) => ours_for(address.as_ptr()),
        None => ptr::null_mut(),
    }
}

/// cuGetProcAddress (12.0 and before): the driver's, with our addresses in its answers.
///
/// # Safety
/// As for cuGetProcAddress.
pub unsafe extern "C" fn get_proc_address(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> CUresult {
    type Real = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64) -> CUresult;
    let Some(real) = originals().get_proc_address(GetProcAddress::V1) else {
        return CUDA_ERROR_NOT_INITIALIZED;
    };
    // SAFETY: the address is cuGetProcAddress's, which has this signature.
    let real = unsafe { core::mem::transmute::<*mut c_void, Real>(real) };
    // SAFETY: the caller's own arguments.
    let result = unsafe { real(symbol, function, version, flags) };
    // SAFETY: as above.
    unsafe { replace_answer(result, function) };
    result
}

/// cuGetProcAddress_v2: the driver's, with our addresses in its answers.
///
/// # Safety
/// As for cuGetProcAddress_v2.
pub unsafe extern "C" fn get_proc_address_v2(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut c_int,
) -> CUresult {
    type Real = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> CUresult;
    let Some(real) = originals().get_proc_address(GetProcAddress::V2) else {
        return CUDA_ERROR_NOT_INITIALIZED;
    };
    // SAFETY: the address is cuGetProcAddress_v2's, which has this signature.
    let real = unsafe { core::mem::transmute::<*mut c_void, Real>(real) };
    // SAFETY: the caller's own arguments.
    let result = unsafe { real(symbol, function, version, flags, status) };
    // SAFETY: as above.
    unsafe { replace_answer(result, function) };
    result
}

/// # Safety
/// `function` is null or where the driver has put an address when `result` is success.
unsafe fn replace_answer(result: CUresult, function: *mut *mut c_void) {
    if result != CUDA_SUCCESS || function.is_null() {
        return;
    }
    // SAFETY: by the contract of this function.
    unsafe { *function = ours_for(*function) };
}

/// Gives a hook that nobody has looked up its original: a program linked to libcuda calls our exported symbol.
#[cold]
pub fn find_original(hook: &Hook) -> *mut c_void {
    let Some(libcuda) = Library::already_loaded(c"libcuda.so.1") else { return ptr::null_mut() };
    let Some(address) = real_symbol(libcuda.handle().as_ptr(), hook.name) else { return ptr::null_mut() };
    adopt(hook, address.as_ptr());
    address.as_ptr()
}

/// Our address for one of the driver's, or the same address.
fn ours_for(address: *mut c_void) -> *mut c_void {
    let originals = originals();
    if !originals.are_known() || address.is_null() {
        return address;
    }
    if originals.get_proc_address(GetProcAddress::V2) == Some(address) {
        return get_proc_address_v2 as *const () as *mut c_void;
    }
    if originals.get_proc_address(GetProcAddress::V1) == Some(address) {
        return get_proc_address as *const () as *mut c_void;
    }
    let Some(hook) =
        HOOKS.iter().zip(&originals.hooks).find(|(_, known)| known.load(Ordering::Relaxed) == address)
    else {
        return address;
    };
    match hook.0.way() {
        // Whoever calls the driver's own address passes by the patch.
        Way::Patched => address,
        _ => {
            adopt(hook.0, address);
            (hook.0.replacement)().cast_mut()
        }
    }
}

fn adopt(hook: &Hook, original: *mut c_void) {
    let taken =
        hook.original.compare_exchange(ptr::null_mut(), original, Ordering::Release, Ordering::Relaxed);
    if taken.is_ok() {
        hook.way.store(Way::Preloaded as u32, Ordering::Relaxed);
    }
}

/// Addresses of the driver's functions, looked up once when libcuda is first seen.
struct Originals {
    /// 0: not looked up; 1: somebody is at it; 2: known.
    state: AtomicU32,
    hooks: [AtomicPtr<c_void>; HOOKS.len()],
    get_proc_address: [AtomicPtr<c_void>; 2],
}

#[derive(Clone, Copy)]
enum GetProcAddress {
    V1,
    V2,
}

static ORIGINALS: Originals = Originals {
    state: AtomicU32::new(0),
    hooks: [const { AtomicPtr::new(ptr::null_mut()) }; HOOKS.len()],
    get_proc_address: [const { AtomicPtr::new(ptr::null_mut()) }; 2],
};

fn originals() -> &'static Originals {
    ORIGINALS.look_up();
    &ORIGINALS
}

impl Originals {
    fn are_known(&self) -> bool {
        // Acquire pairs with the Release in `look_up`.
        self.state.load(Ordering::Acquire) == 2
    }

    /// A thread that comes while another looks up goes on without us for this once: it must not wait in the linker.
    fn look_up(&self) {
        if self.are_known() {
            return;
        }
        let Some(libcuda) = Library::already_loaded(c"libcuda.so.1") else { return };
        if self.state.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        let find = |name: &CStr| {
            real_symbol(libcuda.handle().as_ptr(), name).map_or(ptr::null_mut(), NonNull::as_ptr)
        };
        for (hook, known) in HOOKS.iter().zip(&self.hooks) {
            known.store(find(hook.name), Ordering::Relaxed);
        }
        for (name, known) in [c"cuGetProcAddress", c"cuGetProcAddress_v2"].iter().zip(&self.get_proc_address)
        {
            known.store(find(name), Ordering::Relaxed);
        }
        self.state.store(2, Ordering::Release);
    }

    fn get_proc_address(&self, which: GetProcAddress) -> Option<*mut c_void> {
        let [v1, v2] = &self.get_proc_address;
        let known = match which {
            GetProcAddress::V1 => v1,
            GetProcAddress::V2 => v2,
        };
        Some(known.load(Ordering::Relaxed)).filter(|address| !address.is_null())
    }
}
