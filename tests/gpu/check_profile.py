#!/usr/bin/env python3
"""Checks a profile of decode.py against what must hold, and against a full torch.profiler trace.

  check_profile.py --profile DIR --script decode.py [--reference FILE] [--bars FILE]

Bars: launch-join-rate, capture-stack-rate, share-error-max (issue "first-light"). Exit code 1 when one falls short.
"""
import argparse
import ast
import datetime
import json
import os
import re
import subprocess
import sys

LIMITS = {"launch-join-rate": (">=", 0.99), "capture-stack-rate": (">=", 0.95), "share-error-max": ("<=", 0.05)}
LAYERS = 28


class Profile:
    """profile.json with its frames resolved."""

    def __init__(self, directory):
        with open(os.path.join(directory, "profile.json")) as file:
            self.data = json.load(file)
        self.frames = self.data["frames"]
        self.stacks = self.data["stacks"]

    def view(self, stack, which):
        """Frames of a stack, root first."""
        return [self.frames[index] for index in stack.get(which) or stack["launch"]]

    def is_replayed(self, stack):
        """The work came from a graph."""
        return any(frame["layer"] == "graph" for frame in self.view(stack, "launch"))

    def kernel(self, stack):
        """Full name of what ran."""
        last = self.view(stack, "launch")[-1]
        return last.get("full_name") or last["name"]


def function_lines(script):
    """Qualified name -> lines of the function's body, of a script."""
    found = {}

    def visit(node, prefix):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                name = f"{prefix}{child.name}"
                if isinstance(child, ast.FunctionDef):
                    found[name] = range(child.lineno, child.end_lineno + 1)
                    visit(child, f"{name}.<locals>.")
                else:
                    visit(child, f"{name}.")
            else:
                visit(child, prefix)

    with open(script) as file:
        visit(ast.parse(file.read()), "")
    return found


def own_frames(frames, script):
    """(function, line) of the frames of the script, outermost first."""
    name = os.path.basename(script)
    return [(frame["name"], frame.get("line", 0)) for frame in frames
            if frame["layer"] == "python" and os.path.basename(frame.get("file", "")) == name]


def is_right(frames, script, lines):
    """A capture stack goes step -> M.forward [-> Layer.forward ...] through right lines; only the copy of the token in
    `step` may stop there."""
    chain = own_frames(frames, script)
    if not all(line in lines.get(function, ()) for function, line in chain if function in lines):
        return False
    names = [function for function, _ in chain]
    if "step" not in names:
        return False
    below = names[names.index("step") + 1:]
    if not below:
        return any("copy" in (frame["name"] or "").lower() for frame in frames)
    if below[0] != "M.forward":
        return False
    return len(below) == 1 or below[1] == "Layer.forward"


def capture_rate(profile, script):
    """Share of recorded GPU time in graph kernels whose capture stack is right, and what was wrong."""
    lines = function_lines(script)
    right = total = 0.0
    wrong, in_layer = {}, {}
    for stack in profile.stacks:
        if not profile.is_replayed(stack) or not stack["recorded_gpu_time_ns"]:
            continue
        total += stack["recorded_gpu_time_ns"]
        frames = profile.view(stack, "capture")
        if is_right(frames, script, lines):
            right += stack["recorded_gpu_time_ns"]
            if any(function == "Layer.forward" for function, _ in own_frames(frames, script)):
                key = tuple(stack.get("capture") or ())
                in_layer[key] = in_layer.get(key, 0) + stack["recorded_count"]
        else:
            wrong[profile.kernel(stack)[:80]] = wrong.get(profile.kernel(stack)[:80], 0) + stack["recorded_gpu_time_ns"]
    # A kernel captured in a layer runs once for each layer in every replay: its count is a multiple of the layers.
    odd = sum(1 for count in in_layer.values() if count % LAYERS)
    return right / total if total else 0.0, wrong, odd, len(in_layer)


def replay_under_run(profile):
    """Share of replayed time whose launch view has `run` above the replay."""
    total = good = 0.0
    for stack in profile.stacks:
        if profile.is_replayed(stack) and stack["recorded_gpu_time_ns"]:
            total += stack["recorded_gpu_time_ns"]
            names = [frame["name"] for frame in profile.view(stack, "launch")]
            good += stack["recorded_gpu_time_ns"] * ("run" in names and any("replay" in name for name in names))
    return good / total if total else 0.0


def join_rate(profile):
    """Share of recorded GPU time that is joined to a launch."""
    total = sum(kernel["recorded_gpu_time_ns"] for kernel in profile.data["kernels"])
    joined = sum(kernel["recorded_gpu_time_ns"] * kernel["joined_share"] for kernel in profile.data["kernels"])
    return joined / total if total else 0.0


def identity(name):
    """What is left of a name when everything that demanglers spell differently is gone: words and numbers in order."""
    # One demangler writes `(unsigned long)3` where another writes `3ul`.
    name = re.sub(r"\b(\d+)(?:ul|u|l)\b", r"\1", name)
    return tuple(re.findall(r"[A-Za-z_]\w*|\d+", re.sub(r"\b(unsigned|signed|long|int|bool|char|const|void|std|ul|u|l|anonymous|unnamed|namespace|true|false|operator|lambda)\b|#\d+", " ", name)))


def share_error(profile, reference):
    """Largest relative difference of shares of graph kernels above 1 %, with the rows."""
    ours = {}
    for stack in profile.stacks:
        if profile.is_replayed(stack):
            key = identity(profile.kernel(stack))
            ours[key] = ours.get(key, 0.0) + stack["gpu_time_ns"]
    theirs = {}
    for name, (nanoseconds, _) in reference["kernels"].items():
        theirs[identity(name)] = theirs.get(identity(name), 0.0) + nanoseconds
    # Copies and memsets are named differently, and are far below 1 %.
    theirs = {key: value for key, value in theirs.items() if key[:1] not in (("Memcpy",), ("Memset",))}
    ours = {key: value for key, value in ours.items() if key[:1] not in (("Memcpy",), ("Memset",))}
    rows = []
    for key, value in theirs.items():
        share = value / sum(theirs.values())
        if share > 0.01:
            found = ours.get(key, 0.0) / sum(ours.values())
            rows.append((abs(found / share - 1.0), share, found, " ".join(key)[:70]))
    return max((row[0] for row in rows), default=1.0), sorted(rows, key=lambda row: -row[1])


def bar_line(bar, value):
    """A line of benches/results/bars.jsonl."""
    driver = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True)
    return json.dumps(dict(issue="first-light", bar=bar, value=round(value, 4), date=datetime.date.today().isoformat(), gpu="H200",
                           driver=driver.stdout.strip(), commit=os.environ.get("COMMIT", ""), command="tests/gpu/run_all.py"))


def main():
    """Prints the figures; exit code 1 when one falls short."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", required=True)
    parser.add_argument("--script", required=True)
    parser.add_argument("--reference")
    parser.add_argument("--bars")
    args = parser.parse_args()
    profile = Profile(args.profile)
    rate, wrong, odd, stacks = capture_rate(profile, args.script)
    figures = {"launch-join-rate": join_rate(profile), "capture-stack-rate": rate}
    if args.reference:
        with open(args.reference) as file:
            figures["share-error-max"], rows = share_error(profile, json.load(file))
        for error, share, found, name in rows:
            print(f"  {share:7.2%} reference {found:7.2%} ours  off by {error:6.2%}  {name}")
    for name, nanoseconds in sorted(wrong.items(), key=lambda item: -item[1])[:8]:
        print(f"  not right: {nanoseconds / 1e6:.2f} ms {name}")
    under_run = replay_under_run(profile)
    print(f"replayed time under `run`: {under_run:.2%}; {odd} of {stacks} layer stacks have a count that is no multiple of {LAYERS}")
    failed = under_run < 0.99
    for bar, value in figures.items():
        test, limit = LIMITS[bar]
        ok = value >= limit if test == ">=" else value <= limit
        failed |= not ok
        print(f"{'ok  ' if ok else 'FAIL'} {bar} = {value:.4f} (wanted {test} {limit})")
        if args.bars:
            with open(args.bars, "a") as out:
                print(bar_line(bar, value), file=out)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
