#!/usr/bin/env bash
# Walk a list of targets and tell, for each, how far this machine got: all.sh desktop|portable
set -uo pipefail
cd "$(dirname "$0")/../.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT
lines=()
failed=0

# attempt WORD TARGET COMMAND…: run it, and remember how that went in a line; WORD is what success is called.
attempt() {
    local word=$1 target=$2 status=0
    shift 2
    "$@" 2>&1 | tee "$log" >&2 || status=$?
    case $status in
        0) lines+=("$word $target") ;;
        3) lines+=("$(grep '^skipped' "$log" || echo "skipped $target")") ;;
        *) lines+=("FAILED $target") failed=1 ;;
    esac
    return "$status"
}

# build TARGET: link the release binary, or type-check where nothing here can link it.
build() {
    attempt built "$1" tools/cross/target.sh build "$1" --release -p llamay && return
    [ "${lines[-1]#skipped}" = "${lines[-1]}" ] || check "$1"
}

check() {
    attempt 'type-checked' "$1" tools/cross/target.sh check "$1" -p "${2:-llamay}"
}

# run TARGET: its tests, whose own summary says what was run.
run() {
    if attempt executed "$1" tools/cross/test.sh "$1"; then
        unset 'lines[-1]'
        mapfile -t -O "${#lines[@]}" lines < <(grep '^executed ' "$log")
    fi
}

case ${1:-} in
    desktop)
        for arch in x86_64 aarch64; do
            build "$arch-unknown-linux-gnu"
            build "$arch-unknown-linux-musl"
            build "$arch-apple-darwin"
        done
        build x86_64-pc-windows-gnu
        build aarch64-pc-windows-gnullvm
        # Their linker and libraries are Microsoft's, and come with Windows alone.
        check x86_64-pc-windows-msvc
        check aarch64-pc-windows-msvc
        ;;
    portable)
        # s390x is the big-endian one.
        for target in s390x riscv64gc powerpc64le aarch64; do
            run "$target-unknown-linux-gnu"
        done
        run wasm32-wasip1
        check wasm32-unknown-unknown llamay-engine
        ;;
    *)
        echo "usage: all.sh desktop|portable" >&2
        exit 2
        ;;
esac

printf '%s\n' "${lines[@]}"
exit "$failed"
