#!/usr/bin/env bash
# Run every fuzz target for a while: fuzz.sh [SECONDS]
#
# cargo-fuzz is installed when it is missing. It needs a nightly compiler's flags; where there is no nightly, the
# stable compiler takes them under RUSTC_BOOTSTRAP=1, which is what that variable is for.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-30}
cache=${LLAMAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/llamay}

if ! find . -path ./target -prune -o -name fuzz_targets -print | grep -q .; then
    echo "fuzz.sh: there is no fuzz target in this tree" >&2
    exit 2
fi
if ! command -v cargo-fuzz > /dev/null && [ ! -x "$cache/cargo-fuzz/bin/cargo-fuzz" ]; then
    echo "fuzz.sh: installing cargo-fuzz into $cache/cargo-fuzz" >&2
    cargo install --quiet --locked cargo-fuzz --root "$cache/cargo-fuzz" >&2
fi
PATH=$PATH:$cache/cargo-fuzz/bin
cargo=(cargo)
if cargo +nightly --version > /dev/null 2>&1; then cargo=(cargo +nightly); else export RUSTC_BOOTSTRAP=1; fi

while read -r folder; do
    crate=$(dirname "$folder")
    for target in $("${cargo[@]}" fuzz list --fuzz-dir "$crate"); do
        echo "fuzzing $crate: $target for $seconds s" >&2
        "${cargo[@]}" fuzz run --fuzz-dir "$crate" "$target" -- -max_total_time="$seconds" -rss_limit_mb=2048 -print_final_stats=1
    done
done < <(find . -path ./target -prune -o -name fuzz_targets -print | sort)
