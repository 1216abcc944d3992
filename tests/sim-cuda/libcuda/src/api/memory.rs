//! Device memory: addresses are handed out and checked, copies and memsets take their time, but no byte is moved.

use crate::abi::*;
use crate::api::launch::submit;
use crate::call::{Call, run, twin};
use crate::entry::Api;
use crate::timeline::wait_for;
use crate::world::{Operation, World, lock};

/// CUPTI's copy kinds.
const HOST_TO_DEVICE: u32 = 1;
const DEVICE_TO_HOST: u32 = 2;
const DEVICE_TO_DEVICE: u32 = 8;
const HOST_TO_HOST: u32 = 9;

const ALIGNMENT: u64 = 512;

pub extern "C" fn allocate(address: Out<u64>, bytes: usize) -> CUresult {
    run(Api::cuMemAlloc_v2, || {
        let mut world = lock();
        world.current()?;
        if bytes == 0 || address.is_null() {
            return Err(INVALID_VALUE);
        }
        world.check_unsafe_call()?;
        let start = world.next_address;
        world.next_address += (bytes as u64).div_ceil(ALIGNMENT) * ALIGNMENT + ALIGNMENT;
        world.memory.insert(start, bytes as u64);
        address.set(start)
    })
}

pub extern "C" fn free(address: u64) -> CUresult {
    run(Api::cuMemFree_v2, || {
        let mut world = lock();
        world.current()?;
        world.check_unsafe_call()?;
        if address == 0 {
            return Ok(());
        }
        world.memory.remove(&address).map(|_| ()).ok_or(INVALID_VALUE)
    })
}

/// Checks the addresses of a copy and makes an operation of it. `expected` is a copy kind, 0 for any.
fn copy_operation(world: &World, to: u64, from: u64, bytes: usize, expected: u32) -> Driver<Operation> {
    if to == 0 || from == 0 {
        return Err(INVALID_VALUE);
    }
    let kind = match (world.is_device_memory(from), world.is_device_memory(to)) {
        (false, false) => HOST_TO_HOST,
        (false, true) => HOST_TO_DEVICE,
        (true, false) => DEVICE_TO_HOST,
        (true, true) => DEVICE_TO_DEVICE,
    };
    if expected != 0 && kind != expected {
        return Err(INVALID_VALUE);
    }
    Ok(Operation::Copy { kind, bytes: bytes as u64 })
}

fn set_operation(world: &World, to: u64, value: u32, bytes: usize) -> Driver<Operation> {
    if !world.is_device_memory(to) {
        return Err(INVALID_VALUE);
    }
    Ok(Operation::Set { value, bytes: bytes as u64 })
}

fn start(
    api: Api,
    stream: Handle,
    per_thread: bool,
    operation: impl FnOnce(&World) -> Driver<Operation>,
) -> CUresult {
    Call::new(api).run(|correlation_id| submit(stream, per_thread, correlation_id, operation).map(|_| ()))
}

/// The synchronous form: on the default stream, and unsafe during a capture.
fn start_and_wait(
    api: Api,
    per_thread: bool,
    operation: impl FnOnce(&World) -> Driver<Operation>,
) -> CUresult {
    Call::new(api).run(|correlation_id| {
        let context = {
            let mut world = lock();
            let context = world.current()?;
            world.check_unsafe_call()?;
            context
        };
        let stream = submit(0, per_thread, correlation_id, operation)?;
        wait_for(context, &[stream])
    })
}

macro_rules! copies {
    ($($name:ident = $legacy:ident, $per_thread:ident, $kind:expr;)*) => {$(
        pub extern "C" fn $name<const PER_THREAD: bool>(to: u64, from: u64, bytes: usize, stream: Handle) -> CUresult {
            let api = twin::<PER_THREAD>(Api::$legacy, Api::$per_thread);
            start(api, stream, PER_THREAD, |world| copy_operation(world, to, from, bytes, $kind))
        }
    )*};
}

copies! {
    copy_async = cuMemcpyAsync, cuMemcpyAsync_ptsz, 0;
    host_to_device_async = cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz, HOST_TO_DEVICE;
    device_to_host_async = cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz, DEVICE_TO_HOST;
    device_to_device_async = cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz, DEVICE_TO_DEVICE;
}

macro_rules! synchronous_copies {
    ($($name:ident = $legacy:ident, $per_thread:ident, $kind:expr;)*) => {$(
        pub extern "C" fn $name<const PER_THREAD: bool>(to: u64, from: u64, bytes: usize) -> CUresult {
            let api = twin::<PER_THREAD>(Api::$legacy, Api::$per_thread);
            start_and_wait(api, PER_THREAD, |world| copy_operation(world, to, from, bytes, $kind))
        }
    )*};
}

synchronous_copies! {
    copy = cuMemcpy, cuMemcpy_ptds, 0;
    host_to_device = cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds, HOST_TO_DEVICE;
    device_to_host = cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds, DEVICE_TO_HOST;
    device_to_device = cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds, DEVICE_TO_DEVICE;
}

pub extern "C" fn set_8_async<const PER_THREAD: bool>(
    to: u64,
    value: u8,
    n: usize,
    stream: Handle,
) -> CUresult {
    let api = twin::<PER_THREAD>(Api::cuMemsetD8Async, Api::cuMemsetD8Async_ptsz);
    start(api, stream, PER_THREAD, |world| set_operation(world, to, value.into(), n))
}

pub extern "C" fn set_32_async<const PER_THREAD: bool>(
    to: u64,
    value: u32,
    n: usize,
    stream: Handle,
) -> CUresult {
    let api = twin::<PER_THREAD>(Api::cuMemsetD32Async, Api::cuMemsetD32Async_ptsz);
    start(api, stream, PER_THREAD, |world| set_operation(world, to, value, n.saturating_mul(4)))
}

pub extern "C" fn set_8<const PER_THREAD: bool>(to: u64, value: u8, n: usize) -> CUresult {
    let api = twin::<PER_THREAD>(Api::cuMemsetD8_v2, Api::cuMemsetD8_v2_ptds);
    start_and_wait(api, PER_THREAD, |world| set_operation(world, to, value.into(), n))
}

pub extern "C" fn set_32<const PER_THREAD: bool>(to: u64, value: u32, n: usize) -> CUresult {
    let api = twin::<PER_THREAD>(Api::cuMemsetD32_v2, Api::cuMemsetD32_v2_ptds);
    start_and_wait(api, PER_THREAD, |world| set_operation(world, to, value, n.saturating_mul(4)))
}
