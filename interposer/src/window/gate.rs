//! The gate: launches pass it; while it is closed they wait, so that CUPTI can come and go on a quiet GPU.
//!
//! Allocates: no. Locks: no. Syscalls: none while the gate is open; futex while it is closed (both sides), membarrier
//! when it closes. Cost: open, two plain stores and one load a launch.
//!
//! It is Dekker's protocol made asymmetric: a launch stores its slot and loads the gate with nothing but a compiler
//! fence between; whoever closes the gate pays for both with membarrier(PRIVATE_EXPEDITED), after which every running
//! thread has either its slot visible or the gate's new value. Where the kernel has no such barrier, launches fence.

use crate::clock::host_ns;
use core::ptr;
use core::time::Duration;
use shared_abi::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering, compiler_fence, fence};

const MEMBARRIER_CMD_PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
const MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

/// The gate.
#[derive(Debug)]
pub struct Gate {
    closed: AtomicU32,
    closed_at_ns: AtomicU64,
    launches_must_fence: AtomicBool,
}

impl Gate {
    /// Open.
    pub fn new() -> Self {
        // SAFETY: registers this process for the barrier; has no other effect.
        let registered =
            unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) };
        Self {
            closed: AtomicU32::new(0),
            closed_at_ns: AtomicU64::new(0),
            launches_must_fence: AtomicBool::new(registered != 0),
        }
    }

    /// Orders the launching thread's store of its slot before its look at the gate.
    #[inline(always)]
    pub fn announce(&self) {
        compiler_fence(Ordering::SeqCst);
        // Relaxed: set before the first launch and never cleared.
        if self.launches_must_fence.load(Ordering::Relaxed) {
            fence(Ordering::SeqCst);
        }
    }

    /// Launches must wait.
    #[inline(always)]
    pub fn is_closed(&self) -> bool {
        // Relaxed: ordered after the slot's store by `announce`, before the closer's scan by membarrier.
        self.closed.load(Ordering::Relaxed) != 0
    }

    /// Closes the gate and waits until `idle` says that no launch is inside, or gives up and opens it again.
    /// `true`: closed and idle; the caller opens it.
    pub fn close(&self, patience: Duration, idle: impl Fn() -> bool) -> bool {
        let began_ns = host_ns();
        self.closed_at_ns.store(began_ns, Ordering::Relaxed);
        self.closed.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if !self.launches_must_fence.load(Ordering::Relaxed) {
            // SAFETY: a barrier on all threads of this process.
            unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) };
        }
        while !idle() {
            if host_ns().saturating_sub(began_ns) > patience.as_nanos() as u64 {
                self.open();
                return false;
            }
            std::thread::sleep(Duration::from_micros(20));
        }
        true
    }

    /// For how long the gate has been closed; meaningless while it is open.
    pub fn closed_for(&self) -> Duration {
        Duration::from_nanos(host_ns().saturating_sub(self.closed_at_ns.load(Ordering::Relaxed)))
    }

    /// Opens the gate and wakes everybody; returns for how long it was closed.
    pub fn open(&self) -> Duration {
        let closed_for = self.closed_for();
        // Release pairs with the Acquire in `wait_until_open`: what CUPTI's coming or going changed is visible.
        self.closed.store(0, Ordering::Release);
        // SAFETY: the word lives as long as the profiler, which is never freed.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.closed.as_ptr(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                i32::MAX,
            )
        };
        closed_for
    }

    /// Waits until the gate is open; returns the nanoseconds waited. Preserves errno.
    #[cold]
    pub fn wait_until_open(&self) -> u64 {
        let began_ns = host_ns();
        // SAFETY: errno of this thread.
        let errno = unsafe { *libc::__errno_location() };
        // A wake can be missed only by a signal or a spurious return; the time-out makes even a lost one harmless.
        let timeout = libc::timespec { tv_sec: 0, tv_nsec: 5_000_000 };
        while self.closed.load(Ordering::Acquire) != 0 {
            // SAFETY: as in `open`; waits only while the word is 1.
            unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    self.closed.as_ptr(),
                    libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                    1,
                    ptr::from_ref(&timeout),
                )
            };
        }
        // SAFETY: errno of this thread.
        unsafe { *libc::__errno_location() = errno };
        host_ns().saturating_sub(began_ns)
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared_abi::sync::AtomicUsize;
    use std::sync::Arc;

    /// While the gate is closed and idle, no thread is between `announce` and its end, whatever the timing.
    #[test]
    fn closed_and_idle_gate_has_nobody_inside() {
        let gate = Arc::new(Gate::new());
        let slots: Arc<Vec<AtomicU32>> = Arc::new((0..3).map(|_| AtomicU32::new(0)).collect());
        let (inside, stop, passes) =
            (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let threads: Vec<_> = (0..3)
            .map(|index| {
                let (gate, slots, inside, stop, passes) =
                    (gate.clone(), slots.clone(), inside.clone(), stop.clone(), passes.clone());
                std::thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        slots[index].store(1, Ordering::Relaxed);
                        gate.announce();
                        if gate.is_closed() {
                            slots[index].store(0, Ordering::Release);
                            gate.wait_until_open();
                            continue;
                        }
                        inside.fetch_add(1, Ordering::SeqCst);
                        std::hint::spin_loop();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        slots[index].store(0, Ordering::Release);
                        passes.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let idle = || slots.iter().all(|slot| slot.load(Ordering::Acquire) == 0);
        for _ in 0..200 {
            if gate.close(Duration::from_secs(5), idle) {
                assert_eq!(inside.load(Ordering::SeqCst), 0);
                std::thread::yield_now();
                assert_eq!(inside.load(Ordering::SeqCst), 0);
                gate.open();
            }
        }
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(passes.load(Ordering::Relaxed) > 100);
    }

    /// A launch that does not end in time makes the closer give up, with the gate open again.
    #[test]
    fn busy_launch_reopens_the_gate_after_the_patience() {
        let gate = Gate::new();
        assert!(!gate.close(Duration::from_millis(5), || false));
        assert!(!gate.is_closed());
    }
}
