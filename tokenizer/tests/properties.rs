//! What holds for every text and every list of tokens.

mod common;

use std::sync::LazyLock;

use llamay_tokenizer::{EncodeOptions, Kind, TokenType, Tokenizer};
use proptest::prelude::*;

const PLAIN: EncodeOptions = EncodeOptions { add_special: false, parse_special: false };
const SPECIAL: EncodeOptions = EncodeOptions { add_special: true, parse_special: true };

/// No pre-tokenizer here normalises, so text comes back as it was.
static TOKENIZERS: LazyLock<Vec<Tokenizer>> = LazyLock::new(|| {
    let mut all: Vec<Tokenizer> =
        ["default", "smollm", "llama-bpe", "gpt-4o", "deepseek-v3", "deepseek-llm"].map(common::bpe).into();
    all.extend([common::spm(false), common::spm(true)]);
    all
});

fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[ -~\r\n\t]{0,80}",
        "[\u{0}-\u{20}\u{7F}-\u{A0}]{0,40}",
        " {0,200}x?",
        "[\u{300}-\u{36F}\u{1F1E6}-\u{1F1FF}\u{1F466}-\u{1F469}\u{200D}\u{FE0F}🏽a]{0,30}",
        "(<html>|<\\|im_end\\|>|</s>|<|\n|x| ){0,20}",
    ]
}

/// U+2581 stands for a space in SentencePiece's, so it alone comes back as one.
fn unmarked(tokenizer: &Tokenizer, text: &str) -> String {
    if tokenizer.kind() == Kind::Spm { text.replace('\u{2581}', " ") } else { text.to_owned() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn decode_is_the_inverse_of_encode(text in texts()) {
        for tokenizer in TOKENIZERS.iter() {
            let tokens = tokenizer.encode(&text, PLAIN);
            // With a prefix, each part between user-defined tokens gets a space of its own.
            if !(tokenizer.add_space_prefix() && text.contains("<html>")) {
                prop_assert_eq!(tokenizer.decode(&tokens), unmarked(tokenizer, &text), "{:?}", tokenizer);
            }
        }
    }

    #[test]
    fn a_stream_of_tokens_gives_the_decoded_text(
        text in texts(),
        tokens in proptest::collection::vec(0..1300u32, 0..40),
        special in any::<bool>(),
    ) {
        for tokenizer in TOKENIZERS.iter() {
            for tokens in [tokenizer.encode(&text, SPECIAL), tokens.clone()] {
                let mut stream = tokenizer.stream().with_special(special);
                let mut text: String = tokens.iter().map(|&token| stream.push(token)).collect();
                text += &stream.flush();
                let bytes: Vec<u8> =
                    tokens.iter().flat_map(|&token| tokenizer.token_bytes(token, special).into_owned()).collect();
                let bytes = if tokenizer.add_space_prefix() {
                    bytes.strip_prefix(b" ").unwrap_or(&bytes)
                } else {
                    &bytes
                };
                prop_assert_eq!(&text, &String::from_utf8_lossy(bytes));
                let decoded =
                    if special { tokenizer.decode_with_special(&tokens) } else { tokenizer.decode(&tokens) };
                prop_assert_eq!(text, decoded);
            }
        }
    }

    #[test]
    fn any_id_is_answered(id in any::<u32>()) {
        for tokenizer in TOKENIZERS.iter() {
            let known = (id as usize) < tokenizer.n_tokens();
            prop_assert_eq!(tokenizer.token_type(id).is_some(), known);
            prop_assert_eq!(tokenizer.token(id).is_empty(), !known);
            prop_assert!(known || tokenizer.token_bytes(id, true).is_empty());
            prop_assert!(known || !tokenizer.is_eog(id));
        }
    }

    #[test]
    fn text_never_becomes_control_tokens_unasked(text in texts()) {
        for tokenizer in TOKENIZERS.iter() {
            let tokens = tokenizer.encode(&text, PLAIN);
            prop_assert!(tokens.iter().all(|&id| tokenizer.token_type(id) != Some(TokenType::Control)));
        }
    }
}

/// A text without a place to cut it is one word, or one SentencePiece text, and must not take quadratic time: at a
/// megabyte that would be minutes.
#[test]
fn a_megabyte_without_spaces_comes_back() {
    for tokenizer in [&TOKENIZERS[0], &TOKENIZERS[3], &TOKENIZERS[6]] {
        for unit in ["a", "漢=", " ", "\n"] {
            let text = unit.repeat((1 << 20) / unit.len());
            assert_eq!(tokenizer.decode(&tokenizer.encode(&text, PLAIN)), text, "{tokenizer:?} {unit:?}");
        }
    }
}

#[test]
fn half_characters_are_held_back() {
    let tokenizer = common::spm(false);
    let byte = |byte: u8| tokenizer.id(&format!("<0x{byte:02X}>")).unwrap();
    let mut stream = tokenizer.stream();
    let pushed: Vec<String> = "🦙".bytes().map(|b| stream.push(byte(b))).collect();
    assert_eq!(pushed, ["", "", "", "🦙"]);
    // A lead byte that cannot go on is replaced once that is known, not before.
    assert_eq!(
        [0xF0, 0x9F, b'x', 0xFF, 0xE2].map(|b| stream.push(byte(b))),
        ["", "", "\u{FFFD}x", "\u{FFFD}", ""]
    );
    assert_eq!(stream.flush(), "\u{FFFD}");
    assert_eq!(stream.flush(), "");
}
