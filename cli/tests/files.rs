//! Wrong files, and output that nobody wants.

mod common;

use std::fs;
use std::io::Read;

use common::{Folder, arg, piped, run};
use llamay_formats::Format;

/// Commands that open a model, with what they need besides.
const COMMANDS: [&[&str]; 7] = [
    &["run", "MODEL", "x"],
    &["bench", "MODEL"],
    &["perplexity", "MODEL", "TEXT"],
    &["logits", "MODEL", "--tokens", "1"],
    &["tokenize", "MODEL", "x"],
    &["inspect", "MODEL"],
    &["verify", "MODEL"],
];

#[test]
fn every_command_says_what_is_wrong_with_a_model_file() {
    let folder = Folder::new();
    let text = folder.file("text.txt", "some text");
    let empty = folder.file("empty.gguf", "");
    let html = folder.file("page.gguf", "<!DOCTYPE html><html></html>");
    let whole = fs::read(folder.model("llama-gqa", Format::F16)).unwrap();
    let cut = folder.file("cut.gguf", &whole[..whole.len() / 2]);
    let folder_path = folder.path("");
    let vanished = folder.path("vanished.gguf");
    for command in COMMANDS {
        for path in [&empty, &html, &cut, &folder_path, &vanished] {
            let words = command.iter().map(|word| match *word {
                "MODEL" => arg(path),
                "TEXT" => arg(&text),
                other => other,
            });
            let ran = run(words.collect::<Vec<_>>());
            let error = ran.error(1);
            assert!(error.contains(arg(path).trim_end_matches('/')), "{command:?}: {error}");
            assert_eq!(error.lines().count(), 1, "{command:?}: {error}");
        }
    }
}

#[test]
fn a_read_only_model_runs() {
    let folder = Folder::new();
    let model = folder.chat_model();
    let mut permissions = fs::metadata(&model).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&model, permissions).unwrap();
    run(["run", arg(&model), "x", "-n", "1", "-t", "1"]).ok();
}

#[test]
fn a_reader_that_goes_away_ends_the_program_quietly() {
    let folder = Folder::new();
    let model = folder.chat_model();
    for command in [
        &["logits", arg(&model), "--tokens", "1,2,3,4,5,6,7,8", "--all"][..],
        &["run", arg(&model), "x", "--ignore-eos"],
        &["version"],
        &["completions", "bash"],
    ] {
        let mut child = piped(command);
        drop(child.stdin.take());
        drop(child.stdout.take());
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{command:?}: {stderr}");
        assert!(!stderr.contains("error") && !stderr.contains("panic"), "{command:?}: {stderr}");
    }
}

#[test]
fn a_wrong_environment_is_wrong_usage() {
    let folder = Folder::new();
    let model = folder.chat_model();
    let mut command = common::llamay(["run", arg(&model), "x"]);
    let output = command.env("LLAMAY_ISA", "sse9").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("error: LLAMAY_ISA=sse9 is not known"), "{stderr}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_context_beyond_the_memory_is_refused_before_the_work_starts() {
    let folder = Folder::new();
    let model = folder.chat_model();
    let ran = run(["logits", arg(&model), "--tokens", "1", "-c", "1073741824", "--kv-type", "f32"]);
    let error = ran.error(1);
    assert!(
        error.starts_with("error: the model needs ") && error.contains("smaller context (-c)"),
        "{error}"
    );
}
