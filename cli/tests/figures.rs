//! The commands that print figures: bench, perplexity, logits, tokenize, inspect, verify, version.

mod common;

use common::{Folder, arg, run, run_with_input};
use serde_json::Value;

#[test]
fn bench_reports_every_shape_in_every_form() {
    let folder = Folder::new();
    let model = folder.chat_model();
    let args = |format| {
        [
            "bench",
            "-m",
            arg(&model),
            "-p",
            "8",
            "-n",
            "4",
            "-pg",
            "4,2",
            "-d",
            "0,3",
            "-t",
            "1",
            "-r",
            "2",
            "-o",
            format,
        ]
    };
    let json = run(args("json")).json();
    let tests = json.as_array().unwrap();
    let number = |test: &Value, name: &str| test[name].as_u64().unwrap_or_else(|| panic!("{name}: {test}"));
    let shapes: Vec<_> =
        tests.iter().map(|t| (number(t, "n_prompt"), number(t, "n_gen"), number(t, "n_depth"))).collect();
    assert_eq!(shapes, [(8, 0, 0), (0, 4, 0), (4, 2, 0), (8, 0, 3), (0, 4, 3), (4, 2, 3)]);
    for test in tests {
        assert_eq!(test["samples_ts"].as_array().unwrap().len(), 2);
        assert_eq!(test["samples_ns"].as_array().unwrap().len(), 2);
        assert!(test["avg_ts"].as_f64().unwrap() > 0.0 && test["stddev_ts"].is_number());
        assert!(number(test, "avg_ns") > 0 && test["stddev_ns"].is_u64());
        assert_eq!(
            (number(test, "n_threads"), number(test, "n_batch"), number(test, "n_ubatch")),
            (1, 2048, 512)
        );
        for name in ["cpu_info", "backends", "model_filename", "model_type", "type_k", "type_v", "test_time"]
        {
            assert!(test[name].is_string(), "{name}: {test}");
        }
        assert!(number(test, "model_size") > 0 && number(test, "model_n_params") > 0);
    }
    let table = run(args("md"));
    assert_eq!(table.ok().lines().count(), 2 + 6);
    assert!(table.ok().contains("pp4+tg2 @ d3"));
    let csv = run(args("csv"));
    let columns: Vec<usize> = csv.ok().lines().map(|line| line.split("\",\"").count()).collect();
    assert_eq!(columns.len(), 1 + 6);
    let lines = run(args("jsonl"));
    assert!(lines.ok().lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
}

#[test]
fn bench_profiles_every_shape_in_every_form() {
    let folder = Folder::new();
    let model = folder.chat_model();
    let svg = folder.path("roofline.svg");
    let args = |format, more: &[&str]| {
        let args = ["bench", arg(&model), "-p", "8", "-n", "4", "-d", "0,3", "-t", "1", "-r", "2"];
        run([&args[..], &["--profile", "-o", format], more].concat())
    };
    let json = args("json", &["--svg", arg(&svg)]).json();
    let tests = json.as_array().unwrap();
    assert_eq!(tests.len(), 4);
    let float = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("no number: {value}"));
    for test in tests {
        let profile = &test["profile"];
        for name in ["read_bytes", "memory_bytes", "int8_macs", "f32_macs"] {
            assert!(float(&profile["ceilings"][format!("{name}_per_second")]) > 0.0, "{profile}");
        }
        let steps = profile["steps"].as_array().unwrap();
        let sum = |name: &str| steps.iter().map(|s| float(&s[name])).sum::<f64>();
        let seconds = float(&profile["seconds"]);
        let all = sum("seconds") + float(&profile["between_steps_seconds"]);
        assert!((all - seconds).abs() < 1e-6 && sum("share") <= 1.0 + 1e-9, "{profile}");
        assert!(seconds * 1e9 <= float(&test["samples_ns"][0]).max(float(&test["samples_ns"][1])) + 1.0);
        assert!(
            steps.iter().any(|s| s["step"] == "linear gate+up Q8_0" && s["int8_macs"].as_u64() > Some(0))
        );
        assert!(steps.iter().all(|s| float(&s["of_ceiling"]) >= 0.0 && s["bound"].is_string()));
    }
    let depth = |test: &Value| {
        let steps = test["profile"]["steps"].as_array().unwrap();
        steps.iter().find(|s| s["step"] == "attention").unwrap()["cache_bytes"].as_u64().unwrap()
    };
    assert!(depth(&tests[3]) > depth(&tests[1]), "more is read of a fuller cache");

    let drawn = std::fs::read_to_string(&svg).unwrap();
    let document = roxmltree::Document::parse(&drawn).unwrap_or_else(|e| panic!("{e}: {drawn}"));
    for name in ["pp8", "tg4", "pp8 @ d3", "tg4 @ d3"] {
        assert!(document.descendants().any(|n| n.text() == Some(name)), "{name}");
    }
    let table = args("md", &[]);
    for part in ["| ceiling", "### pp8: ", "### tg4 @ d3: ", "| between steps ", "| linear q+k+v Q8_0 "] {
        assert!(table.ok().contains(part), "{part}: {}", table.ok());
    }
}

#[test]
fn bench_says_what_is_wrong_with_a_chart_before_it_times() {
    let ran = run(["bench", "model.gguf", "--svg", "x.svg"]);
    assert!(ran.error(2).contains("--profile"), "{}", ran.stderr);
    let ran = run(["bench", "model.gguf", "--profile", "--svg", "/no/such/folder/x.svg"]);
    assert!(ran.error(1).contains("/no/such/folder is not a folder"), "{}", ran.stderr);
}

#[test]
fn bench_without_shapes_is_wrong_usage() {
    let ran = run(["bench", "model.gguf", "-p", "0", "-n", "0"]);
    assert!(ran.error(2).contains("nothing to time"), "{}", ran.stderr);
}

#[test]
fn perplexity_agrees_in_both_forms_and_with_fewer_chunks() {
    let folder = Folder::new();
    let model = folder.plain_model();
    let text = folder.file("text.txt", "the cat and the dog on the hill are in the sun. ".repeat(8));
    let args = ["perplexity", arg(&model), arg(&text), "-c", "16", "-t", "1"];
    let json = run([&args[..], &["-o", "json"]].concat()).json();
    let ppl = json["ppl"].as_f64().unwrap();
    assert!(ppl > 1.0 && json["stderr"].as_f64().unwrap() > 0.0, "{json}");
    let chunks = json["chunks"].as_u64().unwrap();
    assert_eq!(json["tokens"].as_u64().unwrap(), chunks * 7);
    let plain = run(args);
    assert!(plain.ok().starts_with(&format!("perplexity {ppl:.4} ± ")), "{}", plain.ok());
    assert!(plain.stderr.contains(&format!("{chunks}/{chunks} chunks")), "{}", plain.stderr);
    let fewer = run([&args[..], &["--json", "--chunks", "2"]].concat()).json();
    assert_eq!((fewer["chunks"].as_u64(), fewer["tokens"].as_u64()), (Some(2), Some(14)));
}

#[test]
fn perplexity_says_what_is_wrong_with_a_text() {
    let folder = Folder::new();
    let model = folder.plain_model();
    let short = folder.file("short.txt", "too short");
    assert!(run(["perplexity", arg(&model), arg(&short)]).error(1).contains("a context of 512 needs 1024"));
    let bytes = folder.file("bytes.txt", [b'a', 0xff]);
    assert!(run(["perplexity", arg(&model), arg(&bytes)]).error(1).contains("not UTF-8: byte 1"));
    assert!(run(["perplexity", arg(&model), "/no/such.txt"]).error(1).contains("/no/such.txt"));
}

/// The shape and the values of a NumPy file.
fn parse_npy(file: &[u8]) -> ((usize, usize), Vec<f32>) {
    assert_eq!(&file[..8], b"\x93NUMPY\x01\x00");
    let data = 10 + usize::from(u16::from_le_bytes([file[8], file[9]]));
    let header = std::str::from_utf8(&file[10..data]).unwrap();
    assert!(header.contains("'descr': '<f4'") && header.contains("'fortran_order': False"), "{header}");
    let shape = header.split(['(', ')']).nth(1).unwrap();
    let (rows, cols) = shape.split_once(", ").unwrap();
    let values = file[data..].chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    ((rows.parse().unwrap(), cols.parse().unwrap()), values.collect())
}

#[test]
fn logits_are_the_same_in_both_forms_and_the_last_row_is_the_default() {
    let folder = Folder::new();
    let model = folder.chat_model();
    let args = ["logits", arg(&model), "--tokens", "5,6,7", "-t", "1"];
    let (shape, all) = parse_npy(&run([&args[..], &["--all", "-o", "npy"]].concat()).stdout);
    assert_eq!((shape, all.len()), ((3, 320), 960));
    let (shape, last) = parse_npy(&run([&args[..], &["-o", "npy"]].concat()).stdout);
    assert_eq!(shape, (1, 320));
    assert_eq!(last, all[640..]);
    let json = run(args).json();
    assert_eq!(json["tokens"], serde_json::json!([5, 6, 7]), "nothing is added");
    let row: Vec<f32> =
        json["logits"][0].as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32).collect();
    assert_eq!(row, last);
}

#[test]
fn logits_refuse_tokens_that_are_none() {
    let folder = Folder::new();
    let model = folder.chat_model();
    let outside = run(["logits", arg(&model), "--tokens", "5,320"]);
    assert_eq!(outside.error(1), "error: token 320 is not in the vocabulary of 320 tokens");
    assert!(run(["logits", arg(&model), "--tokens", "x"]).error(2).contains("--tokens"));
    assert!(run(["logits", arg(&model), "--tokens="]).code == 2);
    assert!(run(["logits", arg(&model), "--prompt", ""]).error(1).contains("no tokens"));
    assert_eq!(run(["logits", arg(&model)]).code, 2);
}

#[test]
fn the_kv_type_changes_logits_and_threads_do_not() {
    let folder = Folder::new();
    let model = folder.chat_model();
    let logits = |more: &[&str]| {
        run([&["logits", arg(&model), "--tokens", "5,6,7,8", "-o", "npy"], more].concat()).stdout
    };
    let one = logits(&["-t", "1"]);
    assert_eq!(one, logits(&["-t", "3", "-b", "2"]));
    assert_ne!(one, logits(&["-t", "1", "--kv-type", "f32"]));
}

#[test]
fn tokens_and_text_turn_into_each_other() {
    let folder = Folder::new();
    let model = folder.chat_model();
    let text = "the hill<|im_end|> ünd 🙂";
    let ids = run(["tokenize", arg(&model), text]);
    let ids = ids.ok().trim_end();
    assert_eq!(run(["tokenize", arg(&model), "--decode", ids]).ok(), format!("{text}\n"));
    assert_eq!(run_with_input(["tokenize", arg(&model), "-"], text).ok().trim_end(), ids);
    let json = run(["tokenize", arg(&model), text, "--json"]).json();
    assert_eq!(json["n_tokens"].as_u64().unwrap() as usize, ids.split(',').count());
    assert_eq!(json["text"], text);
    assert!(json["tokens"].as_array().unwrap().iter().any(|t| t["piece"] == "<|im_end|>"));
    let spelt = run(["tokenize", arg(&model), text, "--no-parse-special"]);
    assert!(spelt.ok().split(',').count() > ids.split(',').count());
    assert_eq!(run(["tokenize", arg(&model), ""]).ok(), "\n");
    assert!(run(["tokenize", arg(&model), "--decode", "99999"]).error(1).contains("99999"));
}

#[test]
fn special_tokens_are_added_unless_unwanted() {
    let folder = Folder::new();
    let model = folder.plain_model();
    let with = run(["tokenize", arg(&model), "the"]);
    let without = run(["tokenize", arg(&model), "the", "--no-special"]);
    assert_eq!(with.ok(), format!("1,{}", without.ok()), "BOS is token 1");
}

#[test]
fn inspect_shows_figures_metadata_and_tensors() {
    let folder = Folder::new();
    let model = folder.chat_model();
    let json = run(["inspect", arg(&model), "--json", "--tensors", "-c", "100"]).json();
    assert_eq!(json["run"]["runs"], true);
    let run_ = &json["run"];
    let number = |name: &str| run_[name].as_u64().unwrap();
    assert_eq!(number("memory_bytes"), number("weight_bytes") + 100 * number("kv_bytes_per_token"));
    assert_eq!(json["metadata"]["general.architecture"], "llama");
    assert_eq!(json["metadata"]["tokenizer.ggml.tokens"]["length"], 320);
    assert_eq!(json["n_tensors"].as_u64().unwrap() as usize, json["tensors"].as_array().unwrap().len());
    assert_eq!((&json["tokenizer"]["kind"], &json["chat_template"]), (&"bpe".into(), &true.into()));
    let text = run(["inspect", arg(&model)]);
    for part in ["layers on CPU", "Q8_0", "general.architecture", "chat template  yes"] {
        assert!(text.ok().contains(part), "{part}: {}", text.ok());
    }
    assert!(!text.ok().contains("blk.0.attn_q.weight"));
    assert!(run(["inspect", arg(&model), "--tensors"]).ok().contains("blk.0.attn_q.weight"));
}

#[test]
fn inspect_counts_what_windows_keep() {
    let folder = Folder::new();
    let model = folder.model("gemma3", llamay_formats::Format::F32);
    let run_ = &run(["inspect", arg(&model), "--json", "-c", "100000"]).json()["run"];
    let number = |value: &Value| value.as_u64().unwrap();
    let groups = run_["kv_groups"].as_array().unwrap();
    let shapes: Vec<_> = groups.iter().map(|g| (g["window"].as_u64(), number(&g["layers"]))).collect();
    assert_eq!(shapes, [(Some(8), 2), (None, 1)]);
    let [windowed, full] = [0, 1].map(|i| number(&groups[i]["bytes_per_token"]));
    assert_eq!(number(&run_["kv_bytes_per_token"]), windowed + full);
    let kept = number(&run_["kv_bytes"]) - 100_000 * full;
    assert!(kept % windowed == 0 && (512..1024).contains(&(kept / windowed)), "{run_}");
    assert_eq!(number(&run_["memory_bytes"]), number(&run_["weight_bytes"]) + number(&run_["kv_bytes"]));
    let text = run(["inspect", arg(&model)]);
    assert!(text.ok().contains("in 2 layers with a window of 8 + "), "{}", text.ok());
}

#[test]
fn inspect_shows_what_cannot_run_and_why() {
    let folder = Folder::new();
    let mut writer = llamay_engine::gguf::Writer::default();
    writer.set("general.architecture", "mamba").set("evil", "a\x1b[31mb\nc").tensor_f32("x", &[4], &[0.0; 4]);
    let model = folder.file("mamba.gguf", writer.to_vec().unwrap());
    let text = run(["inspect", arg(&model)]);
    assert!(text.ok().contains("no: the architecture \"mamba\" is not supported"), "{}", text.ok());
    assert!(!text.ok().contains('\x1b'), "a file's text must not command the terminal");
    assert_eq!(run(["inspect", arg(&model), "--json"]).json()["run"]["runs"], false);
}

#[test]
fn verify_finds_equal_bits() {
    let folder = Folder::new();
    let model = folder.model("llama-gqa", llamay_formats::Format::Q4_K);
    let args = ["verify", arg(&model), "-n", "9", "-t", "2"];
    let json = run([&args[..], &["--json"]].concat()).json();
    assert_eq!(json["equal"], true, "{json}");
    let checks = json["checks"].as_array().unwrap();
    assert!(checks.len() >= 8 && checks.len() % 8 == 0, "{json}");
    assert!(run(args).ok().contains("reference"));
}

#[test]
fn devices_lists_the_cpu_and_what_this_build_has() {
    let json = run(["devices", "--json"]).json();
    assert!(json["cpu"]["isa"].is_string() && json["gpus"].is_array());
    let ran = run(["devices"]);
    assert!(ran.ok().contains("off") && ran.ok().contains("CPU ("));
    if json["gpus"].as_array().unwrap().is_empty() {
        assert!(ran.stderr.contains("no GPU backend"), "{}", ran.stderr);
    }
}

#[test]
fn version_tells_what_this_build_has() {
    let json = run(["version", "--json"]).json();
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
    assert!(json["cpu"]["isas"].as_array().unwrap().contains(&"portable".into()));
    assert!(json["cpu"]["threads"].as_u64().unwrap() >= 1);
    assert!(json["cpu"]["cores"].as_u64() <= json["cpu"]["cpus"].as_u64());
    assert!(json["cpu"]["self_test"].as_array().unwrap().iter().all(|test| test["passed"] == true), "{json}");
    let formats = json["formats"].as_array().unwrap();
    let q4_k = formats.iter().find(|f| f["name"] == "Q4_K").unwrap();
    assert!(q4_k["quantize"] == true && q4_k["kernels"].is_string());
    assert!(json["architectures"].as_array().unwrap().iter().any(|a| a["name"] == "gemma3"));
    // Each backend says what it found, or why there is nothing.
    let gpus = json["gpus"].as_array().unwrap();
    assert!(gpus.iter().all(|g| g["reason"].is_string() != g["devices"].is_array()) && gpus.len() == 3);
    let portable = common::llamay(["version", "--json"]).env("LLAMAY_BACKEND", "portable").output().unwrap();
    let portable: Value = serde_json::from_slice(&portable.stdout).unwrap();
    assert_eq!(portable["cpu"]["isa"], "portable");
    // A set that traps must not, where it is ruled out.
    assert!(portable["cpu"]["self_test"].as_array().unwrap().is_empty());
    assert!(run(["version"]).ok().starts_with("llamay "));
}
