//! The pattern of cl100k that Llama 3 and Qwen took over, and its variants.

use super::class::{LETTER, MARK, NEWLINE, NUMBER, SPACE, Set, first, not, run, run_of};
use super::parts::{contraction_any_case, punctuation, spaced, spaces, spaces_to_newline, word};
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

/// As Qwen 2 without contractions, so that Turkish suffixes stay with their apostrophe.
pub(super) fn ufakzeka(text: &str) -> Found {
    first_of!(text:
        word(text, LETTER),
        run_of(text, NUMBER, 1),
        punctuation(text, LETTER, LINE_ENDS),
        spaces_to_newline(text),
        spaces(text),
    )
}

/// As Llama 3, but spaces are taken in powers of two: `…|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|…|\s{4}(?!\S)|`
/// `\s{1,2}(?!\S)|\s{1}`.
pub(super) fn jais2(text: &str) -> Found {
    first_of!(text:
        contraction_any_case(text),
        word(text, LETTER),
        run_of(text, NUMBER, 3),
        punctuation(text, LETTER, LINE_ENDS),
        spaces_to_newline(text),
        spaces_in_powers(text),
    )
}

fn spaces_in_powers(text: &str) -> usize {
    // One more than the longest piece says all there is to know of what follows a piece.
    let most = run_of(text, SPACE, 513);
    let count = text[..most].chars().count();
    // Before a word one space is left over, which is that word's or its own.
    let free = if most == text.len() || count == 513 { count } else { count.saturating_sub(1) };
    let piece = [512, 256, 128, 64, 32, 16, 8, 4, 2].into_iter().find(|&piece| piece <= free).unwrap_or(1);
    run_of(text, SPACE, piece)
}

/// `(?i:'s|…)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|`
/// `\s+(?!\S)|\s+`: words with single spaces between them are one.
pub(super) fn exaone_moe(text: &str) -> Found {
    first_of!(text:
        contraction_any_case(text),
        words(text),
        run_of(text, NUMBER, 1),
        marked(text),
        spaces_to_newline(text),
        spaces(text),
    )
}

fn words(text: &str) -> usize {
    let (lead, len) = first(text);
    let mut at = if lead & (LETTER | NEWLINE | NUMBER) == 0 { len } else { 0 };
    if first(&text[at..]).0 & LETTER == 0 {
        return 0;
    }
    loop {
        at += run(&text[at..], LETTER | MARK);
        let next = text[at..].strip_prefix(' ').map_or(0, |next| first(next).0);
        if next & LETTER == 0 {
            return at;
        }
        at += 1;
    }
}

fn marked(text: &str) -> usize {
    match spaced(text, not(SPACE | LETTER | NUMBER)) {
        0 => 0,
        len => len + usize::from(text[len..].starts_with(['\r', '\n', '/'])),
    }
}

/// `[\n]+|[^\n]+`
pub(super) fn lines(text: &str) -> Found {
    let newline = text.starts_with('\n');
    Match(text.find(|c| (c == '\n') != newline).unwrap_or(text.len()))
}
