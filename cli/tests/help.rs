//! Snapshots of what a stranger reads first: help, usage errors, completions.

mod common;

use common::run;

/// Every command.
const COMMANDS: [&str; 11] = [
    "run",
    "bench",
    "perplexity",
    "logits",
    "tokenize",
    "inspect",
    "verify",
    "quantize",
    "devices",
    "version",
    "completions",
];

#[test]
fn help_reads_as_before() {
    insta::assert_snapshot!("help", run(["--help"]).ok());
    for command in COMMANDS {
        let help = run([command, "--help"]);
        assert!(help.ok().contains("Example"), "{command}");
        insta::assert_snapshot!(format!("help-{command}"), help.ok());
    }
}

#[test]
fn usage_errors_read_as_before() {
    for (name, args) in [
        ("no-command", &[][..]),
        ("wrong-command", &["rum"]),
        ("wrong-flag", &["run", "model.gguf", "--temprature", "1"]),
        ("wrong-value", &["run", "model.gguf", "--kv-type", "q8"]),
        ("wrong-threads", &["run", "model.gguf", "x", "-t", "0"]),
        ("wrong-format", &["quantize", "in.gguf", "out.gguf", "Q4_K_XL"]),
        ("raw-with-system", &["run", "model.gguf", "x", "--raw", "--system", "y"]),
        ("wrong-device", &["run", "model.gguf", "x", "--device", "abacus:0"]),
        ("no-tokens", &["logits", "model.gguf"]),
    ] {
        // Which names are right depends on what the build carries.
        if name == "wrong-device" && cfg!(feature = "vulkan") {
            continue;
        }
        let ran = run(args);
        assert_eq!(ran.code, 2, "{name}");
        insta::assert_snapshot!(format!("error-{name}"), ran.stderr);
    }
}

#[test]
fn completions_know_every_command() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = run(["completions", shell]);
        for command in COMMANDS {
            assert!(script.ok().contains(command), "{shell}: {command}");
        }
    }
}
