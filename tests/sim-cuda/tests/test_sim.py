"""The simulated driver and CUPTI refuse what the real ones refuse, count truly and look as claimed.

Each test body runs in a process of its own, because the driver's state is the process's. Needs scripts/build-sim.sh.
"""
import ctypes
import functools
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "..", "..", ".."))
PROGRAMS = os.path.join(HERE, "..", "programs")
SIM = os.path.join(os.path.abspath(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))), "sim")
KINDS = ["lib", "lib-endbr64", "lib-rip_relative", "lib-patched", "lib-short"]

PROLOGUE = bytes.fromhex("554889e541544883ec08813d")
MIDDLE = bytes.fromhex("813d")

OK, INVALID_VALUE, NOT_INITIALIZED, INVALID_CONTEXT = 0, 1, 3, 201
INVALID_IMAGE, INVALID_HANDLE, ILLEGAL_STATE, NOT_FOUND, NOT_READY, LOST = 200, 400, 401, 500, 600, 719
UNSUPPORTED, INVALIDATED, IMPLICIT, WRONG_THREAD, UPDATE_FAILURE = 900, 901, 906, 908, 910

sys.path.insert(0, PROGRAMS)


def environment(kind="lib", **more):
    """Of a child that uses the simulator."""
    # Attaching costs milliseconds by default, as it should; not here.
    costs = {"SIM_CUPTI_ATTACH_US": "200", "SIM_CUPTI_DETACH_US": "200"}
    # Ten times the default cost a node, so that a busy machine's noise is small beside it.
    costs.update({"SIM_CUPTI_SUBSCRIBED_NODE_NS": "2000", "SIM_CUPTI_ACTIVITY_NODE_NS": "4000"})
    return dict(os.environ, LD_LIBRARY_PATH=os.path.join(SIM, kind), PYTHONPATH=PROGRAMS, **dict(costs, **more))


def isolated(body):
    """Runs a test in a process of its own."""

    @functools.wraps(body)
    def test(self):
        if os.environ.get("SIM_TEST_CHILD"):
            return body(self)
        command = [sys.executable, os.path.abspath(__file__), "%s.%s" % (type(self).__name__, body.__name__)]
        done = subprocess.run(
            command, env=environment(SIM_TEST_CHILD="1"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=60, check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout.decode())

    return test


def cu(name, *arguments):
    """The code of a driver function."""
    import simcuda

    return getattr(simcuda.lib, name)(*arguments)


NAMES = ["_Z4fastPf", "_Z4slowPf"]


class Gpu:
    """A context, a stream and two kernels: 20 us and 20 ms."""

    def __init__(self):
        import simcuda

        self.sim = simcuda
        self.context = simcuda.start()
        self.stream = simcuda.stream()
        self.other = simcuda.stream()
        functions = simcuda.functions([(NAMES[0], 20000), (NAMES[1], 20000000)])
        self.fast, self.slow = (functions[name] for name in NAMES)

    def launch(self, function=None, on=None):
        return cu("cuLaunchKernel", function or self.fast, 1, 1, 1, 1, 1, 1, 0, on or self.stream, None, None)

    def begin(self, mode=0, on=None):
        return cu("cuStreamBeginCapture_v2", on or self.stream, mode)

    def end(self, on=None):
        graph = c_void_p()
        return cu("cuStreamEndCapture", on or self.stream, byref(graph)), graph.value


def attached(*kinds):
    """A subscribed CUPTI."""
    import simcupti

    cupti = simcupti.Cupti()
    assert cupti.subscribe() == 0
    if kinds:
        cupti.record(*kinds)
    return cupti


def elsewhere(gpu, body):
    """The result of a function on another thread with the same context."""
    results = []

    def work():
        cu("cuCtxSetCurrent", gpu.context)
        results.append(body())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return results[0]


def truth_of(program, kind="lib", **more):
    """Output of a program and the truth it left."""
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "truth.json")
        command = [sys.executable, os.path.join(PROGRAMS, program)]
        done = subprocess.run(
            command, env=environment(kind, SIM_CUDA_TRUTH=path, **more), stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=60, check=False,
        )
        text = done.stdout.decode()
        assert done.returncode == 0, text
        with open(path) as file:
            return text, json.load(file)


class Refusals(unittest.TestCase):
    """What the driver refuses."""

    @isolated
    def test_calls_before_init_are_refused(self):
        out = c_void_p()
        self.assertEqual(cu("cuCtxGetCurrent", byref(out)), NOT_INITIALIZED)
        self.assertEqual(cu("cuLaunchKernel", None, 1, 1, 1, 1, 1, 1, 0, None, None, None), NOT_INITIALIZED)
        version = c_int()
        self.assertEqual((cu("cuDriverGetVersion", byref(version)), version.value), (OK, 13000))

    @isolated
    def test_calls_without_context_are_refused(self):
        self.assertEqual(cu("cuInit", 0), OK)
        self.assertEqual(cu("cuCtxSynchronize"), INVALID_CONTEXT)
        self.assertEqual(cu("cuStreamCreate", byref(c_void_p()), 0), INVALID_CONTEXT)
        self.assertEqual(cu("cuCtxSetCurrent", 0x1234), INVALID_CONTEXT)

    @isolated
    def test_garbage_handles_are_refused(self):
        gpu = Gpu()
        for garbage in (0xDEAD, 0x7FFF12345678, gpu.context):
            self.assertEqual(gpu.launch(garbage), INVALID_HANDLE)
            self.assertEqual(gpu.launch(on=garbage), INVALID_HANDLE)
            for name in ("cuStreamSynchronize", "cuStreamQuery", "cuStreamDestroy_v2", "cuGraphDestroy",
                         "cuGraphExecDestroy", "cuModuleUnload"):
                self.assertEqual(cu(name, garbage), INVALID_HANDLE, name)
            self.assertEqual(cu("cuGraphLaunch", garbage, gpu.stream), INVALID_HANDLE)
            self.assertEqual(cu("cuGraphGetNodes", garbage, None, byref(c_size_t())), INVALID_HANDLE)
            self.assertEqual(cu("cuGraphInstantiateWithFlags", byref(c_void_p()), garbage, 0), INVALID_HANDLE)
        self.assertEqual(cu("cuMemcpyDtoDAsync_v2", 5, 6, 7, gpu.stream), INVALID_VALUE)

    @isolated
    def test_destroyed_handles_are_refused(self):
        gpu = Gpu()
        self.assertEqual(cu("cuStreamDestroy_v2", gpu.other), OK)
        self.assertEqual(gpu.launch(on=gpu.other), INVALID_HANDLE)

    @isolated
    def test_unknown_kernel_and_broken_image_are_refused(self):
        gpu = Gpu()
        module = gpu.sim.made("cuModuleLoadData", gpu.sim.image([("k", 1)]))
        self.assertEqual(cu("cuModuleGetFunction", byref(c_void_p()), module, b"absent"), NOT_FOUND)
        self.assertEqual(cu("cuModuleLoadData", byref(c_void_p()), b"ELF"), INVALID_IMAGE)

    @isolated
    def test_kernel_passed_as_function_has_no_function_name(self):
        gpu = Gpu()
        library = gpu.sim.made("cuLibraryLoadData", gpu.sim.image([("_Z1kv", 1000)]), None, None, 0, None, None, 0)
        kernel = gpu.sim.made("cuLibraryGetKernel", library, b"_Z1kv")
        name = c_char_p(b"before")
        self.assertNotEqual(cu("cuFuncGetName", byref(name), kernel), OK)
        self.assertIsNone(name.value)
        self.assertEqual((cu("cuKernelGetName", byref(name), kernel), name.value), (OK, b"_Z1kv"))
        self.assertEqual((cu("cuFuncGetName", byref(name), gpu.fast), name.value), (OK, NAMES[0].encode()))
        self.assertEqual(gpu.launch(kernel), OK)

    @isolated
    def test_forked_child_has_no_driver(self):
        gpu = Gpu()
        child = os.fork()
        if child == 0:
            os._exit(gpu.launch() & 0xFF)
        self.assertEqual(os.WEXITSTATUS(os.waitpid(child, 0)[1]), NOT_INITIALIZED)
        self.assertEqual(gpu.launch(), OK)


class Captures(unittest.TestCase):
    """What a capture in progress forbids."""

    def assert_broken(self, gpu, call, expected=UNSUPPORTED):
        self.assertEqual(call(), expected)
        status = c_int()
        self.assertEqual(cu("cuStreamIsCapturing", gpu.stream, byref(status)), OK)
        self.assertEqual(status.value, 2)
        self.assertEqual(gpu.launch(), INVALIDATED)
        self.assertEqual(gpu.end(), (INVALIDATED, None))
        self.assertEqual(gpu.launch(), OK)

    @isolated
    def test_synchronizing_breaks_a_capture_in_every_mode(self):
        gpu = Gpu()
        for mode in (0, 1, 2):
            for call in (lambda: cu("cuCtxSynchronize"), lambda: cu("cuStreamSynchronize", gpu.stream),
                         lambda: cu("cuStreamQuery", gpu.stream), lambda: elsewhere(gpu, lambda: cu("cuCtxSynchronize"))):
                self.assertEqual(gpu.begin(mode), OK)
                self.assertEqual(gpu.launch(), OK)
                self.assert_broken(gpu, call)

    @isolated
    def test_allocation_follows_the_modes(self):
        gpu = Gpu()

        def allocate():
            return cu("cuMemAlloc_v2", byref(c_uint64()), 64)

        def relaxed():
            mode = c_int(2)
            cu("cuThreadExchangeStreamCaptureMode", byref(mode))
            code = allocate()
            cu("cuThreadExchangeStreamCaptureMode", byref(mode))
            return code

        # (mode, allocated here, on another thread, here but relaxed)
        for mode, expected in ((0, (UNSUPPORTED, UNSUPPORTED, OK)), (1, (UNSUPPORTED, OK, OK)), (2, (OK, OK, OK))):
            for call, code in zip((allocate, lambda: elsewhere(gpu, allocate), relaxed), expected):
                self.assertEqual(gpu.begin(mode), OK)
                self.assertEqual(call(), code, (mode, call))
                self.assertEqual(gpu.end()[0], INVALIDATED if code else OK)

    @isolated
    def test_legacy_stream_is_unusable_while_a_blocking_stream_captures(self):
        gpu = Gpu()
        gpu.stream = gpu.sim.made("cuStreamCreate", 0)
        self.assertEqual(gpu.begin(), OK)
        self.assertEqual(cu("cuStreamIsCapturing", None, byref(c_int())), IMPLICIT)
        legacy = lambda: cu("cuLaunchKernel", gpu.fast, 1, 1, 1, 1, 1, 1, 0, None, None, None)
        self.assert_broken(gpu, legacy, IMPLICIT)
        self.assertEqual(cu("cuStreamBeginCapture_v2", None, 0), UNSUPPORTED)

    @isolated
    def test_begin_and_end_have_their_places(self):
        gpu = Gpu()
        self.assertEqual(gpu.end()[0], ILLEGAL_STATE)
        self.assertEqual(gpu.begin(), OK)
        self.assertEqual(gpu.begin(), ILLEGAL_STATE)
        self.assertEqual(elsewhere(gpu, gpu.end)[0], WRONG_THREAD)
        self.assertEqual(gpu.end()[0], OK)
        self.assertEqual(gpu.begin(2), OK)
        self.assertEqual(elsewhere(gpu, gpu.end)[0], OK)

    @isolated
    def test_capture_info_names_the_last_node(self):
        gpu = Gpu()
        self.assertEqual(gpu.begin(), OK)
        seen = []
        for _ in range(3):
            self.assertEqual(gpu.launch(), OK)
            status, number, graph, nodes, count = c_int(), c_uint64(), c_void_p(), c_void_p(), c_size_t()
            code = cu("cuStreamGetCaptureInfo_v2", gpu.stream, *map(byref, (status, number, graph, nodes, count)))
            self.assertEqual((code, status.value, count.value), (OK, 1, 1))
            seen.append(c_uint64.from_address(nodes.value).value)
        code, ended = gpu.end()
        self.assertEqual((code, ended), (OK, graph.value))
        count = c_size_t(8)
        nodes = (c_uint64 * 8)()
        self.assertEqual(cu("cuGraphGetNodes", ended, nodes, byref(count)), OK)
        self.assertEqual((count.value, list(nodes)), (3, seen + [0] * 5))
        kind = c_int(-1)
        self.assertEqual((cu("cuGraphNodeGetType", seen[0], byref(kind)), kind.value), (OK, 0))

    @isolated
    def test_update_wants_the_same_shape(self):
        gpu = Gpu()
        graphs = [gpu.sim.Graph(lambda count=count: [gpu.launch() for _ in range(count)], gpu.stream) for count in (2, 2, 3)]
        info = (c_uint64 * 3)()
        self.assertEqual(cu("cuGraphExecUpdate_v2", graphs[0].executable, graphs[1].graph, info), OK)
        self.assertEqual(cu("cuGraphExecUpdate_v2", graphs[0].executable, graphs[2].graph, info), UPDATE_FAILURE)
        self.assertEqual(info[0] & 0xFFFFFFFF, 2)

    @isolated
    def test_handles_come_back(self):
        gpu = Gpu()
        first = gpu.sim.Graph(gpu.launch, gpu.stream)
        old = (first.graph, first.executable)
        first.destroy()
        self.assertEqual(cu("cuGraphLaunch", old[1], gpu.stream), INVALID_HANDLE)
        again = gpu.sim.Graph(gpu.launch, gpu.stream)
        self.assertEqual((again.graph, again.executable), old)


class Time(unittest.TestCase):
    """The simulated GPU takes real time."""

    @isolated
    def test_work_of_a_stream_runs_in_turn_and_streams_run_together(self):
        gpu = Gpu()
        began = time.monotonic()
        for stream in (gpu.stream, gpu.stream, gpu.other):
            self.assertEqual(gpu.launch(gpu.slow, stream), OK)
        self.assertEqual(cu("cuStreamQuery", gpu.stream), NOT_READY)
        self.assertLess(time.monotonic() - began, 0.02)
        self.assertEqual(cu("cuStreamSynchronize", gpu.other), OK)
        self.assertTrue(0.02 <= time.monotonic() - began < 0.039)
        self.assertEqual(cu("cuCtxSynchronize"), OK)
        self.assertTrue(0.04 <= time.monotonic() - began < 0.08)
        self.assertEqual(cu("cuStreamQuery", gpu.stream), OK)

    @isolated
    def test_host_function_runs_in_turn(self):
        gpu = Gpu()
        times = []
        function = ctypes.CFUNCTYPE(None, c_void_p)(lambda _: times.append(time.monotonic()))
        began = time.monotonic()
        gpu.launch(gpu.slow)
        self.assertEqual(cu("cuLaunchHostFunc", gpu.stream, function, None), OK)
        self.assertEqual(cu("cuStreamSynchronize", gpu.stream), OK)
        self.assertGreater(times[0] - began, 0.019)

    @isolated
    def test_cupti_slows_graph_launches_until_finalized(self):
        gpu = Gpu()
        graph = gpu.sim.Graph(lambda: [gpu.launch() for _ in range(500)], gpu.stream)

        def launch_us():
            best = 1e9
            for _ in range(25):
                began = time.perf_counter()
                graph.replay()
                best = min(best, (time.perf_counter() - began) * 1e6)
                gpu.sim.synchronize()
            return best

        bare = launch_us()
        cupti = attached()
        subscribed = launch_us()
        cupti.record(10)
        recording = launch_us()
        cupti.call("cuptiActivityDisable", 10)
        cupti.call("cuptiUnsubscribe", cupti.subscriber)
        left = launch_us()
        cupti.call("cuptiFinalize")
        after = launch_us()
        self.assertTrue(800 <= subscribed - bare and 800 <= left - bare, (bare, subscribed, left))
        self.assertTrue(1600 <= recording - bare, (bare, recording))
        self.assertLess(after, bare + 500)


class Tools(unittest.TestCase):
    """CUPTI."""

    @isolated
    def test_second_subscriber_is_refused(self):
        import simcupti

        Gpu()
        first = attached()
        self.assertEqual(simcupti.Cupti().subscribe(), 39)
        first.call("cuptiFinalize")
        attached()

    @isolated
    def test_cupti_without_driver_is_not_initialized(self):
        import simcupti

        self.assertEqual(simcupti.Cupti().subscribe(), 15)

    @isolated
    def test_callbacks_come_for_what_was_enabled(self):
        gpu = Gpu()
        cupti = attached(10)
        cupti.enable_callback(307)
        gpu.launch()
        cu("cuStreamQuery", gpu.stream)
        cu("cuStreamSynchronize", gpu.stream)
        cupti.flush()
        sites = [(cbid, site, name, symbol) for _, cbid, site, name, symbol, _ in cupti.callbacks]
        expected = (b"cuLaunchKernel", NAMES[0].encode())
        self.assertEqual(sites, [(307, 0) + expected, (307, 1) + expected])
        self.assertEqual({callback[5] for callback in cupti.callbacks}, {cupti.records[0]["correlation"]})

    @isolated
    def test_records_of_a_graph_carry_the_node(self):
        gpu = Gpu()
        memory = gpu.sim.allocate(64)

        def step():
            gpu.launch()
            gpu.sim.call("cuMemsetD8Async", memory, 0, 64, gpu.stream)
            gpu.launch()
            gpu.sim.call("cuMemcpyDtoDAsync_v2", memory, memory, 32, gpu.stream)

        graph = gpu.sim.Graph(step, gpu.stream)
        cupti = attached(10, 1, 2)
        graph.replay()
        gpu.launch()
        gpu.sim.synchronize()
        cupti.flush()
        self.assertEqual([record["kind"] for record in cupti.records], [10, 2, 10, 1, 10])
        of_graph, alone = cupti.records[:4], cupti.records[4]
        number = of_graph[0]["graph"]
        self.assertNotEqual(number, 0)
        self.assertEqual([record["node"] for record in of_graph], [number << 32 | index for index in range(4)])
        self.assertEqual(len({record["correlation"] for record in of_graph}), 1)
        self.assertEqual((alone["graph"], alone["node"]), (0, 0))
        self.assertNotEqual(alone["correlation"], of_graph[0]["correlation"])
        self.assertEqual(of_graph[0]["end"] - of_graph[0]["start"], 20000)
        self.assertEqual([record["bytes"] for record in of_graph[1::2]], [64, 32])

    @isolated
    def test_only_enabled_kinds_are_recorded_and_full_buffers_come_by_themselves(self):
        gpu = Gpu()
        cupti = attached(10)
        memory = gpu.sim.allocate(64)
        gpu.sim.call("cuMemsetD8Async", memory, 0, 64, gpu.stream)
        for _ in range(700):
            gpu.launch()
        gpu.sim.synchronize()
        time.sleep(0.1)
        self.assertGreaterEqual(len(cupti.records), 600)
        cupti.flush()
        self.assertEqual([record["kind"] for record in cupti.records], [10] * 700)
        self.assertEqual(cupti.dropped(), 0)

    @isolated
    def test_records_without_buffer_are_counted(self):
        gpu = Gpu()
        cupti = attached(10)
        cupti.give_buffers = False
        for _ in range(5):
            gpu.launch()
        gpu.sim.synchronize()
        cupti.flush()
        self.assertEqual((cupti.records, cupti.dropped(), cupti.dropped()), ([], 5, 0))

    @isolated
    def test_correlation_ids_start_again_after_finalize(self):
        gpu = Gpu()
        for _ in range(2):
            cupti = attached()
            cupti.enable_callback(307)
            gpu.launch()
            gpu.sim.synchronize()
            self.assertEqual(cupti.callbacks[0][5], 1)
            cupti.call("cuptiFinalize")

    @isolated
    def test_finalize_on_a_quiet_gpu_is_safe(self):
        gpu = Gpu()
        for _ in range(10):
            cupti = attached(10)
            gpu.launch()
            gpu.sim.synchronize()
            cupti.flush()
            cupti.call("cuptiFinalize")
            self.assertEqual(len(cupti.records), 1)
        self.assertEqual(gpu.launch(), OK)

    @isolated
    def test_finalize_with_work_in_flight_loses_the_context_for_good(self):
        gpu = Gpu()
        cupti = attached()
        gpu.launch(gpu.slow, gpu.other)
        cupti.call("cuptiFinalize")
        for _ in range(2):
            self.assertEqual(cu("cuCtxSynchronize"), LOST)
            self.assertEqual(gpu.launch(), LOST)
            self.assertEqual(cu("cuMemAlloc_v2", byref(c_uint64()), 64), LOST)

    @isolated
    def test_finalize_during_a_launch_call_loses_the_context(self):
        gpu = Gpu()
        cupti = attached()
        cupti.enable_callback(307)
        cupti.in_exit = lambda: cupti.code("cuptiFinalize")
        gpu.launch()
        self.assertEqual(gpu.launch(), LOST)

    @isolated
    def test_launches_during_finalize_lose_the_context(self):
        gpu = Gpu()
        cupti = attached()
        done = threading.Event()
        codes = set()

        def launch():
            cu("cuCtxSetCurrent", gpu.context)
            while not done.is_set():
                codes.add(gpu.launch())

        thread = threading.Thread(target=launch)
        thread.start()
        time.sleep(0.01)
        cupti.call("cuptiFinalize")
        time.sleep(0.01)
        done.set()
        thread.join()
        self.assertIn(LOST, codes)

    @isolated
    def test_attach_and_finalize_break_captures(self):
        gpu = Gpu()
        self.assertEqual(gpu.begin(2), OK)
        cupti = attached()
        self.assertEqual(gpu.end()[0], INVALIDATED)
        self.assertEqual(gpu.begin(2), OK)
        cupti.call("cuptiFinalize")
        self.assertEqual(gpu.end()[0], INVALIDATED)
        self.assertEqual(gpu.launch(), OK)


class Entries(unittest.TestCase):
    """Exported functions are patchable, or not, as each kind claims."""

    PATCHED = ["cuLaunchKernel", "cuLaunchKernelEx_ptsz", "cuLaunchCooperativeKernel", "cuGraphLaunch",
               "cuGraphLaunch_ptsz", "cuStreamBeginCapture", "cuStreamBeginCapture_v2_ptsz", "cuStreamEndCapture",
               "cuGraphInstantiate", "cuGraphExecUpdate_v2", "cuGraphDestroy", "cuMemcpyAsync", "cuMemsetD32Async_ptsz"]

    def symbols(self, kind):
        """name: (address, st_size, first 24 bytes) of the dynamic symbols."""
        with open(os.path.join(SIM, kind, "libcuda.so.1"), "rb") as file:
            data = file.read()
        headers, size, count = struct.unpack_from("<Q10xHH", data, 40)[0], 64, struct.unpack_from("<H", data, 60)[0]
        sections = [struct.unpack_from("<IIQQQQIIQQ", data, headers + size * index) for index in range(count)]
        table = next(section for section in sections if section[1] == 11)
        names = sections[table[6]][4]
        found = {}
        for at in range(table[4], table[4] + table[5], 24):
            name, info, _, section, value, length = struct.unpack_from("<IBBHQQ", data, at)
            if info & 15 == 2 and section:
                text = data[names + name:data.index(b"\0", names + name)].decode()
                offset = value - sections[section][3] + sections[section][4]
                found[text] = (value, length, data[offset:offset + 24])
        return found

    def check(self, kind, is_right):
        symbols = self.symbols(kind)
        for name in self.PATCHED:
            address, size, code = symbols[name]
            self.assertEqual(address % 16, 0, name)
            self.assertTrue(is_right(size, code), (kind, name, size, code.hex()))

    def test_default_begins_as_driver_580(self):
        self.check("lib", lambda size, code: code.startswith(PROLOGUE) and size > 40)

    def test_endbr64_begins_with_a_landing_pad(self):
        self.check("lib-endbr64", lambda size, code: code.startswith(bytes.fromhex("f30f1efa") + PROLOGUE) and size > 40)

    def test_rip_relative_begins_with_a_compare(self):
        self.check("lib-rip_relative", lambda size, code: code.startswith(MIDDLE) and size > 40)

    def test_patched_begins_with_a_jump(self):
        self.check("lib-patched", lambda size, code: code[0] == 0xE9 and code[5:10].hex() == "904883ec08" and size > 40)

    def test_short_has_two_bytes(self):
        self.check("lib-short", lambda size, code: code[0] == 0xEB and size == 2)

    def test_every_kind_runs_a_model_and_counts_alike(self):
        for kind in KINDS:
            output, truth = truth_of("decode.py", kind, SECS="0.2")
            self.assertIn("graph: steps=", output)
            calls, kernels = truth["calls"], truth["kernels"]
            replays = calls["cuGraphLaunch"]
            warm_up, nodes = 3, 4 * 6 + 3
            self.assertEqual(sum(row["launches"] for row in kernels.values()), nodes * (replays + warm_up), kind)
            self.assertEqual(calls["cuLaunchKernel"], nodes * (warm_up + 1), kind)
            self.assertEqual(truth["entry_thunk_hits"] > 0, kind == "lib-patched")


class Programs(unittest.TestCase):
    """The other programs run, and look-ups by name give the exported functions."""

    def test_programs_run(self):
        output, _ = truth_of("mt.py", SECS="0.5")
        self.assertIn("errors []", output)
        output, truth = truth_of("capture_storm.py", N="30")
        self.assertEqual(truth["calls"]["cuGraphExecDestroy"], 30)
        output, truth = truth_of("fork.py")
        self.assertIn("child=3 parent=ok", output)
        self.assertEqual(truth["kernels"]["_Z11before_forkPf"], {"launches": 51, "gpu_ns": 51 * 20000})

    @unittest.skipUnless(shutil.which("cc"), "no C compiler")
    def test_injection_library_is_called_once(self):
        source = """#include <stdio.h>
            int cuDriverGetVersion(int *); int cuInit(unsigned);
            int InitializeInjection(void) { int v = 0; cuDriverGetVersion(&v); printf("injected %d %d\\n", v, cuInit(0)); fflush(stdout); return 1; }"""
        with tempfile.TemporaryDirectory() as directory:
            library = os.path.join(directory, "libinjected.so")
            driver = os.path.join(SIM, "lib", "libcuda.so.1")
            command = ["cc", "-shared", "-fPIC", "-o", library, "-x", "c", "-", "-x", "none", driver]
            subprocess.run(command, input=source.encode(), check=True, timeout=60)
            output, _ = truth_of("capture_storm.py", N="1", CUDA_INJECTION64_PATH=library)
        self.assertEqual(output, "injected 13000 0\ncaptures=1\n")

    @isolated
    def test_proc_address_is_the_symbol(self):
        import simcuda

        def look_up(name, version=13000, flags=0):
            address, status = c_void_p(), c_int()
            code = cu("cuGetProcAddress_v2", name, byref(address), version, flags, byref(status))
            return code, address.value, status.value

        def symbol(name):
            return ctypes.cast(getattr(simcuda.lib, name), c_void_p).value

        for base, version, flags, name in [
            (b"cuLaunchKernel", 13000, 0, "cuLaunchKernel"),
            (b"cuLaunchKernel", 13000, 2, "cuLaunchKernel_ptsz"),
            (b"cuMemcpyHtoD", 13000, 2, "cuMemcpyHtoD_v2_ptds"),
            (b"cuStreamBeginCapture", 10000, 0, "cuStreamBeginCapture"),
            (b"cuStreamBeginCapture", 12000, 2, "cuStreamBeginCapture_v2_ptsz"),
            (b"cuStreamGetCaptureInfo", 12000, 0, "cuStreamGetCaptureInfo_v2"),
            (b"cuGraphInstantiate", 13000, 0, "cuGraphInstantiateWithFlags"),
            (b"cuGetProcAddress", 13000, 0, "cuGetProcAddress_v2"),
            (b"cuGetProcAddress", 11030, 0, "cuGetProcAddress"),
        ]:
            self.assertEqual(look_up(base, version, flags), (OK, symbol(name), 0), name)
        self.assertEqual(look_up(b"cuNoSuchThing"), (OK, None, 1))
        self.assertEqual(look_up(b"cuGraphInstantiate", 9000), (OK, None, 2))


if __name__ == "__main__":
    outcome = unittest.main(exit=False).result
    bad = len(outcome.failures) + len(outcome.errors)
    print("%d passed, %d failed" % (outcome.testsRun - bad, bad), flush=True)
    sys.exit(1 if bad else 0)
