//! Splitting text into words before byte-pair encoding, by the names that `tokenizer.ggml.pre` uses.
//!
//! Each name stands for the regular expressions of one model's `tokenizer.json`. They are written out here as
//! functions that look at each character a bounded number of times, so no text makes them slow.

mod class;
mod deepseek;
mod gpt2;
mod llama3;
mod parts;
mod split;

use split::Pattern;

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
}

const fn plain(names: &'static [&'static str], patterns: &'static [Pattern]) -> PreTokenizer {
    PreTokenizer { names, patterns, ignore_merges: false, add_bos: false, nfc: false }
}

const fn nfc(names: &'static [&'static str], patterns: &'static [Pattern]) -> PreTokenizer {
    PreTokenizer { nfc: true, ..plain(names, patterns) }
}

const KNOWN: &[PreTokenizer] = &[
    plain(&["default"], &[gpt2::default_punctuation, gpt2::gpt2, gpt2::digits, gpt2::three_ascii_digits]),
    plain(&["gpt-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "exaone4"], &[gpt2::gpt2]),
    plain(
        &["smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"],
        &[gpt2::digit, gpt2::gpt2],
    ),
    nfc(&["command-r"], &[gpt2::digit, gpt2::gpt2]),
    plain(&["falcon"], &[gpt2::falcon_punctuation, gpt2::gpt2, gpt2::three_ascii_digits]),
    plain(&["bloom", "poro-chat", "gpt3-finnish"], &[gpt2::bloom]),
    plain(&["viking"], &[gpt2::bloom, gpt2::digit]),
    PreTokenizer {
        ignore_merges: true,
        add_bos: true,
        ..plain(
            &["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"],
            &[llama3::llama3],
        )
    },
    plain(&["dbrx", "smaug-bpe", "chatglm-bpe"], &[llama3::llama3]),
    PreTokenizer { ignore_merges: true, ..plain(&["glm4", "glm5"], &[llama3::llama3]) },
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
        ],
        &[llama3::qwen2],
    ),
    plain(&["qwen35"], &[llama3::qwen35]),
    PreTokenizer {
        ignore_merges: true,
        ..plain(&["minicpm5"], &[llama3::up_to_three_digits, llama3::minicpm5])
    },
    plain(&["seed-coder"], &[llama3::seed_coder]),
    plain(&["laguna"], &[llama3::lines, llama3::qwen2]),
    plain(&["gpt-4o", "llama4", "kanana2", "minimax-m2"], &[llama3::gpt4o]),
    PreTokenizer { ignore_merges: true, add_bos: true, ..plain(&["tekken"], &[llama3::tekken]) },
    plain(
        &["deepseek-llm"],
        &[ds::line_end, ds::llm_letters, ds::llm_punctuation, ds::trailing_spaces, ds::cjk, gpt2::digits],
    ),
    plain(
        &["deepseek-coder"],
        &[ds::line_end, ds::coder_letters, ds::coder_punctuation, ds::cjk, gpt2::digit],
    ),
    plain(
        &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
        &[llama3::up_to_three_digits, ds::han_and_kana, ds::v3],
    ),
];

impl PreTokenizer {
    /// The pre-tokenizer of this name.
    pub(crate) fn named(name: &str) -> Option<&'static PreTokenizer> {
        KNOWN.iter().find(|known| known.names.contains(&name))
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
