//! What is special to Falcon, GPT-NeoX, Phi 2, StarCoder, Cohere, GLM, Hunyuan and Llama's kin, beside what their
//! references show.

mod common;

use common::*;
use llamay_formats::Format;
use llamay_gguf::Gguf;
use llamay_model::shapes::Shape;
use llamay_model::{Plan, naive, plan};
use llamay_plan::Op;

fn shape(name: &str) -> Gguf {
    file(Shape::named(name).unwrap())
}

/// The file with weights as they are, for computing with.
fn exact(name: &str) -> Gguf {
    Gguf::from_bytes(Shape::named(name).unwrap().gguf(Format::F32).unwrap()).unwrap()
}

/// The file as one of another architecture.
fn renamed(gguf: &Gguf, to: &str) -> Gguf {
    let from = gguf.metadata().need_str("general.architecture").unwrap();
    let is_own = |key: &str| key.starts_with(&format!("{from}."));
    let mut writer = copy(gguf, |key| !is_own(key), |_| true);
    writer.set("general.architecture", to);
    for (key, value) in gguf.metadata().iter().filter(|(key, _)| is_own(key)) {
        writer.set(&key.replacen(from, to, 1), value);
    }
    read(&writer)
}

fn logits(gguf: &Gguf) -> Vec<Vec<f64>> {
    naive::logits(gguf, &plan(gguf).unwrap(), &[5, 200, 17, 9]).unwrap()
}

/// The names of the first layer's steps.
fn first_layer(gguf: &Gguf) -> Vec<&'static str> {
    let plan = plan(gguf).unwrap();
    plan.steps.iter().filter(|step| step.layer == Some(0)).map(|step| step.op.name()).collect()
}

/// For each layer whether queries turn, and the window.
fn layers(plan: &Plan) -> Vec<(bool, Option<u32>)> {
    let mut layers = vec![(false, None); plan.n_layer as usize];
    for step in &plan.steps {
        match (step.layer, &step.op) {
            (Some(layer), Op::Rope { .. }) => layers[layer as usize].0 = true,
            (Some(layer), Op::Attend { window, .. }) => layers[layer as usize].1 = *window,
            _ => {}
        }
    }
    layers
}

/// The file with a matrix's rows, and its bias's elements, shared out to several.
fn split(gguf: &Gguf, stem: &str, parts: &[(&str, u64)]) -> Gguf {
    let is_fused = |name: &str| name.contains(&format!(".{stem}."));
    let mut writer = copy(gguf, |_| true, |t| !is_fused(&t.name));
    for tensor in gguf.tensors().iter().filter(|t| is_fused(&t.name)) {
        let data = gguf.data(tensor).unwrap();
        let (row, rows) = tensor.dims.split_at(tensor.dims.len() - 1);
        let row_bytes = data.len() / rows[0] as usize;
        let mut rest = &data[..];
        for (part, n) in parts {
            let (taken, others) = rest.split_at(row_bytes * *n as usize);
            rest = others;
            let dims: Vec<u64> = row.iter().chain([n]).copied().collect();
            writer.tensor(&tensor.name.replace(stem, part), &dims, Format::F32, taken.to_vec());
        }
        assert!(rest.is_empty(), "{}", tensor.name);
    }
    read(&writer)
}

#[test]
fn single_matrices_compute_what_fused_ones_do() {
    let qkv = |q, kv| [("attn_q", q), ("attn_k", kv), ("attn_v", kv)];
    for (name, q, kv) in
        [("falcon-7b", 192, 64), ("falcon-40b", 256, 128), ("gptneox", 256, 256), ("starcoder", 256, 64)]
    {
        let fused = exact(name);
        assert_eq!(logits(&split(&fused, "attn_qkv", &qkv(q, kv))), logits(&fused), "{name}");
    }
    let fused = exact("glm4");
    let halves = [("ffn_gate", 256), ("ffn_up", 256)];
    assert_eq!(logits(&split(&fused, "ffn_up", &halves)), logits(&fused));
}

#[test]
fn keys_that_a_file_lacks_have_the_fields_defaults() {
    for (name, keys) in [
        ("falcon-7b", &["rope.freq_base", "rope.dimension_count"][..]),
        ("gptneox-sequential", &["rope.freq_base", "rope.dimension_count"]),
        ("phi2", &["rope.freq_base", "attention.head_count_kv"]),
        ("starcoder2", &["rope.freq_base", "rope.dimension_count"]),
        ("cohere2", &["attention.sliding_window_pattern"]),
        ("command-r", &["rope.freq_base", "rope.dimension_count"]),
    ] {
        let gguf = shape(name);
        let bare = read(&copy(&gguf, |k| !keys.iter().any(|key| k.ends_with(key)), |_| true));
        assert_eq!(plan(&bare).unwrap(), plan(&gguf).unwrap(), "{name}");
    }
}

#[test]
fn a_key_whose_absence_could_mean_either_is_needed() {
    for (name, key) in [
        ("gptneox", "gptneox.use_parallel_residual"),
        ("cohere2", "cohere2.attention.sliding_window"),
        ("cohere2", "cohere2.logit_scale"),
    ] {
        assert!(refusal(&without_key(&shape(name), key)).contains(key));
    }
}

#[test]
fn gptneox_reads_the_stream_once_or_twice() {
    let (parallel, sequential) = (exact("gptneox"), exact("gptneox-sequential"));
    let order = |gguf: &Gguf| -> Vec<&str> {
        first_layer(gguf).into_iter().filter(|name| matches!(*name, "norm" | "add")).collect()
    };
    assert_eq!(order(&parallel), ["norm", "norm", "add", "add"]);
    assert_eq!(order(&sequential), ["norm", "add", "norm", "add"]);
    let other = with_key(&parallel, "gptneox.use_parallel_residual", false);
    assert_ne!(logits(&other), logits(&parallel));
}

#[test]
fn a_falcon_without_a_second_norm_has_one_for_both_parts() {
    let two = shape("falcon-40b");
    let one = read(&copy(&two, |_| true, |t| !t.name.contains("attn_norm_2")));
    let norms = |gguf: &Gguf| first_layer(gguf).iter().filter(|name| **name == "norm").count();
    assert_eq!((norms(&two), norms(&one)), (2, 1));
    assert!(refusal(&without_tensor(&two, "blk.0.attn_norm.weight")).contains("blk.0.attn_norm.weight"));
}

#[test]
fn biases_are_added_where_a_file_has_them() {
    let gguf = exact("phi2");
    for name in ["output.bias", "blk.0.attn_q.bias", "blk.1.ffn_down.bias", "output_norm.bias"] {
        assert_ne!(logits(&without_tensor(&gguf, name)), logits(&gguf), "{name}");
    }
    let mut with_bias = copy(&exact("nemotron"), |_| true, |_| true);
    with_bias.tensor_f32("blk.0.ffn_up.bias", &[512], &[0.25; 512]);
    assert_ne!(logits(&read(&with_bias)), logits(&exact("nemotron")));
}

#[test]
fn cohere2_turns_within_windows_alone() {
    let gguf = shape("cohere2");
    let window = (true, Some(8));
    assert_eq!(layers(&plan(&gguf).unwrap()), [window, window, window, (false, None)]);
    let every_other = with_key(&gguf, "cohere2.attention.sliding_window_pattern", 2u32);
    assert_eq!(layers(&plan(&every_other).unwrap()), [window, (false, None), window, (false, None)]);
    let base = |value: f32| with_key(&gguf, "cohere2.rope.freq_base_swa", value);
    assert!(plan(&base(50000.0)).is_ok());
    assert!(refusal(&base(10000.0)).contains("cohere2.rope.freq_base_swa"));
}

#[test]
fn command_r_scales_its_logits_if_the_file_says_so() {
    let gguf = shape("command-r");
    let scales = |gguf: &Gguf| {
        let plan = plan(gguf).unwrap();
        let scale = |op: &Op| if let Op::Scale { scale, .. } = op { Some(*scale) } else { None };
        plan.steps.iter().filter_map(|step| scale(&step.op)).collect::<Vec<_>>()
    };
    assert_eq!(scales(&gguf), [0.25]);
    assert!(scales(&without_key(&gguf, "command-r.logit_scale")).is_empty());
    assert!(scales(&with_key(&gguf, "command-r.logit_scale", 0.0f32)).is_empty());
    assert!(refusal(&with_key(&gguf, "command-r.logit_scale", -1.0f32)).contains("command-r.logit_scale"));
}

#[test]
fn windows_are_honoured_or_refused() {
    for (name, key) in [
        ("starcoder2", "starcoder2.attention.sliding_window"),
        ("command-r", "command-r.attention.sliding_window"),
    ] {
        let gguf = shape(name);
        assert_eq!(layers(&plan(&with_key(&gguf, key, 12u32)).unwrap()), [(true, Some(12)); 2]);
        assert_eq!(plan(&with_key(&gguf, key, 0u32)).unwrap(), plan(&gguf).unwrap());
    }
    for name in ["falcon-7b", "gptneox", "phi2", "starcoder", "nemotron", "glm4", "hunyuan-dense", "seed_oss"]
    {
        let gguf = shape(name);
        let architecture = gguf.metadata().need_str("general.architecture").unwrap();
        let key = format!("{architecture}.attention.sliding_window");
        assert!(refusal(&with_key(&gguf, &key, 12u32)).contains(&key));
    }
}

#[test]
fn hunyuan_normalises_its_heads_behind_the_rotation() {
    let steps = first_layer(&shape("hunyuan-dense"));
    assert_eq!(steps[..7], ["norm", "linear", "rope", "rope", "norm", "norm", "attend"]);
}

#[test]
fn chatglm_has_no_norms_behind_its_parts() {
    let foreign = renamed(&shape("glm4"), "chatglm");
    assert!(refusal(&foreign).contains("blk.0.post_attention_norm.weight"));
    let post = |name: &str| name.contains("post_");
    let chatglm = read(&copy(&foreign, |_| true, |t| !post(&t.name)));
    assert!(plan(&chatglm).is_ok());
}

#[test]
fn positions_of_several_dimensions_and_further_tokens_are_refused() {
    let gguf = shape("glm4");
    let sections = |values: &[u32]| with_key(&gguf, "glm4.rope.dimension_sections", values);
    assert!(plan(&sections(&[0, 0, 0, 0])).is_ok());
    assert!(refusal(&sections(&[8, 12, 12, 0])).contains("glm4.rope.dimension_sections"));
    assert!(refusal(&with_key(&gguf, "glm4.nextn_predict_layers", 1u32)).contains("nextn_predict_layers"));
}

#[test]
fn baichuan_is_a_llama_unless_it_is_the_one_with_alibi() {
    let llama = exact("llama-mha");
    let baichuan = renamed(&llama, "baichuan");
    assert_eq!(logits(&baichuan), logits(&llama));
    assert_eq!(logits(&renamed(&llama, "xverse")), logits(&llama));
    let large = with_key(&baichuan, "baichuan.block_count", 40u32);
    let message = refusal(&large);
    assert!(message.contains("ALiBi") && message.contains("baichuan.block_count"), "{message}");
}

#[test]
fn olmo_has_norms_without_weights_and_may_not_clamp() {
    let llama = renamed(&shape("llama-mha"), "olmo");
    let bare = read(&copy(&llama, |_| true, |t| !t.name.contains("norm")));
    let olmo = with_key(&bare, "olmo.attention.layer_norm_epsilon", 1e-5f32);
    let plan = plan(&olmo).unwrap();
    let norms = plan.steps.iter().filter(|step| step.op.name() == "norm");
    assert!(norms.clone().count() == 5 && norms.clone().all(|step| step.op.weights().is_empty()));
    let clamping = with_key(&olmo, "olmo.attention.clamp_kqv", 8.0f32);
    assert!(refusal(&clamping).contains("olmo.attention.clamp_kqv"));
}
