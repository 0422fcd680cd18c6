//! `run --draft` and `--lookup`: the same text, in fewer forward calls.

mod common;

use std::fs;

use common::{Folder, arg, run, run_with_input};
use llamay_formats::Format;

#[test]
fn the_text_is_the_same_with_and_without() {
    let folder = Folder::new();
    let model = folder.model("llama-gqa", Format::F32);
    let draft = folder.model("llama-gqa", Format::Q8_0);
    for sampling in [["--temp", "0"], ["--seed", "3"]] {
        for mode in [&["a b c a b c a b"][..], &["a b c a b c a b", "--raw"]] {
            let base = ["run", arg(&model), "-n", "40", "-t", "1", "--ignore-eos", "--json"];
            let args = [&base[..], &sampling, mode].concat();
            let plain = run(&args).json();
            assert!(plain["stats"]["drafts"].is_null());
            let drafted = ["--draft", arg(&draft), "--draft-max", "5", "--draft-min-p", "0"];
            for who in [&["--lookup"][..], &drafted] {
                let json = run([&args[..], who].concat()).json();
                assert_eq!((&json["text"], &json["tokens"]), (&plain["text"], &plain["tokens"]), "{who:?}");
                let drafts = &json["stats"]["drafts"];
                assert!(drafts["guessed_tokens"].as_u64() >= drafts["accepted_tokens"].as_u64(), "{drafts}");
                assert!(drafts["accepted_per_draft"].as_f64().is_some_and(|n| n <= 5.0 || who.len() == 1));
            }
        }
    }
}

#[test]
fn statistics_tell_what_was_guessed_and_where_the_draft_model_runs() {
    let folder = Folder::new();
    let model = arg(&folder.chat_model()).to_owned();
    let args = ["run", &model, "x", "-n", "30", "-t", "1", "--temp", "0", "--ignore-eos", "--stats"];
    let ran = run([&args[..], &["--draft", &model, "--draft-min-p", "0"]].concat());
    ran.ok();
    assert!(ran.stderr.contains("draft: 2/2 layers on CPU"), "{}", ran.stderr);
    let line = ran.stderr.lines().find(|line| line.contains("guessed tokens accepted")).expect("a line");
    let words: Vec<&str> = line.split(' ').collect();
    assert_eq!(words[2], words[4], "of its own guesses a model refuses none: {line}");
    assert!(!run(args).stderr.contains("guessed"));
}

#[test]
fn a_chat_guesses_too() {
    let folder = Folder::new();
    let model = arg(&folder.chat_model()).to_owned();
    let args = ["run", &model, "-i", "-n", "12", "-t", "1", "--temp", "0", "--ignore-eos", "--stats"];
    let script = "a b a b a b\nb a b a\n";
    let plain = run_with_input(args, script);
    let guessed = run_with_input([&args[..], &["--lookup"]].concat(), script);
    assert_eq!(guessed.ok(), plain.ok());
    assert_eq!(guessed.stderr.matches("guessed tokens accepted").count(), 2, "{}", guessed.stderr);
}

#[test]
fn a_draft_model_that_does_not_fit_is_refused_before_anything_is_loaded() {
    let folder = Folder::new();
    let (model, other) = (folder.chat_model(), folder.plain_model());
    let broken = folder.file("broken.gguf", &fs::read(&model).unwrap()[..1000]);
    for (draft, part) in [
        (other, "the draft model has another vocabulary: its token 0 is \"<unk>\", and the model's is \"Ā\""),
        (broken, "broken.gguf"),
        (folder.path("none.gguf"), "none.gguf"),
    ] {
        let ran = run(["run", arg(&model), "x", "--draft", arg(&draft)]);
        assert!(ran.error(1).contains(part), "{}", ran.stderr);
        assert!(!ran.stderr.contains("layers on CPU"), "{}", ran.stderr);
    }
}

#[test]
fn options_that_mean_nothing_are_wrong_usage() {
    for (args, part) in [
        (&["--draft", "d.gguf", "--lookup"][..], "cannot be used with"),
        (&["--draft-max", "4"], "required"),
        (&["--draft-min-p", "0.5"], "required"),
        (&["--lookup", "--draft-min-p", "0.5"], "cannot be used with"),
        (&["--lookup", "--draft-max", "65"], "1..=64"),
        (&["--draft", "d.gguf", "--draft-min-p", "2"], "0 to 1"),
    ] {
        let ran = run([&["run", "model.gguf", "x"], args].concat());
        assert!(ran.error(2).contains(part), "{args:?}: {}", ran.stderr);
    }
}
