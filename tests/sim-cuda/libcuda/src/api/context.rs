//! Contexts. A thread has a stack of them; the top is current.

use crate::abi::*;
use crate::api::device;
use crate::call::run;
use crate::entry::Api;
use crate::thread;
use crate::timeline::wait_for;
use crate::world::{World, lock};

fn primary(world: &World) -> Option<Handle> {
    world.contexts.iter().find(|(_, context)| context.primary).map(|(handle, _)| handle)
}

pub extern "C" fn retain_primary(context: Out<Handle>, device: i32) -> CUresult {
    run(Api::cuDevicePrimaryCtxRetain, || {
        device::check(device)?;
        let mut world = lock();
        let found = primary(&world).unwrap_or_else(|| world.create_context(true));
        world.usable(found)?;
        world.contexts.get_mut(found)?.retained += 1;
        context.set(found)
    })
}

pub extern "C" fn release_primary(device: i32) -> CUresult {
    run(Api::cuDevicePrimaryCtxRelease, || {
        device::check(device)?;
        let mut world = lock();
        let found = primary(&world).ok_or(INVALID_CONTEXT)?;
        let context = world.contexts.get_mut(found)?;
        context.retained = context.retained.saturating_sub(1);
        if context.retained == 0 {
            world.destroy_context(found);
        }
        Ok(())
    })
}

fn create_current(context: Out<Handle>, device: i32) -> Driver<()> {
    device::check(device)?;
    if context.is_null() {
        return Err(INVALID_VALUE);
    }
    let mut world = lock();
    world.check_unsafe_call()?;
    let made = world.create_context(false);
    thread::push_context(made);
    context.set(made)
}

pub extern "C" fn create(context: Out<Handle>, _flags: u32, device: i32) -> CUresult {
    run(Api::cuCtxCreate_v2, || create_current(context, device))
}

pub extern "C" fn create_v4(context: Out<Handle>, _params: usize, _flags: u32, device: i32) -> CUresult {
    run(Api::cuCtxCreate_v4, || create_current(context, device))
}

pub extern "C" fn destroy(context: Handle) -> CUresult {
    run(Api::cuCtxDestroy_v2, || {
        let mut world = lock();
        if world.contexts.get(context).map_err(|_| INVALID_CONTEXT)?.primary {
            return Err(INVALID_CONTEXT);
        }
        world.destroy_context(context);
        if thread::context() == context {
            thread::pop_context();
        }
        Ok(())
    })
}

pub extern "C" fn get_current(context: Out<Handle>) -> CUresult {
    run(Api::cuCtxGetCurrent, || context.set(thread::context()))
}

pub extern "C" fn set_current(context: Handle) -> CUresult {
    run(Api::cuCtxSetCurrent, || {
        if context != 0 && !lock().contexts.contains(context) {
            return Err(INVALID_CONTEXT);
        }
        thread::set_context(context);
        Ok(())
    })
}

pub extern "C" fn push(context: Handle) -> CUresult {
    run(Api::cuCtxPushCurrent_v2, || {
        if !lock().contexts.contains(context) {
            return Err(INVALID_CONTEXT);
        }
        thread::push_context(context);
        Ok(())
    })
}

pub extern "C" fn pop(context: Out<Handle>) -> CUresult {
    run(Api::cuCtxPopCurrent_v2, || {
        let popped = thread::pop_context().ok_or(INVALID_CONTEXT)?;
        context.set_if_wanted(popped);
        Ok(())
    })
}

pub extern "C" fn get_device(device: Out<i32>) -> CUresult {
    run(Api::cuCtxGetDevice, || lock().current().and_then(|_| device.set(0)))
}

pub extern "C" fn synchronize() -> CUresult {
    run(Api::cuCtxSynchronize, || {
        let (context, streams) = {
            let mut world = lock();
            let context = world.current()?;
            world.check_context_query(context)?;
            let streams: Vec<Handle> = world.streams_of(context).map(|(handle, _)| handle).collect();
            (context, streams)
        };
        wait_for(context, &streams)
    })
}
