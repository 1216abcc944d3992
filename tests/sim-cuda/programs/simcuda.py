"""A thin ctypes layer over the CUDA driver API, enough for the programs beside it. Python 3.8 or newer, nothing else.

The library is asked for by name, as any program does; which one it is, is the caller's LD_LIBRARY_PATH. Images of
kernels are in the format of the simulated driver, so these programs need that one.
"""
import ctypes
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p

lib = ctypes.CDLL("libcuda.so.1")

GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2
NON_BLOCKING = 1


class CudaError(Exception):
    """A driver function failed."""

    def __init__(self, function, code):
        name = c_char_p()
        lib.cuGetErrorName(code, byref(name))
        text = name.value.decode() if name.value else "unknown error"
        super().__init__("%s: %s (%d)" % (function, text, code))
        self.code = code


_POINTER, _UINT = c_void_p, c_uint
_KERNEL = [_POINTER] + [_UINT] * 7 + [_POINTER, _POINTER]
_SIGNATURES = {
    "cuInit": [_UINT],
    "cuDriverGetVersion": [_POINTER],
    "cuGetErrorName": [c_int, _POINTER],
    "cuDevicePrimaryCtxRetain": [_POINTER, c_int],
    "cuDevicePrimaryCtxRelease_v2": [c_int],
    "cuCtxCreate_v2": [_POINTER, _UINT, c_int],
    "cuCtxDestroy_v2": [_POINTER],
    "cuCtxSetCurrent": [_POINTER],
    "cuCtxGetCurrent": [_POINTER],
    "cuCtxSynchronize": [],
    "cuStreamCreate": [_POINTER, _UINT],
    "cuStreamDestroy_v2": [_POINTER],
    "cuStreamSynchronize": [_POINTER],
    "cuStreamQuery": [_POINTER],
    "cuStreamBeginCapture_v2": [_POINTER, c_int],
    "cuStreamEndCapture": [_POINTER, _POINTER],
    "cuStreamIsCapturing": [_POINTER, _POINTER],
    "cuStreamGetCaptureInfo_v2": [_POINTER] * 6,
    "cuThreadExchangeStreamCaptureMode": [_POINTER],
    "cuMemAlloc_v2": [_POINTER, c_size_t],
    "cuMemFree_v2": [c_uint64],
    "cuMemcpyDtoDAsync_v2": [c_uint64, c_uint64, c_size_t, _POINTER],
    "cuMemcpyHtoD_v2": [c_uint64, _POINTER, c_size_t],
    "cuMemcpyHtoDAsync_v2": [c_uint64, _POINTER, c_size_t, _POINTER],
    "cuMemsetD8Async": [c_uint64, ctypes.c_ubyte, c_size_t, _POINTER],
    "cuMemsetD32Async": [c_uint64, _UINT, c_size_t, _POINTER],
    "cuModuleLoadData": [_POINTER, c_char_p],
    "cuModuleUnload": [_POINTER],
    "cuModuleGetFunction": [_POINTER, _POINTER, c_char_p],
    "cuLibraryLoadData": [_POINTER, c_char_p, _POINTER, _POINTER, _UINT, _POINTER, _POINTER, _UINT],
    "cuLibraryGetKernel": [_POINTER, _POINTER, c_char_p],
    "cuFuncGetName": [_POINTER, _POINTER],
    "cuKernelGetName": [_POINTER, _POINTER],
    "cuLaunchKernel": _KERNEL + [_POINTER],
    "cuLaunchKernel_ptsz": _KERNEL + [_POINTER],
    "cuLaunchCooperativeKernel": _KERNEL,
    "cuLaunchKernelEx": [_POINTER] * 4,
    "cuLaunchHostFunc": [_POINTER] * 3,
    "cuGraphCreate": [_POINTER, _UINT],
    "cuGraphGetNodes": [_POINTER] * 3,
    "cuGraphNodeGetType": [_POINTER, _POINTER],
    "cuGraphInstantiateWithFlags": [_POINTER, _POINTER, c_uint64],
    "cuGraphLaunch": [_POINTER, _POINTER],
    "cuGraphExecUpdate_v2": [_POINTER] * 3,
    "cuGraphExecDestroy": [_POINTER],
    "cuGraphDestroy": [_POINTER],
    "cuGetProcAddress_v2": [c_char_p, _POINTER, c_int, c_uint64, _POINTER],
}
for _name, _arguments in _SIGNATURES.items():
    getattr(lib, _name).argtypes = _arguments


def call(name, *arguments):
    """Calls a driver function and raises on failure."""
    code = getattr(lib, name)(*arguments)
    if code:
        raise CudaError(name, code)


def made(name, *arguments):
    """Calls a driver function whose first argument takes a handle; returns the handle."""
    handle = c_void_p()
    call(name, byref(handle), *arguments)
    return handle.value


def image(kernels):
    """An image of kernels from (mangled name, nanoseconds)."""
    return b"SIMCUBIN\n" + b"".join(b"%s %d\n" % (name.encode(), duration) for name, duration in kernels)


def start():
    """Initializes and makes the primary context current."""
    call("cuInit", 0)
    context = made("cuDevicePrimaryCtxRetain", 0)
    call("cuCtxSetCurrent", context)
    return context


def functions(kernels):
    """Loads kernels; returns the functions by name."""
    module = made("cuModuleLoadData", image(kernels))
    return {name: made("cuModuleGetFunction", module, name.encode()) for name, _ in kernels}


def stream():
    """A stream that does not take turns with the default one."""
    return made("cuStreamCreate", NON_BLOCKING)


def allocate(size):
    """Device memory."""
    address = c_uint64()
    call("cuMemAlloc_v2", byref(address), size)
    return address.value


def launch(function, on, grid=64, block=128):
    """Launches a kernel."""
    call("cuLaunchKernel", function, grid, 1, 1, block, 1, 1, 0, on, None, None)


def synchronize(on=None):
    """Waits for a stream, or for the context."""
    if on is None:
        call("cuCtxSynchronize")
    else:
        call("cuStreamSynchronize", on)


class Graph:
    """What `step` launches on a stream, captured and made executable."""

    def __init__(self, step, on, mode=THREAD_LOCAL):
        call("cuStreamBeginCapture_v2", on, mode)
        try:
            step()
        finally:
            graph = c_void_p()
            code = lib.cuStreamEndCapture(on, byref(graph))
        if code:
            raise CudaError("cuStreamEndCapture", code)
        self.graph, self.on = graph.value, on
        self.executable = made("cuGraphInstantiateWithFlags", self.graph, 0)

    def replay(self):
        """Launches it."""
        call("cuGraphLaunch", self.executable, self.on)

    def destroy(self):
        """Destroys the executable and the graph."""
        call("cuGraphExecDestroy", self.executable)
        call("cuGraphDestroy", self.graph)
