//! Entry patching, on functions written for it: what is accepted is run, what is refused is compared byte for byte.
#![cfg(target_arch = "x86_64")]

use core::arch::global_asm;
use core::ffi::c_void;
use core::ptr::NonNull;
use interposer::launch_hook::entry_patch::install;
use interposer::launch_hook::memory_map::MemoryMap;
use interposer::launch_hook::refusal::{PatchRefusal, Why};
use interposer::launch_hook::table::{Hook, Way};
use interposer::launch_hook::trampoline::TrampolineArena;
use shared_abi::sync::{AtomicBool, AtomicU64, Ordering};
use std::hint::black_box;
use std::sync::Mutex;

// Each function takes one number and adds its own to it, unless said otherwise. `_end` labels give their size.
global_asm!(
    r#"
    .pushsection .text.entry_patch_subjects, "ax", @progbits
    .macro subject name
        .p2align 4
        .globl \name
    \name:
    .endm
    .macro ended name
        .globl \name\()_end
    \name\()_end:
    .endm

    subject s_driver_580
        push rbp
        mov rbp, rsp
        push r12
        sub rsp, 8
        cmp dword ptr [rip + s_word], 7
        jne 1f
        lea rax, [rdi + 1]
        jmp 2f
    1:  xor eax, eax
    2:  add rsp, 8
        pop r12
        pop rbp
        ret
    ended s_driver_580

    subject s_endbr
        endbr64
        push rbp
        mov rbp, rsp
        lea rax, [rdi + 2]
        pop rbp
        ret
    ended s_endbr

    subject s_rip_load
        mov rax, [rip + s_value]
        add rax, rdi
        ret
    ended s_rip_load

    subject s_rip_store
        mov dword ptr [rip + s_cell], 4
        mov eax, dword ptr [rip + s_cell]
        add rax, rdi
        ret
    ended s_rip_store

    subject s_push_immediate
        push 5
        pop rax
        push 0x12345678
        add rsp, 8
        add rax, rdi
        ret
    ended s_push_immediate

    subject s_push_wide_immediate
        push 0x12345678
        pop rax
        sub rax, 0x12345672
        add rax, rdi
        ret
    ended s_push_wide_immediate

    subject s_long_nop
        .byte 0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00
        lea rax, [rdi + 7]
        ret
    ended s_long_nop

    subject s_short_nops
        nop
        .byte 0x66, 0x90
        .byte 0x0f, 0x1f, 0x00
        lea rax, [rdi + 8]
        ret
    ended s_short_nops

    // Returns the sum of its argument and all numbers below it.
    subject s_calls_itself
        push rbx
        mov rbx, rdi
        xor eax, eax
        test rdi, rdi
        je 1f
        dec rdi
        call s_calls_itself
        add rax, rbx
    1:  pop rbx
        ret
    ended s_calls_itself

    // Eleven arguments: the sum of each times its number.
    subject s_eleven
        push rbp
        mov rbp, rsp
        push r12
        lea rax, [rdi + rsi * 2]
        imul rdx, rdx, 3
        add rax, rdx
        lea rax, [rax + rcx * 4]
        imul r8, r8, 5
        add rax, r8
        imul r9, r9, 6
        add rax, r9
        imul r12, qword ptr [rbp + 16], 7
        add rax, r12
        imul r12, qword ptr [rbp + 24], 8
        add rax, r12
        imul r12, qword ptr [rbp + 32], 9
        add rax, r12
        imul r12, qword ptr [rbp + 40], 10
        add rax, r12
        imul r12, qword ptr [rbp + 48], 11
        add rax, r12
        pop r12
        pop rbp
        ret
    ended s_eleven

    // The jump lies across two words.
        .p2align 4
        nop
        nop
        nop
        nop
        nop
        nop
        .globl s_two_words
    s_two_words:
        .byte 0x0f, 0x1f, 0x44, 0x00, 0x00
        lea rax, [rdi + 9]
        ret
    ended s_two_words

    // One byte of the jump lies in the first word.
        .p2align 4
        nop
        nop
        nop
        nop
        nop
        nop
        nop
        .globl s_straddles
    s_straddles:
        .byte 0x0f, 0x1f, 0x44, 0x00, 0x00
        lea rax, [rdi + 9]
        ret
    ended s_straddles

    // One instruction is all that is moved, so that threads may run in it while it is patched.
    subject s_busy
        endbr64
        .byte 0x0f, 0x1f, 0x44, 0x00, 0x00
        lea rax, [rdi + 3]
        ret
    ended s_busy

    subject s_near_jump_first
        .byte 0xe9, 0, 0, 0, 0
        lea rax, [rdi + 1]
        ret
    ended s_near_jump_first

    subject s_short_jump_first
        jmp 1f
        nop
        nop
        nop
    1:  lea rax, [rdi + 1]
        ret
    ended s_short_jump_first

    subject s_indirect_jump_first
        jmp [rip + s_value]
        nop
        ret
    ended s_indirect_jump_first

    subject s_endbr_then_jump
        endbr64
        .byte 0xe9, 0, 0, 0, 0
        ret
    ended s_endbr_then_jump

    subject s_call_first
        call s_returns
        lea rax, [rdi + 1]
        ret
    ended s_call_first

    subject s_returns
        ret
        nop
        nop
        nop
        nop
        nop
    ended s_returns

    subject s_returns_early
        xor eax, eax
        ret
        .fill 8, 1, 0x90
    ended s_returns_early

    subject s_breakpoint
        int3
        .fill 8, 1, 0x90
    ended s_breakpoint

    subject s_tiny
        push rbp
        mov rbp, rsp
    ended s_tiny
    subject s_tiny_next
        push rbp
        mov rbp, rsp
        pop rbp
        ret
    ended s_tiny_next

    subject s_branches_early
        test edi, edi
        je 1f
        nop
        nop
        nop
    1:  lea rax, [rdi + 1]
        ret
    ended s_branches_early

    subject s_branches_back_inside
        push rbp
    1:  dec rdi
        nop
        nop
        jne 1b
        pop rbp
        ret
    ended s_branches_back_inside

    subject s_loops_to_its_start
        dec rdi
        nop
        nop
        jne s_loops_to_its_start
        ret
    ended s_loops_to_its_start

    subject s_undecodable
        nop
        .byte 0x06
        .fill 8, 1, 0x90
    ended s_undecodable

    subject s_eip_relative
        .byte 0x67, 0x8b, 0x05, 0, 0, 0, 0
        ret
    ended s_eip_relative
    .popsection

    .pushsection .data.entry_patch_subjects, "aw", @progbits
    .p2align 3
    s_value: .quad 3
    s_word:  .long 7
    s_cell:  .long 0
    .popsection
"#
);

type Unary = unsafe extern "C" fn(u64) -> u64;

/// What a replacement adds, to be told from the original.
const MARK: u64 = 1000;

/// The tests change pages of one executable and look at its whole map.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

macro_rules! subject {
    ($name:ident, $end:ident) => {{
        unsafe extern "C" {
            fn $name(x: u64) -> u64;
            fn $end(x: u64) -> u64;
        }
        static HOOK: Hook = Hook::new(
            match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            },
            || replacement as *const c_void,
        );
        unsafe extern "C" fn replacement(x: u64) -> u64 {
            // SAFETY: the original of a subject is a subject.
            let original: Unary = unsafe { core::mem::transmute(HOOK.original()) };
            // SAFETY: a subject may be called with any number.
            unsafe { original(x) + MARK }
        }
        Subject {
            hook: &HOOK,
            function: $name as Unary,
            bytes: $end as *const () as usize - $name as *const () as usize,
        }
    }};
}

struct Subject {
    hook: &'static Hook,
    function: Unary,
    bytes: usize,
}

impl Subject {
    fn address(&self) -> NonNull<u8> {
        NonNull::new(self.function as *mut u8).unwrap()
    }

    fn call(&self, x: u64) -> u64 {
        // SAFETY: a subject may be called with any number.
        unsafe { black_box(self.function)(black_box(x)) }
    }

    fn code(&self) -> Vec<u8> {
        // SAFETY: code of this executable.
        unsafe { core::slice::from_raw_parts(self.address().as_ptr(), self.bytes.max(16)) }.to_vec()
    }

    fn install(&self, arena: &mut TrampolineArena) -> Result<(), PatchRefusal> {
        // SAFETY: hook and function are of one subject.
        unsafe { install(self.hook, self.address(), Some(self.bytes), arena) }
    }

    /// Patched, the function runs the replacement, and that the original.
    fn check_patched(&self, expected: impl Fn(u64) -> u64) {
        assert_eq!(self.call(40), expected(40), "{:?} before", self.hook.name);
        self.install(&mut TrampolineArena::new()).unwrap();
        assert_eq!(self.call(41), expected(41) + MARK, "{:?}", self.hook.name);
        // SAFETY: as in the replacement.
        let original: Unary = unsafe { core::mem::transmute(self.hook.original()) };
        // SAFETY: a subject may be called with any number.
        assert_eq!(unsafe { black_box(original)(42) }, expected(42), "{:?}'s original", self.hook.name);
        assert_eq!(self.hook.way.load(Ordering::Relaxed), Way::Patched as u32);
    }

    /// Refused, the function and the hook are as before.
    fn check_refused(&self, why: Why) -> PatchRefusal {
        let before = self.code();
        let refusal = self.install(&mut TrampolineArena::new()).unwrap_err();
        assert_eq!(refusal.why, why, "{:?}", self.hook.name);
        assert_eq!(self.code(), before, "{:?}", self.hook.name);
        assert!(self.hook.original().is_null());
        assert_eq!(self.hook.way.load(Ordering::Relaxed), Way::None as u32);
        refusal
    }
}

fn lines_of_map() -> Vec<String> {
    std::fs::read_to_string("/proc/self/maps").unwrap().lines().map(str::to_owned).collect()
}

fn protection_at(address: usize) -> i32 {
    MemoryMap::of_this_process().unwrap().region_of(address).unwrap().protection
}

/// Entries whose instructions can be moved are patched: replacement and original both give what they should.
#[test]
fn movable_entries_are_patched_and_run() {
    let _guard = ONE_AT_A_TIME.lock().unwrap();
    subject!(s_driver_580, s_driver_580_end).check_patched(|x| x + 1);
    subject!(s_endbr, s_endbr_end).check_patched(|x| x + 2);
    subject!(s_rip_load, s_rip_load_end).check_patched(|x| x + 3);
    subject!(s_rip_store, s_rip_store_end).check_patched(|x| x + 4);
    subject!(s_push_immediate, s_push_immediate_end).check_patched(|x| x + 5);
    subject!(s_push_wide_immediate, s_push_wide_immediate_end).check_patched(|x| x + 6);
    subject!(s_long_nop, s_long_nop_end).check_patched(|x| x + 7);
    subject!(s_short_nops, s_short_nops_end).check_patched(|x| x + 8);
    subject!(s_two_words, s_two_words_end).check_patched(|x| x + 9);
}

/// endbr64 stays the first instruction, of the function and of the way to the original.
#[test]
fn endbr64_stays_in_place() {
    let _guard = ONE_AT_A_TIME.lock().unwrap();
    let subject = subject!(s_busy, s_busy_end);
    let stop = AtomicBool::new(false);
    let calls = AtomicU64::new(0);
    let endbr64 = [0xf3, 0x0f, 0x1e, 0xfa];
    // Two threads call it all the while: the jump lies across two words and must never be seen half-written.
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    assert!([8, 8 + MARK].contains(&subject.call(5)));
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while calls.load(Ordering::Relaxed) < 1000 {
            std::thread::yield_now();
        }
        subject.install(&mut TrampolineArena::new()).unwrap();
        let patched_at = calls.load(Ordering::Relaxed);
        while calls.load(Ordering::Relaxed) < patched_at + 1000 {
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(subject.call(5), 8 + MARK);
    assert_eq!(subject.code()[..5], [0xf3, 0x0f, 0x1e, 0xfa, 0xe9]);
    // SAFETY: the trampoline of the subject.
    let original = unsafe { core::slice::from_raw_parts(subject.hook.original().cast::<u8>(), 4) };
    assert_eq!(original, endbr64);
}

/// A function that calls itself goes through the hook each time; the result stays right.
#[test]
fn function_that_calls_itself_is_hooked_at_each_call() {
    let _guard = ONE_AT_A_TIME.lock().unwrap();
    subject!(s_calls_itself, s_calls_itself_end).check_patched(|x| {
        // Called through the patched entry, each inner call adds the mark as well.
        let inner_calls = if x == 40 { 0 } else { x };
        x * (x + 1) / 2 + inner_calls * MARK
    });
}

/// Eleven arguments, five of them on the stack, reach both replacement and original.
#[test]
fn stack_arguments_are_preserved() {
    let _guard = ONE_AT_A_TIME.lock().unwrap();
    type Eleven = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64) -> u64;
    unsafe extern "C" {
        fn s_eleven(
            a: u64,
            b: u64,
            c: u64,
            d: u64,
            e: u64,
            f: u64,
            g: u64,
            h: u64,
            i: u64,
            j: u64,
            k: u64,
        ) -> u64;
    }
    static HOOK: Hook = Hook::new(c"s_eleven", || replacement as *const c_void);
    #[rustfmt::skip]
    unsafe extern "C" fn replacement(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64, h: u64, i: u64, j: u64, k: u64) -> u64 {
        assert_eq!([a, b, c, d, e, f, g, h, i, j, k], [11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21]);
        // SAFETY: the original is the subject.
        let original: Eleven = unsafe { core::mem::transmute(HOOK.original()) };
        // SAFETY: it takes any numbers.
        unsafe { original(a, b, c, d, e, f, g, h, i, j, k) + MARK }
    }
    let function = black_box(s_eleven as Eleven);
    // SAFETY: it takes any numbers.
    let call = || unsafe { function(11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21) };
    let before = call();
    assert_eq!(before, (1..=11).map(|number| number * (number + 10)).sum::<u64>());
    let address = NonNull::new(s_eleven as *mut u8).unwrap();
    // SAFETY: the replacement has the subject's signature.
    unsafe { install(&HOOK, address, None, &mut TrampolineArena::new()) }.unwrap();
    assert_eq!(call(), before + MARK);
}

/// Entries that cannot be moved are refused with the reason, and not a byte of them changes.
#[test]
fn unmovable_entries_are_refused_and_unchanged() {
    let _guard = ONE_AT_A_TIME.lock().unwrap();
    subject!(s_near_jump_first, s_near_jump_first_end).check_refused(Why::AlreadyPatched);
    subject!(s_short_jump_first, s_short_jump_first_end).check_refused(Why::AlreadyPatched);
    subject!(s_indirect_jump_first, s_indirect_jump_first_end).check_refused(Why::AlreadyPatched);
    subject!(s_endbr_then_jump, s_endbr_then_jump_end).check_refused(Why::AlreadyPatched);
    subject!(s_call_first, s_call_first_end).check_refused(Why::AlreadyPatched);
    subject!(s_returns, s_returns_end).check_refused(Why::TooShort { offset: 0 });
    subject!(s_returns_early, s_returns_early_end).check_refused(Why::TooShort { offset: 2 });
    subject!(s_breakpoint, s_breakpoint_end).check_refused(Why::TooShort { offset: 0 });
    let mut tiny = subject!(s_tiny, s_tiny_end);
    assert_eq!(tiny.bytes, 4);
    tiny.check_refused(Why::SymbolTooShort { bytes: 4 });
    tiny.bytes = 2;
    tiny.check_refused(Why::SymbolTooShort { bytes: 2 });
    subject!(s_branches_early, s_branches_early_end).check_refused(Why::Unmovable { offset: 2 });
    subject!(s_branches_back_inside, s_branches_back_inside_end)
        .check_refused(Why::BranchIntoEntry { offset: 6 });
    subject!(s_loops_to_its_start, s_loops_to_its_start_end)
        .check_refused(Why::BranchIntoEntry { offset: 5 });
    subject!(s_undecodable, s_undecodable_end).check_refused(Why::Undecodable { offset: 1 });
    subject!(s_eip_relative, s_eip_relative_end).check_refused(Why::Unmovable { offset: 0 });
    subject!(s_straddles, s_straddles_end).check_refused(Why::Straddles);
}

/// A refusal names the reason and shows the entry.
#[test]
fn refusal_shows_reason_and_bytes() {
    let _guard = ONE_AT_A_TIME.lock().unwrap();
    let refusal = subject!(s_returns_early, s_returns_early_end).check_refused(Why::TooShort { offset: 2 });
    let text = refusal.to_string();
    assert_eq!(text, "the instruction at +2 leaves it too early (entry 31 c0 c3 90 90 90 90 90 90 90 90)");
}

/// Where every page in reach is taken, the function is refused and left alone.
#[test]
fn no_free_page_in_reach_is_a_refusal() {
    let _guard = ONE_AT_A_TIME.lock().unwrap();
    let subject = subject!(s_tiny_next, s_tiny_next_end);
    let at = subject.address().as_ptr() as usize & !0xfff;
    let full = format!("{:x}-{:x} r-xp 00000000 00:00 0\n", at - (4 << 30), at + (4 << 30));
    let mut arena = TrampolineArena::with_map(MemoryMap::parse(full.as_bytes()).unwrap());
    let before = subject.code();
    assert_eq!(subject.install(&mut arena).unwrap_err().why, Why::NoPageInReach);
    assert_eq!(subject.code(), before);
    // Data is no place for a function.
    static DATA: AtomicU64 = AtomicU64::new(0);
    let data = NonNull::from(&DATA).cast::<u8>();
    // SAFETY: refused before anything is read or written.
    let refusal = unsafe { install(subject.hook, data, None, &mut TrampolineArena::new()) }.unwrap_err();
    assert_eq!(refusal.why, Why::NotCode);
}

/// A page that was free in the map and is taken by now is not replaced; the map is read again.
#[test]
fn taken_page_is_not_replaced() {
    let _guard = ONE_AT_A_TIME.lock().unwrap();
    let subject = subject!(s_tiny_next, s_tiny_next_end);
    let address = subject.address().as_ptr() as usize;
    let region = MemoryMap::of_this_process().unwrap().region_of(address).unwrap();
    // This map claims that all around the function's own region is free, though the executable goes on there.
    let only = format!("{:x}-{:x} r-xp 00000000 00:00 0\n", region.start, region.end);
    let mut arena = TrampolineArena::with_map(MemoryMap::parse(only.as_bytes()).unwrap());
    let before = lines_of_map();
    let first = arena.slot_near(address).unwrap();
    let second = arena.slot_near(address).unwrap();
    assert_eq!(first.address() & !0xfff, second.address() & !0xfff, "slots share a page");
    arena.seal().unwrap();
    let third = arena.slot_near(address).unwrap();
    assert_ne!(first.address() & !0xfff, third.address() & !0xfff, "a sealed page is not opened again");
    arena.seal().unwrap();
    let after = lines_of_map();
    assert!(before.iter().filter(|line| line.contains("entry_patch")).all(|line| after.contains(line)));
}

/// Afterwards no page is writable and executable, the text has its protection back, and errno is as it was.
#[test]
fn protections_and_errno_are_as_before() {
    let _guard = ONE_AT_A_TIME.lock().unwrap();
    let subject = subject!(s_tiny_next, s_tiny_next_end);
    let address = subject.address().as_ptr() as usize;
    let before = protection_at(address);
    let mut arena = TrampolineArena::new();
    // SAFETY: errno of this thread.
    unsafe { *libc::__errno_location() = 77 };
    let result = subject.install(&mut arena);
    // SAFETY: errno of this thread.
    assert_eq!(unsafe { *libc::__errno_location() }, 77);
    result.unwrap();
    assert_eq!(protection_at(address), before);
    for page in arena.pages() {
        assert_eq!(protection_at(page), libc::PROT_READ | libc::PROT_EXEC);
        assert!(page.abs_diff(address) < 1 << 31);
    }
    let both: Vec<_> = lines_of_map().into_iter().filter(|line| line.contains("wx")).collect();
    assert!(both.is_empty(), "{both:?}");
    // Twice is refused by its own jump.
    assert_eq!(subject.install(&mut arena).unwrap_err().why, Why::AlreadyPatched);
}

static RANDOM_HOOK: Hook = Hook::new(c"random", || random_replacement as *const c_void);
static RANDOM_CALLS: AtomicU64 = AtomicU64::new(0);

/// Counts and goes on to the original with all registers as they were.
#[unsafe(naked)]
unsafe extern "C" fn random_replacement() {
    core::arch::naked_asm!(
        "inc qword ptr [rip + {calls}]",
        "jmp [rip + {hook} + {original}]",
        calls = sym RANDOM_CALLS,
        hook = sym RANDOM_HOOK,
        original = const core::mem::offset_of!(Hook, original),
    )
}

/// Calls code with every register that it may read set, and returns a mix of what it left in them.
fn run_code(address: usize) -> u64 {
    let (mut rax, mut rcx, mut rdx, mut rsi, mut rdi) = (1_u64, 2_u64, 3_u64, 4_u64, 5_u64);
    let (mut r8, mut r9, mut r10) = (6_u64, 7_u64, 8_u64);
    // SAFETY: the generated code changes these registers and returns.
    unsafe {
        core::arch::asm!(
            "call r11",
            in("r11") address,
            inout("rax") rax, inout("rcx") rcx, inout("rdx") rdx, inout("rsi") rsi, inout("rdi") rdi,
            inout("r8") r8, inout("r9") r9, inout("r10") r10,
            clobber_abi("C"),
        );
    }
    [rax, rcx, rdx, rsi, rdi, r8, r9, r10]
        .iter()
        .fold(0, |mix: u64, register| (mix.rotate_left(9) ^ register).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// One instruction (or a pair) on rax, rcx, rdx, rsi, rdi, r8, r9 and r10. `data` is where the last form reads.
fn random_instruction(random: &mut Random, code: &mut Vec<u8>, at: usize, data: usize) {
    let numbers = [0_u8, 1, 2, 6, 7, 8, 9, 10];
    let pick = |random: &mut Random| numbers[random.below(8) as usize];
    let (a, b) = (pick(random), pick(random));
    let rex = |reg: u8, rm: u8| 0x48 | (reg >> 3) << 2 | rm >> 3;
    let modrm = |mode: u8, reg: u8, rm: u8| mode << 6 | (reg & 7) << 3 | (rm & 7);
    let immediate = (random.below(1 << 32) as u32).to_le_bytes();
    match random.below(10) {
        0 => code.extend([rex(a, b), 0x01, modrm(3, a, b)]),
        1 => code.extend([rex(a, b), 0x31, modrm(3, a, b)]),
        2 => code.extend([rex(a, b), 0x89, modrm(3, a, b)]),
        3 => code.extend([&[rex(0, b), 0x81, modrm(3, 0, b)][..], &immediate].concat()),
        4 => code.extend([rex(0, b), 0x83, modrm(3, 5, b), immediate[0]]),
        5 => code.extend([rex(a, b), 0x8d, modrm(1, a, b), immediate[0]]),
        6 => code.extend([&[rex(a, b), 0x8d, modrm(2, a, b)][..], &immediate].concat()),
        7 => code.extend([0x40 | a >> 3, 0x50 | a & 7, 0x40 | b >> 3, 0x58 | b & 7]),
        8 => code.extend([&[0x90][..], &[0x66, 0x90], &[0x0f, 0x1f, 0x40, 0x00]][random.below(3) as usize]),
        _ => {
            let next = at + code.len() + 7;
            let distance = (data as i64 - next as i64) as i32;
            code.extend([rex(a, 0), 0x8b, modrm(0, a, 5)]);
            code.extend(distance.to_le_bytes());
        }
    }
}

/// Whatever sequence of movable instructions a function begins with, it gives the same through its trampoline.
#[test]
fn random_entries_run_the_same_through_the_trampoline() {
    const FUNCTIONS: usize = 2000;
    const STRIDE: usize = 128;
    let _guard = ONE_AT_A_TIME.lock().unwrap();
    let bytes = FUNCTIONS * STRIDE;
    // SAFETY: a fresh mapping.
    let start = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        libc::mmap(core::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    assert_ne!(start, libc::MAP_FAILED);
    let mut random = Random(0x1234_5678_9abc_def1);
    for index in 0..FUNCTIONS {
        let at = start as usize + index * STRIDE;
        let mut code = if random.below(3) == 0 { vec![0xf3, 0x0f, 0x1e, 0xfa] } else { vec![] };
        for _ in 0..6 {
            random_instruction(&mut random, &mut code, at, at + STRIDE - 8);
        }
        code.push(0xc3);
        code.resize(STRIDE - 8, 0xcc);
        code.extend(0x0123_4567_89ab_cdef_u64.wrapping_mul(index as u64 | 1).to_le_bytes());
        // SAFETY: within the mapping.
        unsafe { core::ptr::copy_nonoverlapping(code.as_ptr(), at as *mut u8, STRIDE) };
    }
    // SAFETY: the mapping above.
    unsafe { libc::mprotect(start, bytes, libc::PROT_READ | libc::PROT_EXEC) };
    let mut arena = TrampolineArena::new();
    for index in 0..FUNCTIONS {
        let at = start as usize + index * STRIDE;
        let before = run_code(at);
        let calls = RANDOM_CALLS.load(Ordering::Relaxed);
        let function = NonNull::new(at as *mut u8).unwrap();
        // SAFETY: the replacement changes no register.
        unsafe { install(&RANDOM_HOOK, function, Some(STRIDE - 8), &mut arena) }.unwrap();
        assert_eq!(run_code(at), before, "function {index}");
        assert_eq!(RANDOM_CALLS.load(Ordering::Relaxed), calls + 1);
    }
}
