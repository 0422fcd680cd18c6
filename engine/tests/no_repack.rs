//! Weights that stay in the file take no memory. One test only: what is counted is the process's.
#![cfg(target_os = "linux")]

mod common;

use common::{real_model, tokens};
use llamay_engine::{Model, Options};

/// Anonymous memory of this process, in bytes: all but what is a copy of a file.
fn anonymous() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:")).expect("since Linux 4.5");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// What a loaded model takes after a prompt and a token more, and what its weights take as the model tells.
fn taken(path: &std::path::Path, no_repack: bool) -> (u64, u64) {
    let before = anonymous();
    let options = Options { context: Some(64), no_repack, ..Options::default() };
    let model = Model::open(path, &options, &|_, _| {}).expect("a model that runs");
    let mut session = model.session();
    session.feed(&tokens(8)).unwrap();
    session.feed(&[1]).unwrap();
    (anonymous().saturating_sub(before), model.memory().weights)
}

#[test]
fn weights_that_stay_in_the_file_take_no_memory() {
    let Some(path) = real_model("smollm2-135m-instruct-q4_1.gguf") else { return };
    // First the one that takes less, since an allocator keeps what it had.
    let (streamed, told) = taken(&path, true);
    assert_eq!(told, 0);
    let (repacked, weights) = taken(&path, false);
    // The look-up of embeddings reads from the file in either case, here the same tensor as the head's.
    assert!(repacked > weights * 9 / 10, "{repacked} bytes for weights of {weights}");
    assert!(streamed < weights / 4, "{streamed} bytes beside weights of {weights}");
}
