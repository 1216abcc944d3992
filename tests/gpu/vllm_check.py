#!/usr/bin/env python3
"""vLLM under launchscope: starts, serves and stops as without us, and its kernels carry the code that captured them.

  vllm_check.py --bin .carry/bin --run .carry/engines/run_vllm.py --model .carry/engines/qwen3-0.6b --site /tmp/site --out OUT
"""
import argparse
import datetime
import json
import os
import re
import shutil
import subprocess
import sys

LIMIT = 0.9


def environment(args):
    """As run_vllm.py asks for, without a network."""
    return dict(os.environ, PYTHONPATH=args.site, MODEL=args.model, B="8", TOKENS=str(args.tokens), REP=str(args.repetitions), LABEL="check",
                VLLM_LOGGING_LEVEL="WARNING", HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", VLLM_USE_FLASHINFER_SAMPLER="0")


def shape(stdout):
    """Output without its numbers."""
    return re.sub(r"[\d.]+", "#", re.sub(r"all \[.*\]", "all", stdout))


def is_model_runner(frame):
    """The code of vLLM that runs the model."""
    return "vllm/" in frame.get("file", "") and "model_runner" in frame.get("file", "")


def is_captured_code(frame):
    """Generated code of a compiled graph, or the model's own."""
    file = frame.get("file", "")
    return any(mark in file for mark in ("torchinductor", "inductor_cache", "torch_compile_cache", "<eval_with_key>", "vllm/model_executor/models/"))


def names_its_capture(frames):
    """The model runner, and deeper the code that was captured."""
    runner = next((index for index, frame in enumerate(frames) if is_model_runner(frame)), None)
    return runner is not None and any(is_captured_code(frame) for frame in frames[runner:])


def analyse(profile):
    """(capture rate, step rate, worst offenders) over recorded time in graph kernels."""
    total = right = stepped = 0.0
    wrong = {}
    for stack in profile["stacks"]:
        launch = [profile["frames"][index] for index in stack["launch"]]
        recorded = stack["recorded_gpu_time_ns"]
        if not recorded or not any(frame["layer"] == "graph" for frame in launch):
            continue
        capture = [profile["frames"][index] for index in stack.get("capture") or stack["launch"]]
        total += recorded
        right += recorded * names_its_capture(capture)
        stepped += recorded * any("EngineCore" in frame["name"] and ("step" in frame["name"] or "run_busy_loop" in frame["name"]) for frame in launch)
        if not names_its_capture(capture):
            key = " > ".join(f"{frame['name']}({os.path.basename(frame.get('file', ''))})" for frame in capture if frame["layer"] in ("python", "kernel"))[-400:]
            wrong[key] = wrong.get(key, 0) + recorded
    return (right / total if total else 0.0), (stepped / total if total else 0.0), sorted(wrong.items(), key=lambda item: -item[1])[:6], total


def bar_line(value):
    """A line of benches/results/bars.jsonl."""
    driver = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True).stdout.strip()
    return json.dumps(dict(issue="first-light", bar="vllm-capture-stack-rate", value=round(value, 4), date=datetime.date.today().isoformat(),
                           gpu="H200", driver=driver, commit=os.environ.get("COMMIT", ""), command="tests/gpu/vllm_check.py"))


def main():
    """A bare run, a run under launchscope, and what its profile says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--site", default="/tmp/site")
    parser.add_argument("--out", required=True)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--without-bare", action="store_true", help="skip the run without launchscope")
    args = parser.parse_args()
    load, failed = [sys.executable, args.run], False
    bare = None
    if not args.without_bare:
        bare = subprocess.run(load, env=environment(args), capture_output=True, text=True, timeout=200)
        print("bare:", bare.returncode, bare.stdout[-400:], bare.stderr[-300:], flush=True)
    directory = "/tmp/vllm-profile"
    shutil.rmtree(directory, ignore_errors=True)
    command = [f"{args.bin}/launchscope", "run", "-o", directory, "--format", "json,html", "--", *load]
    done = subprocess.run(command, env=environment(args), capture_output=True, text=True, timeout=240)
    print("ours:", done.returncode, done.stdout[-400:], done.stderr[-4500:], flush=True)
    if bare and (done.returncode, shape(done.stdout)) != (bare.returncode, shape(bare.stdout)):
        failed = True
        print("FAIL: output or exit code differ")
    shutil.copy(f"{directory}/profile.html", f"{args.out}/vllm.html")
    shutil.copy(f"{directory}/profile.json", f"{args.out}/vllm.json")
    with open(f"{directory}/profile.json") as file:
        profile = json.load(file)
    rate, step, wrong, total = analyse(profile)
    for key, nanoseconds in wrong:
        print(f"  not named: {nanoseconds / 1e6:8.2f} ms {key}")
    ledger = {line["key"]: line["count"] for line in profile["ledger"]}
    print({key: ledger[key] for key in ledger if key.startswith(("gate", "windows", "held", "detach", "joined", "orphaned", "capture", "graph"))})
    print(f"recorded in graph kernels {total / 1e6:.1f} ms; launch view shows the engine core's step for {step:.2%}")
    print(f"{'ok  ' if rate >= LIMIT else 'FAIL'} vllm-capture-stack-rate = {rate:.4f} (wanted >= {LIMIT})")
    with open(f"{args.out}/vllm-bars.jsonl", "w") as out:
        print(bar_line(rate), file=out)
    sys.exit(1 if failed or rate < LIMIT or step < 0.9 else 0)


if __name__ == "__main__":
    main()
