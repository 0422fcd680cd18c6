// Run a WebAssembly program of wasm32-wasip1 under node, with this process's arguments, environment and file system:
// wasi.mjs PROGRAM [ARGUMENTS]
import { readFile } from "node:fs/promises";
import { WASI } from "node:wasi";

const args = process.argv.slice(2);
const wasi = new WASI({ version: "preview1", args, env: process.env, preopens: { "/": "/" }, returnOnExit: true });
const program = await WebAssembly.compile(await readFile(args[0]));
// A trap, which a Rust panic ends in, is an exception here and so an exit code other than 0.
process.exitCode = wasi.start(await WebAssembly.instantiate(program, wasi.getImportObject()));
