"""An engine with a CUPTI client of its own (as torch.profiler is) that subscribes first and stays."""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../sim-cuda/programs"))
import simcuda  # noqa: E402
from simcupti import Cupti  # noqa: E402

KERNEL = "_Z6kernelPfi"


def main():
    """Subscribes, works, and leaves with the subscription."""
    simcuda.start()
    tool = Cupti()
    tool.subscribe()
    print("tool: subscribed", flush=True)
    function = simcuda.functions([(KERNEL, 15000)])[KERNEL]
    stream = simcuda.stream()
    end = time.monotonic() + 2.5
    while time.monotonic() < end:
        simcuda.launch(function, stream)
        simcuda.synchronize(stream)
    print("tool: worked", flush=True)


if __name__ == "__main__":
    main()
