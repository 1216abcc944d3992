//! The C library's own dlsym, which our exported one stands in front of.
//!
//! Allocates: no. Locks: the dynamic linker's. Syscalls: no.

use bindings::dl::Library;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use shared_abi::sync::{AtomicPtr, Ordering};

/// Its address once found. The exported dlsym's stub reads it.
pub static REAL_DLSYM: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The versions under which glibc has it: from 2.34 in libc, before that in libdl (x86-64, aarch64).
const VERSIONS: [&CStr; 3] = [c"GLIBC_2.34", c"GLIBC_2.2.5", c"GLIBC_2.17"];

/// Finds it. Asks for a version, because a library that is preloaded behind us may define dlsym too and then is the next in
/// turn; that we export no dlvsym keeps this from coming back to us. Null when there is none, which glibc rules out.
pub fn address() -> *mut c_void {
    // Relaxed: an address of code that is there from the start.
    let known = REAL_DLSYM.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    for version in VERSIONS {
        // SAFETY: both are C strings. RTLD_NEXT means: behind the object that this code lies in.
        let found = unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) };
        if !found.is_null() {
            // Relaxed: as above; all threads find the same.
            REAL_DLSYM.store(found, Ordering::Relaxed);
            return found;
        }
    }
    ptr::null_mut()
}

/// The address of a symbol of this library and its dependencies.
pub fn find_in(library: &Library, name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: a library is never unloaded.
    unsafe { find(library.handle().as_ptr(), name) }
}

/// The address of a symbol in the objects behind this library in the global scope.
pub fn find_behind_us(name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: a special handle.
    unsafe { find(libc::RTLD_NEXT, name) }
}

/// The address of a symbol, as the real dlsym finds it for a caller in this library.
///
/// # Safety
///
/// `handle` is a special one or one of a library that is loaded.
pub unsafe fn find(handle: *mut c_void, name: &CStr) -> Option<NonNull<c_void>> {
    let real = NonNull::new(address())?;
    // SAFETY: glibc's dlsym has this signature.
    let real: Dlsym = unsafe { core::mem::transmute(real.as_ptr()) };
    // SAFETY: the caller's promise.
    NonNull::new(unsafe { real(handle, name.as_ptr()) })
}

/// How many bytes the function at this address has, by the symbol table of its object: up to its own end, or to the next
/// symbol if that begins earlier. None when no symbol with a size begins there.
pub fn symbol_bytes(function: NonNull<u8>) -> Option<usize> {
    let address = function.as_ptr() as usize;
    let symbol = symbol_at(address)?;
    let bytes =
        usize::try_from(symbol.bytes).ok().filter(|bytes| *bytes != 0 && symbol.address == address)?;
    // Nothing longer than endbr64, four bytes and the longest instruction is ever moved.
    let begins_later =
        |offset: &usize| symbol_at(address + offset).is_some_and(|other| other.address > address);
    Some((1..bytes.min(24)).find(begins_later).unwrap_or(bytes))
}

struct Symbol {
    address: usize,
    bytes: u64,
}

/// Elf64_Sym.
#[repr(C)]
struct ElfSymbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

const RTLD_DL_SYMENT: c_int = 1;

unsafe extern "C" {
    fn dladdr1(
        address: *const c_void,
        info: *mut libc::Dl_info,
        extra: *mut *mut c_void,
        flags: c_int,
    ) -> c_int;
}

/// The last symbol that begins at or before an address and reaches it.
fn symbol_at(address: usize) -> Option<Symbol> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    let mut entry: *mut c_void = ptr::null_mut();
    let address = ptr::with_exposed_provenance(address);
    // SAFETY: dladdr1 reads no memory at `address`; both results are valid for the call.
    let found = unsafe { dladdr1(address, info.as_mut_ptr(), &mut entry, RTLD_DL_SYMENT) };
    if found == 0 || entry.is_null() {
        return None;
    }
    // SAFETY: zeroed, then filled by dladdr1; all its fields may be null.
    let info = unsafe { info.assume_init() };
    // SAFETY: with RTLD_DL_SYMENT the extra result points to the symbol's entry in the object's table.
    let bytes = unsafe { (*entry.cast::<ElfSymbol>()).size };
    Some(Symbol { address: info.dli_saddr as usize, bytes })
}

/// The first fields of glibc's `struct link_map`, which its debugger interface fixes.
#[repr(C)]
struct LinkMap {
    base: usize,
    path: *const c_char,
    dynamic: *const c_void,
    next: *const LinkMap,
    previous: *const LinkMap,
}

const RTLD_DL_LINKMAP: c_int = 2;

/// The link map of the object that an address lies in; null when it lies in none.
fn object_of(address: usize) -> *const LinkMap {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    let mut map: *mut c_void = ptr::null_mut();
    let address = ptr::with_exposed_provenance(address);
    // SAFETY: dladdr1 reads no memory at `address`; both results are valid for the call.
    let found = unsafe { dladdr1(address, info.as_mut_ptr(), &mut map, RTLD_DL_LINKMAP) };
    if found == 0 { ptr::null() } else { map.cast() }
}

/// The symbol in the scope of the object that `caller` lies in: its own and its dependencies'. Clears dlerror.
pub fn find_in_scope_of(caller: usize, name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: the object that is calling us is loaded.
    find_in_object(unsafe { object_of(caller).as_ref() }?, name)
}

/// The symbol in the scope of a loaded object. A link map is a handle only once dlopen has given it a scope: those that came as
/// dependencies have none, and glibc follows its null pointer.
fn find_in_object(object: &LinkMap, name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: the path is a C string; of a loaded object, dlopen with RTLD_NOLOAD runs no code.
    let handle = unsafe { libc::dlopen(object.path, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return None;
    }
    // SAFETY: a handle from dlopen.
    let found = unsafe { find(handle, name) };
    // SAFETY: as above. The object stays loaded by whatever loaded it before us.
    unsafe { libc::dlclose(handle) };
    found
}

/// What RTLD_NEXT finds for `caller`, an object that stands before `ours`, a preloaded library, if that is found before `ours`
/// is reached. `None` when `caller` does not stand before `ours`.
pub fn find_between(caller: usize, ours: usize, name: &CStr) -> Option<*mut c_void> {
    let (caller, mut map) = (object_of(caller), object_of(ours));
    // SAFETY: getauxval reads a table that the kernel has written.
    let vdso = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
    let mut nearest: *mut c_void = ptr::null_mut();
    // Backwards, because what was loaded before a preloaded library, the program and other preloaded ones, is never unloaded.
    loop {
        // SAFETY: the link map of a loaded object; see above.
        map = unsafe { map.as_ref() }?.previous;
        // SAFETY: likewise.
        let object = unsafe { map.as_ref() }?;
        if map == caller {
            return Some(nearest);
        }
        // The kernel's object stands in the list but cannot be looked in.
        if object.base == vdso {
            continue;
        }
        // Of the object's scope, only the object itself counts.
        let found = find_in_object(object, name).filter(|found| object_of(found.as_ptr() as usize) == map);
        nearest = found.map_or(nearest, NonNull::as_ptr);
    }
}

/// Which of two addresses lies in the object that was loaded first.
pub fn first_loaded_of(one: usize, other: usize) -> Option<usize> {
    let mut search = Search { addresses: [one, other], found: None };
    // SAFETY: the callback gets the search, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit_object), (&raw mut search).cast()) };
    search.found
}

struct Search {
    addresses: [usize; 2],
    found: Option<usize>,
}

unsafe extern "C" fn visit_object(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: `first_loaded_of` passes a search, and dl_iterate_phdr an object that stays loaded during the call.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the object's program headers, of this number.
    let headers = unsafe { core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let holds = |address: &usize| {
        headers.iter().filter(|header| header.p_type == libc::PT_LOAD).any(|header| {
            let start = (info.dlpi_addr + header.p_vaddr) as usize;
            (start..start + header.p_memsz as usize).contains(address)
        })
    };
    search.found = search.addresses.iter().copied().find(holds);
    c_int::from(search.found.is_some())
}
