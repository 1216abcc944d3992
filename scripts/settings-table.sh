#!/usr/bin/env bash
# Writes the table of settings into README.md, between its markers. `--check` only says whether it is current.
set -euo pipefail
cd "$(dirname "$0")/.."
table=$(cargo run --quiet -p interposer --example settings_table)
new=$(awk -v table="$table" '
    /<!-- settings:end -->/ { skip = 0 }
    !skip { print }
    /<!-- settings:begin -->/ { print table; skip = 1 }
' README.md)
if [ "${1:-}" = --check ]; then
    [ "$new" = "$(cat README.md)" ] && exit 0
    echo "README.md's table of settings is not current: run scripts/settings-table.sh" >&2
    exit 1
fi
printf '%s\n' "$new" > README.md
