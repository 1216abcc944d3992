"""An engine that ends in one of the ways engines end: ending.py normal|exception|os_exit|wait|abort [SECONDS].

It captures and replays a graph for some time first, and prints what must be the same with and without a profiler.
`wait` goes on until a signal comes.
"""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../sim-cuda/programs"))
import simcuda  # noqa: E402

KERNEL = "_Z6kernelPfi"


def replay_for(graph, seconds):
    """Replays a graph for some time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        graph.replay()
        simcuda.synchronize()


def main():
    """Works, says so, ends."""
    mode, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    simcuda.start()
    function = simcuda.functions([(KERNEL, 15000)])[KERNEL]
    stream = simcuda.stream()

    def step():
        for _ in range(20):
            simcuda.launch(function, stream)

    graph = simcuda.Graph(step, stream)
    print("ready", flush=True)
    replay_for(graph, seconds)
    print("worked", flush=True)
    if mode == "exception":
        raise ValueError("on purpose")
    if mode == "os_exit":
        os._exit(3)
    if mode == "abort":
        os.abort()
    while mode == "wait":
        replay_for(graph, 1)


if __name__ == "__main__":
    main()
