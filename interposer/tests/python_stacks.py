"""Runs in each interpreter: takes stacks through the probe and compares them to traceback.extract_stack()."""
import asyncio
import ctypes
import json
import os
import subprocess
import sys
import threading
import traceback

# A CDLL releases the GIL around the call, as launches in engines do.
probe = ctypes.CDLL(sys.argv[1])
probe.probe_stack.restype = ctypes.c_char_p
probe.probe_refusal.restype = ctypes.c_char_p
probe.probe_counter.restype = ctypes.c_uint64
probe.probe_counter.argtypes = [ctypes.c_char_p]
probe.probe_arm.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
HAS_QUALNAMES = sys.version_info >= (3, 11)


def stack_of(stack_id):
    return json.loads(probe.probe_stack(stack_id).decode("utf-8"))


def expected_frames():
    """Innermost first, without this function."""
    frames = []
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        frames.append((frame.f_lineno, code.co_firstlineno, code.co_qualname if HAS_QUALNAMES else code.co_name, code.co_filename))
        frame = frame.f_back
    summary = [(entry.lineno, entry.name, entry.filename) for entry in traceback.extract_stack()][:-1][::-1]
    assert summary == [(line, name.rsplit(".", 1)[-1], file) for line, _, name, file in frames], (summary, frames)
    return frames


taken = []


def take():
    # More samples than a truncated stack needs to become whole: new sites are told a few at a time.
    stack_id, frames = probe.probe_capture_often(8), expected_frames()
    taken.append((stack_id, frames))


def recursion(depth):
    if depth == 0:
        return take()
    return recursion(depth - 1)


class Callable:
    def __call__(self):
        return [take() for _ in range(1)]


class Module:
    def __init__(self):
        self.value = take()


class Key:
    def __init__(self, value):
        self.value = value

    def __lt__(self, other):
        take()
        return self.value < other.value


def through_sorted():
    sorted([2, 1], key=lambda value: take() or value)
    sorted([Key(2), Key(1)])


def generator():
    yield take()
    yield from (take() for _ in range(1))


def in_thread():
    thread = threading.Thread(target=recursion, args=(5,))
    thread.start()
    thread.join()


async def coroutine(depth):
    if depth == 0:
        await asyncio.sleep(0)
        take()
    else:
        await coroutine(depth - 1)


def instantiate():
    # Often enough for the specialising interpreter to inline the call of __init__.
    for _ in range(30):
        Module()


def multi_line():
    return max(
        1,
        (take() or 2),
        *[
            3,
        ]
    )


def long_jump():
    x = 1
































































































































































    if x:
        take()
    for _ in range(1):
        take()
    try:
        raise ValueError
    except ValueError:
        take()
    finally:
        take()


# A name outside ASCII needs an identifier that Python accepts: emoji are not one.
exec(compile("def größe_测试_𝒳():\n    take()\n", "/tmp/файл_测.py", "exec"))


def run(name, function, *arguments):
    del taken[:]
    function(*arguments)
    assert taken, name
    for stack_id, frames in taken:
        stack = stack_of(stack_id)
        got = [tuple(frame[2:]) for frame in stack["python"]]
        differing = [pair for pair in zip(got, frames) if pair[0] != pair[1]]
        assert got == frames, (name, len(got), len(frames), differing[:3])
        assert stack["flags"] == 0, (name, stack["flags"], len(stack["native"]))
        check_entries(name, stack)
        assert not any(start <= address < end for start, end in OWN for address in stack["native"]), name
    print("ok %s: %d stacks" % (name, len(taken)))


def check_entries(name, stack):
    """As many native frames in the interpreter loop as Python frames marked as entries.

    From 3.14 on compilers split the loop into parts of which only one, of 1 KiB, bears the exported name.
    """
    if sys.version_info >= (3, 14):
        assert any(frame[1] for frame in stack["python"]), name
        return
    start, end = interpreter_loop()
    native = sum(start <= address - 1 < end for address in stack["native"])
    entries = sum(frame[1] for frame in stack["python"])
    assert native == entries, "%s: %d interpreter loops, %d entry frames" % (name, native, entries)


with open("/proc/self/maps") as maps:
    # Where the probe lies, which stands for our library: its frames are left out.
    OWN = [[int(bound, 16) for bound in line.split()[0].split("-")] for line in maps if "libstack_probe" in line]
LOOP = []


def interpreter_loop():
    """Address range of _PyEval_EvalFrameDefault, from the dynamic symbol table of what maps it."""
    if not LOOP:
        find_loop()
    return LOOP


def find_loop():
    start = ctypes.cast(ctypes.pythonapi._PyEval_EvalFrameDefault, ctypes.c_void_p).value
    with open("/proc/self/maps") as maps:
        path = next(line.split()[-1] for line in maps if in_range(line, start))
    text = subprocess.check_output(["readelf", "--dyn-syms", "-W", path]).decode()
    sizes = [line.split()[2] for line in text.splitlines() if line.split()[-1:] == ["_PyEval_EvalFrameDefault"]]
    LOOP.extend([start, start + int(sizes[0], 0)])


def in_range(line, address):
    low, high = (int(bound, 16) for bound in line.split()[0].split("-"))
    return low <= address < high


def run_all():
    run("recursion", recursion, 20)
    run("call and comprehension", Callable())
    run("through sorted", through_sorted)
    run("generator", lambda: list(generator()))
    run("thread", in_thread)
    run("other scripts", größe_测试_𝒳)
    run("coroutine", lambda: asyncio.run(coroutine(5)))
    run("instantiation", instantiate)
    run("several lines", multi_line)
    run("long jump", long_jump)


def reuse_code_objects():
    """Code objects that are freed and made again, alike but for their names, are told apart."""
    addresses = set()
    for number in range(1000, 1400):
        source = "def function_%d():\n    take()\n" % number
        space = {"take": take}
        exec(compile(source, "/tmp/reuse_%d.py" % number, "exec"), space)
        addresses.add(id(space["function_%d" % number].__code__))
        del taken[:]
        space["function_%d" % number]()
        stack_id, frames = taken[0]
        got = [tuple(frame[2:]) for frame in stack_of(stack_id)["python"]]
        assert got == frames, (number, got, frames)
        del space
        if number % 50 == 0:
            print("ok reuse %d, %d addresses" % (number, len(addresses)))
    assert len(addresses) < 400


def no_syscalls():
    """After the first stacks, capture makes no system call."""
    def in_child(depth):
        if depth:
            return in_child(depth - 1)
        probe.probe_capture_often(100)
        child = os.fork()
        if child == 0:
            probe.probe_capture_without_syscalls(100)
        _, status = os.waitpid(child, 0)
        assert status == 0, status
    in_child(10)


def fill_tables():
    """Full tables are counted, and never give a wrong name."""
    probe.probe_arm(96, 32)
    for number in range(400):
        space = {"capture": probe.probe_capture}
        exec(compile("%sdef f_%d(): return capture()" % ("\n" * number, number), "/tmp/full.py", "exec"), space)
        stack_id = space["f_%d" % number]()
        if stack_id:
            site, _, line, _, name, _ = stack_of(stack_id)["python"][0]
            assert site == 0 or (line == number + 1 and name == "f_%d" % number), (number, line, name)
    assert probe.probe_counter(b"site_table_full") > 0
    assert probe.probe_counter(b"stack_table_full") > 0
    print("ok full tables")


if __name__ == "__main__":
    mode = sys.argv[2]
    if mode == "all":
        run_all()
        run_all()
    elif mode == "reuse":
        reuse_code_objects()
    elif mode == "full":
        fill_tables()
    elif mode == "syscalls":
        no_syscalls()
    elif mode == "refused":
        print(probe.probe_refusal().decode())
        stack = stack_of(probe.probe_capture())
        assert len(stack["native"]) > 5 and not stack["python"]
        sys.exit()
    assert probe.probe_refusal() == b"", probe.probe_refusal()
    assert probe.probe_counter(b"python_refused") == 0
