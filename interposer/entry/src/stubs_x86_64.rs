//! x86-64: the instructions of the exports.
//!
//! Allocates: no. Locks: no. Syscalls: no. Cost: dlsym 9 instructions, a driver function 4.

/// dlsym(rdi: handle, rsi: name). A name that begins with "cu" and a capital is shown to `$on_dlsym(handle, name, return
/// address)`, which answers in rax and rdx; all others, and those it passes, leave for the real one with a jump.
macro_rules! dlsym_stub {
    ($real:path, $on_dlsym:path, $find_real:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "endbr64",
            "test rsi, rsi",
            "je 2f",
            "cmp byte ptr [rsi], 0x63",
            "jne 2f",
            "cmp byte ptr [rsi + 1], 0x75",
            "jne 2f",
            "movzx eax, byte ptr [rsi + 2]",
            "sub eax, 0x41",
            "cmp eax, 25",
            "ja 2f",
            "push rdi",
            ".cfi_adjust_cfa_offset 8",
            "push rsi",
            ".cfi_adjust_cfa_offset 8",
            "mov rdx, [rsp + 16]",
            "sub rsp, 8",
            ".cfi_adjust_cfa_offset 8",
            "call {on_dlsym}",
            "add rsp, 8",
            ".cfi_adjust_cfa_offset -8",
            "pop rsi",
            ".cfi_adjust_cfa_offset -8",
            "pop rdi",
            ".cfi_adjust_cfa_offset -8",
            "test rdx, rdx",
            "je 2f",
            "ret",
            "2:",
            "mov rax, [rip + {real}]",
            "test rax, rax",
            "je 3f",
            "jmp rax",
            "3:",
            "push rdi",
            ".cfi_adjust_cfa_offset 8",
            "push rsi",
            ".cfi_adjust_cfa_offset 8",
            "sub rsp, 8",
            ".cfi_adjust_cfa_offset 8",
            "call {find_real}",
            "add rsp, 8",
            ".cfi_adjust_cfa_offset -8",
            "pop rsi",
            ".cfi_adjust_cfa_offset -8",
            "pop rdi",
            ".cfi_adjust_cfa_offset -8",
            "test rax, rax",
            "je 4f",
            "jmp rax",
            "4:",
            "ret",
            ".cfi_endproc",
            real = sym $real,
            on_dlsym = sym $on_dlsym,
            find_real = sym $find_real,
        )
    };
}

/// Jumps to the `$index`th of `$targets`, or to `$slow` with the index in eax when it is null.
macro_rules! plain_stub {
    ($targets:path, $index:expr, $slow:path) => {
        core::arch::naked_asm!(
            "endbr64",
            "mov rax, [rip + {targets} + {offset}]",
            "test rax, rax",
            "je 2f",
            "jmp rax",
            "2:",
            "mov eax, {index}",
            "jmp {slow}",
            targets = sym $targets,
            offset = const $index * 8,
            index = const $index,
            slow = sym $slow,
        )
    };
}

/// Jumps to what `$plain_target(eax)` returns, with all arguments as they were.
macro_rules! plain_slow_stub {
    ($plain_target:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "push rdi",
            "push rsi",
            "push rdx",
            "push rcx",
            "push r8",
            "push r9",
            "sub rsp, 136",
            ".cfi_adjust_cfa_offset 184",
            "movups [rsp], xmm0",
            "movups [rsp + 16], xmm1",
            "movups [rsp + 32], xmm2",
            "movups [rsp + 48], xmm3",
            "movups [rsp + 64], xmm4",
            "movups [rsp + 80], xmm5",
            "movups [rsp + 96], xmm6",
            "movups [rsp + 112], xmm7",
            "mov edi, eax",
            "call {plain_target}",
            "movups xmm0, [rsp]",
            "movups xmm1, [rsp + 16]",
            "movups xmm2, [rsp + 32]",
            "movups xmm3, [rsp + 48]",
            "movups xmm4, [rsp + 64]",
            "movups xmm5, [rsp + 80]",
            "movups xmm6, [rsp + 96]",
            "movups xmm7, [rsp + 112]",
            "add rsp, 136",
            "pop r9",
            "pop r8",
            "pop rcx",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            ".cfi_adjust_cfa_offset -184",
            "jmp rax",
            ".cfi_endproc",
            plain_target = sym $plain_target,
        )
    };
}

pub(super) use {dlsym_stub, plain_slow_stub, plain_stub};
