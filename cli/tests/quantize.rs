//! `quantize`: files that run, and nothing left behind when it fails.

mod common;

use std::fs;

use common::{Folder, arg, run};
use llamay_engine::gguf::{Gguf, TensorType, Writer};
use llamay_formats::Format;

fn kind(gguf: &Gguf, name: &str) -> TensorType {
    gguf.tensor(name).unwrap_or_else(|| panic!("no {name}")).kind
}

#[test]
fn every_format_that_can_be_written_makes_a_model_that_runs() {
    let folder = Folder::new();
    let model = folder.model("llama-gqa", Format::F32);
    let version = run(["version", "--json"]).json();
    let formats = version["formats"].as_array().unwrap().iter();
    let names = formats.filter(|f| f["quantize"] == true).map(|f| f["name"].as_str().unwrap());
    for name in names.chain(["Q4_K_M", "Q5_K_M", "q4_k_s"]) {
        let out = folder.path("out.gguf");
        run(["quantize", arg(&model), arg(&out), name, "--force", "-t", "2"]).ok();
        run(["logits", arg(&out), "--tokens", "5,6", "-t", "1"]).ok();
        assert!(!folder.path("out.gguf.part").exists());
    }
}

#[test]
fn threads_make_no_difference() {
    let folder = Folder::new();
    let model = folder.model("llama-gqa", Format::F16);
    let (one, three) = (folder.path("one.gguf"), folder.path("three.gguf"));
    run(["quantize", arg(&model), arg(&one), "Q4_K_M", "-t", "1"]).ok();
    run(["quantize", arg(&model), arg(&three), "Q4_K_M", "-t", "3"]).ok();
    assert_eq!(fs::read(one).unwrap(), fs::read(three).unwrap());
}

#[test]
fn vectors_stay_the_output_is_spared_and_metadata_is_kept() {
    let folder = Folder::new();
    let model = folder.model("llama-gqa", Format::F32);
    let out = folder.path("out.gguf");
    let json = run(["quantize", arg(&model), arg(&out), "Q4_0", "--json"]).json();
    assert_eq!((&json["requantized"], &json["format"]), (&0.into(), &"Q4_0".into()));
    assert!(json["bytes_after"].as_u64().unwrap() * 4 < json["bytes_before"].as_u64().unwrap());
    let (before, after) = (Gguf::open(&model).unwrap(), Gguf::open(&out).unwrap());
    assert_eq!(kind(&after, "blk.0.attn_q.weight"), TensorType::Known(Format::Q4_0));
    assert_eq!(
        kind(&after, "token_embd.weight"),
        TensorType::Known(Format::Q6_K),
        "tied, so it is the output"
    );
    assert_eq!(kind(&after, "output_norm.weight"), TensorType::Known(Format::F32));
    assert_eq!(after.metadata().need_u32("general.file_type").unwrap(), 2);
    assert_eq!(after.metadata().need_u32("general.quantization_version").unwrap(), 2);
    for (key, value) in before.metadata().iter() {
        assert_eq!(after.metadata().get(key), Some(value), "{key}");
    }
    let pure = folder.path("pure.gguf");
    run(["quantize", arg(&model), arg(&pure), "Q4_0", "--pure"]).ok();
    assert_eq!(kind(&Gguf::open(&pure).unwrap(), "token_embd.weight"), TensorType::Known(Format::Q4_0));
}

#[test]
fn widths_that_do_not_fit_get_another_format_and_that_is_told() {
    let folder = Folder::new();
    let model = folder.model("llama-linear", Format::F16);
    let out = folder.path("out.gguf");
    let ran = run(["quantize", arg(&model), arg(&out), "Q4_K"]);
    ran.ok();
    assert!(ran.stderr.contains("no whole Q4_K blocks: Q5_0 instead"), "{}", ran.stderr);
    assert_eq!(kind(&Gguf::open(&out).unwrap(), "blk.0.attn_q.weight"), TensorType::Known(Format::Q5_0));
    run(["logits", arg(&out), "--tokens", "5"]).ok();
}

#[test]
fn a_model_that_cannot_run_can_be_quantised() {
    let folder = Folder::new();
    let mut writer = Writer::default();
    writer.set("general.architecture", "mamba");
    writer.tensor_f32("blk.0.ssm_in.weight", &[64, 2], &[0.5; 128]).tensor_f32(
        "blk.0.ssm_d",
        &[4],
        &[1.0; 4],
    );
    let model = folder.file("mamba.gguf", writer.to_vec().unwrap());
    let out = folder.path("out.gguf");
    run(["quantize", arg(&model), arg(&out), "Q8_0"]).ok();
    assert_eq!(kind(&Gguf::open(&out).unwrap(), "blk.0.ssm_in.weight"), TensorType::Known(Format::Q8_0));
}

#[test]
fn losses_that_add_up_are_told() {
    let folder = Folder::new();
    let model = folder.chat_model();
    let out = folder.path("out.gguf");
    let ran = run(["quantize", arg(&model), arg(&out), "Q4_0"]);
    ran.ok();
    assert!(ran.stderr.contains("were quantised before"), "{}", ran.stderr);
}

#[test]
fn failures_leave_nothing_and_touch_nothing() {
    let folder = Folder::new();
    let model = folder.chat_model();
    let there = folder.file("there.gguf", "precious");
    let exists = run(["quantize", arg(&model), arg(&there), "Q4_0"]);
    assert!(exists.error(1).contains("--force overwrites it"), "{}", exists.stderr);
    assert_eq!(fs::read(&there).unwrap(), b"precious");

    let out = folder.path("out.gguf");
    let wrong = run(["quantize", arg(&model), arg(&out), "Q4_K_XL"]);
    assert!(wrong.error(2).contains("use one of") && wrong.stderr.contains("Q4_K_M"), "{}", wrong.stderr);

    let mut writer = Writer::default();
    writer.set("general.architecture", "llama");
    let mut weights = [0.5f32; 128];
    weights[70] = f32::NAN;
    writer.tensor_f32("blk.0.attn_q.weight", &[64, 2], &weights);
    let nan = folder.file("nan.gguf", writer.to_vec().unwrap());
    let ran = run(["quantize", arg(&nan), arg(&out), "Q8_0"]);
    assert!(ran.error(1).contains("tensor blk.0.attn_q.weight: weight 70 is NaN"), "{}", ran.stderr);
    assert!(!out.exists() && !folder.path("out.gguf.part").exists());

    let nowhere = run(["quantize", arg(&model), "/no/such/folder/out.gguf", "Q4_0"]);
    assert!(nowhere.error(1).contains("/no/such/folder/out.gguf"), "{}", nowhere.stderr);
}
