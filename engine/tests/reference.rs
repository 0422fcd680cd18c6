//! Single-precision logits equal those of Hugging Face transformers.

mod common;

use common::{isas, open, with_f32_cache};
use llamay_engine::{Logits, Model, Session};
use llamay_formats::Format;
use llamay_model::reference::{Reference, TOLERANCE, references};

fn feed(session: &mut Session, tokens: &[u32]) -> Vec<f32> {
    let model: Model = session.model().clone();
    model
        .forward(&mut [llamay_engine::Feed { session, tokens, logits: Logits::All }])
        .expect("the reference's tokens run");
    session.logits().to_vec()
}

fn argmax(row: &[f32]) -> u32 {
    row.iter().enumerate().fold(0, |best, (i, v)| if *v > row[best] { i } else { best }) as u32
}

/// Every position's logits are the reference's, and so is its likeliest token.
fn assert_close(reference: &Reference, first: usize, logits: &[f32], what: &str) {
    let name = reference.shape.name();
    let error = reference.error(first, logits);
    assert!(error < TOLERANCE, "{name} {what}: off by {error:e} of the greatest logit");
    for (i, row) in logits.chunks_exact(llamay_model::shapes::N_VOCAB).enumerate() {
        assert_eq!(argmax(row), reference.argmax[first + i], "{name} {what}: position {}", first + i);
    }
}

#[test]
fn prefill_and_cached_decode_match_transformers() {
    for isa in isas() {
        for reference in references() {
            let model = open(reference.shape, Format::F32, &with_f32_cache(isa, 2));
            let mut session = model.session();
            let (prompt, rest) = reference.tokens.split_at(reference.n_prompt);
            assert_close(&reference, 0, &feed(&mut session, prompt), "prefill");
            for (i, token) in rest.iter().enumerate() {
                assert_close(&reference, prompt.len() + i, &feed(&mut session, &[*token]), "decode");
            }
        }
    }
}
