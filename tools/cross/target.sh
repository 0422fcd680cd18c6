#!/usr/bin/env bash
# Build, check, test or run for one target: target.sh build|check|test|run TARGET [cargo arguments]
#
# The standard library comes from `rustup target add`; where that cannot be had, from source: Debian's rust-src of
# this very compiler version and -Zbuild-std. Linkers and the emulator come
# from Debian's packages when this runs as root on a Debian; otherwise what is installed is used. macOS and Windows are
# linked by zig and WebAssembly is run by wasmtime, both from PyPI.
# Exit 3, with a line that says why, when this machine cannot do it. LLAMAY_STD=source skips rustup.
set -euo pipefail

action=$1 target=$2
shift 2
cache=${LLAMAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/llamay}

skip() {
    echo "skipped $target: $1" >&2
    exit 3
}

. "$(dirname "$0")/../debian.sh"

# A toolchain like the active one, with its std's source beside it; its path is printed.
toolchain_with_source() {
    local version sysroot copy package
    version=$(rustc --version | cut -d' ' -f2)
    sysroot=$(rustc --print sysroot)
    copy=$cache/cross/toolchain-$version
    if [ ! -e "$copy/lib/rustlib/src/rust/library/std" ]; then
        command -v apt-get > /dev/null || return 1
        echo "bringing the source of std $version" >&2
        package=$(backports trixie-backports apt-cache madison rust-src |
            awk -v v="$version" 'index($3, v) == 1 { print $3; exit }')
        [ -n "$package" ] || return 1
        rm -rf "$copy" && mkdir -p "$copy"
        (cd "$copy" && backports trixie-backports apt-get download -qq "rust-src=$package" >&2) || return 1
        dpkg -x "$copy"/rust-src_*.deb "$copy/source"
        # Hard links where the cache shares a file system with the toolchain, else a copy.
        cp -al "$sysroot"/. "$copy" 2> /dev/null || cp -a "$sysroot"/. "$copy"
        mkdir -p "$copy/lib/rustlib/src"
        rm -rf "$copy/lib/rustlib/src/rust"
        ln -s "$copy/source/usr/src/rustc-$version" "$copy/lib/rustlib/src/rust"
    fi
    echo "$copy"
}

# qemu 7.2 computes some s390x float code wrongly (10.0 does not): take an emulator of at least this major version.
emulator_is_good() {
    local major
    command -v "$qemu" > /dev/null || return
    major=$("$qemu" --version | sed -n '1s/.*version \([0-9]*\).*/\1/p')
    [ "${major:-0}" -ge 8 ]
}

# An emulator for the machine, brought in if need be.
emulator() {
    local suite
    emulator_is_good && return
    apt_get qemu-user
    emulator_is_good && return
    [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null || return
    suite=$(. /etc/os-release && echo "$VERSION_CODENAME")-backports
    DEBIAN_FRONTEND=noninteractive backports "$suite" \
        apt-get install -y -qq --no-install-recommends -t "$suite" qemu-user > /dev/null 2>&1
    emulator_is_good
}

# wasmtime, which has the system interface that std is built on; the command that runs a program by it is printed. (node 20
# has it too, and ends long runs with a segmentation fault behind their last line.)
wasmtime() {
    local home=$cache/cross/wasmtime-$WASMTIME
    if [ ! -x "$home/bin/python" ] || ! "$home/bin/python" -c 'import wasmtime' 2> /dev/null; then
        echo "bringing wasmtime $WASMTIME into $home" >&2
        rm -rf "$home" && python3 -m venv "$home" >&2 || return 1
        "$home/bin/pip" install --quiet "wasmtime==$WASMTIME" >&2 || { rm -rf "$home"; return 1; }
    fi
    echo "$home/bin/python $(cd "$(dirname "$0")" && pwd)/wasi.py"
}
WASMTIME=50.0.1

# zig, which links for macOS and Windows without their SDKs, and the cargo command that calls it; their folder is printed.
zig() {
    local home=$cache/cross/zig-$ZIG-$ZIGBUILD
    if [ ! -x "$home/bin/cargo-zigbuild" ]; then
        echo "bringing zig $ZIG into $home" >&2
        rm -rf "$home" && python3 -m venv "$home" >&2 || return 1
        "$home/bin/pip" install --quiet "ziglang==$ZIG" "cargo-zigbuild==$ZIGBUILD" >&2 || { rm -rf "$home"; return 1; }
    fi
    echo "$home/bin"
}
ZIG=0.15.2
ZIGBUILD=0.24.1

# gcc's and qemu's name for the machine, and Debian's for its libc.
case $target in
    aarch64-*-linux-*) gcc=aarch64-linux-gnu qemu=qemu-aarch64 libc=libc6-dev-arm64-cross ;;
    s390x-*) gcc=s390x-linux-gnu qemu=qemu-s390x libc=libc6-dev-s390x-cross ;;
    riscv64gc-*) gcc=riscv64-linux-gnu qemu=qemu-riscv64 libc=libc6-dev-riscv64-cross ;;
    powerpc64le-*) gcc=powerpc64le-linux-gnu qemu=qemu-ppc64le libc=libc6-dev-ppc64el-cross ;;
    *) gcc='' qemu='' libc='' ;;
esac
case $action in test | run) runs=yes ;; *) runs='' ;; esac
key=$(echo "$target" | tr 'a-z-' 'A-Z_')

std=()
if [ "${LLAMAY_STD:-}" = source ] || ! { rustup target add "$target" || rustup target add "$target"; } > /dev/null 2>&1; then
    copy=$(toolchain_with_source) || skip "rustup cannot add it, and Debian has no source of this compiler's std"
    export PATH=$copy/bin:$PATH RUSTC_BOOTSTRAP=1
    unset RUSTUP_TOOLCHAIN
    std=(-Zbuild-std)
    if [[ $target == *-musl ]]; then
        [[ $target == x86_64-* ]] || skip "rustup cannot add it, and Debian has no musl for it"
        # Without rustup's std there is no bundled musl either: Debian's stands in, static, through its own wrapper.
        apt_get musl-tools || skip "no musl-gcc, and Debian's musl-tools cannot be installed"
        # std asks for LLVM's unwinder by name; gcc's does the same work once it finds the tables.
        unwind=$cache/cross/unwind
        mkdir -p "$unwind"
        musl-gcc -O2 -c "$(dirname "$0")/musl_unwind.c" -o "$unwind/musl_unwind.o"
        echo "INPUT(-lgcc_eh $unwind/musl_unwind.o)" > "$unwind/libunwind.a"
        export "CARGO_TARGET_${key}_LINKER=musl-gcc"
        export "CARGO_TARGET_${key}_RUSTFLAGS=-C link-self-contained=no -C target-feature=+crt-static \
-C relocation-model=static -L native=$unwind"
    fi
fi

if [ "$action" != check ] && [ -n "$gcc" ]; then
    apt_get "gcc-$gcc" "$libc" || command -v "$gcc-gcc" > /dev/null || skip "no linker ($gcc-gcc) here"
    export "CARGO_TARGET_${key}_LINKER=$gcc-gcc"
    if [ -n "$runs" ]; then
        emulator || skip "no emulator ($qemu, version 8 or later) here"
        export "CARGO_TARGET_${key}_RUNNER=$qemu ${QEMU_ARGS:-} -L /usr/$gcc"
    fi
fi

if [ -n "$runs" ] && [[ $target == wasm32-wasip1 ]]; then
    runner=$(wasmtime) || skip "wasmtime cannot be had from PyPI"
    [ ${#std[@]} = 0 ] || skip "rustup cannot add it, and its C library comes from nowhere else"
    export CARGO_TARGET_WASM32_WASIP1_RUNNER=$runner
fi

if [ "$action" = build ] && [[ $target == *-apple-* || $target == *-windows-gnu* ]]; then
    tools=$(zig) || skip "no linker here (zig cannot be had from PyPI)"
    export PATH=$tools:$PATH
    # Crates name two libraries of the system that zig has no description of, and use nothing of them here; these stand
    # in for the linker. A program that does use them fails to link.
    stubs=$(cd "$(dirname "$0")" && pwd)/macos
    [[ $target != *-apple-* ]] || export RUSTFLAGS="-L native=$stubs -L framework=$stubs"
    action=zigbuild
fi

exec cargo "$action" "${std[@]}" --locked --target "$target" "$@"
