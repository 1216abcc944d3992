//! aarch64: the instructions of the exports. Compiled by CI's cross check; not yet run on hardware.
//!
//! Allocates: no. Locks: no. Syscalls: no. Cost: dlsym 12 instructions, a driver function 4.

/// dlsym(x0: handle, x1: name). A name that begins with "cu" and a capital is shown to `$on_dlsym(handle, name, return
/// address)`, which answers in x0 and x1; all others, and those it passes, leave for the real one with a jump.
macro_rules! dlsym_stub {
    ($real:path, $on_dlsym:path, $find_real:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "cbz x1, 2f",
            "ldrb w9, [x1]",
            "cmp w9, #0x63",
            "b.ne 2f",
            "ldrb w9, [x1, #1]",
            "cmp w9, #0x75",
            "b.ne 2f",
            "ldrb w9, [x1, #2]",
            "sub w9, w9, #0x41",
            "cmp w9, #25",
            "b.hi 2f",
            "stp x29, x30, [sp, #-32]!",
            ".cfi_def_cfa_offset 32",
            ".cfi_offset x29, -32",
            ".cfi_offset x30, -24",
            "mov x29, sp",
            "stp x0, x1, [sp, #16]",
            "mov x2, x30",
            "bl {on_dlsym}",
            "mov x9, x1",
            "mov x10, x0",
            "ldp x0, x1, [sp, #16]",
            "ldp x29, x30, [sp], #32",
            ".cfi_def_cfa_offset 0",
            ".cfi_restore x29",
            ".cfi_restore x30",
            "cbz x9, 2f",
            "mov x0, x10",
            "ret",
            "2:",
            "adrp x16, {real}",
            "ldr x16, [x16, :lo12:{real}]",
            "cbz x16, 3f",
            "br x16",
            "3:",
            "stp x29, x30, [sp, #-32]!",
            ".cfi_def_cfa_offset 32",
            ".cfi_offset x29, -32",
            ".cfi_offset x30, -24",
            "mov x29, sp",
            "stp x0, x1, [sp, #16]",
            "bl {find_real}",
            "mov x16, x0",
            "ldp x0, x1, [sp, #16]",
            "ldp x29, x30, [sp], #32",
            ".cfi_def_cfa_offset 0",
            ".cfi_restore x29",
            ".cfi_restore x30",
            "cbz x16, 4f",
            "br x16",
            "4:",
            "mov x0, #0",
            "ret",
            ".cfi_endproc",
            real = sym $real,
            on_dlsym = sym $on_dlsym,
            find_real = sym $find_real,
        )
    };
}

/// Jumps to the `$index`th of `$targets`, or to `$slow` with the index in w17 when it is null.
macro_rules! plain_stub {
    ($targets:path, $index:expr, $slow:path) => {
        core::arch::naked_asm!(
            "adrp x16, {targets} + {offset}",
            "ldr x16, [x16, :lo12:{targets} + {offset}]",
            "cbz x16, 2f",
            "br x16",
            "2:",
            "mov w17, #{index}",
            "b {slow}",
            targets = sym $targets,
            offset = const $index * 8,
            index = const $index,
            slow = sym $slow,
        )
    };
}

/// Jumps to what `$plain_target(w17)` returns, with all arguments as they were.
macro_rules! plain_slow_stub {
    ($plain_target:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "sub sp, sp, #224",
            ".cfi_def_cfa_offset 224",
            "stp x29, x30, [sp]",
            ".cfi_offset x29, -224",
            ".cfi_offset x30, -216",
            "stp x0, x1, [sp, #16]",
            "stp x2, x3, [sp, #32]",
            "stp x4, x5, [sp, #48]",
            "stp x6, x7, [sp, #64]",
            "str x8, [sp, #80]",
            "stp q0, q1, [sp, #96]",
            "stp q2, q3, [sp, #128]",
            "stp q4, q5, [sp, #160]",
            "stp q6, q7, [sp, #192]",
            "mov x29, sp",
            "mov w0, w17",
            "bl {plain_target}",
            "mov x16, x0",
            "ldp q0, q1, [sp, #96]",
            "ldp q2, q3, [sp, #128]",
            "ldp q4, q5, [sp, #160]",
            "ldp q6, q7, [sp, #192]",
            "ldr x8, [sp, #80]",
            "ldp x6, x7, [sp, #64]",
            "ldp x4, x5, [sp, #48]",
            "ldp x2, x3, [sp, #32]",
            "ldp x0, x1, [sp, #16]",
            "ldp x29, x30, [sp]",
            "add sp, sp, #224",
            ".cfi_def_cfa_offset 0",
            ".cfi_restore x29",
            ".cfi_restore x30",
            "br x16",
            ".cfi_endproc",
            plain_target = sym $plain_target,
        )
    };
}

pub(super) use {dlsym_stub, plain_slow_stub, plain_stub};
