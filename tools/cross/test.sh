#!/usr/bin/env bash
# Run tests on another architecture, under emulation: test.sh [--quick] TARGET
#
# All tests but those of the command line, which start programs by themselves, and of real models, for which an emulator is
# too slow. --quick is what CI has time for: the
# kernels, the pool, and of the engine every ninth checked-in hash of logits, and prefill against decode; on a
# big-endian machine also the crates that read and write bytes. WebAssembly, which has no threads and no temporary
# folder, runs the quick tests either way.
#
# On standard output, line by line as it gets on: `executed TARGET (CPU): WHAT`. The rest goes to standard error.
# Exit 3 when this machine cannot do it.
set -euo pipefail

# Of how many hashes one is checked, or empty.
quick=''
[ "${1:-}" != --quick ] || { quick=9; shift; }
target=$1
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."

# cargo_for ACTION ARGS…
cargo_for() {
    "$here/target.sh" "$1" "$target" "${@:2}"
}

executed() {
    echo "executed $target${model:+ ($model)}: $1"
}

# The skipped test asks the kernel which pages are resident; the emulator answers for itself instead.
resident=released_data_leaves_memory_and_reads_the_same_again

bytes() {
    cargo_for test --no-fail-fast -p llamay-gguf -p llamay-formats -p llamay-plan --lib --tests -- --skip "$resident" >&2
    executed "gguf, formats and plan tests"
}

kernels() {
    local isas tests=(--lib)
    # What does not depend on the CPU's extensions runs on the first; WebAssembly has no threads for a pool.
    [ "$model" != "${models[0]}" ] || tests+=(--test math)
    [ "$model" != "${models[0]}" ] || [[ $target == wasm32-* ]] || tests+=(--test pool)
    isas=$(cargo_for run -p llamay-cpu --example isas)
    cargo_for test --no-fail-fast -p llamay-cpu "${tests[@]}" >&2
    executed "kernels $isas"
}

# logits EVERY: every so many of the hashes; with 9, eight of each format.
logits() {
    local hashes
    hashes=$(awk -v every="$1" 'NR % every == 1 || every == 1' engine/tests/golden_hashes.txt | wc -l)
    LLAMAY_GOLDEN_EVERY=$1 cargo_for test -p llamay-engine --test equality -- golden_hashes portable_decode >&2
    executed "logits of $hashes generated models and formats have the checked-in hashes; prefill equals decode"
}

# AArch64 CPUs with all extensions, with dot products alone, and with neither: each takes another way through dispatch.
case $target in
    aarch64-*) models=(max neoverse-n1 cortex-a72) ;;
    *) models=('') ;;
esac
for model in "${models[@]}"; do
    export QEMU_ARGS="-E LLAMAY_CACHE=/nowhere${model:+ -cpu $model}"
    if [ -n "$quick" ] || [[ $target == wasm32-* ]] || [ "$model" != "${models[0]}" ]; then
        kernels
        logits "${quick:-1}"
        # Of those that run here, s390x is the big-endian one.
        [[ $target != s390x-* ]] || bytes
    else
        kernels
        cargo_for test --workspace --exclude llamay --no-fail-fast --lib --tests -- --skip "$resident" >&2
        executed "all tests but those of real models and the command line"
    fi
done
