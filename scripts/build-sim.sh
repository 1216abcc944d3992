#!/usr/bin/env bash
# Builds the simulated driver and CUPTI (tests/sim-cuda/README.md) in release into target/sim/lib, and the driver once
# more for each other kind of function entry into target/sim/lib-KIND. CARGO_TARGET_DIR moves `target`.
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")/sim

# Each kind has a target directory of its own: cargo keeps one libcuda.so in one, so all would be built anew each time.
build() { # build PACKAGE FILE TO [FEATURE]
    local package=$1 file=$2 to=$3 feature=${4:-}
    local directory=$target/build/${feature:-entry-driver580}
    cargo build --quiet --release -p "$package" --target-dir "$directory" ${feature:+--features "$feature"}
    mkdir -p "$(dirname "$to")"
    # A process may have the old file mapped: replace it, do not write into it.
    install -m 755 "$directory/release/$file" "$to.new"
    mv -f "$to.new" "$to"
}

build sim-libcuda libcuda.so "$target/lib/libcuda.so.1"
build sim-libcupti libcupti.so "$target/lib/libcupti.so.13"
for kind in endbr64 rip_relative patched short; do
    build sim-libcuda libcuda.so "$target/lib-$kind/libcuda.so.1" "entry-${kind/_/-}"
    ln -sfn ../lib/libcupti.so.13 "$target/lib-$kind/libcupti.so.13"
done
echo "simulator: $target/lib and lib-{endbr64,rip_relative,patched,short}"
