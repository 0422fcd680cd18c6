//! Plans compute what the models they stand for compute.

use llamay_formats::Format;
use llamay_gguf::Gguf;
use llamay_model::reference::{Reference, TOLERANCE, references};
use llamay_model::{Plan, naive};

fn file(reference: &Reference) -> Gguf {
    Gguf::from_bytes(reference.shape.gguf(Format::F32).unwrap()).unwrap()
}

fn error(reference: &Reference, gguf: &Gguf, plan: &Plan) -> f64 {
    let logits = naive::logits(gguf, plan, &reference.tokens).unwrap();
    let logits: Vec<f32> = logits.concat().into_iter().map(|x| x as f32).collect();
    reference.error(0, &logits)
}

#[test]
fn plans_reproduce_the_logits_of_transformers() {
    for reference in references() {
        let gguf = file(&reference);
        let error = error(&reference, &gguf, &llamay_model::plan(&gguf).unwrap());
        println!("{}: {error:.1e}", reference.shape.name());
        assert!(error < TOLERANCE, "{}: {error}", reference.shape.name());
    }
}
