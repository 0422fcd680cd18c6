//! Splitting text into words before byte-pair encoding, by the names that `tokenizer.ggml.pre` uses.
//!
//! Each name stands for the regular expressions of one model's `tokenizer.json`. They are written out here as
//! functions that look at each character a bounded number of times, so no text makes them slow.

mod class;
mod deepseek;
mod gpt2;
mod llama3;
mod numbers;
mod o200k;
mod parts;
mod split;

use split::Pattern;

use crate::Error;
use deepseek as ds;

/// How a named model's text is prepared for merging.
#[derive(Debug, PartialEq)]
pub(crate) struct PreTokenizer {
    /// The names that mean this one; the first is the best known.
    names: &'static [&'static str],
    patterns: &'static [Pattern],
    /// A word that is a token is taken whole, without merging.
    pub ignore_merges: bool,
    /// Whether a text starts with BOS unless the file says otherwise.
    pub add_bos: bool,
    /// Text is brought into Unicode normalization form C first.
    pub nfc: bool,
    /// How the vocabulary writes text.
    pub spelling: Spelling,
}

/// How a BPE vocabulary writes text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// A printable character for each byte, as in GPT-2.
    Bytes,
    /// As it is with `▁` for spaces, and `<0xHH>` for the bytes of characters that are no tokens: SentencePiece's
    /// way.
    Text,
}

const fn plain(names: &'static [&'static str], patterns: &'static [Pattern]) -> PreTokenizer {
    let spelling = Spelling::Bytes;
    PreTokenizer { names, patterns, ignore_merges: false, add_bos: false, nfc: false, spelling }
}

const fn nfc(names: &'static [&'static str], patterns: &'static [Pattern]) -> PreTokenizer {
    PreTokenizer { nfc: true, ..plain(names, patterns) }
}

const fn whole_words(names: &'static [&'static str], patterns: &'static [Pattern]) -> PreTokenizer {
    PreTokenizer { ignore_merges: true, ..plain(names, patterns) }
}

const KNOWN: &[PreTokenizer] = &[
    plain(
        &["default"],
        &[gpt2::default_punctuation, gpt2::gpt2, numbers::digits, numbers::three_ascii_digits],
    ),
    plain(
        &[
            "gpt-2",
            "phi-2",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
            "exaone4",
            "gigachat",
            "a.x-4.0",
            "mellum",
        ],
        &[gpt2::gpt2],
    ),
    plain(
        &["smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"],
        &[numbers::digit, gpt2::gpt2],
    ),
    nfc(&["command-r"], &[numbers::digit, gpt2::gpt2]),
    plain(&["falcon"], &[gpt2::falcon_punctuation, gpt2::gpt2, numbers::three_ascii_digits]),
    plain(&["bloom", "poro-chat", "gpt3-finnish"], &[gpt2::bloom]),
    plain(&["viking"], &[gpt2::bloom, numbers::digit]),
    PreTokenizer {
        add_bos: true,
        ..whole_words(
            &["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"],
            &[llama3::llama3],
        )
    },
    plain(&["dbrx", "smaug-bpe", "chatglm-bpe"], &[llama3::llama3]),
    whole_words(&["glm4", "glm5"], &[llama3::llama3]),
    plain(&["jais-2"], &[llama3::jais2]),
    nfc(&["qwen2", "stablelm2"], &[llama3::qwen2]),
    plain(
        &[
            "deepseek-r1-qwen",
            "kormo",
            "megrez",
            "hunyuan",
            "solar-open",
            "grok-2",
            "bailingmoe",
            "bailingmoe2",
            "llada-moe",
        ],
        &[llama3::qwen2],
    ),
    plain(&["qwen35"], &[llama3::qwen35]),
    plain(&["ufakzeka"], &[llama3::ufakzeka]),
    plain(&["exaone-moe"], &[llama3::exaone_moe]),
    whole_words(&["minicpm5"], &[numbers::up_to_three_digits, llama3::minicpm5]),
    plain(&["seed-coder"], &[llama3::seed_coder]),
    plain(&["laguna"], &[llama3::lines, llama3::qwen2]),
    whole_words(&["gpt-4o", "llama4"], &[o200k::gpt4o]),
    plain(&["minimax-m2", "kanana2", "talkie"], &[o200k::gpt4o]),
    plain(&["tiny_aya", "cohere2moe"], &[numbers::threes_before_boundary, o200k::gpt4o]),
    whole_words(&["youtu"], &[o200k::east_asian, o200k::youtu]),
    plain(&["kimi-k2"], &[o200k::kimi_k2]),
    PreTokenizer { add_bos: true, ..whole_words(&["tekken"], &[o200k::tekken]) },
    plain(
        &["deepseek-llm"],
        &[ds::line_end, ds::llm_letters, ds::llm_punctuation, ds::trailing_spaces, ds::cjk, numbers::digits],
    ),
    plain(
        &["deepseek-coder"],
        &[ds::line_end, ds::coder_letters, ds::coder_punctuation, ds::cjk, numbers::digit],
    ),
    plain(
        &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
        &[numbers::up_to_three_digits, ds::han_and_kana, ds::v3],
    ),
    plain(&["spark2_5"], &[numbers::up_to_three_digits, ds::han_and_kana, ds::spark, numbers::digit]),
    plain(&["afmoe"], &[numbers::threes, ds::afmoe_scripts, ds::v3]),
    plain(&["superbpe"], &[numbers::digits, numbers::cut_before_threes]),
    PreTokenizer { spelling: Spelling::Text, ..plain(&["gemma4", "sarvam-moe"], &[]) },
];

const OF_AN_ENCODER: &str = "it belongs to models that only make embeddings, of which none is supported";

/// Names that are known, but not built.
const REFUSED: &[(&[&str], &str)] = &[
    (
        &[
            "jina-v1-en",
            "jina-v2-code",
            "jina-v2-de",
            "jina-v2-es",
            "jina-v2-zh",
            "jina-de",
            "jina-es",
            "jina-v5-nano",
            "whitespace",
            "roberta-bpe",
            "modern-bert",
            "f2llmv2",
            "granite-embed-multi-97m",
            "granite-embed-multi-311m",
        ],
        OF_AN_ENCODER,
    ),
    (&["chameleon"], "it belongs to Chameleon alone, whose tokens are in part pictures"),
];

impl PreTokenizer {
    /// The pre-tokenizer of this name.
    ///
    /// # Errors
    /// [`Error::UnknownPre`] and, for names that are known but not built, [`Error::RefusedPre`].
    pub(crate) fn named(name: &str) -> Result<&'static PreTokenizer, Error> {
        if let Some(known) = KNOWN.iter().find(|known| known.names.contains(&name)) {
            return Ok(known);
        }
        Err(match REFUSED.iter().find(|(names, _)| names.contains(&name)) {
            Some((_, reason)) => Error::RefusedPre { pre: name.to_owned(), reason },
            None => Error::UnknownPre { pre: name.to_owned(), known: PreTokenizer::names() },
        })
    }

    /// The best known of its names.
    pub(crate) fn name(&self) -> &'static str {
        self.names.first().copied().unwrap_or_default()
    }

    /// All names.
    pub(crate) fn names() -> Vec<&'static str> {
        KNOWN.iter().flat_map(|known| known.names.iter().copied()).collect()
    }

    /// Gives the words of `text` to `word`, in order; together they are the text.
    pub(crate) fn split(&self, text: &str, word: &mut impl FnMut(&str)) {
        split::split(text, self.patterns, word);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(name: &str, text: &str) -> Vec<String> {
        let mut words = Vec::new();
        PreTokenizer::named(name).unwrap().split(text, &mut |word| words.push(word.to_owned()));
        words
    }

    #[test]
    fn names_are_distinct() {
        let mut names = PreTokenizer::names();
        names.extend(REFUSED.iter().flat_map(|(names, _)| names.iter().copied()));
        let n = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), n);
    }

    #[test]
    fn well_known_splits() {
        assert_eq!(words("gpt-2", "I'll  go 12 km!\n"), ["I", "'ll", " ", " go", " 12", " km", "!", "\n"]);
        assert_eq!(words("smollm", " 12"), [" ", "1", "2"]);
        assert_eq!(words("llama-bpe", "x1234 =\n\n y"), ["x", "123", "4", " =\n\n", " y"]);
        assert_eq!(words("qwen2", "(Ab)\r\n  c"), ["(Ab", ")\r\n", " ", " c"]);
        assert_eq!(words("gpt-4o", "CamelCase's"), ["Camel", "Case's"]);
        assert_eq!(words("deepseek-v3", "日本12345.x"), ["日本", "123", "45", ".x"]);
        assert_eq!(words("afmoe", "x12345½ 123"), ["x", "123", "45½", " ", "123"]);
        assert_eq!(words("tiny_aya", "12345 12345x"), ["12", "345", " ", "123", "45", "x"]);
        assert_eq!(words("kimi-k2", "a漢B 漢字"), ["a", "漢", "B", " ", "漢字"]);
        assert_eq!(words("exaone-moe", " two words  here"), [" two words", " ", " here"]);
        assert_eq!(words("jais-2", "       x"), ["    ", "  ", " x"]);
    }

    proptest! {
        #[test]
        fn words_are_the_text_again(text in any::<String>(), more in "[ \t\r\n'a-dA-D0-9.漢\u{301}\u{3000}ſ]{0,60}") {
            for text in [text, more] {
                for name in PreTokenizer::names() {
                    let words = words(name, &text);
                    prop_assert!(words.iter().all(|word| !word.is_empty()));
                    prop_assert_eq!(&words.concat(), &text);
                }
            }
        }
    }
}
