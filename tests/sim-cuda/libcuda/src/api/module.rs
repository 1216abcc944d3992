//! Modules and libraries from images of our own: `SIMCUBIN`, then a line `<mangled name> <nanoseconds>` for each kernel.

use crate::abi::*;
use crate::call::run;
use crate::entry::Api;
use crate::handle_table::HandleTable;
use crate::world::{Function, Image, lock};
use core::ffi::{CStr, c_char};
use core::ptr;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::Mutex;

/// Names live for ever, each once: activity records and callers keep pointers to them.
static NAMES: Mutex<BTreeMap<String, &'static CStr>> = Mutex::new(BTreeMap::new());

fn intern(name: &str) -> &'static CStr {
    let mut names = NAMES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    names
        .entry(name.to_owned())
        .or_insert_with(|| Box::leak(CString::new(name).unwrap_or_default().into_boxed_c_str()))
}

fn read_image(image: Text, context: Handle) -> Driver<Image> {
    let text = image.get()?;
    let mut lines = text.lines();
    if lines.next() != Some("SIMCUBIN") {
        return Err(INVALID_IMAGE);
    }
    let mut functions = BTreeMap::new();
    for line in lines.filter(|line| !line.trim().is_empty()) {
        let (name, duration) = line.trim().rsplit_once(' ').ok_or(INVALID_IMAGE)?;
        functions.insert(name.trim().to_owned(), duration.parse().map_err(|_| INVALID_IMAGE)?);
    }
    Ok(Image { context, functions, made: BTreeMap::new() })
}

/// The function of this name; the same handle each time.
fn make(image: &mut Image, made: &mut HandleTable<Function>, name: &str) -> Driver<Handle> {
    if let Some(handle) = image.made.get(name) {
        return Ok(*handle);
    }
    let duration_ns = *image.functions.get(name).ok_or(NOT_FOUND)?;
    let handle = made.insert(Function { name: intern(name), duration_ns });
    image.made.insert(name.to_owned(), handle);
    Ok(handle)
}

pub extern "C" fn load(module: Out<Handle>, image: Text) -> CUresult {
    run(Api::cuModuleLoadData, || {
        let mut world = lock();
        let context = world.current()?;
        let image = read_image(image, context)?;
        world.check_unsafe_call()?;
        module.set(world.modules.insert(image))
    })
}

pub extern "C" fn unload(module: Handle) -> CUresult {
    run(Api::cuModuleUnload, || {
        let mut world = lock();
        world.current()?;
        world.check_unsafe_call()?;
        for (_, function) in world.modules.remove(module)?.made {
            let _ = world.functions.remove(function);
        }
        Ok(())
    })
}

pub extern "C" fn get_function(function: Out<Handle>, module: Handle, name: Text) -> CUresult {
    run(Api::cuModuleGetFunction, || {
        let mut guard = lock();
        let world = &mut *guard;
        let current = world.current()?;
        let image = world.modules.get_mut(module)?;
        if image.context != current {
            return Err(INVALID_HANDLE);
        }
        function.set(make(image, &mut world.functions, &name.get()?)?)
    })
}

/// Libraries belong to no context, hence none has to be current.
#[allow(clippy::too_many_arguments, reason = "the driver's signature")]
pub extern "C" fn load_library(
    library: Out<Handle>,
    code: Text,
    _jit: usize,
    _jit_values: usize,
    _jit_count: u32,
    _options: usize,
    _values: usize,
    _count: u32,
) -> CUresult {
    run(Api::cuLibraryLoadData, || {
        let image = read_image(code, 0)?;
        let mut world = lock();
        world.check_unsafe_call()?;
        library.set(world.libraries.insert(image))
    })
}

pub extern "C" fn unload_library(library: Handle) -> CUresult {
    run(Api::cuLibraryUnload, || {
        let mut world = lock();
        for (_, kernel) in world.libraries.remove(library)?.made {
            let _ = world.kernels.remove(kernel);
        }
        Ok(())
    })
}

pub extern "C" fn get_kernel(kernel: Out<Handle>, library: Handle, name: Text) -> CUresult {
    run(Api::cuLibraryGetKernel, || {
        let mut guard = lock();
        let world = &mut *guard;
        let image = world.libraries.get_mut(library)?;
        kernel.set(make(image, &mut world.kernels, &name.get()?)?)
    })
}

fn put_name(name: Out<*const c_char>, found: Driver<&Function>) -> Driver<()> {
    name.set(ptr::null())?;
    name.set(found?.name.as_ptr())
}

/// Has no name for a kernel that was passed as a function, as the real one.
pub extern "C" fn function_name(name: Out<*const c_char>, function: Handle) -> CUresult {
    run(Api::cuFuncGetName, || put_name(name, lock().functions.get(function)))
}

pub extern "C" fn kernel_name(name: Out<*const c_char>, kernel: Handle) -> CUresult {
    run(Api::cuKernelGetName, || put_name(name, lock().kernels.get(kernel)))
}
