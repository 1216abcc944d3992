"""Times a sampled launch's capture inside Python: python_stack.py PATH/libstack_probe.so [frames...]

    cargo build --release -p interposer --example stack_probe
    python3.11 benches/benches/python_stack.py target/release/examples/libstack_probe.so

Each depth is taken twice: pure Python recursion, which 3.11+ runs in one C frame, and recursion through functools
partials, where each level is C and Python (as with torch modules). Prints one JSON line a case.
"""
import ctypes
import functools
import json
import sys

probe = ctypes.CDLL(sys.argv[1])
probe.probe_stack.restype = ctypes.c_char_p
probe.probe_time.restype = ctypes.c_double
probe.probe_time.argtypes = [ctypes.c_uint32, ctypes.c_uint32]


def measure(case):
    probe.probe_capture_often(200)
    stack = json.loads(probe.probe_stack(probe.probe_capture()).decode())
    ns = probe.probe_time(50, 2000)
    assert stack["flags"] == 0
    print(json.dumps({"case": case, "python": "%d.%d.%d" % sys.version_info[:3], "native_frames": len(stack["native"]),
                      "python_frames": len(stack["python"]), "ns": round(ns, 1)}))


def plain(depth, case):
    return measure(case) if depth <= 1 else plain(depth - 1, case)


def mixed(depth, case):
    return measure(case) if depth <= 1 else functools.partial(mixed, depth - 1)(case)


# `measure` and `<module>` are frames too.
for count in [int(text) for text in sys.argv[2:]] or [20, 40]:
    plain(count - 2, "plain")
    mixed(count - 2, "mixed")
