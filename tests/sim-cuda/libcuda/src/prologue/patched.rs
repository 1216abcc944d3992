//! As another tool leaves it: a jump to that tool's thunk, which counts, runs the moved instructions and comes back.

macro_rules! prologue {
    () => {
        concat!(
            ".byte 0xe9\n",
            ".long 77f - . - 4\n",
            "nop\n",
            "66:\n",
            "sub rsp, 8\n",
            "cmp dword ptr [rip + {flag}], 0x5eed0001\n",
            "je 3f\n",
            "add rsp, 8\n",
            "pop r12\n",
            "pop rbp\n",
            "lock inc qword ptr [rip + {calls} + {slot}]\n",
            "jmp {function}\n",
            "3:\n",
            "ud2\n",
            ".pushsection .text.simcuda_thunks,\"ax\",@progbits\n",
            "77:\n",
            "lock inc qword ptr [rip + {hits}]\n",
            "push rbp\n",
            "mov rbp, rsp\n",
            "push r12\n",
            "jmp 66b\n",
            ".popsection\n",
        )
    };
}
pub(super) use prologue;
