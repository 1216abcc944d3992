"""An engine that works for a long time and reports what it costs: steady.py SECONDS prints RSS and descriptors as JSON.

Each report is taken after the same amount of work; a test compares the first with the last.
"""
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../sim-cuda/programs"))
import simcuda  # noqa: E402

KERNELS = [("_Z%dkernel_%dPf" % (len("kernel_%d" % n), n), 10000) for n in range(10)]


def report():
    """Resident memory that is not shared with files, in KiB, and open descriptors."""
    with open("/proc/self/status") as status:
        fields = dict(line.split(":", 1) for line in status)
    anonymous = int(fields["RssAnon"].split()[0])
    shared = int(fields["RssShmem"].split()[0])
    print(json.dumps({"anonymous_kib": anonymous, "shared_kib": shared, "fds": len(os.listdir("/proc/self/fd"))}), flush=True)


def main():
    """Captures, replays, recaptures."""
    simcuda.start()
    functions = list(simcuda.functions(KERNELS).values())
    stream = simcuda.stream()

    def step():
        for function in functions:
            simcuda.launch(function, stream)

    end = time.monotonic() + float(sys.argv[1])
    turn = 0
    while time.monotonic() < end:
        graph = simcuda.Graph(step, stream)
        for _ in range(20):
            graph.replay()
            step()
            simcuda.synchronize()
        graph.destroy()
        turn += 1
        if turn % 25 == 0:
            report()


if __name__ == "__main__":
    main()
