#!/usr/bin/env bash
# Installs what building and testing needs on a bare Debian-like machine. Runs as often as you like: what is there is left alone.
set -euo pipefail
cd "$(dirname "$0")/.."

needed_rust=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

packages=()
want() { # want COMMAND PACKAGE
    command -v "$1" >/dev/null 2>&1 || packages+=("$2")
}
want gcc gcc
want ld binutils
want make make
want python3 python3
want curl curl
want git git
want flock util-linux
want pkg-config pkg-config
[ -e /usr/include/stdio.h ] || packages+=(libc6-dev)

if [ ${#packages[@]} -gt 0 ]; then
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "setup: this machine lacks ${packages[*]} and has no apt-get: install them by hand" >&2
        exit 1
    fi
    root=()
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null 2>&1 || { echo "setup: run as root to install ${packages[*]}" >&2; exit 1; }
        root=(sudo)
    fi
    echo "setup: installing ${packages[*]}"
    "${root[@]}" apt-get update -qq
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}"
fi

if ! command -v cargo >/dev/null 2>&1; then
    echo "setup: no cargo found. Install Rust $needed_rust or later, e.g. with rustup (https://rustup.rs), and put ~/.cargo/bin on PATH" >&2
    exit 1
fi
have_rust=$(rustc --version | cut -d' ' -f2)
if [ "$(printf '%s\n%s\n' "$needed_rust" "$have_rust" | sort -V | head -n1)" != "$needed_rust" ]; then
    echo "setup: Rust $have_rust is too old, $needed_rust or later is needed: rustup update stable" >&2
    exit 1
fi
for component in rustfmt clippy; do
    if ! cargo "${component/rustfmt/fmt}" --version >/dev/null 2>&1; then
        command -v rustup >/dev/null 2>&1 || { echo "setup: $component is missing and there is no rustup to add it" >&2; exit 1; }
        rustup component add "$component"
    fi
done

cargo nextest --version >/dev/null 2>&1 || echo "setup: cargo-nextest is not installed; cargo test is used instead"
echo "setup: ready (Rust $have_rust)"
