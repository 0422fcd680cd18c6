#!/usr/bin/env bash
# Run tests on another architecture, under emulation: test.sh [--quick] TARGET
#
# All tests but those of the command line, which start programs by themselves. --quick is what CI has time for: the
# kernels, the pool, and of the engine the checked-in hashes of logits in two formats, and prefill against decode; on a
# big-endian machine also the crates that read and write bytes. WebAssembly, which has no threads and no temporary
# folder, runs the quick tests either way.
#
# On standard output, line by line as it gets on: `executed TARGET (CPU): WHAT`. The rest goes to standard error.
# Exit 3 when this machine cannot do it.
set -euo pipefail

quick=''
[ "${1:-}" != --quick ] || { quick=yes; shift; }
target=$1
here=$(dirname "$0")

# cargo_for ACTION ARGS…
cargo_for() {
    "$here/target.sh" "$1" "$target" "${@:2}"
}

executed() {
    echo "executed $target${model:+ ($model)}: $1"
}

# The skipped test asks the kernel which pages are resident; the emulator answers for itself instead.
resident=released_data_leaves_memory_and_reads_the_same_again
# Encoding the other formats takes most of the time of a run, and is tested for itself.
formats=F32,Q4_0

bytes() {
    cargo_for test --no-fail-fast -p llamay-gguf -p llamay-formats -p llamay-plan --lib --tests -- --skip "$resident" >&2
    executed "gguf, formats and plan tests"
}

kernels() {
    local isas tests=(--lib --test math --test pool)
    [[ $target != wasm32-* ]] || tests=(--lib --test math)
    isas=$(cargo_for run --quiet -p llamay-cpu --example isas)
    cargo_for test --no-fail-fast -p llamay-cpu "${tests[@]}" >&2
    executed "kernels $isas"
}

logits() {
    LLAMAY_GOLDEN_FORMATS=$formats cargo_for test -p llamay-engine --test equality -- golden_hashes portable_decode >&2
    executed "logits of every generated model ($formats) have the checked-in hashes; prefill equals decode"
}

# AArch64 CPUs with all extensions, with dot products alone, and with neither: each takes another way through dispatch.
case $target in
    aarch64-*) models=(max neoverse-n1 cortex-a72) ;;
    *) models=('') ;;
esac
for model in "${models[@]}"; do
    export QEMU_ARGS=${model:+-cpu $model}
    if [ -n "$quick" ] || [[ $target == wasm32-* ]] || [ "$model" != "${models[0]}" ]; then
        kernels
        logits
        [[ $target != s390x-* ]] || bytes
    else
        kernels
        cargo_for test --workspace --exclude llamay --no-fail-fast --lib --tests -- --skip "$resident" >&2
        executed "all tests but those of the command line"
    fi
done
