//! Mixtures of experts in other formats: stacks are matrices, routers stay exact, and the file runs.

mod common;

use std::path::PathBuf;

use common::{best, file, tokens, with};
use llamay_engine::gguf::Gguf;
use llamay_engine::quantize::{Recipe, quantize};
use llamay_engine::verify::{Mode, logits};
use llamay_engine::{Cancel, Model};
use llamay_formats::Format;
use llamay_model::shapes::{N_VOCAB, Shape};

/// A stack of experts in one tensor, one tensor for each expert, and gpt-oss with biases and sinks.
const MIXTURES: [&str; 4] = ["mixtral", "mixtral-split", "qwen3moe", "gpt-oss"];

/// The generated model, quantized; the file is gone again when this returns.
fn quantized(name: &str, recipe: &str, pure: bool) -> Gguf {
    let input = file(Shape::named(name).expect("a generated model"), Format::F32);
    let path: PathBuf =
        std::env::temp_dir().join(format!("llamay-{name}-{recipe}-{pure}-{}.gguf", std::process::id()));
    let recipe = Recipe::named(recipe, pure).expect("a known recipe");
    quantize(&input, &[], &path, &recipe, 2, &Cancel::new(), &mut |_| {})
        .expect("a model that can be quantized");
    let bytes = std::fs::read(&path).expect("the file that was written");
    std::fs::remove_file(&path).expect("it can be removed");
    Gguf::from_bytes(bytes).expect("a valid file")
}

fn format(gguf: &Gguf, name: &str) -> Format {
    gguf.tensor(name).unwrap_or_else(|| panic!("no {name}")).format().expect("a known format")
}

/// The model's logits for some tokens.
fn run(gguf: Gguf) -> Vec<f32> {
    let model = Model::from_gguf(gguf, &with(best(), 2), &|_, _| {}).expect("a model that runs");
    logits(&model, &tokens(24), Mode::Whole).expect("a prompt that runs")
}

fn log_softmax(row: &[f32]) -> Vec<f64> {
    let sum: f64 = row.iter().map(|v| f64::from(*v).exp()).sum();
    row.iter().map(|v| f64::from(*v) - sum.ln()).collect()
}

/// Mean Kullback-Leibler divergence of the distributions of `got` from those of `exact`, in nats.
fn divergence(exact: &[f32], got: &[f32]) -> f64 {
    let rows = |logits: &[f32]| -> Vec<Vec<f64>> { logits.chunks_exact(N_VOCAB).map(log_softmax).collect() };
    let (exact, got) = (rows(exact), rows(got));
    let kl =
        |(p, q): (&Vec<f64>, &Vec<f64>)| -> f64 { p.iter().zip(q).map(|(p, q)| p.exp() * (p - q)).sum() };
    exact.iter().zip(&got).map(kl).sum::<f64>() / exact.len() as f64
}

#[test]
fn a_pure_recipe_gives_the_bytes_of_the_format() {
    for name in MIXTURES {
        for recipe in [Format::Q8_0, Format::MXFP4, Format::Q5_0] {
            let made = quantized(name, recipe.name(), true);
            let want = file(Shape::named(name).expect("a generated model"), recipe);
            for tensor in want.tensors() {
                let ours = made.tensor(&tensor.name).unwrap_or_else(|| panic!("{name}: no {}", tensor.name));
                assert_eq!((&ours.dims, ours.kind), (&tensor.dims, tensor.kind), "{name} {}", tensor.name);
                assert!(
                    made.data(ours).unwrap() == want.data(tensor).unwrap(),
                    "{name} {recipe}: {}",
                    tensor.name
                );
            }
        }
    }
}

#[test]
fn quantized_mixtures_stay_near_single_precision() {
    for name in MIXTURES {
        let exact = run(file(Shape::named(name).expect("a generated model"), Format::F32));
        for (recipe, bound) in [("Q8_0", 0.01), ("Q4_K_M", 0.3), ("MXFP4_MOE", 0.15)] {
            let found = divergence(&exact, &run(quantized(name, recipe, false)));
            assert!(found < bound, "{name} {recipe}: a divergence of {found}");
        }
    }
}

#[test]
fn mixtures_of_formats_know_experts_and_keep_routers() {
    let mixtral = quantized("mixtral", "Q4_K_M", false);
    for (name, want) in [
        ("blk.0.ffn_gate_inp.weight", Format::F32),
        ("blk.0.ffn_gate_exps.weight", Format::Q4_K),
        ("blk.0.ffn_up_exps.weight", Format::Q4_K),
        ("blk.1.ffn_down_exps.weight", Format::Q6_K),
        ("blk.1.attn_v.weight", Format::Q6_K),
    ] {
        assert_eq!(format(&mixtral, name), want, "{name}");
    }
    let split = quantized("mixtral-split", "Q4_K_M", false);
    assert_eq!(format(&split, "blk.1.ffn_down.3.weight"), Format::Q6_K);
    let eight = quantized("qwen3moe", "Q4_K_M", false);
    assert_eq!(format(&eight, "blk.0.attn_k.weight"), Format::Q8_0);
    assert_eq!(format(&eight, "blk.0.attn_output.weight"), Format::Q5_1, "its rows are no whole Q5_K blocks");
    let gated = quantized("qwen2moe", "Q8_0", false);
    assert_eq!(format(&gated, "blk.0.ffn_gate_inp_shexp.weight"), Format::F32);
    let oss = quantized("gpt-oss", "MXFP4_MOE", false);
    for (name, want) in [
        ("blk.0.ffn_down_exps.weight", Format::MXFP4),
        ("blk.0.ffn_down_exps.bias", Format::F32),
        ("blk.0.ffn_gate_inp.weight", Format::F32),
        ("blk.0.attn_sinks.weight", Format::F32),
        ("blk.0.attn_q.weight", Format::Q8_0),
        ("output.weight", Format::Q8_0),
    ] {
        assert_eq!(format(&oss, name), want, "{name}");
    }
    assert_eq!(oss.metadata().need_u32("general.file_type").unwrap(), 38);
}
