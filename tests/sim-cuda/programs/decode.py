"""A decoder loop in the shape of a language model: eager warm-up, capture of a step, replays with synchronization.

SECS seconds (3) of replays; EAGER=1 runs the same without the graph as well; B is the batch (8), LAYERS the depth (4).
"""
import os
import time

import simcuda

B = int(os.environ.get("B", "8"))
LAYERS = int(os.environ.get("LAYERS", "4"))
HIDDEN = 1024

EMBEDDING = "_ZN2at6native21indexSelectLargeIndexIN3c108BFloat16ElLi2ELi2ELin2ELb1EEEvPT_S5_T0_l"
RMS_NORM = "_ZN4vllm15rms_norm_kernelIN3c108BFloat16EEEvPT_PKS3_S6_fii"
QKV_GEMM = "_ZN7cutlass13device_kernelINS_4gemm6kernel13GemmUniversalIN4cute5tupleIJiiiiEEEEEEEvNT_6ParamsE"
ROPE = "_ZN4vllm23rotary_embedding_kernelIN3c108BFloat16ELb1EEEvPKlPT_S5_PKS4_illii"
ATTENTION = "_ZN5flash24flash_fwd_splitkv_kernelI23Flash_fwd_kernel_traitsILi128ELi64ELi128EEEEv16Flash_fwd_params"
OUT_GEMM = "_ZN8cublasLt13splitKreduceKILi32ELi16EiffffLb1ELb0EEEviiPKT_PKT0_PT1_"
SILU_MUL = "_ZN4vllm18act_and_mul_kernelIN3c108BFloat16EXadL_ZNS_11silu_kernelIS2_EET_RKS4_EEEEvPS4_PKS4_i"
LM_HEAD = "_Z13gemv2T_kernelIiifffLi128ELi16ELi4ELi4ELb0EEv18cublasGemvParamsExI30cublasGemvTensorStridedBatchedIKfES3_S2_E"

KERNELS = [
    (EMBEDDING, 5000),
    (RMS_NORM, 6000),
    (QKV_GEMM, 22000),
    (ROPE, 8000),
    (ATTENTION, 35000),
    (OUT_GEMM, 17000),
    (SILU_MUL, 11000),
    (LM_HEAD, 60000),
]


class Op:
    """One kernel on the model's stream."""

    def __init__(self, device, name, grid):
        self.function, self.stream, self.grid = device.functions[name], device.stream, grid

    def __call__(self):
        simcuda.launch(self.function, self.stream, self.grid)


class Device:
    """Context, stream, kernels and memory."""

    def __init__(self):
        self.context = simcuda.start()
        self.stream = simcuda.stream()
        self.functions = simcuda.functions(KERNELS)
        self.tokens = simcuda.allocate(B * 8)
        self.hidden = simcuda.allocate(B * HIDDEN * 2)


class Layer:
    """A decoder layer."""

    def __init__(self, device):
        self.norm = Op(device, RMS_NORM, B)
        self.qkv = Op(device, QKV_GEMM, 132)
        self.rope = Op(device, ROPE, B)
        self.attention = Op(device, ATTENTION, 132)
        self.out = Op(device, OUT_GEMM, 132)
        self.activation = Op(device, SILU_MUL, 4 * B)

    def attend(self):
        self.qkv()
        self.rope()
        self.attention()

    def forward(self):
        self.norm()
        self.attend()
        self.out()
        self.activation()


class M:
    """The model."""

    def __init__(self, device):
        self.device = device
        self.embedding = Op(device, EMBEDDING, B)
        self.layers = [Layer(device) for _ in range(LAYERS)]
        self.norm = Op(device, RMS_NORM, B)
        self.lm_head = Op(device, LM_HEAD, 1024)

    def forward(self):
        device = self.device
        simcuda.call("cuMemsetD32Async", device.hidden, 0, B * HIDDEN // 2, device.stream)
        self.embedding()
        for layer in self.layers:
            layer.forward()
        self.norm()
        self.lm_head()
        simcuda.call("cuMemcpyDtoDAsync_v2", device.tokens, device.hidden, B * 8, device.stream)


def run(f, secs, label):
    """Steps for `secs` seconds, each waited for."""
    times = []
    began = time.perf_counter()
    while time.perf_counter() - began < secs:
        before = time.perf_counter()
        f()
        simcuda.synchronize()
        times.append(time.perf_counter() - before)
    elapsed = time.perf_counter() - began
    times.sort()
    count = len(times)
    print(
        "%s: steps=%d %.0f tok/s mean=%.0fus p50=%.0f p99=%.0f max=%.0f"
        % (label, count, count * B / elapsed, elapsed / count * 1e6, times[count // 2] * 1e6,
           times[count * 99 // 100] * 1e6, times[-1] * 1e6),
        flush=True,
    )


def main():
    """Warm-up, capture, runs."""
    device = Device()
    model = M(device)

    def step():
        model.forward()

    for _ in range(3):
        step()
    simcuda.synchronize()
    graph = simcuda.Graph(step, device.stream, simcuda.GLOBAL)
    secs = float(os.environ.get("SECS", "3"))
    for _ in range(20):
        graph.replay()
    simcuda.synchronize()
    run(graph.replay, secs, "graph")
    if os.environ.get("EAGER"):
        run(step, secs, "eager")


if __name__ == "__main__":
    main()
