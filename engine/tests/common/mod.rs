//! What the engine's tests share.
#![allow(dead_code)] // each test file uses a part

use std::path::PathBuf;

use llamay_engine::gguf::Gguf;
use llamay_engine::verify::kernel_sets;
use llamay_engine::{Isa, KvType, Model, Options};
use llamay_formats::Format;
use llamay_model::shapes::Shape;

/// A generated model in memory.
pub(crate) fn file(shape: &Shape, format: Format) -> Gguf {
    Gguf::from_bytes(shape.gguf(format).expect("the shape takes the format")).expect("a valid file")
}

/// A generated model, opened.
pub(crate) fn open(shape: &Shape, format: Format, options: &Options) -> Model {
    Model::from_gguf(file(shape, format), options, &|_, _| {}).expect("a model that runs")
}

/// A real model's path, or `None` with a line that says it is skipped.
pub(crate) fn real_model(name: &str) -> Option<PathBuf> {
    let var = |name| std::env::var_os(name).map(PathBuf::from);
    let cache = var("LLAMAY_CACHE")
        .or_else(|| var("XDG_CACHE_HOME").map(|p| p.join("llamay")))
        .or_else(|| var("HOME").map(|p| p.join(".cache/llamay")))?;
    let path = cache.join("models").join(name);
    if path.exists() {
        return Some(path);
    }
    eprintln!("skipped: {name} is not in the cache folder");
    None
}

/// The kernel sets under test: those of this machine, or of them what `LLAMAY_BACKEND` or `LLAMAY_ISA` allow.
pub(crate) fn isas() -> Vec<Isa> {
    kernel_sets(&Options::from_env().expect("values that are known"))
}

/// The most capable of [`isas`].
pub(crate) fn best() -> Isa {
    *isas().last().expect("the portable kernels run everywhere")
}

/// Options for one kernel set and thread count.
pub(crate) fn with(isa: Isa, threads: usize) -> Options {
    Options { isa: Some(isa), threads: Some(threads), ..Options::default() }
}

/// The same with weights that stay in the file.
pub(crate) fn with_no_repack(isa: Isa, threads: usize) -> Options {
    Options { no_repack: true, ..with(isa, threads) }
}

/// The same with a cache of single precision.
pub(crate) fn with_f32_cache(isa: Isa, threads: usize) -> Options {
    with_cache(KvType::F32, isa, threads)
}

/// The same with a cache of any type.
pub(crate) fn with_cache(kv: KvType, isa: Isa, threads: usize) -> Options {
    Options { kv, ..with(isa, threads) }
}

/// Tokens of a generated vocabulary, in no particular order.
pub(crate) fn tokens(n: usize) -> Vec<u32> {
    (0..n).map(|i| ((i * 61 + i / 7 + 3) % llamay_model::shapes::N_VOCAB) as u32).collect()
}

/// The bits of logits, to compare with `==`.
pub(crate) fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|v| v.to_bits()).collect()
}

/// A short name for many bits (FNV-1a over words).
pub(crate) fn hash(logits: &[f32]) -> u64 {
    logits
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |h, v| (h ^ u64::from(v.to_bits())).wrapping_mul(0x100_0000_01b3))
}
