//! The promise: the device's logits have the bits that the CPU's have.

mod common;

use common::{Running, backend, hash, tokens};
use llamay_formats::Format;
use llamay_model::shapes::Shape;
use llamay_plan::KvType;

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
