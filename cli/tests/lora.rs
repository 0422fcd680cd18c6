//! LoRA adapters on the command line.

mod common;

use std::path::PathBuf;

use common::{Folder, arg, run};
use llamay_engine::gguf::Gguf;
use llamay_formats::Format;
use llamay_model::shapes::lora_adapter;

/// A model and an adapter for it.
fn files(folder: &Folder) -> (PathBuf, PathBuf) {
    let model = folder.model("llama-gqa", Format::F32);
    let plan = llamay_model::plan(&Gguf::open(&model).unwrap()).unwrap();
    let lora = folder.file("lora.gguf", lora_adapter(&plan, 4, 8.0, 1).unwrap());
    (model, lora)
}

/// The logits behind three tokens.
fn logits(model: &str, more: &[&str]) -> Vec<f64> {
    let args = ["logits", model, "--tokens", "1,2,3", "--kv-type", "f32"];
    let json = run(args.iter().chain(more)).json();
    json["logits"][0].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
}

fn near(a: &[f64], b: &[f64]) -> bool {
    a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-3)
}

#[test]
fn an_adapter_at_run_time_is_worth_a_merged_file() {
    let folder = Folder::new();
    let (model, lora) = files(&folder);
    let half = format!("{}:0.5", arg(&lora));
    let out = folder.path("merged.gguf");
    let merged = run(["quantize", arg(&model), arg(&out), "F32", "--lora", &half]);
    assert!(merged.ok().contains("with what adapters add"), "{}", merged.ok());
    let base = logits(arg(&model), &[]);
    let with = logits(arg(&model), &["--lora", &half]);
    assert!(near(&with, &logits(arg(&out), &[])) && !near(&with, &base));
    let off = format!("{}:0", arg(&lora));
    assert_eq!(logits(arg(&model), &["--lora", &off]), base);
}

#[test]
fn adapters_in_use_are_told_on_standard_error() {
    let folder = Folder::new();
    let (model, lora) = files(&folder);
    let ran = run(["run", arg(&model), "x", "-n", "1", "--lora", arg(&lora)]);
    ran.ok();
    let line = format!("adapter {}: rank 4, 14 tensors, scale 1", arg(&lora));
    assert!(ran.stderr.contains(&line), "{}", ran.stderr);
    assert!(run(["verify", arg(&model), "-n", "4", "-t", "1", "--lora", arg(&lora)]).ok().contains("equal"));
    let bench = ["bench", arg(&model), "-p", "4", "-n", "0", "-r", "1", "--lora", arg(&lora)];
    assert!(run(bench).stderr.contains(&line));
}

#[test]
fn an_adapter_is_inspected_as_one() {
    let folder = Folder::new();
    let (model, lora) = files(&folder);
    let text = run(["inspect", arg(&lora)]);
    for words in ["LoRA for llama models", "4, alpha 8", "14 tensors"] {
        assert!(text.ok().contains(words), "{}", text.ok());
    }
    let json = run(["inspect", "--json", arg(&lora)]).json();
    assert_eq!(json["adapter"]["architecture"], "llama");
    assert_eq!(json["adapter"]["changes"].as_array().unwrap().len(), 14);
    assert_eq!(run(["inspect", "--json", arg(&model)]).json()["adapter"], serde_json::Value::Null);
}

#[test]
fn misuse_says_what_is_right() {
    let folder = Folder::new();
    let (model, lora) = files(&folder);
    let other = folder.model("gemma3", Format::Q8_0);
    let error = |args: &[&str], code: i32, words: &[&str]| {
        let ran = run(args);
        assert!(words.iter().all(|w| ran.error(code).contains(w)), "{}", ran.error(code));
    };
    error(&["run", arg(&lora), "x"], 1, &["adapter", "--lora"]);
    error(
        &["logits", arg(&other), "--tokens", "1", "--lora", arg(&lora)],
        1,
        &["lora.gguf", "llama", "gemma3"],
    );
    error(&["logits", arg(&model), "--tokens", "1", "--lora", arg(&model)], 1, &["no adapter"]);
    error(&["logits", arg(&model), "--tokens", "1", "--lora", "vanished.gguf"], 1, &["vanished.gguf"]);
    error(&["logits", arg(&model), "--tokens", "1", "--lora", "x.gguf:inf"], 2, &["finite"]);
}
