//! Tokens equal Hugging Face's: on tiny vocabularies that are always there, on real ones where the cache has them.
//! `tools/tokenizer/parity.py` made the golden files.

mod common;

use llamay_tokenizer::{EncodeOptions, Kind, Tokenizer};
use serde::Deserialize;

const PLAIN: EncodeOptions = EncodeOptions { add_special: false, parse_special: false };
const SPECIAL: EncodeOptions = EncodeOptions { add_special: false, parse_special: true };

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Texts { texts: Vec<String> },
    Bpe { pre: String, ids: Changes },
    Spm { add_space_prefix: bool, ids: Changes },
}

/// Index of a text and its tokens, where they are not those of the line before all others.
type Changes = Vec<(usize, Vec<u32>)>;

fn same(tokenizer: &Tokenizer, texts: &[String], base: &mut Vec<Vec<u32>>, changes: Changes) {
    if base.is_empty() {
        *base = changes.iter().map(|(_, ids)| ids.clone()).collect();
        assert_eq!(texts.len(), base.len());
    }
    let mut want = base.clone();
    for (i, ids) in changes {
        want[i] = ids;
    }
    for (text, want) in texts.iter().zip(want) {
        assert_eq!(tokenizer.encode(text, PLAIN), want, "{tokenizer:?} {text:?}");
    }
}

fn tiny(golden: &str) {
    let (mut texts, mut base) = (Vec::new(), Vec::new());
    for line in common::data(golden).lines() {
        match serde_json::from_str(line).unwrap() {
            Line::Texts { texts: these } => texts = these,
            Line::Bpe { pre, ids } => same(&common::bpe(&pre), &texts, &mut base, ids),
            Line::Spm { add_space_prefix, ids } => {
                same(&common::spm(add_space_prefix), &texts, &mut base, ids)
            }
        }
    }
    assert!(!texts.is_empty());
}

#[test]
fn tiny_bpe_with_every_kind_of_pre_tokenizer() {
    tiny("golden/tiny-bpe.jsonl");
}

#[test]
fn tiny_sentencepiece_with_and_without_space_prefix() {
    tiny("golden/tiny-spm.jsonl");
}

/// The second list of tokens is there where control tokens make a difference.
#[derive(Deserialize)]
struct Real {
    text: String,
    plain: Vec<u32>,
    special: Option<Vec<u32>>,
}

fn model(name: &str) {
    let Some(path) = common::cached(&format!("models/{name}.gguf")) else { return };
    let tokenizer = common::load_file(&path).unwrap();
    for line in common::data(&format!("golden/{name}.jsonl")).lines() {
        let Real { text, plain, special } = serde_json::from_str(line).unwrap();
        let special = special.unwrap_or_else(|| plain.clone());
        assert_eq!(tokenizer.encode(&text, PLAIN), plain, "{text:?}");
        assert_eq!(tokenizer.encode(&text, SPECIAL), special, "{text:?} with control tokens");
        // SentencePiece has one sign for U+2581 and the space.
        let space = if tokenizer.kind() == Kind::Spm { " " } else { "\u{2581}" };
        assert_eq!(tokenizer.decode_with_special(&special), text.replace('\u{2581}', space));
    }
}

#[test]
fn smollm2() {
    model("smollm2-135m-instruct-q4_1");
}

#[test]
fn gemma3() {
    model("gemma-3-270m-q4_k_m");
}

/// The vocabularies that come with texts and their tokens, which other people made with Hugging Face's.
#[test]
fn published_vectors() {
    for name in [
        "bert-bge",
        "command-r",
        "deepseek-coder",
        "deepseek-llm",
        "falcon",
        "gemma-4",
        "gpt-2",
        "llama-bpe",
        "llama-spm",
        "mpt",
        "phi-3",
        "qwen2",
        "qwen35",
        "refact",
        "starcoder",
    ] {
        let file = |end: &str| common::cached(&format!("vocabs/ggml-vocab-{name}.gguf{end}"));
        let (Some(vocab), Some(texts), Some(ids)) = (file(""), file(".inp"), file(".out")) else { return };
        let tokenizer = common::load_file(&vocab).unwrap();
        let texts = std::fs::read_to_string(texts).unwrap();
        let ids = std::fs::read_to_string(ids).unwrap();
        let mut n = 0;
        for (text, line) in texts.split("\n__ggml_vocab_test__\n").zip(ids.lines()) {
            let want: Vec<u32> = line.split_whitespace().map(|id| id.parse().unwrap()).collect();
            assert_eq!(tokenizer.encode(text, PLAIN), want, "{name} {text:?}");
            n += 1;
        }
        assert!(n > 40, "{name} has {n} vectors");
    }
}
