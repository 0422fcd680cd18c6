//! Profiles of generated models: what is counted is what the plan has, and counting changes nothing.

use std::collections::HashSet;

use llamay_engine::plan::{Format, Op, Plan, Profile, WeightId};
use llamay_engine::{Isa, Model, Options};
use llamay_gguf::Gguf;
use llamay_model::shapes::Shape;

/// Shapes of which one is dense with heads that share keys, one has windows and norms of heads, and one experts.
const SHAPES: [&str; 3] = ["llama-gqa", "gemma3", "mixtral"];

/// The portable kernels read weights as the file has them.
fn model(shape: &str) -> Model {
    let shape = Shape::named(shape).unwrap_or_else(|| panic!("no shape {shape}"));
    let gguf = Gguf::from_bytes(shape.gguf(Format::Q8_0).unwrap()).unwrap();
    let options = Options { isa: Some(Isa::Portable), threads: Some(2), ..Options::default() };
    Model::from_gguf(gguf, &options, &|_, _| {}).unwrap()
}

fn profiled(model: &Model, tokens: &[u32]) -> Profile {
    let mut session = model.session();
    model.profile(true);
    session.feed(tokens).unwrap();
    let profile = model.take_profile();
    model.profile(false);
    profile
}

/// Bytes of the steps' weights in the file, each once.
fn file_bytes(plan: &Plan, wanted: impl Fn(&Op) -> bool) -> u64 {
    let steps = plan.steps.iter().filter(|s| wanted(&s.op));
    let weights: HashSet<WeightId> = steps.flat_map(|s| s.op.weights()).collect();
    weights.iter().map(|w| plan.weight_of(*w).bytes() as u64).sum()
}

fn counted_bytes(profile: &Profile, kind: &str) -> u64 {
    profile.steps.iter().filter(|s| s.label.starts_with(kind)).map(|s| s.cost.weight_bytes).sum()
}

#[test]
fn a_token_reads_every_matrix_once_and_of_experts_those_it_chose() {
    for shape in SHAPES {
        let model = model(shape);
        let plan = model.plan();
        let profile = profiled(&model, &[5]);
        let linear = file_bytes(plan, |op| matches!(op, Op::Linear { .. }));
        assert_eq!(counted_bytes(&profile, "linear"), linear, "{shape}");
        let mut experts = 0;
        for step in &plan.steps {
            let Op::ExpertLinear { chosen, projections, .. } = &step.op else { continue };
            let (n_used, n_expert) = (plan.slot_of(*chosen).width, projections[0].experts.len());
            experts += file_bytes(plan, |op| *op == step.op) * n_used as u64 / n_expert as u64;
        }
        assert_eq!(counted_bytes(&profile, "experts"), experts, "{shape}");
        assert_eq!(experts > 0, shape == "mixtral");
    }
}

#[test]
fn many_tokens_multiply_more_but_read_weights_once() {
    let model = model("llama-gqa");
    let [one, many] = [&[5][..], &[5, 6, 7, 8]].map(|tokens| profiled(&model, tokens));
    let per_layer = |profile: &Profile| {
        let steps = profile.steps.iter().filter(|s| s.label.starts_with("linear gate+up"));
        steps.map(|s| (s.cost.weight_bytes, s.cost.int8_macs)).next().expect("a feed-forward step")
    };
    assert_eq!(per_layer(&many), (per_layer(&one).0, 4 * per_layer(&one).1));
}

#[test]
fn every_step_is_counted_once() {
    for shape in SHAPES {
        let model = model(shape);
        let profile = profiled(&model, &[5, 6, 7]);
        assert_eq!(profile.steps.len(), model.plan().steps.len(), "{shape}");
        assert!(profile.steps.iter().all(|s| s.calls == 1 && s.cost.bytes() > 0), "{shape}");
        let kinds = profile.by_kind();
        assert_eq!(kinds.iter().map(|k| k.time).sum::<std::time::Duration>(), profile.step_time());
        assert_eq!(kinds.iter().map(|k| k.calls).sum::<u64>(), profile.steps.len() as u64);
    }
}

#[test]
fn profiling_changes_no_bit_and_ends() {
    let model = model("gemma3");
    let mut plain = model.session();
    plain.feed(&[5, 6, 7]).unwrap();
    assert_eq!(model.take_profile(), Profile::default(), "off at first");
    model.profile(true);
    let mut session = model.session();
    session.feed(&[5, 6, 7]).unwrap();
    assert!(session.logits() == plain.logits());
    model.profile(false);
    session.feed(&[8]).unwrap();
    assert_eq!(model.take_profile(), Profile::default());
}
