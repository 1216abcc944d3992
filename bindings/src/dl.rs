//! Loaded libraries and their symbols. A library is never unloaded: its functions may be on a stack.

use core::ffi::{CStr, c_char, c_void};
use core::fmt;
use core::ptr::NonNull;

/// A library that stays loaded.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    handle: NonNull<c_void>,
}

// SAFETY: a dlopen handle may be used from any thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    /// The library of this name, if the process has it mapped already; it is not loaded otherwise.
    pub fn already_loaded(name: &CStr) -> Option<Self> {
        // SAFETY: `name` is a C string; RTLD_NOLOAD runs no code of the library.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
        NonNull::new(handle).map(|handle| Self { handle })
    }

    /// Loads the library of this name or path into a local scope.
    pub fn load(name: &CStr) -> Option<Self> {
        // SAFETY: `name` is a C string; loading runs the library's constructors, which the caller asks for.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        NonNull::new(handle).map(|handle| Self { handle })
    }

    /// Address of a symbol.
    pub fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the handle came from dlopen and is never closed.
        NonNull::new(unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) })
    }

    /// The handle, for functions that take one.
    pub fn handle(&self) -> NonNull<c_void> {
        self.handle
    }
}

/// The last message of the dynamic linker on this thread, into a fixed buffer.
pub fn last_error() -> LinkerMessage {
    let mut message = LinkerMessage { text: [0; 200], length: 0 };
    // SAFETY: dlerror returns null or a C string that is valid until the next dl call on this thread.
    let raw = unsafe { libc::dlerror() };
    if !raw.is_null() {
        // SAFETY: as above.
        let bytes = unsafe { CStr::from_ptr(raw.cast::<c_char>()) }.to_bytes();
        message.length = bytes.len().min(message.text.len());
        for (to, from) in message.text.iter_mut().zip(bytes) {
            *to = *from;
        }
    }
    message
}

/// A message of the dynamic linker, cut to 200 bytes.
#[derive(Clone, Copy, Debug)]
pub struct LinkerMessage {
    text: [u8; 200],
    length: usize,
}

impl fmt::Display for LinkerMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text.get(..self.length).unwrap_or_default();
        f.write_str(core::str::from_utf8(text).unwrap_or("(message is not UTF-8)"))
    }
}

/// Declares a table of function pointers that are looked up by name. `required` names make the look-up fail.
macro_rules! dispatch {
    (
        $(#[$doc:meta])* $table:ident, $missing:ident
        { required { $($(#[$rdoc:meta])* $r:ident: fn($($ra:ty),* $(,)?) -> $rr:ty;)* }
          optional { $($(#[$odoc:meta])* $o:ident: fn($($oa:ty),* $(,)?) -> $or:ty;)* } }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        #[allow(non_snake_case)]
        pub struct $table {
            $($(#[$rdoc])* pub $r: unsafe extern "C" fn($($ra),*) -> $rr,)*
            $($(#[$odoc])* pub $o: Option<unsafe extern "C" fn($($oa),*) -> $or>,)*
        }

        /// A function that every supported version has was not found.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $missing(pub &'static str);

        impl $table {
            /// Looks all functions up in a loaded library.
            pub fn find(library: &$crate::dl::Library) -> Result<Self, $missing> {
                Ok(Self {
                    $($r: {
                        let name = const { $crate::dl::c_name(concat!(stringify!($r), "\0")) };
                        let address = library.symbol(name).ok_or($missing(stringify!($r)))?;
                        // SAFETY: the vendor's header declares this symbol with this signature.
                        unsafe { core::mem::transmute::<*mut core::ffi::c_void, unsafe extern "C" fn($($ra),*) -> $rr>(address.as_ptr()) }
                    },)*
                    $($o: {
                        let name = const { $crate::dl::c_name(concat!(stringify!($o), "\0")) };
                        library.symbol(name).map(|address| {
                            // SAFETY: as above.
                            unsafe { core::mem::transmute::<*mut core::ffi::c_void, unsafe extern "C" fn($($oa),*) -> $or>(address.as_ptr()) }
                        })
                    },)*
                })
            }
        }
    };
}
pub(crate) use dispatch;

/// A C string from a literal that ends in NUL; used at compile time only.
pub const fn c_name(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(name) => name,
        Err(_) => c"",
    }
}
