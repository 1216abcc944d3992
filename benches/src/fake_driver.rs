//! A libcuda whose functions return at once, so that a bench measures us and not a driver: the one of the preload tests,
//! compiled by gcc when a bench starts.

use bindings::dl::Library;
use core::ffi::c_void;
use std::ffi::CString;
use std::path::Path;
use std::process::Command;

/// cuGraphLaunch.
pub type GraphLaunch = unsafe extern "C" fn(*mut c_void, *mut c_void) -> i32;

/// The graph for which the fake cuGraphLaunch returns success (it returns a number made of its arguments).
pub fn graph() -> *mut c_void {
    (-300_000isize) as *mut c_void
}

/// Compiles and loads the driver.
pub fn load() -> Library {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/suite/tests/preload/libcuda.c");
    let directory = std::env::temp_dir().join(format!("bench-driver-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory for the driver");
    let library = directory.join("libcuda.so.1");
    let built = Command::new("gcc")
        .args([
            "-O1",
            "-falign-functions=16",
            "-shared",
            "-fPIC",
            "-Wl,-Bsymbolic",
            "-Wl,-soname,libcuda.so.1",
            "-o",
        ])
        .args([&library, &source])
        .status()
        .expect("gcc can be started");
    assert!(built.success(), "the fake driver does not compile");
    let path = CString::new(library.as_os_str().as_encoded_bytes()).expect("a path without NUL");
    let loaded = Library::load(&path).expect("the fake driver can be loaded");
    std::fs::remove_dir_all(&directory).expect("the driver's file is no longer needed");
    loaded
}

/// The driver's cuGraphLaunch: what an engine calls.
pub fn graph_launch(driver: &Library) -> GraphLaunch {
    let address = driver.symbol(c"cuGraphLaunch").expect("the fake driver has a cuGraphLaunch");
    // SAFETY: the fake driver's function has this signature.
    unsafe { core::mem::transmute::<*mut c_void, GraphLaunch>(address.as_ptr()) }
}

/// Arms the library in this process, as the driver would during cuInit, with these settings.
pub fn arm(settings: &[(&str, &str)]) {
    for (name, value) in settings {
        // The engine's environment is not ours to change; a bench's is.
        #[allow(clippy::disallowed_methods)]
        // SAFETY: benches do this before they start a thread.
        unsafe {
            std::env::set_var(name, value)
        };
    }
    interposer::lifecycle::on_injection();
    assert!(interposer::lifecycle::active().is_some(), "not armed");
}
