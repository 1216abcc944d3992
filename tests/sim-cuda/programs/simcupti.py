"""A thin ctypes layer over CUPTI: one subscriber, records decoded by the layouts of CUDA 13.0."""
import ctypes
import struct
from ctypes import POINTER, byref, c_int, c_size_t, c_ubyte, c_uint, c_void_p

MEMCPY, MEMSET, CONCURRENT_KERNEL = 1, 2, 10
LAUNCH_KERNEL, GRAPH_LAUNCH = 307, 514
DRIVER_DOMAIN = 1
BUFFER_BYTES = 1 << 16


class CallbackData(ctypes.Structure):
    """CUpti_CallbackData."""

    _fields_ = [
        ("site", c_int),
        ("function_name", ctypes.c_char_p),
        ("function_params", c_void_p),
        ("function_return_value", POINTER(c_int)),
        ("symbol_name", ctypes.c_char_p),
        ("context", c_void_p),
        ("context_uid", c_uint),
        ("correlation_data", POINTER(ctypes.c_uint64)),
        ("correlation_id", c_uint),
    ]


_CALLBACK = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_uint, POINTER(CallbackData))
_REQUESTED = ctypes.CFUNCTYPE(None, POINTER(c_void_p), POINTER(c_size_t), POINTER(c_size_t))
_COMPLETED = ctypes.CFUNCTYPE(None, c_void_p, c_uint, c_void_p, c_size_t, c_size_t)


def _u32(data, offset):
    return struct.unpack_from("<I", data, offset)[0]


def _u64(data, offset):
    return struct.unpack_from("<Q", data, offset)[0]


class Cupti:
    """The library, what it delivered, and the functions it calls."""

    def __init__(self):
        self.lib = ctypes.CDLL("libcupti.so.13")
        self.callbacks, self.records, self.buffers = [], [], {}
        self.give_buffers, self.in_exit = True, None
        self.subscriber = c_void_p()
        self._functions = (_CALLBACK(self._on_api), _REQUESTED(self._requested), _COMPLETED(self._completed))

    def code(self, name, *arguments):
        """Calls a function; returns its code."""
        return getattr(self.lib, name)(*arguments)

    def call(self, name, *arguments):
        """Calls a function that has to succeed."""
        code = self.code(name, *arguments)
        if code:
            raise RuntimeError("%s: %d" % (name, code))

    def subscribe(self):
        """Returns the code."""
        return self.code("cuptiSubscribe", byref(self.subscriber), self._functions[0], None)

    def enable_callback(self, cbid):
        """One driver function."""
        self.call("cuptiEnableCallback", 1, self.subscriber, DRIVER_DOMAIN, cbid)

    def record(self, *kinds):
        """Registers buffers and enables kinds of activity."""
        self.call("cuptiActivityRegisterCallbacks", self._functions[1], self._functions[2])
        for kind in kinds:
            self.call("cuptiActivityEnable", kind)

    def flush(self):
        """Delivers all."""
        self.call("cuptiActivityFlushAll", 1)

    def dropped(self):
        """Since the last question."""
        count = c_size_t()
        self.call("cuptiActivityGetNumDroppedRecords", None, 0, byref(count))
        return count.value

    def _on_api(self, _userdata, domain, cbid, data):
        data = data.contents
        self.callbacks.append((domain, cbid, data.site, data.function_name, data.symbol_name, data.correlation_id))
        if data.site == 1 and self.in_exit:
            self.in_exit()

    def _requested(self, buffer, size, most_records):
        most_records[0] = 0
        if not self.give_buffers:
            buffer[0], size[0] = None, 0
            return
        memory = (c_ubyte * BUFFER_BYTES)()
        self.buffers[ctypes.addressof(memory)] = memory
        buffer[0], size[0] = ctypes.addressof(memory), BUFFER_BYTES

    def _completed(self, _context, _stream, buffer, _size, valid):
        record = c_void_p()
        while self.lib.cuptiActivityGetNextRecord(c_void_p(buffer), c_size_t(valid), byref(record)) == 0:
            self.records.append(self._decode(record.value))
        del self.buffers[buffer]

    @staticmethod
    def _decode(address):
        data = ctypes.string_at(address, 88)
        kind, start, end = _u32(data, 0), _u64(data, 16), _u64(data, 24)
        found = {"kind": kind, "start": start, "end": end}
        if kind == CONCURRENT_KERNEL:
            data = ctypes.string_at(address, 216)
            found.update(correlation=_u32(data, 92), node=_u64(data, 144), graph=_u32(data, 156))
            found.update(stream=_u32(data, 48), name=ctypes.string_at(_u64(data, 104)).decode())
        else:
            found.update(correlation=_u32(data, 44), node=_u64(data, 64), graph=_u32(data, 72))
            found.update(stream=_u32(data, 40), bytes=_u64(data, 8))
        return found
