#!/usr/bin/env python3
"""Everything that must hold on a GPU but the overhead and vLLM, in one call; each step is bounded and the rest goes on.

  run_all.py --bin .carry/bin --script .carry/decode.py --threads .carry/mt.py --out OUT
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


class Suite:
    """Runs steps and remembers how they ended."""

    def __init__(self, args):
        self.args, self.rows = args, []
        self.work = tempfile.mkdtemp(prefix="gpu-")

    def step(self, name, body):
        """Runs a step; what it returns is a word for the table, an exception a failure."""
        print(f"== {name}", flush=True)
        try:
            word = body() or "ok"
            self.rows.append((name, True, word))
        except Exception as error:  # noqa: BLE001: any failure is a row of the table
            self.rows.append((name, False, f"{type(error).__name__}: {error}"[:300]))
        print(f"   {self.rows[-1][2]}", flush=True)

    def profiled(self, name, command, options=(), timeout=90, **variables):
        """Runs a command under launchscope; returns (completed process, profile directory)."""
        directory = os.path.join(self.work, name)
        run = [f"{self.args.bin}/launchscope", "run", *options, "-o", directory, "--format", "json,html,collapsed", "--", *command]
        done = subprocess.run(run, env=dict(os.environ, **variables), capture_output=True, text=True, timeout=timeout)
        return done, directory


def load(directory):
    """profile.json of a directory."""
    with open(os.path.join(directory, "profile.json")) as file:
        return json.load(file)


def expect(condition, words):
    """Fails a step."""
    if not condition:
        raise AssertionError(words)


def check(suite):
    """The decode loop against what must hold and against a trace."""
    args = suite.args
    reference = os.path.join(suite.work, "reference.json")
    subprocess.run([sys.executable, f"{HERE}/reference_trace.py", args.script, reference], check=True, timeout=90)
    done, directory = suite.profiled("decode", [sys.executable, args.script], SECS="14")
    print(done.stdout, done.stderr[-2500:], flush=True)
    shutil.copy(f"{directory}/profile.html", f"{args.out}/decode.html")
    shutil.copy(f"{directory}/profile.json", f"{args.out}/decode.json")
    command = [sys.executable, f"{HERE}/check_profile.py", "--profile", directory, "--script", args.script, "--reference", reference]
    checked = subprocess.run([*command, "--bars", f"{args.out}/bars.jsonl"], capture_output=True, text=True)
    print(checked.stdout, checked.stderr[-800:], flush=True)
    expect(checked.returncode == 0, "a bar falls short")


def doors(suite):
    """Injection alone and preloading alone give the same kernels."""
    shares = {}
    for door in ("injection", "preload"):
        done, directory = suite.profiled(door, [sys.executable, suite.args.script], ["--door", door], SECS="6")
        expect(done.returncode == 0, f"{door}: exit {done.returncode}")
        shares[door] = replayed_shares(load(directory))
    one, other = shares["injection"], shares["preload"]
    large = {name for name in one if one[name] > 0.01} | {name for name in other if other[name] > 0.01}
    worst = max(abs(one.get(name, 0) / max(other.get(name, 0), 1e-9) - 1) for name in large)
    expect(worst < 0.05, f"shares differ by {worst:.3f}")
    return f"{len(large)} kernels above 1 %, shares differ by at most {worst:.4f}"


def replayed_shares(profile):
    """Share of each kernel in what was replayed. Start-up is left out: which of it falls into a window is chance."""
    times = {}
    for stack in profile["stacks"]:
        frames = frames_of(profile, stack, "launch")
        if any(frame["layer"] == "graph" for frame in frames):
            name = frames[-1].get("full_name") or frames[-1]["name"]
            times[name] = times.get(name, 0.0) + stack["recorded_gpu_time_ns"]
    return {name: time / sum(times.values()) for name, time in times.items()}


def frames_of(profile, stack, view):
    """Frames of a stack."""
    return [profile["frames"][index] for index in stack.get(view) or stack["launch"]]


def triton(suite):
    """The Triton kernel and the line that launched it."""
    done, directory = suite.profiled("triton", [sys.executable, f"{HERE}/triton_kernel.py"], timeout=120)
    expect(done.returncode == 0, done.stderr[-300:])
    profile = load(directory)
    caught = [stack for stack in profile["stacks"] if "scaled_add" in frames_of(profile, stack, "launch")[-1]["name"]]
    expect(caught, "no kernel scaled_add")
    total = sum(stack["recorded_gpu_time_ns"] for stack in caught)
    named = sum(stack["recorded_gpu_time_ns"] for stack in caught
                if any(frame["name"] == "launch_scaled_add" for frame in frames_of(profile, stack, "capture")))
    expect(named / total > 0.99, f"{named / total:.3f} of it names launch_scaled_add")
    return f"{total / 1e6:.1f} ms recorded, all under launch_scaled_add"


def driver_api(suite):
    """A program without cudart."""
    program = os.path.join(suite.work, "driver_api")
    subprocess.run(["gcc", "-O1", "-o", program, f"{HERE}/driver_api.c", "-ldl"], check=True)
    words = []
    for door in ("injection", "preload"):
        done, directory = suite.profiled(f"driver-{door}", [program], ["--door", door])
        expect(done.returncode == 0 and done.stdout == "launched\n", f"{door}: {done.returncode} {done.stdout} {done.stderr[-300:]}")
        kernels = load(directory)["kernels"]
        found = [kernel for kernel in kernels if "driver_only_kernel" in kernel["name"]]
        expect(found and found[0]["joined_share"] > 0.99, f"{door}: {kernels[:2]}")
        expect(found[0]["captured_share"] and found[0]["captured_share"] > 0.99, f"{door}: captured {found[0]['captured_share']}")
        words.append(f"{door}: {found[0]['recorded_count']:.0f} recorded")
    return ", ".join(words)


def threads(suite):
    """Four threads on four streams, many windows."""
    done, directory = suite.profiled("threads", [sys.executable, suite.args.threads], SECS="10", LAUNCHSCOPE_WINDOW_PERIOD="300ms")
    expect(done.returncode == 0 and "errs []" in done.stdout, f"{done.returncode} {done.stdout[-300:]}")
    ledger = {line["key"]: line["count"] for line in load(directory)["ledger"]}
    expect(ledger["windows_closed"] > 10 and ledger["orphaned"] == 0, f"{ledger}")
    return f"{ledger['windows_closed']} windows, gate at most {ledger['gate_closed_max_ns'] / 1e6:.1f} ms, {ledger['detach_deferred']} detaches deferred"


def endings(suite):
    """Output and exit code with and without us."""
    for mode in ("normal", "exception", "os_exit", "sigterm", "sigkill"):
        command = [sys.executable, f"{HERE}/ending.py", mode]
        bare = subprocess.run(command, capture_output=True, text=True, timeout=60)
        done, _ = suite.profiled(f"ending-{mode}", command, ["-q"])
        expect((done.returncode, done.stdout, done.stderr) == (bare.returncode, bare.stdout, bare.stderr),
               f"{mode}: {bare.returncode} {bare.stdout} {bare.stderr[-200:]} became {done.returncode} {done.stdout} {done.stderr[-200:]}")


def main():
    """Runs all steps and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--bin", "--script", "--threads", "--out"):
        parser.add_argument(name, required=True)
    parser.add_argument("--only", nargs="*", help="names of steps")
    suite = Suite(parser.parse_args())
    steps = [("decode", check), ("doors", doors), ("triton", triton), ("driver API", driver_api), ("threads", threads), ("endings", endings)]
    for name, body in [step for step in steps if not suite.args.only or step[0] in suite.args.only]:
        suite.step(name, lambda body=body: body(suite))
    print()
    for name, ok, word in suite.rows:
        print(f"{'ok  ' if ok else 'FAIL'} {name:12s} {word}")
    with open(f"{suite.args.out}/summary.json", "w") as out:
        json.dump([dict(step=name, ok=ok, word=word) for name, ok, word in suite.rows], out, indent=1)
    sys.exit(0 if all(ok for _, ok, _ in suite.rows) else 1)


if __name__ == "__main__":
    main()
