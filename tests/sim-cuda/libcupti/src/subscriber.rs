//! The one subscriber, and API callbacks: delivered for what was enabled, on the calling thread, at enter and exit.

use crate::driver::driver;
use crate::pending::on_work;
use crate::results::*;
use crate::tools_abi::{ATTACH_QUIETLY, ATTACH_SUBSCRIBER, ApiEvent, Hooks};
use core::ffi::{c_char, c_void};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Mutex;

const DRIVER_DOMAIN: i32 = 1;
const LAST_DOMAIN: i32 = 6;
/// More than the greatest number of a driver function.
const CBIDS: u32 = 1024;

type Callback = unsafe extern "C" fn(*mut c_void, i32, u32, *const CallbackData);

/// CUpti_CallbackData.
#[repr(C)]
pub struct CallbackData {
    site: i32,
    function_name: *const c_char,
    function_params: *const c_void,
    function_return_value: *mut c_void,
    symbol_name: *const c_char,
    context: *mut c_void,
    context_uid: u32,
    correlation_data: *mut u64,
    correlation_id: u32,
}
const _: () = {
    assert!(size_of::<CallbackData>() == 72);
    assert!(core::mem::offset_of!(CallbackData, context) == 40);
    assert!(core::mem::offset_of!(CallbackData, correlation_id) == 64);
};

#[derive(Clone, Copy)]
struct Subscriber {
    callback: Callback,
    userdata: usize,
    handle: usize,
}

static SUBSCRIBER: Mutex<Option<Subscriber>> = Mutex::new(None);
static NEXT_HANDLE: AtomicU32 = AtomicU32::new(1);
static ENABLED: [AtomicBool; CBIDS as usize] = [const { AtomicBool::new(false) }; CBIDS as usize];

/// What the driver calls.
pub static HOOKS: Hooks = Hooks { on_api, on_work };

fn subscriber() -> Option<Subscriber> {
    *SUBSCRIBER.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn set_subscriber(new: Option<Subscriber>) {
    *SUBSCRIBER.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = new;
}

#[unsafe(no_mangle)]
extern "C" fn cuptiSubscribe(
    handle: *mut usize,
    callback: Option<Callback>,
    userdata: *mut c_void,
) -> CuptiResult {
    let Some(callback) = callback.filter(|_| !handle.is_null()) else { return INVALID_PARAMETER };
    let driver = match driver() {
        Ok(driver) => driver,
        Err(code) => return code,
    };
    let number = 0x5300_0000 + NEXT_HANDLE.fetch_add(1, Ordering::Relaxed) as usize * 16;
    {
        let mut place = SUBSCRIBER.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if place.is_some() {
            return MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
        }
        *place = Some(Subscriber { callback, userdata: userdata as usize, handle: number });
    }
    (driver.attach)(&HOOKS, ATTACH_SUBSCRIBER);
    put(handle, number)
}

/// The subscriber goes, but launches stay slow until cuptiFinalize.
#[unsafe(no_mangle)]
extern "C" fn cuptiUnsubscribe(handle: usize) -> CuptiResult {
    if !is_subscriber(handle) {
        return INVALID_PARAMETER;
    }
    forget();
    driver().map_or_else(
        |code| code,
        |driver| {
            (driver.listen)(0);
            SUCCESS
        },
    )
}

/// No subscriber, nothing enabled.
pub fn forget() {
    set_subscriber(None);
    for enabled in &ENABLED {
        enabled.store(false, Ordering::Relaxed);
    }
}

/// An activity call makes CUPTI present in the process as well.
pub fn attach_quietly() -> CuptiResult {
    driver().map_or_else(
        |code| code,
        |driver| {
            (driver.attach)(&HOOKS, ATTACH_QUIETLY);
            SUCCESS
        },
    )
}

fn is_subscriber(handle: usize) -> bool {
    subscriber().is_some_and(|subscriber| subscriber.handle == handle)
}

#[unsafe(no_mangle)]
extern "C" fn cuptiEnableCallback(enable: u32, handle: usize, domain: i32, cbid: u32) -> CuptiResult {
    if !is_subscriber(handle) || !(1..=LAST_DOMAIN).contains(&domain) || cbid == 0 || cbid >= CBIDS {
        return INVALID_PARAMETER;
    }
    enable_range(enable != 0, domain, cbid..cbid + 1)
}

#[unsafe(no_mangle)]
extern "C" fn cuptiEnableDomain(enable: u32, handle: usize, domain: i32) -> CuptiResult {
    if !is_subscriber(handle) || !(1..=LAST_DOMAIN).contains(&domain) {
        return INVALID_PARAMETER;
    }
    enable_range(enable != 0, domain, 1..CBIDS)
}

/// Other domains than the driver's can be enabled and never call.
fn enable_range(enable: bool, domain: i32, cbids: core::ops::Range<u32>) -> CuptiResult {
    if domain == DRIVER_DOMAIN {
        for cbid in cbids {
            ENABLED[cbid as usize].store(enable, Ordering::Relaxed);
        }
    }
    let any = ENABLED.iter().any(|enabled| enabled.load(Ordering::Relaxed));
    driver().map_or_else(
        |code| code,
        |driver| {
            (driver.listen)(u32::from(any));
            SUCCESS
        },
    )
}

extern "C" fn on_api(event: &ApiEvent) -> u32 {
    let enabled = ENABLED.get(event.cbid as usize).is_some_and(|enabled| enabled.load(Ordering::Relaxed));
    let Some(subscriber) = subscriber().filter(|_| enabled) else { return 0 };
    let data = CallbackData {
        site: event.site,
        function_name: event.name,
        function_params: event.params,
        function_return_value: event.result.cast(),
        symbol_name: event.symbol,
        context: event.context,
        context_uid: event.context_uid,
        correlation_data: event.correlation_data,
        correlation_id: event.correlation_id,
    };
    // SAFETY: the tool gave this function to cuptiSubscribe; `data` lives for the call.
    unsafe { (subscriber.callback)(subscriber.userdata as *mut c_void, DRIVER_DOMAIN, event.cbid, &data) };
    1
}
