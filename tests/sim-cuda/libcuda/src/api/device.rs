//! cuInit, which loads the injection library as the real driver does, and the one simulated device.

use crate::abi::*;
use crate::call::{run, set_initialized};
use crate::clock::RECORD_CLOCK_OFFSET_NS;
use crate::entry::Api;
use core::cell::Cell;
use core::ffi::{c_char, c_int};
use std::ffi::CString;
use std::sync::{LazyLock, Once};

const NAME: &[u8] = b"Simulated H200\0";
const MEMORY_BYTES: usize = 141 << 30;

static INIT: Once = Once::new();
thread_local! {
    static IN_INIT: Cell<bool> = const { Cell::new(false) };
}

pub extern "C" fn init(flags: u32) -> CUresult {
    if flags != 0 {
        return INVALID_VALUE;
    }
    // The injection library may call cuInit itself, on this thread.
    if crate::call::is_forked_child() || IN_INIT.get() {
        return if IN_INIT.get() { SUCCESS } else { NOT_INITIALIZED };
    }
    INIT.call_once(|| {
        LazyLock::force(&RECORD_CLOCK_OFFSET_NS);
        set_initialized();
        IN_INIT.set(true);
        inject();
        IN_INIT.set(false);
    });
    run(Api::cuInit, || Ok(()))
}

fn inject() {
    let Some(path) = std::env::var_os("CUDA_INJECTION64_PATH").filter(|path| !path.is_empty()) else {
        return;
    };
    let Ok(path) = CString::new(path.into_encoded_bytes()) else { return };
    // SAFETY: the path is a C string; whoever set the variable asked for the library's code to run.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    if library.is_null() {
        return;
    }
    // SAFETY: the handle is a loaded library and the name a C string.
    let symbol = unsafe { libc::dlsym(library, c"InitializeInjection".as_ptr()) };
    if !symbol.is_null() {
        // SAFETY: an injection library declares this function so.
        let initialize =
            unsafe { core::mem::transmute::<*mut libc::c_void, extern "C" fn() -> c_int>(symbol) };
        initialize();
    }
}

/// Works before cuInit, as in the real driver.
pub extern "C" fn driver_version(version: Out<c_int>) -> CUresult {
    version.set(13000).err().unwrap_or(SUCCESS)
}

/// Refuses all devices but the one.
pub fn check(device: i32) -> Driver<()> {
    if device == 0 { Ok(()) } else { Err(INVALID_DEVICE) }
}

pub extern "C" fn get(device: Out<i32>, ordinal: c_int) -> CUresult {
    run(Api::cuDeviceGet, || check(ordinal).and_then(|()| device.set(0)))
}

pub extern "C" fn count(count: Out<c_int>) -> CUresult {
    run(Api::cuDeviceGetCount, || count.set(1))
}

pub extern "C" fn name(name: Out<c_char>, length: c_int, device: i32) -> CUresult {
    run(Api::cuDeviceGetName, || {
        check(device)?;
        let room = usize::try_from(length).map_err(|_| INVALID_VALUE)?;
        if name.is_null() || room == 0 {
            return Err(INVALID_VALUE);
        }
        let mut text: Vec<c_char> = NAME.iter().take(room).map(|byte| *byte as c_char).collect();
        if let Some(last) = text.last_mut() {
            *last = 0;
        }
        name.set_all(&text);
        Ok(())
    })
}

pub extern "C" fn attribute(value: Out<c_int>, attribute: c_int, device: i32) -> CUresult {
    run(Api::cuDeviceGetAttribute, || {
        check(device)?;
        value.set(match attribute {
            1 => 1024,        // threads of a block
            2 | 3 => 1024,    // block x, y
            4 => 64,          // block z
            5 => 0x7fff_ffff, // grid x
            6 | 7 => 65535,   // grid y, z
            10 => 32,         // warp
            13 => 1_980_000,  // clock, kHz
            16 => 132,        // multiprocessors
            75 => 9,          // compute capability, major
            76 => 0,          // minor
            _ => 0,
        })
    })
}

pub extern "C" fn total_memory(bytes: Out<usize>, device: i32) -> CUresult {
    run(Api::cuDeviceTotalMem_v2, || check(device).and_then(|()| bytes.set(MEMORY_BYTES)))
}
