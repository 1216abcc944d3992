"""A GPU program that ends in one of the ways engines end: ending.py normal|exception|os_exit|sigterm|sigkill."""
import os
import signal
import sys
import time

import torch


def main():
    """Replays a graph for two seconds, then ends."""
    x = torch.ones(256, 256, device="cuda")
    y = x @ x
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(50):
            y = torch.relu(y @ x) * 0.001
    end = time.monotonic() + 2
    while time.monotonic() < end:
        graph.replay()
        torch.cuda.synchronize()
    print("worked", float(y.sum()), flush=True)
    mode = sys.argv[1]
    if mode == "exception":
        raise ValueError("on purpose")
    if mode == "os_exit":
        os._exit(3)
    if mode in ("sigterm", "sigkill"):
        os.kill(os.getpid(), signal.SIGTERM if mode == "sigterm" else signal.SIGKILL)


if __name__ == "__main__":
    main()
