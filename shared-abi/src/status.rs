//! Named states of the interposer. Each has a number that never changes and words for people: there is never
//! "no data" without one of them.

macro_rules! statuses {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $name:literal, $text:literal;)*) => {
        /// A named state. Several may hold at once; bit `number` of the header's status word says which.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum Status { $($(#[$doc])* $variant = $number,)* }

        impl Status {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
            /// The status with this number, if this version knows it.
            pub const fn from_u32(number: u32) -> Option<Self> {
                match number { $($number => Some(Self::$variant),)* _ => None }
            }
            /// Its name in files and in machine-readable output.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
            /// It says that all is well, or that the user asked for it.
            pub const fn is_good_news(self) -> bool {
                matches!(self, Self::Armed | Self::WindowsRunning | Self::CuptiOff | Self::SwitchedOff)
            }
            /// What it means and what to do about it.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

statuses! {
    /// Hooks are installed and count.
    Armed = 0, "armed", "hooks are installed";
    /// No launch has been seen since arming.
    NoGpuWork = 1, "no-gpu-work", "the process has launched nothing on a GPU yet";
    /// Kernel records came for which no hook was hit.
    HookMissed = 2, "hook-missed", "GPU work ran that no hook saw: a launch path is not covered; please report it with `launchscope doctor`";
    /// No libcupti was found.
    CuptiNotFound = 3, "cupti-not-found", "no libcupti was found: launches are counted and stacks taken, but no GPU times; set LAUNCHSCOPE_CUPTI_LIBRARY or install nvidia-cuda-cupti";
    /// The libcupti that was found does not fit the driver.
    CuptiWrongVersion = 4, "cupti-wrong-version", "the libcupti that was found does not fit the driver";
    /// Another tool holds CUPTI.
    CuptiTaken = 5, "cupti-taken", "another tool holds CUPTI (torch.profiler, Nsight or a peer): windows are skipped until it has gone";
    /// CUPTI refused for want of rights.
    NoPermission = 6, "no-permission", "CUPTI refused: this process may not profile the GPU (see RmProfilingAdminOnly)";
    /// LAUNCHSCOPE_CUPTI=off.
    CuptiOff = 7, "cupti-off", "GPU times are switched off by LAUNCHSCOPE_CUPTI=off: launches and stacks only";
    /// LAUNCHSCOPE_CUPTI=resident, or graph sampling disabled.
    CuptiResident = 8, "cupti-resident", "CUPTI stays attached: every kernel is recorded, and graph replays run 9 to 30 % slower while it does";
    /// The GPU did not become quiet in time to detach.
    DetachOverdue = 9, "detach-overdue", "CUPTI could not be detached in time because the GPU did not become idle: it stays attached and is tried again";
    /// An entry point could not be patched and is seen through CUPTI callbacks, or not at all.
    HookFallback = 10, "hook-fallback", "some entry points could not be patched and are seen through CUPTI callbacks instead (see the list of hooks)";
    /// A panic was caught; the profiler is off for good.
    OffAfterPanic = 11, "off-after-panic", "launchscope met an internal error and switched itself off; the engine is not affected";
    /// Python stacks are not taken.
    PythonUnsupported = 12, "python-unsupported", "Python stacks are not taken: native frames only";
    /// The dictionary is full.
    DictionaryFull = 13, "dictionary-full", "too many distinct stacks and names: new ones are no longer recorded, only counted";
    /// The library is preloaded but not injected.
    NotInjected = 14, "not-injected", "loaded by LD_PRELOAD only: CUDA_INJECTION64_PATH did not reach this process";
    /// The process was injected but LD_PRELOAD did not reach it.
    NotPreloaded = 15, "not-preloaded", "loaded by CUDA_INJECTION64_PATH only: LD_PRELOAD did not reach this process";
    /// Switched off by LAUNCHSCOPE_ENABLED=false.
    SwitchedOff = 16, "switched-off", "switched off by LAUNCHSCOPE_ENABLED=false";
    /// A setting was not understood.
    BadSetting = 17, "bad-setting", "a setting was not understood and its default is used";
    /// An unknown LAUNCHSCOPE_ or ZYMTRACE_ variable.
    UnknownSetting = 18, "unknown-setting", "an environment variable with our prefix has a name that we do not know";
    /// A CUPTI call failed.
    CuptiFailed = 19, "cupti-failed", "a CUPTI call failed: windows are skipped";
    /// Windows are open for business.
    WindowsRunning = 20, "windows-running", "GPU times are recorded in short random windows";
}

const _: () = assert!(Status::ALL.len() <= 64);
