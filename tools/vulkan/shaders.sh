#!/usr/bin/env bash
# Compile the Vulkan kernels: shaders.sh [--check] [NAME…]
#
# Writes NAME.spv for each line of a kernels.txt, or for those named: vulkan/spirv has those of vulkan/shaders, and
# vulkan/tests/shaders, which no binary carries, its own. Each is validated. With --check nothing is written: what the
# sources give is compared with what is checked in, and a difference is an error.
# GLSLC names another compiler than Debian 13's, which tools.sh brings.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../../vulkan"
check=''
[ "${1:-}" != --check ] || { check=yes; shift; }
glslc=${GLSLC:-$("$here/tools.sh" glslc)}
validate=$("$here/tools.sh" spirv-val)
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT

status=0
# compile SOURCES OUT NAME…: what SOURCES/kernels.txt lists.
compile() {
    local sources=$1 out=$2 name source macros
    shift 2
    while read -r name source macros; do
        [ $# = 0 ] || [[ " $* " == *" $name "* ]] || continue
        # shellcheck disable=SC2086
        $glslc -O --target-env=vulkan1.2 -I shaders -fshader-stage=compute $macros "$sources/$source" -o "$made/$name.spv"
        $validate --target-env vulkan1.2 "$made/$name.spv"
        if [ -z "$check" ]; then
            cp "$made/$name.spv" "$out"
        elif ! cmp -s "$made/$name.spv" "$out/$name.spv"; then
            echo "vulkan/$out/$name.spv is not what $source gives" >&2
            status=1
        fi
    done < <(grep -v '^#' "$sources/kernels.txt")
}
compile shaders spirv "$@"
compile tests/shaders tests/shaders "$@"
exit $status
