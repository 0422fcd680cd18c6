//! The promise: the same logit bits whatever the kernels, the threads, and the way a prompt is cut.

mod common;

use std::fmt::Write;

use common::{bits, file, hash, open, tokens, with, with_cache};
use llamay_engine::verify::{Mode, logits};
use llamay_engine::{Isa, KvType, Options};
use llamay_formats::Format;
use llamay_model::shapes::Shape;
use llamay_plan::KV_PAGE;

/// Longer than a page of the cache, so that tiles are merged, and no multiple of anything.
const PROMPT: usize = 70;
/// Enough tokens for every column tile of a kernel.
const FEW: usize = 21;

/// Every kernel set, two thread counts and every mode give the reference's bits.
///
/// The portable kernels, which are slow, run in one mode besides the reference's.
fn assert_all_equal(shape: &Shape, format: Format, n: usize, options: impl Fn(Isa, usize) -> Options) {
    let prompt = tokens(n);
    let portable =
        |threads, mode| logits(&open(shape, format, &options(Isa::Portable, threads)), &prompt, mode);
    let reference = bits(&portable(1, Mode::Whole).unwrap());
    let name = shape.name();
    assert!(bits(&portable(3, Mode::Mixed).unwrap()) == reference, "{name} {format}, portable, mixed batch");
    for isa in Isa::available().into_iter().filter(|i| *i != Isa::Portable) {
        for threads in [1, 3] {
            let model = open(shape, format, &options(isa, threads));
            for mode in Mode::ALL {
                let got = bits(&logits(&model, &prompt, mode).unwrap());
                assert!(got == reference, "{name} {format}, {}, {threads} threads, {mode:?}", isa.name());
            }
        }
    }
}

#[test]
fn portable_decode_equals_portable_prefill() {
    for name in ["llama-gqa", "gemma3"] {
        let model =
            open(Shape::named(name).expect("a generated model"), Format::Q4_0, &with(Isa::Portable, 2));
        let [whole, decode] =
            [Mode::Whole, Mode::Decode].map(|m| bits(&logits(&model, &tokens(PROMPT), m).unwrap()));
        assert!(whole == decode, "{name}");
    }
}

/// Part `part` of `PARTS` of the shapes, so that the parts run side by side: each in `F32`, in `Q4_0`, and in one more of
/// its formats, another for each shape. `LLAMAY_ALL_FORMATS=1` (`make test-shapes`) takes all formats.
fn assert_shapes_equal(part: usize) {
    let all_formats = std::env::var_os("LLAMAY_ALL_FORMATS").is_some();
    for (i, shape) in Shape::all().iter().enumerate().skip(part).step_by(PARTS) {
        let formats: Vec<Format> = shape.formats().collect();
        let one_more = formats[i % formats.len()];
        for format in formats {
            if all_formats || [Format::F32, Format::Q4_0, one_more].contains(&format) {
                let n = if format == Format::F32 || format == Format::Q4_0 { PROMPT } else { FEW };
                assert_all_equal(shape, format, n, with);
            }
        }
    }
}

const PARTS: usize = 4;

#[test]
fn every_shape_gives_the_same_bits_everywhere_1() {
    assert_shapes_equal(0);
}

#[test]
fn every_shape_gives_the_same_bits_everywhere_2() {
    assert_shapes_equal(1);
}

#[test]
fn every_shape_gives_the_same_bits_everywhere_3() {
    assert_shapes_equal(2);
}

#[test]
fn every_shape_gives_the_same_bits_everywhere_4() {
    assert_shapes_equal(3);
}

#[test]
fn every_format_gives_the_same_bits_everywhere() {
    let shape = Shape::named("llama-gqa").expect("a generated model");
    for format in shape.formats() {
        assert_all_equal(shape, format, FEW, with);
    }
}

/// Shapes whose attention differs: grouped heads, a window, bounded scores, sinks.
const ATTENTIONS: [&str; 4] = ["llama-gqa", "gemma3", "gemma2", "gpt-oss-sinks"];

#[test]
fn every_type_of_cache_gives_the_same_bits_everywhere() {
    for name in ATTENTIONS {
        let shape = Shape::named(name).expect("a generated model");
        for kv in KvType::ALL.into_iter().filter(|kv| *kv != KvType::default()) {
            // Long enough that one token's pages are shared out.
            let n = if name == ATTENTIONS[0] { 4 * KV_PAGE + 5 } else { PROMPT };
            assert_all_equal(shape, Format::F32, n, |isa, threads| with_cache(kv, isa, threads));
        }
    }
}

/// The bits are those that were checked in: no machine, and no change to the kernels, may give others.
///
/// `LLAMAY_BLESS=1` writes the file anew, for a change to the arithmetic contract.
#[test]
fn logits_have_the_golden_hashes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden_hashes.txt");
    let mut lines = String::new();
    for shape in Shape::all() {
        for format in [Format::F32, Format::Q4_0, Format::Q8_0, Format::Q4_K] {
            if shape.formats().any(|f| f == format) {
                let model = open(shape, format, &with(Isa::best(None), 2));
                let logits = logits(&model, &tokens(PROMPT), Mode::Whole).unwrap();
                writeln!(lines, "{} {format} {:016x}", shape.name(), hash(&logits)).unwrap();
            }
        }
    }
    if std::env::var_os("LLAMAY_BLESS").is_some() {
        std::fs::write(path, &lines).unwrap();
    }
    assert_eq!(lines, std::fs::read_to_string(path).unwrap());
}

#[test]
fn verify_reports_every_combination_once() {
    let shape = Shape::named("llama-gqa").expect("a generated model");
    let mut reported = Vec::new();
    let open = || Ok(file(shape, Format::Q4_0));
    let prompt = |_: &llamay_engine::Model| tokens(20);
    let checks = llamay_engine::verify::verify(&open, &prompt, &Options::default(), 2, &mut |c| {
        reported.push(c.clone())
    })
    .unwrap();
    assert_eq!(checks, reported);
    assert_eq!(checks.len(), Isa::available().len() * 2 * Mode::ALL.len());
    assert!(checks.iter().all(|c| c.difference.is_none()));
}
