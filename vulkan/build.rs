//! Writes the table of compiled kernels that `src/shaders.rs` includes, from the list in `shaders/kernels.txt`.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

fn main() {
    let root = env::var("CARGO_MANIFEST_DIR").expect("cargo says where the crate is");
    let out = env::var("OUT_DIR").expect("cargo says where to write");
    let list = Path::new(&root).join("shaders/kernels.txt");
    println!("cargo::rerun-if-changed={}", list.display());
    let list = fs::read_to_string(&list).expect("the list of kernels is part of the crate");
    let names = list.lines().filter(|l| !l.starts_with('#')).filter_map(|l| l.split_whitespace().next());
    let mut table = "&[\n".to_owned();
    for name in names {
        let file = Path::new(&root).join("spirv").join(name).with_extension("spv");
        writeln!(table, "    ({name:?}, include_bytes!({file:?})),").expect("a string takes all");
    }
    table.push_str("]\n");
    fs::write(Path::new(&out).join("kernels.rs"), table).expect("the build folder can be written");
}
