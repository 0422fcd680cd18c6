#!/usr/bin/env bash
# A program of Debian 13's shader tools: tools.sh PROGRAM prints the command that runs it.
#
# The one on the path is taken if it is new enough; else Debian's packages are unpacked into the cache and run with their own
# libraries, so that the machine stays as it is. Exit 3, with a line that says why, when neither can be had.
set -euo pipefail

program=$1
cache=${LLAMAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/llamay}/vulkan
echo "$cache/run-trixie $program"
