//! Plans compute what the models they stand for compute.

use llamay_formats::Format;
use llamay_gguf::Gguf;
use llamay_model::reference::{Reference, TOLERANCE, references};
use llamay_model::{Plan, naive};
use llamay_plan::{Gating, Nonlinearity, Op, RopePairs};

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

/// A plan with a mistake that is easily made, if the plan has what is mistaken.
type Mistake = (&'static str, fn(&mut Plan) -> bool);

const MISTAKES: &[Mistake] = &[
    ("no window", |plan| {
        change(plan, |op| match op {
            Op::Attend { window, .. } => window.take().is_some(),
            _ => false,
        })
    }),
    ("a window too long by one", |plan| {
        change(plan, |op| match op {
            Op::Attend { window: Some(window), .. } => {
                *window += 1;
                true
            }
            _ => false,
        })
    }),
    ("no biases", |plan| {
        change(plan, |op| match op {
            Op::Linear { projections, .. } => projections.iter_mut().any(|p| p.bias.take().is_some()),
            _ => false,
        })
    }),
    ("scores too large", |plan| {
        change(plan, |op| match op {
            Op::Attend { scale, .. } => {
                *scale *= 1.1;
                true
            }
            _ => false,
        })
    }),
    ("the other pairing", |plan| {
        for rope in &mut plan.ropes {
            rope.pairs = match rope.pairs {
                RopePairs::Halves => RopePairs::Interleaved,
                RopePairs::Interleaved => RopePairs::Halves,
            };
        }
        true
    }),
    ("frequencies without their scaling", |plan| {
        let mut changed = false;
        for rope in &mut plan.ropes {
            let n = rope.frequencies.len();
            let base = rope.frequencies[1] / rope.frequencies[0];
            for (i, frequency) in rope.frequencies.iter_mut().enumerate().take(n) {
                let plain = base.powi(i as i32);
                changed |= (*frequency / plain - 1.0).abs() > 0.01;
                *frequency = plain;
            }
        }
        changed
    }),
    ("sines and cosines without their factor", |plan| {
        let changed = plan.ropes.iter().any(|r| r.magnitudes != [1.0]);
        plan.ropes.iter_mut().for_each(|r| r.magnitudes = vec![1.0]);
        changed
    }),
    ("one rotary table for all layers", |plan| {
        let first = plan.ropes[0].clone();
        let differ = plan.ropes.iter().any(|r| *r != first);
        plan.ropes.fill(first);
        differ
    }),
    ("the other non-linearity", |plan| {
        change(plan, |op| match op {
            Op::Gate { f, .. } => {
                *f = match f {
                    Gating::Product(Nonlinearity::GeluTanh) => Gating::Product(Nonlinearity::Silu),
                    _ => Gating::Product(Nonlinearity::GeluTanh),
                };
                true
            }
            _ => false,
        })
    }),
];

fn change(plan: &mut Plan, f: impl Fn(&mut Op) -> bool) -> bool {
    plan.steps.iter_mut().fold(false, |changed, step| f(&mut step.op) | changed)
}

#[test]
fn references_tell_mistakes_apart() {
    let mut seen = vec![0; MISTAKES.len()];
    for reference in references() {
        let gguf = file(&reference);
        let plan = llamay_model::plan(&gguf).unwrap();
        for ((mistake, make), seen) in MISTAKES.iter().zip(&mut seen) {
            let mut wrong = plan.clone();
            if make(&mut wrong) {
                let error = error(&reference, &gguf, &wrong);
                assert!(error > 10.0 * TOLERANCE, "{}, {mistake}: {error}", reference.shape.name());
                *seen += 1;
            }
        }
    }
    assert!(seen.iter().all(|n| *n > 0), "{seen:?}");
}
