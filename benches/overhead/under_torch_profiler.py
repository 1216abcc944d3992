"""Runs a load with torch.profiler active from its first replay on: under_torch_profiler.py SCRIPT.

The load's own `run` function is what is profiled, so that model building and capture stay out of it. No trace is kept.
"""
import sys

from torch.profiler import ProfilerActivity, profile


def main():
    """Runs the load with its `run` wrapped."""
    path = sys.argv[1]
    with open(path) as file:
        source = file.read().replace("def run(", "def bare_run(", 1)
    module = {"__name__": "__main__", "__file__": path}

    def run(step, secs, label):
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]):
            module["bare_run"](step, secs, label)

    sys.argv = [path]
    module["run"] = run
    exec(compile(source, path, "exec"), module)


if __name__ == "__main__":
    main()
