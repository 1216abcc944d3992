#!/usr/bin/env python3
"""What launchscope costs a decode loop, beside a bare CUPTI subscriber and torch.profiler: alternating, in one run.

  overhead.py --script .carry/decode.py --bin .carry/bin --pairs 3 --seconds 20 --out OUT/overhead.json --bars OUT/overhead-bars.jsonl

Each start of the load measures two phases, graph replay and eager. Variants alternate; ratios are taken within a
round, and the median of the rounds is the figure.
"""
import argparse
import datetime
import glob
import json
import os
import re
import statistics
import subprocess
import sys
import sysconfig
import tempfile

LINE = re.compile(r"^(graph|eager): steps=(\d+) (\d+) tok/s mean=(\d+)us p50=(\d+) p99=(\d+) max=(\d+)", re.M)
HERE = os.path.dirname(os.path.abspath(__file__))


def build_subscriber(directory):
    """Compiles bare_subscriber.c against the CUPTI that torch uses; returns the library, or None and says why."""
    roots = glob.glob(os.path.join(sysconfig.get_paths()["purelib"], "nvidia", "cu*")) + ["/usr/local/cuda/extras/CUPTI", "/usr/local/cuda"]
    includes = [f"-I{root}/include" for root in roots if os.path.isdir(f"{root}/include")] + ["-I/usr/local/cuda/include"]
    libraries = [path for root in roots for path in glob.glob(f"{root}/lib*/libcupti.so*")]
    library = os.path.join(directory, "bare_subscriber.so")
    command = ["gcc", "-O2", "-shared", "-fPIC", "-o", library, os.path.join(HERE, "bare_subscriber.c"), *includes]
    if libraries:
        command += [libraries[0], f"-Wl,-rpath,{os.path.dirname(libraries[0])}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        print("bare subscriber does not build:", done.stderr[-600:], flush=True)
        return None
    return library


def variants(args, subscriber, directory):
    """Name -> (command, variables)."""
    load = [sys.executable, args.script]
    found = {
        "none": (load, {}),
        "launchscope": ([f"{args.bin}/launchscope", "run", "-q", "-o", f"{directory}/profile", "--format", "json", "--", *load], {}),
    }
    if subscriber:
        found["resident-subscriber"] = (load, {"CUDA_INJECTION64_PATH": subscriber})
    return found


def measure(command, variables, args):
    """Runs a load once; returns {phase: {tokens_per_s, p50_us, p99_us}}."""
    environment = dict(os.environ, SECS=str(args.seconds), EAGER="1", **variables)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=args.seconds + 90)
    phases = {}
    for phase, _, tokens, mean, p50, p99, longest in LINE.findall(done.stdout):
        phases.setdefault(phase, dict(tokens_per_s=int(tokens), mean_us=int(mean), p50_us=int(p50), p99_us=int(p99), max_us=int(longest)))
    if done.returncode or not phases:
        print(f"exit {done.returncode}: {done.stderr[-800:]}", flush=True)
    return phases


def summary(rounds, name, phase):
    """Median tokens/s of a variant, and its ratios to `none` round by round."""
    values = [r[name][phase]["tokens_per_s"] for r in rounds if phase in r.get(name, {})]
    ratios = [r[name][phase]["tokens_per_s"] / r["none"][phase]["tokens_per_s"] for r in rounds
              if phase in r.get(name, {}) and phase in r.get("none", {})]
    if not values or not ratios:
        return None
    return dict(tokens_per_s=statistics.median(values), ratio=statistics.median(ratios), spread=[min(ratios), max(ratios)],
                p99_us=statistics.median(r[name][phase]["p99_us"] for r in rounds if phase in r.get(name, {})))


def bar_line(bar, value, spread, command):
    """A line of benches/results/bars.jsonl."""
    driver = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True).stdout.strip()
    return json.dumps(dict(issue="first-light", bar=bar, value=round(value, 4), spread=[round(x, 4) for x in spread],
                           date=datetime.date.today().isoformat(), gpu="H200", driver=driver, commit=os.environ.get("COMMIT", ""), command=command))


def main():
    """Measures, prints a table, writes JSON and bar lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--script", required=True, help="the load, a decode.py")
    parser.add_argument("--bin", required=True, help="directory of launchscope and liblaunchscope.so")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--out", required=True)
    parser.add_argument("--bars")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        runs = variants(args, build_subscriber(directory), directory)
        rounds = []
        for number in range(args.pairs):
            measured = {}
            names = list(runs) if number % 2 == 0 else list(runs)[::-1]
            for name in names:
                measured[name] = measure(*runs[name], args)
                print(f"round {number + 1} {name:20s} " + " ".join(f"{p}={v['tokens_per_s']} tok/s p99={v['p99_us']}us" for p, v in measured[name].items()), flush=True)
            rounds.append(measured)
        short = argparse.Namespace(**dict(vars(args), seconds=4))
        rounds[0]["torch-profiler"] = measure([sys.executable, os.path.join(HERE, "under_torch_profiler.py"), args.script], {}, short)
    table = {phase: {name: summary(rounds, name, phase) for name in [*runs, "torch-profiler"]} for phase in ("graph", "eager")}
    for phase, names in table.items():
        print(f"\n{phase}: {'variant':22s} tok/s   ratio  (min .. max)   p99 us")
        for name, row in names.items():
            if row:
                print(f"       {name:22s} {row['tokens_per_s']:7.0f}  {row['ratio']:.4f} ({row['spread'][0]:.4f} .. {row['spread'][1]:.4f}) {row['p99_us']:7.0f}")
    with open(args.out, "w") as out:
        json.dump(dict(seconds=args.seconds, rounds=rounds, table=table), out, indent=1)
    if args.bars:
        command = f"benches/overhead/overhead.py --pairs {args.pairs} --seconds {args.seconds:g}"
        with open(args.bars, "w") as out:
            for phase in ("graph", "eager"):
                row = table[phase].get("launchscope")
                if row:
                    print(bar_line(f"{phase}-throughput-ratio", row["ratio"], row["spread"], command), file=out)


if __name__ == "__main__":
    main()
