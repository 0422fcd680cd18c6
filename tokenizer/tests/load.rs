//! What a file says, and what is wrong with one.

mod common;

use common::{Vocabulary, load};
use llamay_gguf::Writer;
use llamay_tokenizer::{EncodeOptions, Kind, TokenType};

const WITH_SPECIAL: EncodeOptions = EncodeOptions { add_special: true, parse_special: true };

fn refused(writer: &Writer) -> String {
    load(writer).unwrap_err().to_string()
}

fn small_bpe() -> Vocabulary {
    let tokens = ["a", "b", "c", "ab", "abc", "<|im_end|>", "<|eom_id|>", "</s>", "<|endoftext|>"];
    Vocabulary {
        model: "gpt2".into(),
        tokens: tokens.map(String::from).into(),
        types: vec![1, 1, 1, 1, 1, 3, 3, 4, 1],
        merges: vec!["a b".into()],
        scores: Vec::new(),
    }
}

#[test]
fn other_algorithms_are_refused_by_name() {
    let vocabulary = Vocabulary { model: "t5".into(), ..Vocabulary::tiny_spm() };
    let message = refused(&vocabulary.writer());
    assert!(message.contains("\"t5\"") && message.contains("Unigram"), "{message}");
}

#[test]
fn an_unknown_pre_tokenizer_is_refused_with_the_known_ones() {
    let message = refused(Vocabulary::tiny_bpe().writer().set("tokenizer.ggml.pre", "klingon"));
    assert!(message.contains("\"klingon\"") && message.contains("smollm, starcoder"), "{message}");
}

#[test]
fn a_pre_tokenizer_that_is_known_but_not_built_is_refused_with_the_reason() {
    let message = refused(Vocabulary::tiny_bpe().writer().set("tokenizer.ggml.pre", "roberta-bpe"));
    assert!(message.contains("\"roberta-bpe\"") && message.contains("embeddings"), "{message}");
}

#[test]
fn missing_keys_are_named() {
    let mut writer = Writer::new(3, llamay_gguf::Endian::Little, 32);
    assert!(refused(&writer).contains("tokenizer.ggml.model"));
    writer.set("tokenizer.ggml.model", "gpt2");
    assert!(refused(&writer).contains("tokenizer.ggml.tokens"));
    writer.set("tokenizer.ggml.tokens", ["a"].as_slice());
    assert!(refused(&writer).contains("tokenizer.ggml.merges"));
}

#[test]
fn arrays_shorter_than_the_vocabulary_are_refused() {
    let mut vocabulary = Vocabulary::tiny_spm();
    vocabulary.scores.pop();
    assert!(refused(&vocabulary.writer()).contains("tokenizer.ggml.scores has"));
    vocabulary.types.pop();
    assert!(refused(&vocabulary.writer()).contains("tokenizer.ggml.token_type has"));
}

#[test]
fn bad_merges_are_named() {
    for bad in ["ab", "", "a", "a z", "b c", "a b c", " "] {
        let vocabulary = Vocabulary { merges: vec!["a b".into(), bad.into()], ..small_bpe() };
        let message = refused(&vocabulary.writer());
        assert!(message.contains("merges[1]"), "{bad:?}: {message}");
    }
}

#[test]
fn whole_words_go_first_where_merges_are_ignored() {
    for (pre, want) in [("llama-bpe", vec![4]), ("gpt-2", vec![3, 2])] {
        let tokenizer = load(small_bpe().writer().set("tokenizer.ggml.pre", pre)).unwrap();
        assert_eq!(tokenizer.encode("abc", EncodeOptions::default()), want, "{pre}");
    }
}

#[test]
fn gemma4_spells_text_as_it_is() {
    let tokens = ["<unk>", "a", "\u{2581}", "\u{2581}a", "\n", "\n\n", "<0xC3>", "<0xA9>"];
    let vocabulary = Vocabulary {
        model: "gemma4".into(),
        tokens: tokens.map(String::from).into(),
        types: vec![2, 1, 1, 1, 1, 1, 6, 6],
        merges: vec!["\u{2581} a".into(), "\n \n".into()],
        scores: Vec::new(),
    };
    let tokenizer = load(vocabulary.writer().set("tokenizer.ggml.unknown_token_id", 0u32)).unwrap();
    let tokens = tokenizer.encode("a a\n\n\né漢", EncodeOptions::default());
    assert_eq!((tokens.as_slice(), tokenizer.kind()), ([1, 3, 5, 4, 6, 7, 0].as_slice(), Kind::Bpe));
    assert_eq!(tokenizer.decode(&tokens), "a a\n\n\né");
}

#[test]
fn roles_come_from_keys_and_from_well_known_names() {
    let tokenizer = load(small_bpe().writer().set("tokenizer.ggml.eos_token_id", 4u32)).unwrap();
    assert_eq!((tokenizer.eos(), tokenizer.eot(), tokenizer.bos()), (Some(4), Some(5), None));
    // </s> is user-defined here, an HTML tag perhaps; <|endoftext|> was not marked as the control token it is.
    assert_eq!(tokenizer.eog(), [4, 5, 6, 8]);
    assert_eq!(tokenizer.token_type(8), Some(TokenType::Control));
    assert_eq!(tokenizer.encode("a<|endoftext|>", EncodeOptions::default()), [0]);
    assert_eq!(tokenizer.decode(&[0, 8, 1]), "ab");
    assert_eq!(tokenizer.decode_with_special(&[0, 8, 1]), "a<|endoftext|>b");
}

#[test]
fn an_id_past_the_vocabulary_is_no_token() {
    let mut writer = small_bpe().writer();
    writer.set("tokenizer.ggml.padding_token_id", -1i32).set("tokenizer.ggml.eos_token_id", u32::MAX);
    let tokenizer = load(&writer).unwrap();
    assert_eq!((tokenizer.pad(), tokenizer.eos()), (None, None));
}

#[test]
fn bos_and_eos_are_added_as_the_file_says() {
    let tokenizer = common::spm(true);
    assert!(tokenizer.add_bos() && !tokenizer.add_eos() && tokenizer.kind() == Kind::Spm);
    assert_eq!(tokenizer.encode("", WITH_SPECIAL), [1]);
    let mut writer = Vocabulary::tiny_spm().writer();
    writer.set("tokenizer.ggml.add_bos_token", false).set("tokenizer.ggml.add_eos_token", true);
    assert_eq!(load(&writer).unwrap().encode("", WITH_SPECIAL), [2]);
}

#[test]
fn a_space_prefix_can_be_kept() {
    let tokenizer = common::spm(true);
    let tokens = tokenizer.encode("the", EncodeOptions::default());
    let continued: String = {
        let mut stream = tokenizer.stream().continuing();
        tokens.iter().map(|&token| stream.push(token)).collect()
    };
    assert_eq!((tokenizer.decode(&tokens).as_str(), continued.as_str()), ("the", " the"));
}

#[test]
fn a_user_defined_token_with_a_space_is_found_however_written() {
    let mut vocabulary = Vocabulary::tiny_spm();
    vocabulary.tokens.push("~ ~".into());
    vocabulary.types.push(4);
    vocabulary.scores.push(-1000.0);
    let tokenizer = load(vocabulary.writer().set("tokenizer.ggml.add_space_prefix", false)).unwrap();
    let id = vocabulary.tokens.len() as u32 - 1;
    assert_eq!(tokenizer.encode("~ ~", EncodeOptions::default()), [id]);
    assert_eq!(tokenizer.encode("~▁~", EncodeOptions::default()), [id]);
}
