//! The pattern of o200k, which splits CamelCase, and its variants.

use super::class::{LETTER, NUMBER, first, run_of};
use super::llama3::first_of;
use super::parts::{
    CASELESS, CASELESS_BUT_HAN, cased_word, contraction_any_case, punctuation, spaces, spaces_to_newline,
};
use super::split::Found;
use super::split::Found::{Gap, Match};

const LINE_ENDS: &[char] = &['\r', '\n'];
const LINE_ENDS_AND_SLASH: &[char] = &['\r', '\n', '/'];

/// `…[UPPER]*[LOWER]+(?i:'s|…)?|…[UPPER]+[LOWER]*(?i:'s|…)?|\p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|`
/// `\s+(?!\S)|\s+`, the words as in [`cased_word`].
fn o200k(text: &str, digits: usize) -> Found {
    first_of!(text:
        with_contraction(text, cased_word(text, CASELESS)),
        run_of(text, NUMBER, digits),
        punctuation(text, LETTER, LINE_ENDS_AND_SLASH),
        spaces_to_newline(text),
        spaces(text),
    )
}

fn with_contraction(text: &str, word: usize) -> usize {
    if word > 0 { word + contraction_any_case(&text[word..]) } else { 0 }
}

/// Numbers in groups of three.
pub(super) fn gpt4o(text: &str) -> Found {
    o200k(text, 3)
}

/// Each digit for itself.
pub(super) fn youtu(text: &str) -> Found {
    o200k(text, 1)
}

/// Single digits and no contractions.
pub(super) fn tekken(text: &str) -> Found {
    first_of!(text:
        cased_word(text, CASELESS),
        run_of(text, NUMBER, 1),
        punctuation(text, LETTER, LINE_ENDS_AND_SLASH),
        spaces_to_newline(text),
        spaces(text),
    )
}

/// `[\p{Han}]+|…`, then as GPT-4o with words that contain no Han and no slash after punctuation.
pub(super) fn kimi_k2(text: &str) -> Found {
    let han = text.find(|c| !super::class::is_han(c)).unwrap_or(text.len());
    first_of!(text:
        han,
        with_contraction(text, cased_word(text, CASELESS_BUT_HAN)),
        run_of(text, NUMBER, 3),
        punctuation(text, LETTER, LINE_ENDS),
        spaces_to_newline(text),
        spaces(text),
    )
}

/// `[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+`: runs of one of the scripts of East Asia, or of
/// their punctuation.
pub(super) fn east_asian(text: &str) -> Found {
    const KINDS: [fn(char) -> bool; 4] = [
        |c| matches!(c, '가'..='힣' | 'ㄱ'..='ㆎ'),
        |c| "！…“”‘’—：；，".contains(c) || matches!(c, '、'..='〿' | '︰'..='﹏'),
        |c| matches!(c, 'ㄅ'..='ㄯ'),
        |c| matches!(c, '一'..='龥' | '\u{3040}'..='ヿ'),
    ];
    for kind in KINDS {
        let len = text.find(|c| !kind(c)).unwrap_or(text.len());
        if len > 0 {
            return Match(len);
        }
    }
    Gap(first(text).1)
}
