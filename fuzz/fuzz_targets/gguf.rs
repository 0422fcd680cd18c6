//! Any bytes as a GGUF file: opened, and everything in it used.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../gguf/tests/common/mod.rs"]
mod common;

fuzz_target!(|bytes: &[u8]| {
    // Either outcome is right; a panic, a hang or a runaway allocation is not.
    let _ = common::open_and_use(bytes.to_vec());
});
