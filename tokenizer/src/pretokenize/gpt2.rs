//! GPT-2's pattern, and the models that split something off before it.

use super::class::{LETTER, NUMBER, PUNCT, SPACE, first, not};
use super::parts::{contraction, spaced, spaces};
use super::split::Found;
use super::split::Found::{Gap, Match};

/// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
pub(super) fn gpt2(text: &str) -> Found {
    let short = contraction(text);
    if short > 0 {
        return Match(short);
    }
    let (class, _) = first(text.strip_prefix(' ').unwrap_or(text));
    Match(match class {
        0 => spaces(text),
        c if c & LETTER != 0 => spaced(text, LETTER),
        c if c & NUMBER != 0 => spaced(text, NUMBER),
        c if c & SPACE != 0 => spaces(text),
        _ => spaced(text, not(SPACE | LETTER | NUMBER)),
    })
}

fn runs(text: &str, wanted: impl Fn(char) -> bool) -> Found {
    match text.find(|c| !wanted(c)).unwrap_or(text.len()) {
        0 => Gap(text.find(wanted).unwrap_or(text.len())),
        len => Match(len),
    }
}

/// `[\p{P}$+<=>^~|`]+`: Falcon's punctuation, with every ASCII symbol in it.
pub(super) fn falcon_punctuation(text: &str) -> Found {
    runs(text, |c| c.is_ascii_punctuation() || super::class::class(c) & PUNCT != 0)
}

/// `[\p{P}$+<=>^~|]+`: the same without the backtick.
pub(super) fn default_punctuation(text: &str) -> Found {
    runs(text, |c| c != '`' && (c.is_ascii_punctuation() || super::class::class(c) & PUNCT != 0))
}

/// ` ?[^(\s|.,!?…。，、।۔،)]+`: Bloom's words.
pub(super) fn bloom(text: &str) -> Found {
    let ends = |c: char| c.is_whitespace() || "(|.,!?…。，、।۔،)".contains(c);
    let lead = usize::from(text.starts_with(' '));
    match text[lead..].find(ends).unwrap_or(text.len() - lead) {
        0 => Gap(text.chars().next().map_or(text.len(), char::len_utf8)),
        len => Match(lead + len),
    }
}
