"""Captures, replays and destroys a graph N times (200), each of another length: handles come back, tables must not grow."""
import os

import simcuda

KERNELS = [("_Z5stormILi%dEEvPf" % index, 5000 + 500 * index) for index in range(8)]


def main():
    """N captures."""
    simcuda.start()
    stream = simcuda.stream()
    functions = list(simcuda.functions(KERNELS).values())
    count = int(os.environ.get("N", "200"))
    for turn in range(count):

        def step(turn=turn):
            for index in range(4 + turn % 8):
                simcuda.launch(functions[(turn + index) % len(functions)], stream)

        graph = simcuda.Graph(step, stream, simcuda.GLOBAL)
        graph.replay()
        simcuda.synchronize(stream)
        graph.destroy()
    print("captures=%d" % count, flush=True)


if __name__ == "__main__":
    main()
