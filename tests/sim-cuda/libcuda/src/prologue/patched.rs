//! As another tool leaves it: a jump to that tool's thunk, which counts, runs the moved instructions and comes back.

// The empty subsection at the end aligns the function, whose section it shares, without adding to its size.
macro_rules! prologue {
    ($name:ident) => {
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
            ".subsection 1\n",
            ".balign 16\n",
            ".subsection 0\n",
        )
    };
}
pub(super) use prologue;
