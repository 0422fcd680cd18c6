#!/usr/bin/env bash
# Compile the Vulkan kernels: shaders.sh [--check] [NAME…]
#
# Writes vulkan/spirv/NAME.spv for each line of vulkan/shaders/kernels.txt, or for those named. With --check nothing is
# written: what the sources give is compared with what is checked in, and a difference is an error.
# GLSLC names the compiler, which has to know integer dot products (shaderc 2024 or later); without it tools.sh brings one.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../../vulkan"
check=''
[ "${1:-}" != --check ] || { check=yes; shift; }
glslc=${GLSLC:-$("$here/tools.sh" glslc)}
out=spirv
[ -z "$check" ] || { out=$(mktemp -d); trap 'rm -rf "$out"' EXIT; }

status=0
while read -r name source macros; do
    [ $# = 0 ] || [[ " $* " == *" $name "* ]] || continue
    # shellcheck disable=SC2086
    $glslc -O --target-env=vulkan1.2 -I shaders -fshader-stage=compute $macros "shaders/$source" -o "$out/$name.spv"
    if [ -n "$check" ] && ! cmp -s "$out/$name.spv" "spirv/$name.spv"; then
        echo "spirv/$name.spv is not what shaders/$source gives" >&2
        status=1
    fi
done < <(grep -v '^#' shaders/kernels.txt)
exit $status
