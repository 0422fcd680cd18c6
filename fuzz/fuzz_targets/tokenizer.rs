//! Any vocabulary with any text: what loads also encodes, decodes and streams.
//!
//! The input is lines: tokens, an empty line, merges, an empty line, the text. The first byte picks the kind of
//! vocabulary, the second seeds types and scores.
#![no_main]

use libfuzzer_sys::fuzz_target;
use llamay_gguf::{Endian, Gguf, Writer};
use llamay_tokenizer::{EncodeOptions, Tokenizer};

const MODEL: [&str; 4] = ["gpt2", "llama", "gemma4", "bert"];
const PRE: [&str; 8] =
    ["default", "gpt-2", "llama-bpe", "qwen2", "gpt-4o", "tekken", "deepseek-llm", "deepseek-v3"];

fuzz_target!(|bytes: &[u8]| {
    let [kind, seed, rest @ ..] = bytes else { return };
    let Ok(rest) = std::str::from_utf8(rest) else { return };
    let mut parts = rest.splitn(3, "\n\n");
    let mut part = || parts.next().unwrap_or_default();
    let (tokens, merges, text) = (part(), part(), part());
    let tokens: Vec<&str> = tokens.split('\n').collect();
    let merges: Vec<&str> = merges.split('\n').filter(|line| !line.is_empty()).collect();
    let types: Vec<i32> = (0..tokens.len() as i32).map(|i| (i * 7 + i32::from(*seed)) % 9).collect();
    let scores: Vec<f32> = types.iter().map(|&kind| kind as f32 / (f32::from(*seed) - 100.0)).collect();

    let mut writer = Writer::new(3, Endian::Little, 32);
    writer.set("tokenizer.ggml.model", MODEL[usize::from(kind % 4)]);
    writer.set("tokenizer.ggml.pre", PRE[usize::from(kind >> 2) % PRE.len()]);
    writer.set("tokenizer.ggml.tokens", tokens.as_slice());
    writer.set("tokenizer.ggml.merges", merges.as_slice());
    writer.set("tokenizer.ggml.token_type", types.as_slice());
    writer.set("tokenizer.ggml.scores", scores.as_slice());
    writer.set("tokenizer.ggml.bos_token_id", u32::from(*seed));
    // By default, that of a BERT is behind what few tokens there are.
    if kind & 0x80 != 0 {
        writer.set("tokenizer.ggml.unknown_token_id", 0u32);
    }
    let Ok(file) = writer.to_vec() else { return };
    let Ok(gguf) = Gguf::from_bytes(file) else { return };
    let Ok(tokenizer) = Tokenizer::from_gguf(&gguf) else { return };

    for add_special in [false, true] {
        let ids = tokenizer.encode(text, EncodeOptions { add_special, parse_special: add_special });
        assert!(ids.iter().all(|&id| (id as usize) < tokenizer.n_tokens()));
        let mut stream = tokenizer.stream();
        let streamed: String = ids.iter().map(|&id| stream.push(id)).collect();
        assert_eq!(streamed + &stream.flush(), tokenizer.decode(&ids));
    }
});
