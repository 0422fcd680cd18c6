"""Run a WebAssembly program of wasm32-wasip1 by wasmtime, with this process's arguments, environment and file system:
wasi.py PROGRAM [ARGUMENTS]
"""

import os
import sys

import wasmtime


def main():
    engine = wasmtime.Engine()
    linker = wasmtime.Linker(engine)
    linker.define_wasi()
    system = wasmtime.WasiConfig()
    system.argv = sys.argv[1:]
    system.env = list(os.environ.items())
    system.inherit_stdin()
    system.inherit_stdout()
    system.inherit_stderr()
    system.preopen_dir("/", "/")
    store = wasmtime.Store(engine)
    store.set_wasi(system)
    program = linker.instantiate(store, wasmtime.Module.from_file(engine, sys.argv[1]))
    try:
        program.exports(store)["_start"](store)
    except wasmtime.ExitTrap as end:
        return end.code
    except wasmtime.Trap as trap:
        # What a Rust panic ends in.
        sys.stderr.write(f"wasi.py: {trap.message}\n")
        return 101
    return 0


if __name__ == "__main__":
    sys.exit(main())
