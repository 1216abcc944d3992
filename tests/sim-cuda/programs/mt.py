"""Four threads replay a graph each, on a stream each, with an eager kernel between; the first recaptures now and then.

SECS seconds (3). The last line counts replays and errors.
"""
import os
import threading
import time

import simcuda

RELU = "_ZN2at6native29vectorized_elementwise_kernelILi4EZNS0_16relu_kernel_cudaEvEUlfE_EEviT0_T1_"
MATMUL = "_ZN7cutlass6KernelI48cutlass_80_tensorop_s1688gemm_128x64_16x6_nn_alignEEvNT_6ParamsE"
ADD = "_ZN2at6native27unrolled_elementwise_kernelINS0_15CUDAFunctor_addIfEEEEviT_"
KERNELS = [(RELU, 5000), (MATMUL, 12000), (ADD, 7000)]
NODES = 40
RECAPTURE_EVERY = 100


class Worker:
    """One thread's stream, graph and loop."""

    def __init__(self, context, functions, recaptures):
        self.context, self.functions, self.recaptures = context, functions, recaptures
        self.stream = simcuda.stream()
        self.replays, self.error = 0, None
        self.thread = threading.Thread(target=self.run)

    def step(self):
        for index in range(NODES):
            simcuda.launch(self.functions[MATMUL if index % 2 == 0 else RELU], self.stream)

    def run(self):
        try:
            simcuda.call("cuCtxSetCurrent", self.context)
            graph = simcuda.Graph(self.step, self.stream)
            while not stop.is_set():
                graph.replay()
                simcuda.launch(self.functions[ADD], self.stream)
                simcuda.synchronize(self.stream)
                self.replays += 1
                if self.recaptures and self.replays % RECAPTURE_EVERY == 0:
                    graph.destroy()
                    graph = simcuda.Graph(self.step, self.stream)
        except simcuda.CudaError as error:
            self.error = str(error)


stop = threading.Event()


def main():
    """Four threads for SECS seconds."""
    context = simcuda.start()
    functions = simcuda.functions(KERNELS)
    workers = [Worker(context, functions, index == 0) for index in range(4)]
    began = time.time()
    for worker in workers:
        worker.thread.start()
    time.sleep(float(os.environ.get("SECS", "3")))
    stop.set()
    for worker in workers:
        worker.thread.join()
    errors = [worker.error for worker in workers if worker.error]
    if not errors:
        simcuda.synchronize()
    counts = [worker.replays for worker in workers]
    print("counts %s %.0f/s errors %s" % (counts, sum(counts) / (time.time() - began), errors), flush=True)
    return 1 if errors else 0


if __name__ == "__main__":
    raise SystemExit(main())
