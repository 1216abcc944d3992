"""Runs a load with torch.profiler active from its first replay on: under_torch_profiler.py SCRIPT.

The load's own `run` function is what is profiled, so that model building and capture stay out of it. No trace is kept.
"""
import sys

from torch.profiler import ProfilerActivity, profile


def main():
    """Compiles the load with its `run` wrapped."""
    path = sys.argv[1]
    source = open(path).read()
    marker = "    def run(f,secs,label):" if "    def run(f,secs,label):" in source else None
    if marker is None:
        sys.exit(f"{path}: no `def run(f,secs,label):` to wrap")
    body = source.replace("run(g.replay,secs,", "profiled(run,g.replay,secs,").replace("run(step,min(secs,6),", "profiled(run,step,min(secs,6),")

    def profiled(run, step, secs, label):
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]):
            run(step, secs, label)

    sys.argv = [path]
    exec(compile(body, path, "exec"), {"__name__": "__main__", "__file__": path, "profiled": profiled})


if __name__ == "__main__":
    main()
