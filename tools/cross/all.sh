#!/usr/bin/env bash
# Walk a list of targets and tell, for each, how far this machine got: all.sh desktop|portable
set -uo pipefail
cd "$(dirname "$0")/../.."

done_lines=()
failed=0

# attempt WORD ACTION TARGET ARGS…: build, check or test, and remember how that went.
attempt() {
    local word=$1 action=$2 target=$3 status=0
    shift 3
    if [ "$action" = test ]; then
        tools/cross/test.sh "$target" || status=$?
    else
        tools/cross/target.sh "$action" "$target" "$@" || status=$?
    fi
    case $status in
        0) done_lines+=("$word $target") ;;
        3) done_lines+=("skipped $target") ;;
        *) done_lines+=("FAILED $target ($action)") failed=1 ;;
    esac
}

case ${1:-} in
    desktop)
        for target in x86_64-unknown-linux-gnu x86_64-unknown-linux-musl aarch64-unknown-linux-gnu; do
            attempt built build "$target" --release -p llamay
        done
        # No linker or system library for these comes with a Linux machine; on their own systems they are just built.
        for target in x86_64-apple-darwin aarch64-apple-darwin x86_64-pc-windows-msvc aarch64-pc-windows-msvc; do
            attempt 'type-checked' check "$target" -p llamay
        done
        ;;
    portable)
        # s390x is the big-endian one.
        for target in s390x-unknown-linux-gnu riscv64gc-unknown-linux-gnu powerpc64le-unknown-linux-gnu aarch64-unknown-linux-gnu; do
            attempt executed test "$target"
        done
        attempt 'type-checked' check wasm32-unknown-unknown -p llamay-gguf -p llamay-formats -p llamay-plan
        ;;
    *)
        echo "usage: all.sh desktop|portable" >&2
        exit 2
        ;;
esac

printf '%s\n' "${done_lines[@]}"
exit "$failed"
