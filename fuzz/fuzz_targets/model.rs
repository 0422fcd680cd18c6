//! Any header of a GGUF file as a model: a plan that can run, or a refusal.
//!
//! The input is a file without the tensors' data, which is zeros. The headers of all generated models are the seeds;
//! every run writes them to the corpus, so that they are never out of date.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use llamay_formats::Format;
use llamay_gguf::Gguf;
use llamay_model::shapes::Shape;
use llamay_model::{load, validate};

/// More than the data of any generated model whose matrices are 4-bit.
const DATA: usize = 1 << 22;

/// Where `cargo fuzz run model` looks for inputs.
const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/model");

fuzz_target!(init: write_seeds(), |bytes: &[u8]| {
    // Zeros that nobody reads cost nothing.
    let mut file = vec![0; bytes.len() + DATA];
    file[..bytes.len()].copy_from_slice(bytes);
    let Ok(gguf) = Gguf::from_bytes(file) else { return };
    match load(&gguf) {
        Ok(loaded) => assert_eq!(validate(&loaded.plan), Ok(())),
        Err(error) => assert!(!error.to_string().chars().any(char::is_control), "{error}"),
    }
});

/// Writes what comes before the data of every generated model. Runs before the corpus is read.
fn write_seeds() {
    std::fs::create_dir_all(CORPUS).expect("a folder for the corpus");
    for shape in Shape::all() {
        let file = shape.gguf(Format::Q4_0).expect("a format that fits every generated model");
        let gguf = Gguf::from_bytes(file.clone()).expect("a valid file");
        let head = gguf.tensors().iter().map(|t| t.offset() as usize).min().unwrap_or(file.len());
        std::fs::write(Path::new(CORPUS).join(shape.name()), &file[..head]).expect("a seed");
    }
}
