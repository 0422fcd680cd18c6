//! Plans compute what the models they stand for compute.

use std::cmp::Ordering;

use llamay_formats::Format;
use llamay_gguf::Gguf;
use llamay_model::reference::{Reference, TOLERANCE, references};
use llamay_model::{Plan, naive};
use llamay_plan::{Gating, Nonlinearity, NormKind, Op, RopePairs, Scoring};

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
    let mut far = Vec::new();
    for reference in references() {
        let gguf = file(&reference);
        let name = reference.shape.name();
        let plan = llamay_model::plan(&gguf).unwrap_or_else(|e| panic!("{name}: {e}"));
        let error = error(&reference, &gguf, &plan);
        println!("{name}: {error:.1e}");
        // Not a number is far as well.
        if !matches!(error.partial_cmp(&TOLERANCE), Some(Ordering::Less)) {
            far.push(format!("{name}: {error:.1e}"));
        }
    }
    assert!(far.is_empty(), "{far:#?}");
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
        !plan.ropes.is_empty()
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
        let Some(first) = plan.ropes.first().cloned() else { return false };
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
            Op::Activate { f: f @ Nonlinearity::ReluSquared, .. } => {
                *f = Nonlinearity::Relu;
                true
            }
            _ => false,
        })
    }),
    ("means left in the norms", |plan| {
        change(plan, |op| match op {
            Op::Norm { kind: kind @ NormKind::Layer, .. } => {
                *kind = NormKind::Rms;
                true
            }
            _ => false,
        })
    }),
    ("norms without biases", |plan| {
        change(plan, |op| match op {
            Op::Norm { bias, .. } => bias.take().is_some(),
            _ => false,
        })
    }),
    ("no sinks", |plan| {
        change(plan, |op| match op {
            Op::Attend { sinks, .. } => sinks.take().is_some(),
            _ => false,
        })
    }),
    ("scores without their cap", |plan| {
        change(plan, |op| match op {
            Op::Attend { softcap, .. } => softcap.take().is_some(),
            _ => false,
        })
    }),
    ("logits without their factor or cap", |plan| {
        change(plan, |op| match op {
            Op::Softcap { cap, .. } => {
                *cap *= 1e3;
                true
            }
            Op::Scale { scale, .. } => std::mem::replace(scale, 1.0) != 1.0,
            _ => false,
        })
    }),
    ("residuals without their factor", |plan| {
        change(plan, |op| match op {
            Op::Add { scale, .. } => std::mem::replace(scale, 1.0) != 1.0,
            _ => false,
        })
    }),
    ("experts' weights divided by their sum, or not", |plan| {
        change(plan, |op| match op {
            Op::Route { scoring: Scoring::Softmax | Scoring::Sigmoid, normalize, .. } => {
                *normalize = !*normalize;
                true
            }
            _ => false,
        })
    }),
    ("a choice of experts without its correction", |plan| {
        change(plan, |op| match op {
            Op::Route { bias, .. } => bias.take().is_some(),
            _ => false,
        })
    }),
    ("experts without biases", |plan| {
        change(plan, |op| match op {
            Op::ExpertLinear { projections, .. } => projections.iter_mut().any(|p| p.bias.take().is_some()),
            _ => false,
        })
    }),
    ("two experts exchanged", |plan| {
        change(plan, |op| match op {
            Op::ExpertLinear { projections, .. } => {
                projections.iter_mut().for_each(|p| p.experts.swap(0, 1));
                true
            }
            _ => false,
        })
    }),
];

fn change(plan: &mut Plan, f: impl Fn(&mut Op) -> bool) -> bool {
    plan.steps.iter_mut().fold(false, |changed, step| f(&mut step.op) | changed)
}

/// References on which each mistake is tried: several, of many more that have it.
const ENOUGH: usize = 4;

#[test]
fn references_tell_mistakes_apart() {
    let (mut seen, mut greatest) = (vec![0; MISTAKES.len()], vec![0.0f64; MISTAKES.len()]);
    for reference in references() {
        let gguf = file(&reference);
        let plan = llamay_model::plan(&gguf).unwrap();
        for (i, (mistake, make)) in MISTAKES.iter().enumerate() {
            let mut wrong = plan.clone();
            if seen[i] < ENOUGH && make(&mut wrong) {
                let error = error(&reference, &gguf, &wrong);
                assert!(error > TOLERANCE, "{}, {mistake}: {error}", reference.shape.name());
                (seen[i], greatest[i]) = (seen[i] + 1, greatest[i].max(error));
            }
        }
    }
    for ((mistake, _), greatest) in MISTAKES.iter().zip(greatest) {
        assert!(greatest > 10.0 * TOLERANCE, "{mistake}: {greatest}");
    }
}
