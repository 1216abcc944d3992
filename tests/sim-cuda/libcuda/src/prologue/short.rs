//! Two bytes, then another function: there is no room for a jump of five. The function's own code lies behind that one.

macro_rules! prologue {
    ($name:ident) => {
        concat!(
            "jmp 77f\n",
            ".subsection 1\n",
            concat!("simcuda_neighbour_of_", stringify!($name), ":\n"),
            "ret\n",
            ".balign 16\n",
            "77:\n",
            "push rbp\n",
            "mov rbp, rsp\n",
            "push r12\n",
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
            ".subsection 0\n",
            "/* {hits} */\n",
        )
    };
}
pub(super) use prologue;
