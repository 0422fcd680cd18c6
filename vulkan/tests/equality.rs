//! The promise: the device's logits have the bits that the CPU's have.

mod common;

use common::{Running, backend, hash, tokens};
use llamay_formats::Format;
use llamay_model::shapes::Shape;
use llamay_plan::KvType;

/// A card whose memory the host does not see.
#[test]
fn weights_and_activations_that_go_through_staging_give_the_same_bits() {
    let Some(backend) = backend() else { return };
    backend.gpu().hide_memory();
    for name in ["llama-gqa", "mixtral"] {
        let shape = Shape::named(name).expect("a generated model");
        let golden = include_str!("../../engine/tests/golden_hashes.txt");
        let line = golden.lines().find(|l| l.starts_with(&format!("{name} Q4_0 "))).expect("a hash");
        let logits = Running::new(&backend, shape, Format::Q4_0, KvType::default()).feed(0, &tokens(70));
        assert!(line.ends_with(&format!(" {:016x}", hash(&logits))), "{line}");
    }
}

/// Every generated model in some formats, and in each type of cache, has the hashes that the portable kernels gave
/// (`engine/tests/golden_hashes.txt`).
#[test]
fn logits_have_the_golden_hashes() {
    let Some(backend) = backend() else { return };
    let every = std::env::var("LLAMAY_GOLDEN_EVERY").map_or(1, |n| n.parse().expect("a number above 0"));
    let golden = include_str!("../../engine/tests/golden_hashes.txt");
    let mut wrong = Vec::new();
    for line in golden.lines().step_by(every) {
        let words: Vec<&str> = line.split(' ').collect();
        let (shape, format) = (words[0], Format::from_name(words[1]).expect("a format"));
        let kv = KvType::ALL.into_iter().find(|kv| words.get(3) == Some(&kv.name())).unwrap_or_default();
        let shape = Shape::named(shape).expect("a generated model");
        let logits = Running::new(&backend, shape, format, kv).feed(0, &tokens(70));
        let got = format!("{:016x}", hash(&logits));
        if Some(&got.as_str()) != words.last() {
            wrong.push(line);
        }
    }
    assert!(wrong.is_empty(), "{} of {}: {wrong:#?}", wrong.len(), golden.lines().count());
}
