//! `run`: answers, completions, chats, and what they refuse.

mod common;

use std::fs;

use common::{Folder, arg, run, run_with_input};

/// Greedy, so that runs can be compared.
fn greedy<'a>(model: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["run", model, "--temp", "0", "-n", "8", "-t", "1"], more].concat()
}

#[test]
fn the_answer_alone_goes_to_stdout() {
    let folder = Folder::new();
    let model = folder.chat_model();
    let ran = run(greedy(arg(&model), &["the one", "--stats"]));
    assert!(ran.ok().ends_with('\n'));
    assert!(ran.stderr.contains("layers on CPU"), "{}", ran.stderr);
    assert!(ran.stderr.contains("tokens/s"), "{}", ran.stderr);
    assert!(!ran.ok().contains("tokens/s"));
}

#[test]
fn streamed_text_and_json_text_agree() {
    let folder = Folder::new();
    let model = folder.chat_model();
    for mode in [&["and"][..], &["and", "--raw"]] {
        let streamed = run(greedy(arg(&model), mode));
        let json = run(greedy(arg(&model), &[mode, &["--json"]].concat())).json();
        assert_eq!(
            streamed.ok().trim_end_matches('\n'),
            json["text"].as_str().unwrap().trim_end_matches('\n')
        );
        assert_eq!(json["finish"], "length");
        assert_eq!(json["tokens"].as_array().unwrap().len(), 8);
        assert_eq!(json["stats"]["tokens"], 8);
        assert!(json["stats"]["load_s"].is_number() && json["seed"].is_u64());
    }
}

#[test]
fn the_same_seed_gives_the_same_text() {
    let folder = Folder::new();
    let model = folder.chat_model();
    let args = |seed| ["run", arg(&model), "he", "-n", "16", "--temp", "2", "--seed", seed, "--json"];
    let tokens = |seed| run(args(seed)).json()["tokens"].clone();
    assert_eq!(tokens("7"), tokens("7"));
    assert_ne!(tokens("7"), tokens("8"));
}

#[test]
fn a_pipe_is_the_prompt_or_added_to_it() {
    let folder = Folder::new();
    let model = folder.plain_model();
    let tokens = |args: &[&str], input: &str| {
        let ran = run_with_input(greedy(arg(&model), &[args, &["--raw", "--json"]].concat()), input);
        ran.json()["stats"]["prompt_tokens"].clone()
    };
    let whole = run(greedy(arg(&model), &["--raw", "--json", "the sea\n\nand on"])).json();
    assert_eq!(tokens(&[], "the sea\n\nand on\n"), whole["stats"]["prompt_tokens"]);
    assert_eq!(tokens(&["the sea"], "and on"), whole["stats"]["prompt_tokens"]);
    assert_eq!(
        run_with_input(greedy(arg(&model), &["--raw"]), "").error(2),
        "error: standard input is empty; give a prompt"
    );
}

#[test]
fn no_tokens_are_generated_at_n_0() {
    let folder = Folder::new();
    let model = folder.chat_model();
    for mode in [&["the"][..], &["the", "--raw"]] {
        let ran = run([&["run", arg(&model), "-n", "0", "-t", "1"], mode].concat());
        assert_eq!(ran.ok(), "");
    }
}

#[test]
fn a_prompt_of_no_tokens_is_refused() {
    let folder = Folder::new();
    let model = folder.chat_model();
    for mode in [&[""][..], &["", "--raw"]] {
        let ran = run(greedy(arg(&model), mode));
        assert_eq!(ran.error(1), "error: the prompt has no tokens; give some text");
    }
    // BOS alone is a prompt.
    let with_bos = folder.plain_model();
    run(greedy(arg(&with_bos), &["", "--raw"])).ok();
}

#[test]
fn a_full_context_is_an_error_in_raw_and_told_in_a_chat() {
    let folder = Folder::new();
    let model = folder.chat_model();
    let full = run(["run", arg(&model), "--raw", "a", "-c", "1", "--temp", "0", "--ignore-eos", "-t", "1"]);
    assert_eq!(full.code, 1);
    assert!(
        full.stderr.contains("error: the context of 1 positions was full after 1 tokens"),
        "{}",
        full.stderr
    );
    run(["run", arg(&model), "--raw", "a", "-c", "1", "-n", "1", "-t", "1"]).ok();
    let long = run(["run", arg(&model), "--raw", "one two three", "-c", "1", "-t", "1"]);
    assert!(long.error(1).contains("do not fit the context of 1; use a larger one (-c)"), "{}", long.stderr);
    let chat = run(["run", arg(&model), "x", "-c", "60", "--ignore-eos", "-t", "1"]);
    chat.ok();
    assert!(chat.stderr.contains("warning: the answer was cut off"), "{}", chat.stderr);
}

#[test]
fn a_template_that_is_not_understood_is_told_before_loading_and_raw_still_works() {
    let folder = Folder::new();
    let bytes = fs::read(folder.chat_model()).unwrap();
    let (good, bad) = (b"{% for message", b"{% fox message");
    let at = bytes.windows(good.len()).position(|w| w == good).expect("the template");
    let broken = [&bytes[..at], bad, &bytes[at + bad.len()..]].concat();
    let model = folder.file("broken-template.gguf", broken);
    let ran = run(greedy(arg(&model), &["the"]));
    assert!(ran.error(1).contains("fox"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("layers on CPU"), "{}", ran.stderr);
    assert!(!run(greedy(arg(&model), &["the", "--raw"])).ok().is_empty());
}

#[test]
fn a_model_without_a_template_wants_raw() {
    let folder = Folder::new();
    let model = folder.plain_model();
    let ran = run(greedy(arg(&model), &["hello"]));
    assert_eq!(ran.error(1), "error: the model has no chat template; use --raw to complete text without one");
    run(greedy(arg(&model), &["hello", "--raw"])).ok();
}

#[test]
fn stop_texts_and_biases_are_obeyed() {
    let folder = Folder::new();
    let model = folder.chat_model();
    // Token 64 is the byte `a` in the generated vocabulary, whatever else the model would say.
    let bias = ["--logit-bias", "64=1e6", "--raw", "the", "--json"];
    let said = run(greedy(arg(&model), &bias)).json();
    let token = said["tokens"][0].as_u64().unwrap();
    assert_eq!(token, 64);
    assert_eq!(said["text"].as_str().unwrap().chars().count(), 8);
    let letter: String = said["text"].as_str().unwrap().chars().take(1).collect();
    let stopped = run(greedy(arg(&model), &[&bias[..], &["--stop", &letter.repeat(3)]].concat())).json();
    assert_eq!((stopped["text"].as_str(), stopped["finish"].as_str()), (Some(""), Some("stop")));
    let wrong = run(greedy(arg(&model), &["--raw", "the", "--logit-bias", "99999=1"]));
    assert!(wrong.error(2).contains("from 0 to 319"), "{}", wrong.stderr);
}

#[test]
fn sampling_out_of_range_is_wrong_usage_before_the_model_is_opened() {
    for (flag, value, part) in [
        ("--temp", "-1", "temperature"),
        ("--top-p", "1.5", "top_p"),
        ("--repeat-penalty", "0", "repeat_penalty"),
        ("--stop", "", "--stop"),
        ("--logit-bias", "5", "198=-2.5"),
        ("-n", "-2", "-2"),
        ("-t", "0", "1..=512"),
    ] {
        let ran = run(["run", "/no/such/file.gguf", "x", &format!("{flag}={value}")]);
        assert!(ran.error(2).contains(part), "{flag}: {}", ran.stderr);
    }
}

#[test]
fn an_interactive_chat_keeps_saves_and_loads_the_conversation() {
    let folder = Folder::new();
    let model = folder.chat_model();
    let saved = folder.path("chat.json");
    let script = format!(
        "/help\n/system be brief\nfirst\n\"\"\"\ntwo\nlines\n\"\"\"\n/stats\n/save {0}\n/clear\n/load {0}\n/nonsense\n/exit\nnever said\n",
        arg(&saved)
    );
    let ran = run_with_input(greedy(arg(&model), &["-i"]), &script);
    ran.ok();
    for part in
        ["/save FILE", "context ", "5 messages saved", "5 messages from", "there is no command /nonsense"]
    {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
    let messages: serde_json::Value = serde_json::from_slice(&fs::read(&saved).unwrap()).unwrap();
    let roles: Vec<&str> = messages.as_array().unwrap().iter().map(|m| m["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "user", "assistant"]);
    assert_eq!(messages[3]["content"], "two\nlines");
    assert!(!ran.stderr.contains("never said"));
}

#[test]
fn a_chat_that_outgrows_its_context_says_what_it_drops() {
    let folder = Folder::new();
    let model = folder.chat_model();
    let script = "a long first message that takes some room\nand a second one just as long as that\nthird\n";
    let ran = run_with_input(
        ["run", arg(&model), "-i", "-c", "160", "-n", "8", "--temp", "0", "--ignore-eos", "-t", "1"],
        script,
    );
    ran.ok();
    assert!(ran.stderr.contains("oldest messages to fit the context"), "{}", ran.stderr);
}

#[test]
fn a_failed_command_of_a_chat_does_not_end_it() {
    let folder = Folder::new();
    let model = folder.chat_model();
    let broken = folder.file("broken.json", "[{\"role\": 5}]");
    let script = format!("/load /no/such/file\n/load {}\nstill here\n", arg(&broken));
    let ran = run_with_input(greedy(arg(&model), &["-i"]), &script);
    assert!(!ran.ok().is_empty(), "the message was answered");
    assert_eq!(ran.stderr.matches("the conversation cannot be loaded").count(), 2, "{}", ran.stderr);
}
