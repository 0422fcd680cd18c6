//! The pattern of cl100k that Llama 3 and Qwen took over, its CamelCase successor (o200k), and their variants.

use super::class::{LETTER, MARK, NUMBER, SPACE, Set, not, run_of};
use super::parts::{cased_word, contraction_any_case, punctuation, spaced, spaces, spaces_to_newline, word};
use super::split::Found;
use super::split::Found::{Gap, Match};

/// The first part that matches; where none does, the next character is no word's.
macro_rules! first_of {
    ($text:ident: $($part:expr),+ $(,)?) => {{
        $(
            let len = $part;
            if len > 0 {
                return Match(len);
            }
        )+
        Gap($text.chars().next().map_or($text.len(), char::len_utf8))
    }};
}
pub(super) use first_of;

const LINE_ENDS: &[char] = &['\r', '\n'];
const LINE_ENDS_AND_SLASH: &[char] = &['\r', '\n', '/'];

/// `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[letters]+|\p{N}{1,digits}| ?[^\s\p{N}letters]+[\r\n]*|\s*[\r\n]+|`
/// `\s+(?!\S)|\s+`
fn cl100k(text: &str, letters: Set, digits: usize) -> Found {
    first_of!(text:
        contraction_any_case(text),
        word(text, letters),
        run_of(text, NUMBER, digits),
        punctuation(text, letters, LINE_ENDS),
        spaces_to_newline(text),
        spaces(text),
    )
}

/// Numbers in groups of three.
pub(super) fn llama3(text: &str) -> Found {
    cl100k(text, LETTER, 3)
}

/// Each digit for itself.
pub(super) fn qwen2(text: &str) -> Found {
    cl100k(text, LETTER, 1)
}

/// As Qwen 2, but marks are letters.
pub(super) fn qwen35(text: &str) -> Found {
    cl100k(text, LETTER | MARK, 1)
}

/// Whole numbers.
pub(super) fn minicpm5(text: &str) -> Found {
    cl100k(text, LETTER, usize::MAX)
}

/// `\p{N}{1,3}`
pub(super) fn up_to_three_digits(text: &str) -> Found {
    match run_of(text, NUMBER, 3) {
        0 => Gap(super::class::run(text, not(NUMBER))),
        len => Match(len),
    }
}

/// As Qwen 2 without line ends in or after punctuation: ` ?[^\s\p{L}\p{N}\r\n]+`.
pub(super) fn seed_coder(text: &str) -> Found {
    first_of!(text:
        contraction_any_case(text),
        word(text, LETTER),
        run_of(text, NUMBER, 1),
        spaced(text, not(SPACE | LETTER | NUMBER)),
        spaces_to_newline(text),
        spaces(text),
    )
}

/// `…[UPPER]*[LOWER]+(?i:'s|…)?|…[UPPER]+[LOWER]*(?i:'s|…)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|`
/// `\s+(?!\S)|\s+`, the words as in [`cased_word`].
pub(super) fn gpt4o(text: &str) -> Found {
    let word = cased_word(text);
    if word > 0 {
        return Match(word + contraction_any_case(&text[word..]));
    }
    first_of!(text:
        run_of(text, NUMBER, 3),
        punctuation(text, LETTER, LINE_ENDS_AND_SLASH),
        spaces_to_newline(text),
        spaces(text),
    )
}

/// As GPT-4o with single digits and without contractions.
pub(super) fn tekken(text: &str) -> Found {
    first_of!(text:
        cased_word(text),
        run_of(text, NUMBER, 1),
        punctuation(text, LETTER, LINE_ENDS_AND_SLASH),
        spaces_to_newline(text),
        spaces(text),
    )
}

/// `[\n]+|[^\n]+`
pub(super) fn lines(text: &str) -> Found {
    let newline = text.starts_with('\n');
    Match(text.find(|c| (c == '\n') != newline).unwrap_or(text.len()))
}
