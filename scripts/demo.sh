#!/usr/bin/env bash
# Shows the main job on this machine, set-up included: a decode loop becomes a flame graph in demo-profile/.
# With an NVIDIA GPU and PyTorch it is a real decoder; otherwise the simulated GPU of the tests.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh
echo "demo: building launchscope"
cargo build --release --quiet -p launchscope -p launchscope-entry
target=${CARGO_TARGET_DIR:-target}
if [ -e /dev/nvidia0 ] && python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
    echo "demo: profiling benches/overhead/decode.py on this GPU"
    load=(python3 benches/overhead/decode.py)
else
    echo "demo: no GPU with PyTorch here; building the simulated one"
    scripts/build-sim.sh
    export LD_LIBRARY_PATH="$target/sim/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    load=(python3 tests/sim-cuda/programs/decode.py)
fi
SECS=${SECS:-6} "$target/release/launchscope" run -o demo-profile -- "${load[@]}"
echo
echo "demo: open demo-profile/profile.html in a browser"
