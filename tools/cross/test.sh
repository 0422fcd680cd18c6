#!/usr/bin/env bash
# Run the tests of the crates that read and write bytes on another architecture, under emulation: test.sh TARGET
set -euo pipefail

# The skipped test asks the kernel which pages are resident; the emulator answers for itself instead.
exec "$(dirname "$0")/target.sh" test "$1" --no-fail-fast -p llamay-gguf -p llamay-formats -p llamay-plan --lib --tests -- \
    --skip released_data_leaves_memory_and_reads_the_same_again
