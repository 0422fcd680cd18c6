//! DeepSeek's three ways to split text, and what others made of the third.

use super::class::{LETTER, MARK, NEWLINE, PUNCT, SPACE, SYMBOL, Set, class, first, not, run, run_of};
use super::llama3::first_of;
use super::parts::{spaced, spaces, spaces_to_newline};
use super::split::Found;
use super::split::Found::{Gap, Match};

fn gap(text: &str) -> Found {
    Gap(text.chars().next().map_or(text.len(), char::len_utf8))
}

/// `[\r\n]`
pub(super) fn line_end(text: &str) -> Found {
    match first(text) {
        (class, len) if class & NEWLINE != 0 => Match(len),
        _ => Gap(run(text, not(NEWLINE))),
    }
}

/// `\s?[wanted]+`
fn after_space(text: &str, wanted: impl Fn(char) -> bool) -> Found {
    let lead = match first(text) {
        (class, len) if class & SPACE != 0 => len,
        _ => 0,
    };
    let run = |from: usize| text[from..].find(|c| !wanted(c)).unwrap_or(text.len() - from);
    match run(lead) {
        // One of the spaces is itself wanted: U+3000 is in the punctuation of DeepSeek LLM.
        0 if lead > 0 && run(0) > 0 => Match(run(0)),
        0 => gap(text),
        len => Match(lead + len),
    }
}

/// `\s?\p{L}+`
pub(super) fn coder_letters(text: &str) -> Found {
    after_space(text, |c| class(c) & LETTER != 0)
}

/// `\s?\p{P}+`
pub(super) fn coder_punctuation(text: &str) -> Found {
    after_space(text, |c| class(c) & PUNCT != 0)
}

/// `\s?[A-Za-zµÀ-Ö…]+`: letters of the scripts that have case.
pub(super) fn llm_letters(text: &str) -> Found {
    after_space(text, is_cased)
}

/// `\s?[!-/:-~！-／：-～‘-‟　-。]+`
pub(super) fn llm_punctuation(text: &str) -> Found {
    after_space(
        text,
        |c| matches!(c, '!'..='/' | ':'..='~' | '！'..='／' | '：'..='～' | '‘'..='‟' | '\u{3000}'..='。'),
    )
}

/// `\s+$`
pub(super) fn trailing_spaces(text: &str) -> Found {
    match text.trim_end().len() {
        0 => Match(text.len()),
        len => Gap(len),
    }
}

/// `[一-龥ࠀ-一가-퟿]+`
pub(super) fn cjk(text: &str) -> Found {
    runs(text, |c| matches!(c, '\u{800}'..='龥' | '가'..='\u{D7FF}'))
}

/// `[一-龥぀-ゟ゠-ヿ]+`
pub(super) fn han_and_kana(text: &str) -> Found {
    runs(text, |c| matches!(c, '一'..='龥' | '\u{3040}'..='ヿ'))
}

fn runs(text: &str, wanted: impl Fn(char) -> bool) -> Found {
    match text.find(|c| !wanted(c)).unwrap_or(text.len()) {
        0 => Gap(text.find(wanted).unwrap_or(text.len())),
        len => Match(len),
    }
}

const WORD: Set = LETTER | MARK;

/// ``[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|``
/// `\s*[\r\n]+|\s+(?!\S)|\s+`
pub(super) fn v3(text: &str) -> Found {
    first_of!(text:
        marked_ascii_word(text),
        v3_word(text),
        v3_punctuation(text),
        spaces_to_newline(text),
        spaces(text),
    )
}

/// As `v3`, but line ends stand alone: `…| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+`
pub(super) fn spark(text: &str) -> Found {
    first_of!(text:
        marked_ascii_word(text),
        v3_word(text),
        spaced(text, PUNCT | SYMBOL),
        run_of(text, NEWLINE, 1),
        spaces(text),
    )
}

/// The scripts that AFMoE sets apart: Han, kana, Thai, Lao, Khmer, Myanmar and Hangul.
pub(super) fn afmoe_scripts(text: &str) -> Found {
    runs(text, |c| {
        matches!(c,
            '一'..='\u{9FFF}'
            | '㐀'..='\u{4DBF}'
            | '\u{F900}'..='\u{FAFF}'
            | '\u{3040}'..='ヿ'
            | '\u{FF65}'..='\u{FF9F}'
            | '\u{2F00}'..='\u{2FDF}'
            | '\u{E40}'..='\u{E7F}'
            | '\u{E80}'..='\u{EFF}'
            | '\u{1780}'..='\u{17FF}'
            | '\u{1000}'..='\u{109F}'
            | '\u{AA60}'..='\u{AA7F}'
            | '\u{A9E0}'..='\u{A9FF}'
            | '가'..='\u{D7AF}'
            | '\u{1100}'..='\u{11FF}')
    })
}

fn marked_ascii_word(text: &str) -> usize {
    if !text.starts_with(|c: char| c.is_ascii_punctuation()) {
        return 0;
    }
    match text[1..].bytes().take_while(u8::is_ascii_alphabetic).count() {
        0 => 0,
        letters => 1 + letters,
    }
}

fn v3_word(text: &str) -> usize {
    let (lead, len) = first(text);
    if lead & WORD != 0 {
        return run(text, WORD);
    }
    if lead & (NEWLINE | PUNCT | SYMBOL) != 0 {
        return 0;
    }
    match run(&text[len..], WORD) {
        0 => 0,
        letters => len + letters,
    }
}

fn v3_punctuation(text: &str) -> usize {
    match spaced(text, PUNCT | SYMBOL) {
        0 => 0,
        len => len + run(&text[len..], NEWLINE),
    }
}

fn is_cased(c: char) -> bool {
    let after = CASED.partition_point(|&(low, _)| low <= c);
    after.checked_sub(1).is_some_and(|i| c <= CASED[i].1)
}

/// The characters that DeepSeek LLM's `tokenizer.json` lists, in order.
#[rustfmt::skip]
const CASED: &[(char, char)] = &[
    ('\u{41}', '\u{5A}'), ('\u{61}', '\u{7A}'), ('\u{B5}', '\u{B5}'), ('\u{C0}', '\u{D6}'),
    ('\u{D8}', '\u{F6}'), ('\u{F8}', '\u{1BA}'), ('\u{1BC}', '\u{1BF}'), ('\u{1C4}', '\u{293}'),
    ('\u{295}', '\u{2AF}'), ('\u{370}', '\u{373}'), ('\u{376}', '\u{376}'), ('\u{377}', '\u{377}'),
    ('\u{37B}', '\u{37D}'), ('\u{37F}', '\u{37F}'), ('\u{386}', '\u{386}'), ('\u{388}', '\u{38A}'),
    ('\u{38C}', '\u{38C}'), ('\u{38E}', '\u{3A1}'), ('\u{3A3}', '\u{3F5}'), ('\u{3F7}', '\u{481}'),
    ('\u{48A}', '\u{52F}'), ('\u{531}', '\u{556}'), ('\u{10A0}', '\u{10C5}'), ('\u{13A0}', '\u{13F5}'),
    ('\u{13F8}', '\u{13FD}'), ('\u{1C90}', '\u{1CBA}'), ('\u{1CBD}', '\u{1CBF}'), ('\u{1D00}', '\u{1D2B}'),
    ('\u{1D6B}', '\u{1D77}'), ('\u{1D79}', '\u{1D9A}'), ('\u{1E00}', '\u{1F15}'), ('\u{1F18}', '\u{1F1D}'),
    ('\u{1F20}', '\u{1F45}'), ('\u{1F48}', '\u{1F4D}'), ('\u{1F50}', '\u{1F57}'), ('\u{1F59}', '\u{1F59}'),
    ('\u{1F5B}', '\u{1F5B}'), ('\u{1F5D}', '\u{1F5D}'), ('\u{1F5F}', '\u{1F7D}'), ('\u{1F80}', '\u{1FB4}'),
    ('\u{1FB6}', '\u{1FBC}'), ('\u{1FBE}', '\u{1FBE}'), ('\u{1FC2}', '\u{1FC4}'), ('\u{1FC6}', '\u{1FCC}'),
    ('\u{1FD0}', '\u{1FD3}'), ('\u{1FD6}', '\u{1FDB}'), ('\u{1FE0}', '\u{1FEC}'), ('\u{1FF2}', '\u{1FF4}'),
    ('\u{1FF6}', '\u{1FFC}'), ('\u{2102}', '\u{2102}'), ('\u{2107}', '\u{2107}'), ('\u{210A}', '\u{2113}'),
    ('\u{2115}', '\u{2115}'), ('\u{2119}', '\u{211D}'), ('\u{2124}', '\u{2124}'), ('\u{2126}', '\u{2126}'),
    ('\u{2128}', '\u{2128}'), ('\u{212A}', '\u{212D}'), ('\u{212F}', '\u{2134}'), ('\u{2139}', '\u{2139}'),
    ('\u{213C}', '\u{213F}'), ('\u{2145}', '\u{2149}'), ('\u{214E}', '\u{214E}'), ('\u{2183}', '\u{2183}'),
    ('\u{2184}', '\u{2184}'), ('\u{2C00}', '\u{2C7B}'), ('\u{2C7E}', '\u{2CE4}'), ('\u{2CEB}', '\u{2CEE}'),
    ('\u{2CF2}', '\u{2CF2}'), ('\u{2CF3}', '\u{2CF3}'), ('\u{A640}', '\u{A66D}'), ('\u{A680}', '\u{A69B}'),
    ('\u{A722}', '\u{A76F}'), ('\u{A771}', '\u{A787}'), ('\u{A78B}', '\u{A78E}'), ('\u{AB70}', '\u{ABBF}'),
    ('\u{FB00}', '\u{FB06}'), ('\u{FB13}', '\u{FB17}'), ('\u{FF21}', '\u{FF3A}'), ('\u{FF41}', '\u{FF5A}'),
    ('\u{10400}', '\u{1044F}'), ('\u{104B0}', '\u{104D3}'), ('\u{104D8}', '\u{104FB}'),
    ('\u{10C80}', '\u{10CB2}'), ('\u{10CC0}', '\u{10CF2}'), ('\u{118A0}', '\u{118DF}'),
    ('\u{1E900}', '\u{1E943}'),
];
