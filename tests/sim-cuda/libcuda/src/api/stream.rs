//! Streams.

use crate::abi::*;
use crate::call::{run, twin};
use crate::entry::Api;
use crate::timeline::wait_for;
use crate::world::lock;

fn create_stream(stream: Out<Handle>, flags: u32) -> Driver<()> {
    if flags > STREAM_NON_BLOCKING || stream.is_null() {
        return Err(INVALID_VALUE);
    }
    let mut world = lock();
    let context = world.current()?;
    stream.set(world.create_stream(context, flags & STREAM_NON_BLOCKING == 0))
}

pub extern "C" fn create(stream: Out<Handle>, flags: u32) -> CUresult {
    run(Api::cuStreamCreate, || create_stream(stream, flags))
}

pub extern "C" fn create_with_priority(stream: Out<Handle>, flags: u32, _priority: i32) -> CUresult {
    run(Api::cuStreamCreateWithPriority, || create_stream(stream, flags))
}

/// Work that the stream still has is finished by the GPU all the same; nobody can wait for it any more.
pub extern "C" fn destroy(stream: Handle) -> CUresult {
    run(Api::cuStreamDestroy_v2, || {
        let mut world = lock();
        world.current()?;
        world.streams.get(stream)?;
        if world.contexts.iter().any(|(_, context)| {
            context.legacy_stream == stream || context.thread_streams.values().any(|own| *own == stream)
        }) {
            return Err(INVALID_HANDLE);
        }
        world.streams.remove(stream).map(|_| ())
    })
}

pub extern "C" fn synchronize<const PER_THREAD: bool>(stream: Handle) -> CUresult {
    run(twin::<PER_THREAD>(Api::cuStreamSynchronize, Api::cuStreamSynchronize_ptsz), || {
        let (context, found) = {
            let mut world = lock();
            let found = world.resolve_stream(stream, PER_THREAD)?;
            world.check_stream_query(found)?;
            (world.streams.get(found)?.context, found)
        };
        wait_for(context, &[found])
    })
}

pub extern "C" fn query<const PER_THREAD: bool>(stream: Handle) -> CUresult {
    run(twin::<PER_THREAD>(Api::cuStreamQuery, Api::cuStreamQuery_ptsz), || {
        let mut world = lock();
        let found = world.resolve_stream(stream, PER_THREAD)?;
        world.check_stream_query(found)?;
        if world.is_idle(found)? { Ok(()) } else { Err(NOT_READY) }
    })
}
