#!/usr/bin/env bash
# Checks the flame graph page: types, that a rebuild gives the committed bytes, and the page itself in headless Chromium.
# Needs node 20 or later with npm, and Chromium (installed with apt-get where it is missing and we may; or set CHROMIUM=/path).
# Takes `--rebuild-only` to stop before the browser.
set -euo pipefail
cd "$(dirname "$0")/.."
web=collector/web
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

(cd "$web" && npm ci --no-audit --no-fund --ignore-scripts --loglevel=error && npm run --silent check)

cp -r "$web/dist" "$scratch/committed"
(cd "$web" && npm run --silent build)
if ! diff -rq "$scratch/committed" "$web/dist"; then
    echo "collector/web/dist is not what its sources build: run \`npm run build\` in collector/web and commit dist/" >&2
    exit 1
fi
if [ "${1:-}" = --rebuild-only ]; then exit 0; fi

chromium=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)}
if [ -z "$chromium" ]; then
    apt-get update -q && apt-get install -y -q chromium
    chromium=$(command -v chromium)
fi

for scenario in decode empty hostile big; do
    cargo run -q -p launchscope --example sample_profile -- "$scratch/profiles/$scenario" "$scenario" >"$scratch/written"
done
CHROMIUM=$chromium PROFILES=$scratch/profiles SCREENSHOTS=${SCREENSHOTS:-} node --test "$web/test/page.test.mjs"
