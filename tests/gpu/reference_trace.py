#!/usr/bin/env python3
"""GPU time per kernel of a graph replay loop, by torch.profiler in a run of its own: reference_trace.py SCRIPT OUT.

The load's `run` is replaced by one that replays 200 times under the profiler, so that only replays are in the trace.
"""
import json
import sys

import torch
from torch.profiler import ProfilerActivity, profile

REPLAYS = 200


def traced(out):
    """A `run` that traces and writes kernel name -> [nanoseconds, count]."""
    def run(step, _secs, _label):
        for _ in range(10):
            step()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as trace:
            for _ in range(REPLAYS):
                step()
                torch.cuda.synchronize()
        kernels = {}
        for event in trace.events():
            if event.device_type == torch.autograd.DeviceType.CUDA:
                entry = kernels.setdefault(event.name, [0.0, 0])
                entry[0] += event.time_range.elapsed_us() * 1e3
                entry[1] += 1
        with open(out, "w") as file:
            json.dump(dict(replays=REPLAYS, kernels=kernels), file, indent=1)
        print(f"reference: {sum(count for _, count in kernels.values())} activities, {sum(ns for ns, _ in kernels.values()) / 1e6:.1f} ms")
        sys.exit(0)
    return run


def main():
    """Runs the load with its `run` replaced."""
    path, out = sys.argv[1], sys.argv[2]
    with open(path) as file:
        source = file.read().replace("def run(", "def bare_run(", 1)
    sys.argv = [path]
    exec(compile(source, path, "exec"), {"__name__": "__main__", "__file__": path, "run": traced(out)})


if __name__ == "__main__":
    main()
