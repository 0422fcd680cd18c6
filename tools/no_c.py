#!/usr/bin/env python3
"""Prove that the default build compiles no C and asks for no system library.

    no_c.py deps                 what `llamay` depends on: no crate that `links`, none that runs a compiler
    no_c.py build COMMAND…       run a build in which every C compiler and library finder is a trap, and see that none is sprung

In the second the linker alone stays, by its full path: rustc always needs one.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

COMPILES = {"autotools", "bindgen", "cc", "clang-sys", "cmake", "meson", "nasm-rs", "pkg-config", "system-deps", "vcpkg"}
TRAPS = ("ar", "as", "c++", "c99", "cc", "clang", "clang++", "cmake", "cpp", "g++", "gcc", "llvm-config", "meson", "nasm", "ninja", "nvcc", "pkg-config")


def default_dependencies(host):
    """Packages that end up in `llamay` or in a build script of one that does, for `host`."""
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", host]
    metadata = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    packages = {p["id"]: p for p in metadata["packages"]}
    nodes = {n["id"]: n for n in metadata["resolve"]["nodes"]}
    todo = [p["id"] for p in packages.values() if p["name"] == "llamay"]
    seen = set()
    while todo:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        for dep in nodes[node]["deps"]:
            if any(kind["kind"] != "dev" for kind in dep["dep_kinds"]):
                todo.append(dep["pkg"])
    return [packages[node] for node in seen]


def check_dependencies():
    version = subprocess.run(["rustc", "-vV"], stdout=subprocess.PIPE, text=True, check=True).stdout
    host = next(line.split()[1] for line in version.splitlines() if line.startswith("host:"))
    packages = default_dependencies(host)
    bad = [f"{p['name']} {p['version']} links {p['links']}" for p in packages if p["links"]]
    bad += [f"{p['name']} {p['version']} runs a compiler or looks for libraries" for p in packages if p["name"] in COMPILES]
    for line in bad:
        print(f"no_c.py: {line}")
    scripts = sorted(p["name"] for p in packages if any("custom-build" in t["kind"] for t in p["targets"]))
    print(f"{len(packages)} crates, {len(scripts)} with a build script ({', '.join(scripts)}): {len(bad)} want C")
    return 1 if bad else 0


def check_build(command):
    linker = shutil.which("cc")
    with tempfile.TemporaryDirectory(prefix="no-c-") as folder:
        sprung = Path(folder) / "sprung"
        trap = Path(folder) / "trap"
        # It fails and remembers, so that a build script which tries and then does without is seen too.
        trap.write_text(f'#!/bin/sh\necho "$0 $*" >> {sprung}\nexit 1\n')
        trap.chmod(0o755)
        bin_folder = Path(folder) / "bin"
        bin_folder.mkdir()
        for name in TRAPS:
            (bin_folder / name).symlink_to(trap)
        environment = {
            **os.environ,
            "PATH": f"{bin_folder}:{os.environ['PATH']}",
            "CC": str(trap),
            "CXX": str(trap),
            "AR": str(trap),
            "CARGO_BUILD_RUSTFLAGS": f"-Clinker={linker}",
        }
        status = subprocess.run(command, env=environment).returncode
        if sprung.exists():
            print("no_c.py: the build called\n" + sprung.read_text(), end="")
            return 1
    print(f"{' '.join(command)}: called no C compiler and no library finder")
    return status


if __name__ == "__main__":
    if sys.argv[1:] == ["deps"]:
        sys.exit(check_dependencies())
    if sys.argv[1:2] == ["build"] and sys.argv[2:]:
        sys.exit(check_build(sys.argv[2:]))
    sys.exit(__doc__)
