//! What is special to single dense architectures, beside what their references show.

mod common;

use common::*;
use llamay_formats::Format;
use llamay_gguf::Gguf;
use llamay_model::shapes::Shape;
use llamay_model::{Plan, PlanOptions, load_with, naive, plan};
use llamay_plan::{Op, Rope, RopeId};

fn shape(name: &str) -> Gguf {
    file(Shape::named(name).unwrap())
}

fn with_keys<const N: usize>(gguf: &Gguf, keys: [(&str, u32); N]) -> Gguf {
    let mut writer = copy(gguf, |_| true, |_| true);
    keys.iter().for_each(|(key, value)| _ = writer.set(key, *value));
    read(&writer)
}

/// The plan for a context of so many positions.
fn plan_for(gguf: &Gguf, n_ctx: usize) -> Plan {
    load_with(gguf, PlanOptions { n_ctx: Some(n_ctx) }).unwrap().plan
}

/// For each layer the rotary tables of queries and keys, if they turn, and the window.
fn layers(plan: &Plan) -> Vec<(Vec<RopeId>, Option<u32>)> {
    let mut layers = vec![(vec![], None); plan.n_layer as usize];
    for step in &plan.steps {
        match (step.layer, &step.op) {
            (Some(layer), Op::Rope { rope, .. }) => layers[layer as usize].0.push(*rope),
            (Some(layer), Op::Attend { window, .. }) => layers[layer as usize].1 = *window,
            _ => {}
        }
    }
    layers
}

/// The data of some tensors, joined.
fn joined(gguf: &Gguf, names: &[&str]) -> Vec<u8> {
    names.iter().flat_map(|name| gguf.data(gguf.tensor(name).unwrap()).unwrap().into_owned()).collect()
}

#[test]
fn the_context_chooses_the_divisors_of_long_rope() {
    const ORIGINAL: usize = 128;
    let gguf = with_keys(&shape("phi3-short"), [("phi3.context_length", 512)]);
    let (short, long) = (plan_for(&gguf, ORIGINAL), plan_for(&gguf, ORIGINAL + 1));
    assert_ne!(short.ropes, long.ropes);
    assert_eq!(plan(&gguf).unwrap().ropes, long.ropes);
    // Without the original length, no trained context is beyond it.
    let unsaid = without_key(&gguf, "phi3.rope.scaling.original_context_length");
    assert_eq!(plan(&unsaid).unwrap().ropes, short.ropes);
    // The sets differ in nothing but the divisors: 1 + i / 50, and 1 + i / 2.
    for (i, (s, l)) in short.ropes[0].frequencies.iter().zip(&long.ropes[0].frequencies).enumerate() {
        let ratio = (1.0 + 0.5 * i as f32) / (1.0 + 0.02 * i as f32);
        assert!((s / l / ratio - 1.0).abs() < 1e-5, "{i}: {s} {l}");
    }
    assert_eq!(short.ropes[0].magnitudes, long.ropes[0].magnitudes);
}

#[test]
fn long_rope_needs_both_sets_of_divisors_and_no_factor() {
    let llama = with_key(&shape("llama-gqa"), "llama.rope.scaling.type", "longrope");
    assert!(refusal(&llama).contains("rope_factors_short.weight"));
    let phi = shape("phi3-long");
    for name in ["rope_factors_long.weight", "rope_factors_short.weight"] {
        assert!(refusal(&without_tensor(&phi, name)).contains(name));
    }
    let factor = with_key(&phi, "phi3.rope.scaling.factor", 4.0f32);
    assert!(refusal(&factor).contains("phi3.rope.scaling.factor"));
}

#[test]
fn yarn_has_its_magnitude_from_the_file() {
    let yarn = shape("llama-yarn");
    let magnitude = |key: &str, value: f32| {
        let gguf = with_key(&yarn, &format!("llama.rope.scaling.{key}"), value);
        f64::from(plan(&gguf).unwrap().ropes[0].magnitudes[0])
    };
    // The shape's factor is 4.
    let usual = 0.1 * 4f64.ln() + 1.0;
    for (key, value, wanted) in [
        ("attn_factor", 1.0, usual),
        ("attn_factor", 0.5, usual * 0.5),
        ("yarn_attn_factor", 1.5, 1.5),
        ("yarn_log_multiplier", 1.0, 1.0),
        ("yarn_log_multiplier", 0.5, usual / (0.05 * 4f64.ln() + 1.0)),
    ] {
        assert!((magnitude(key, value) - wanted).abs() < 1e-6, "{key} {value}");
    }
    let linear = with_key(&shape("llama-linear"), "llama.rope.scaling.attn_factor", 1.2f32);
    assert!(refusal(&linear).contains("llama.rope.scaling.attn_factor"));
}

#[test]
fn queries_of_mistral3_grow_every_original_context_and_keys_do_not() {
    let gguf = shape("ministral3");
    let plan = plan_for(&gguf, 1000);
    for (ropes, _) in layers(&plan) {
        let rope = |id: RopeId| -> &Rope { &plan.ropes[usize::from(id.0)] };
        let [q, k] = ropes.as_slice() else { panic!("{ropes:?}") };
        let (q, k) = (rope(*q), rope(*k));
        assert_eq!((q.magnitude_span, q.magnitudes.len(), k.magnitudes.len()), (16, 63, 1));
        assert_eq!(q.frequencies, k.frequencies);
        for (position, step) in [(0, 0.0), (15, 0.0), (16, 1.0), (999, 62.0)] {
            let growth = f64::from(q.magnitude(position) / k.magnitude(position));
            assert!((growth - (1.0 + 0.1 * f64::ln(1.0 + step))).abs() < 1e-6, "{position}");
        }
    }
    // Never fewer steps than the trained context has.
    assert_eq!(plan_for(&gguf, 8).ropes, llamay_model::plan(&gguf).unwrap().ropes);
}

#[test]
fn growth_that_cannot_be_written_down_is_refused() {
    let gguf = shape("ministral3");
    let endless = load_with(&gguf, PlanOptions { n_ctx: Some(usize::MAX) }).unwrap_err().to_string();
    assert!(endless.contains("mistral3.rope.scaling.original_context_length"), "{endless}");
    let partial = with_key(&gguf, "mistral3.rope.dimension_count", 32u32);
    assert!(refusal(&partial).contains("mistral3.attention.temperature_scale"));
}

#[test]
fn gemma2_has_the_published_window_and_caps_where_the_file_does_not_say() {
    let gguf = shape("gemma2");
    let keys = ["attention.sliding_window", "attn_logit_softcapping", "final_logit_softcapping"];
    let bare = read(&copy(&gguf, |k| !keys.iter().any(|key| k.ends_with(key)), |_| true));
    let caps = |plan: &Plan| {
        let caps = plan.steps.iter().filter_map(|step| match step.op {
            Op::Attend { softcap, .. } => softcap,
            Op::Softcap { cap, .. } => Some(cap),
            _ => None,
        });
        caps.collect::<Vec<_>>()
    };
    let plan = plan(&bare).unwrap();
    assert_eq!(caps(&plan), [50.0, 50.0, 50.0, 30.0]);
    let windows: Vec<_> = layers(&plan).into_iter().map(|(_, window)| window).collect();
    assert_eq!(windows, [Some(4096), None, Some(4096)]);
    let mut uncapped = copy(&gguf, |_| true, |_| true);
    keys[1..].iter().for_each(|key| _ = uncapped.set(&format!("gemma2.{key}"), 0.0f32));
    assert!(caps(&llamay_model::plan(&read(&uncapped)).unwrap()).is_empty());
}

#[test]
fn multipliers_that_a_file_lacks_are_granites_none_and_minicpms_own() {
    let multipliers = |name: &str| {
        let keys = ["embedding_scale", "residual_scale", "logit_scale"];
        let gguf = read(&copy(&shape(name), |k| !keys.iter().any(|key| k.ends_with(key)), |_| true));
        let plan = plan(&gguf).unwrap();
        let mut found: Vec<f32> = plan
            .steps
            .iter()
            .filter_map(|step| match step.op {
                Op::Embed { scale, .. } | Op::Add { scale, .. } | Op::Scale { scale, .. } => Some(scale),
                _ => None,
            })
            .collect();
        found.dedup();
        found
    };
    assert_eq!(multipliers("granite"), [1.0]);
    // Two layers, and 256 wide: as wide as the model whose logits are the measure.
    assert_eq!(multipliers("minicpm"), [12.0, (1.4 / 2f64.sqrt()) as f32]);
}

#[test]
fn a_multiplier_without_an_inverse_is_refused() {
    for scale in [1e-40f32, -1.0, f32::NAN, f32::INFINITY] {
        let gguf = with_key(&shape("granite"), "granite.logit_scale", scale);
        assert!(refusal(&gguf).contains("granite.logit_scale"));
    }
}

#[test]
fn granite_turns_unless_the_file_says_that_it_does_not() {
    let turns = |value: bool| {
        let gguf = with_key(&shape("granite"), "granite.rope.scaling.finetuned", value);
        layers(&plan(&gguf).unwrap()).iter().all(|(ropes, _)| ropes.len() == 2)
    };
    assert!(turns(true));
    assert!(!turns(false));
}

#[test]
fn layers_without_window_turn_as_their_architecture_has_it() {
    let turning = |gguf: &Gguf| -> Vec<(bool, bool)> {
        let layers = layers(&plan(gguf).unwrap());
        layers.into_iter().map(|(ropes, window)| (!ropes.is_empty(), window.is_some())).collect()
    };
    let (windowed, global, still) = ((true, true), (true, false), (false, false));
    assert_eq!(turning(&shape("smollm3")), [global, global, global, still]);
    let exaone = without_key(&shape("exaone4"), "exaone4.attention.sliding_window_pattern");
    assert_eq!(turning(&exaone), [windowed, windowed, windowed, still]);
    let whole = without_key(&exaone, "exaone4.attention.sliding_window");
    assert_eq!(turning(&whole), [global; 4]);
    let olmo = shape("olmo2");
    assert_eq!(turning(&with_keys(&olmo, [("olmo2.attention.sliding_window", 8)])), [windowed; 2]);
    let every_other = [("olmo2.attention.sliding_window", 8), ("olmo2.attention.sliding_window_pattern", 2)];
    assert_eq!(turning(&with_keys(&olmo, every_other)), [windowed, global]);
}

#[test]
fn a_window_that_an_architecture_does_not_have_is_refused() {
    for name in ["qwen2", "qwen3", "gemma", "gpt2", "stablelm", "smollm3", "granite", "minicpm"] {
        let gguf = shape(name);
        let architecture = gguf.metadata().need_str("general.architecture").unwrap();
        let key = format!("{architecture}.attention.sliding_window");
        assert!(refusal(&with_key(&gguf, &key, 64u32)).contains(&key));
        assert!(plan(&with_key(&gguf, &key, 0u32)).is_ok());
    }
}

#[test]
fn stablelm_is_parallel_where_the_second_norm_lacks_whatever_the_key_says() {
    for (name, value) in [("stablelm", true), ("stablelm-parallel", false)] {
        let gguf = shape(name);
        let other = with_key(&gguf, "stablelm.use_parallel_residual", value);
        assert_eq!(plan(&other).unwrap(), plan(&gguf).unwrap());
    }
}

#[test]
fn fused_matrices_compute_what_single_ones_do() {
    let single = Gguf::from_bytes(Shape::named("qwen2").unwrap().gguf(Format::F32).unwrap()).unwrap();
    let is_fused = |name: &str| {
        ["attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_up"]
            .iter()
            .any(|stem| name.ends_with(&format!(".{stem}.weight")))
    };
    let mut writer = copy(&single, |_| true, |t| !is_fused(&t.name));
    for layer in 0..2 {
        for (fused, stems, rows) in [
            ("attn_qkv", &["attn_q", "attn_k", "attn_v"][..], 512),
            ("ffn_up", &["ffn_gate", "ffn_up"], 1024),
        ] {
            let names: Vec<_> = stems.iter().map(|stem| format!("blk.{layer}.{stem}.weight")).collect();
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            let name = format!("blk.{layer}.{fused}.weight");
            writer.tensor(&name, &[256, rows], Format::F32, joined(&single, &names));
        }
    }
    // The biases of queries, keys and values stay single.
    let fused = read(&writer);
    let logits = |gguf: &Gguf| naive::logits(gguf, &plan(gguf).unwrap(), &[5, 200, 17]).unwrap();
    assert_eq!(logits(&fused), logits(&single));
}
