//! Ctrl-C and other signals.
#![cfg(unix)]

mod common;

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};

use common::{Folder, arg, piped};

fn interrupt(child: &Child) {
    signal(child, "INT");
}

fn signal(child: &Child, name: &str) {
    let kill = format!("kill -{name} {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
}

/// An answer that goes on for long: the context is large, and the model must not end it.
fn endless<'a>(model: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["run", model, "-c", "50000", "--ignore-eos", "--temp", "0", "-t", "1"], more].concat()
}

/// The first byte of the answer, so that it is known to be under way.
fn first_byte(child: &mut Child) {
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
}

#[test]
fn one_answer_ends_with_what_was_said_and_130() {
    let folder = Folder::new();
    let model = folder.chat_model();
    let mut child = piped(endless(arg(&model), &["hello"]));
    drop(child.stdin.take());
    first_byte(&mut child);
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout.last(), Some(&b'\n'), "the line is ended");
}

#[test]
fn in_a_chat_the_answer_stops_and_the_chat_goes_on() {
    let folder = Folder::new();
    let model = folder.chat_model();
    let mut child = piped(endless(arg(&model), &["-i"]));
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"hello\n").unwrap();
    first_byte(&mut child);
    interrupt(&child);
    stdin.write_all(b"/stats\n/exit\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("(stopped)") && stderr.contains("of 50000 positions"), "{stderr}");
}

#[test]
fn an_interrupted_quantisation_leaves_nothing() {
    let folder = Folder::new();
    // Large enough that the signal comes before the end.
    let mut writer = llamay_engine::gguf::Writer::default();
    writer.set("general.architecture", "llama");
    writer.tensor("big.weight", &[4096, 4096], llamay_formats::Format::F32, vec![0; 4 * 4096 * 4096]);
    let model = folder.file("big.gguf", writer.to_vec().unwrap());
    drop(writer);
    let (out, partial) = (folder.path("out.gguf"), folder.path("out.gguf.part"));
    let mut child = piped(["quantize", arg(&model), arg(&out), "Q2_K", "-t", "1"]);
    while !partial.exists() && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!out.exists() && !partial.exists());
}

/// Sent by hand, since no CPU at hand reports an instruction and refuses it.
#[test]
fn a_refused_instruction_ends_the_run_with_a_sentence() {
    let folder = Folder::new();
    let model = folder.chat_model();
    let mut child = piped(endless(arg(&model), &["hello"]));
    drop(child.stdin.take());
    first_byte(&mut child);
    signal(&child, "ILL");
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(4), "{stderr}");
    assert!(stderr.contains("LLAMAY_ISA=portable"), "{stderr}");
}
