#!/usr/bin/env bash
# What CI runs, in its order, each step named and timed; the first failure ends it.
#   scripts/check.sh           everything
#   scripts/check.sh --quick   without loom and benches
# The last line is `N passed, N failed`, over all tests that ran.
set -uo pipefail
cd "$(dirname "$0")/.."

quick=no
case "${1:-}" in
    "") ;;
    --quick) quick=yes ;;
    *) echo "usage: scripts/check.sh [--quick]" >&2; exit 2 ;;
esac

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
passed=0
failed=0

# Adds up the summaries of cargo test and of cargo nextest in a step's output.
count() {
    local plain
    plain=$(sed 's/\x1b\[[0-9;]*m//g' "$1")
    local sums
    sums=$(printf '%s\n' "$plain" | awk '
        /^test result: / { for (i = 2; i <= NF; i++) { if ($i ~ /^passed/) p += $(i-1); if ($i ~ /^failed/) f += $(i-1) } }
        /^ *Summary \[.*tests? run:/ { for (i = 2; i <= NF; i++) { if ($i ~ /^passed/) p += $(i-1); if ($i ~ /^failed|^timed/) f += $(i-1) } }
        /^[0-9]+ passed, [0-9]+ failed$/ { p += $1; f += $3 }
        END { print p + 0, f + 0 }')
    passed=$((passed + ${sums% *}))
    failed=$((failed + ${sums#* }))
}

finish() {
    echo "$passed passed, $failed failed"
    exit "$1"
}

step() { # step NAME COMMAND...
    local name=$1 began=$SECONDS status
    shift
    echo "==> $name"
    "$@" 2>&1 | tee "$logs/step"
    status=${PIPESTATUS[0]}
    count "$logs/step"
    echo "<== $name: $((SECONDS - began)) s"
    if [ "$status" != 0 ]; then
        echo "check: step '$name' failed (exit $status)" >&2
        [ "$failed" != 0 ] || failed=1
        finish 1
    fi
}

loom() {
    # A target directory of its own: another RUSTFLAGS in the shared one would rebuild everything twice.
    RUSTFLAGS="--cfg loom" cargo test -p shared-abi --test ring_loom --release --target-dir target/loom
}

tests() {
    if cargo nextest --version >/dev/null 2>&1; then
        cargo nextest run --workspace --exclude launchscope-benches --no-fail-fast && doc_tests
    else
        cargo test --workspace --exclude launchscope-benches --no-fail-fast
    fi
}

# nextest does not run them.
doc_tests() {
    cargo test --workspace --exclude launchscope-benches --doc
}

step "set-up" scripts/setup.sh
step "format" cargo fmt --all --check
step "clippy" cargo clippy --workspace --all-targets -- -D warnings
if [ -x scripts/build-sim.sh ]; then step "build the simulator" scripts/build-sim.sh; fi
# Rules of the repository first, because they are the fastest to fail. The step after it runs them again and counts them.
step "README's table of settings" scripts/settings-table.sh --check
step "tidy" cargo test -q -p launchscope-tests --test tidy
passed=0
if [ -x scripts/build-sim.sh ]; then step "simulator" python3 tests/sim-cuda/tests/test_sim.py; fi
step "unit and integration tests" tests
if [ "$quick" = no ]; then
    step "loom" loom
    # The dev profile: this checks that the benches run, not how fast.
    step "benches, once" cargo test -p launchscope-benches --benches
fi
if [ -x scripts/test-page.sh ]; then step "page" scripts/test-page.sh; fi
finish 0
