#!/usr/bin/env bash
# Debian 13's shader tools: tools.sh PROGRAM prints the command that runs glslc, spirv-val or another of theirs.
#
# The packages are unpacked into the cache and run with their own libraries, so that the machine stays as it is and every
# machine compiles with the same version, whose output is checked in. Exit 3, with a line that says why, when they cannot be had.
set -euo pipefail

program=$1
cache=${LLAMAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/llamay}
. "$(dirname "$0")/../debian.sh"

home=$cache/vulkan/shader-tools
if [ ! -x "$home/usr/bin/glslc" ]; then
    skip() {
        echo "skipped the shader tools: $1" >&2
        exit 3
    }
    [ "$(uname -m)" = x86_64 ] || skip "their packages are unpacked for x86-64 alone; GLSLC names a compiler"
    command -v apt-get > /dev/null || skip "no apt-get here; GLSLC names a compiler"
    echo "bringing Debian 13's shader tools into $home" >&2
    mkdir -p "$home.part/packages"
    (cd "$home.part/packages" && backports trixie apt-get download -qq \
        glslc libshaderc1 spirv-tools libstdc++6 libc6 libgcc-s1 >&2) || skip "Debian 13's packages cannot be fetched"
    for package in "$home.part"/packages/*.deb; do
        dpkg -x "$package" "$home.part"
    done
    rm -rf "$home.part/packages" "$home"
    mv "$home.part" "$home"
fi
lib=x86_64-linux-gnu
echo "$home/usr/lib64/ld-linux-x86-64.so.2 --library-path $home/usr/lib/$lib:$home/lib/$lib $home/usr/bin/$program"
