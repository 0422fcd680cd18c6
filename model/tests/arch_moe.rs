//! Mixtures of experts: what their keys and tensors may be beside those of the generated models.

mod common;

use common::*;
use llamay_formats::Format;
use llamay_gguf::Gguf;
use llamay_model::shapes::Shape;
use llamay_model::{Plan, load, naive, plan};
use llamay_plan::{Op, Scoring};

fn shape(name: &str) -> &'static Shape {
    Shape::named(name).unwrap_or_else(|| panic!("no generated model {name}"))
}

fn routes(plan: &Plan) -> Vec<(Scoring, bool, f32)> {
    let route = |op: &Op| match op {
        Op::Route { scoring, normalize, scale, .. } => Some((*scoring, *normalize, *scale)),
        _ => None,
    };
    plan.steps.iter().filter_map(|step| route(&step.op)).collect()
}

#[test]
fn absent_keys_stand_for_what_the_architecture_usually_has() {
    const WIDTH: &str = "expert_feed_forward_length";
    const SHARED: &str = "expert_shared_feed_forward_length";
    for (name, keys) in [
        ("qwen2moe", &[WIDTH, SHARED][..]),
        ("dots1", &[SHARED, "expert_gating_func"]),
        ("glm4moe", &[WIDTH, SHARED, "expert_shared_count", "expert_gating_func", "expert_weights_norm"]),
        ("ernie4_5-moe", &[SHARED, "expert_gating_func"]),
        ("hunyuan-moe", &[WIDTH, SHARED, "expert_shared_count"]),
        ("gpt-oss", &[WIDTH]),
    ] {
        let whole = file(shape(name));
        let full = plan(&whole).unwrap();
        let mut gguf = whole;
        for key in keys {
            let key = format!("{}.{key}", full.architecture);
            gguf = without_key(&gguf, &key);
            assert_eq!(plan(&gguf).unwrap(), full, "{name} without {key}");
        }
    }
}

#[test]
fn keys_of_the_router_win() {
    let gguf = file(shape("qwen3moe"));
    let with = |key: &str, value: u32| {
        routes(&plan(&with_key(&gguf, &format!("qwen3moe.{key}"), value)).unwrap())[0]
    };
    assert_eq!(routes(&plan(&gguf).unwrap())[0], (Scoring::Softmax, true, 1.0));
    assert_eq!(with("expert_gating_func", 0), (Scoring::Softmax, true, 1.0));
    assert_eq!(with("expert_gating_func", 1), (Scoring::Softmax, true, 1.0));
    assert_eq!(with("expert_gating_func", 2), (Scoring::Sigmoid, true, 1.0));
    // Nothing is left to be done to weights that sum up to 1.
    assert_eq!(with("expert_gating_func", 3), (Scoring::SoftmaxOfChosen, false, 1.0));

    let plain = with_key(&gguf, "qwen3moe.expert_weights_norm", false);
    assert_eq!(routes(&plan(&plain).unwrap())[0], (Scoring::Softmax, false, 1.0));
    for (value, scale) in [(2.5, 2.5), (0.0, 1.0)] {
        let scaled = with_key(&gguf, "qwen3moe.expert_weights_scale", value);
        assert_eq!(routes(&plan(&scaled).unwrap())[0].2, scale);
    }
}

#[test]
fn impossible_mixtures_are_refused_by_key() {
    let gguf = file(shape("dots1"));
    for (key, value) in [
        ("expert_gating_func", 4u32),
        ("expert_used_count", 7),
        ("expert_used_count", 0),
        ("expert_count", 0),
        ("expert_group_count", 2),
        ("interleave_moe_layer_step", 2),
        ("nextn_predict_layers", 1),
    ] {
        let message = refusal(&with_key(&gguf, &format!("dots1.{key}"), value));
        assert!(message.contains(key), "{message}");
    }
    // Mixtral's files have no dense layers.
    let gguf = file(shape("mixtral"));
    let message = refusal(&with_key(&gguf, "llama.leading_dense_block_count", 1u32));
    assert!(message.contains("leading_dense_block_count"), "{message}");
}

#[test]
fn experts_of_a_token_are_some_of_all() {
    let gguf = file(shape("qwen3moe"));
    let all = with_key(&gguf, "qwen3moe.expert_used_count", 8u32);
    assert!(load(&all).is_ok());
    let message = refusal(&with_key(&gguf, "qwen3moe.expert_used_count", 9u32));
    assert!(message.contains("the number of experts is 8"), "{message}");
}

#[test]
fn layers_that_guess_further_tokens_are_left_out() {
    let gguf = file(shape("glm4moe"));
    let without = load(&gguf).unwrap();
    let n_layer = without.plan.n_layer;
    let extra = ["attn_norm", "nextn.enorm"].map(|stem| format!("blk.{n_layer}.{stem}.weight"));
    let mut writer = copy(&gguf, |_| true, |_| true);
    writer.set("glm4moe.block_count", n_layer + 1).set("glm4moe.nextn_predict_layers", 1u32);
    for name in &extra {
        writer.tensor_f32(name, &[8], &[1.0; 8]);
    }
    let with = load(&read(&writer)).unwrap();
    assert_eq!(with.plan, without.plan);
    assert_eq!(with.unused, extra);

    writer.set("glm4moe.nextn_predict_layers", n_layer + 1);
    assert!(refusal(&read(&writer)).contains("nextn_predict_layers"));
}

#[test]
fn fused_halves_of_experts_compute_the_same() {
    let gguf = Gguf::from_bytes(shape("mixtral").gguf(Format::F32).unwrap()).unwrap();
    let is_half = |name: &str| name.contains("ffn_gate_exps") || name.contains("ffn_up_exps");
    let mut writer = copy(&gguf, |_| true, |t| !is_half(&t.name));
    for gate in gguf.tensors().iter().filter(|t| t.name.contains("ffn_gate_exps")) {
        let up = gguf.tensor(&gate.name.replace("gate", "up")).unwrap();
        let (gate_data, up_data) = (gguf.data(gate).unwrap(), gguf.data(up).unwrap());
        let size = gate_data.len() / gate.dims[2] as usize;
        let experts = gate_data.chunks(size).zip(up_data.chunks(size));
        let fused: Vec<u8> = experts.flat_map(|(gate, up)| [gate, up].concat()).collect();
        let name = gate.name.replace("gate", "gate_up");
        writer.tensor(&name, &[gate.dims[0], 2 * gate.dims[1], gate.dims[2]], Format::F32, fused);
    }
    let fused = read(&writer);
    let logits = |gguf: &Gguf| naive::logits(gguf, &plan(gguf).unwrap(), &[5, 77, 130, 9]).unwrap();
    assert_eq!(logits(&fused), logits(&gguf));
}
