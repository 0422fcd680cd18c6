//! The parts that the patterns are put together from. Each gives the length in bytes of what it matches at the start
//! of a text, 0 for no match.

use super::class::{
    HAN, LETTER, LL, LM, LO, LT, LU, MARK, NEWLINE, NUMBER, SPACE, Set, class, first, not, run,
};

/// `'s|'t|'re|'ve|'m|'ll|'d`
pub(super) fn contraction(text: &str) -> usize {
    match text.as_bytes() {
        [b'\'', b's' | b't' | b'm' | b'd', ..] => 2,
        [b'\'', b'r' | b'v', b'e', ..] | [b'\'', b'l', b'l', ..] => 3,
        _ => 0,
    }
}

/// `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
pub(super) fn contraction_any_case(text: &str) -> usize {
    let Some(letters) = text.strip_prefix('\'') else { return 0 };
    let mut chars = letters.chars();
    let Some(one) = chars.next() else { return 0 };
    match (fold(one), chars.next().map(fold)) {
        ('s' | 't' | 'm' | 'd', _) => 1 + one.len_utf8(),
        ('r' | 'v', Some('e')) | ('l', Some('l')) => 3,
        _ => 0,
    }
}

/// Case folding as far as contractions need it: the long s is the one letter past ASCII that folds to one of theirs.
fn fold(c: char) -> char {
    if c == 'ſ' { 's' } else { c.to_ascii_lowercase() }
}

/// `\s+(?!\S)|\s+`: spaces up to the end of the text, else all but the last, which goes with the word that follows,
/// else the one there is.
pub(super) fn spaces(text: &str) -> usize {
    let len = run(text, SPACE);
    if len == text.len() {
        return len;
    }
    let last = text[..len].chars().next_back().map_or(0, char::len_utf8);
    if len > last { len - last } else { len }
}

/// `\s*[\r\n]+`: spaces through the last line end among them.
pub(super) fn spaces_to_newline(text: &str) -> usize {
    let spaces = &text[..run(text, SPACE)];
    spaces.rfind(['\r', '\n']).map_or(0, |last| last + 1)
}

/// `[^\r\n\p{L}\p{N}]?[letters]+`, where `letters` has all of `\p{L}` and none of `[\r\n\p{N}]`.
pub(super) fn word(text: &str, letters: Set) -> usize {
    let (lead, len) = first(text);
    if lead & letters != 0 {
        return run(text, letters);
    }
    if lead & (NEWLINE | NUMBER) != 0 {
        return 0;
    }
    match run(&text[len..], letters) {
        0 => 0,
        letters => len + letters,
    }
}

/// ` ?[set]+`
pub(super) fn spaced(text: &str, set: Set) -> usize {
    let lead = usize::from(text.starts_with(' '));
    match run(&text[lead..], set) {
        0 => 0,
        len => lead + len,
    }
}

/// ` ?[^\s\p{L}\p{N}]+[tail]*`, the marks taken out too where they count as letters.
pub(super) fn punctuation(text: &str, letters: Set, tail: &[char]) -> usize {
    match spaced(text, not(SPACE | LETTER | NUMBER | letters)) {
        0 => 0,
        len => len + tail_len(&text[len..], tail),
    }
}

fn tail_len(text: &str, tail: &[char]) -> usize {
    text.len() - text.trim_start_matches(tail).len()
}

/// The letters without case, which are upper and lower at once.
pub(super) const CASELESS: Set = LM | LO | HAN | MARK;
/// The same without the script Han.
pub(super) const CASELESS_BUT_HAN: Set = LM | LO | MARK;

/// `[^\r\n\p{L}\p{N}]?[UPPER]*[LOWER]+|[^\r\n\p{L}\p{N}]?[UPPER]+[LOWER]*`, where `UPPER` is `\p{Lu}\p{Lt}` and
/// `LOWER` is `\p{Ll}`, both with `caseless`: words of CamelCase each for itself.
pub(super) fn cased_word(text: &str, caseless: Set) -> usize {
    let (lead, len) = first(text);
    let lead = if lead & (LETTER | NEWLINE | NUMBER) == 0 { len } else { 0 };
    let with_lead = |part: fn(&str, Set) -> usize| match part(&text[lead..], caseless) {
        0 if lead > 0 => part(text, caseless),
        0 => 0,
        len => lead + len,
    };
    match with_lead(lower_word) {
        0 => with_lead(upper_word),
        len => len,
    }
}

/// `[UPPER]*[LOWER]+`
fn lower_word(text: &str, caseless: Set) -> usize {
    let upper = run(text, LU | LT | caseless);
    match run(&text[upper..], LL | caseless) {
        // Give back upper-case characters until one serves as the lower-case part too; what follows it does not.
        0 => text[..upper]
            .char_indices()
            .rfind(|&(_, c)| class(c) & caseless != 0)
            .map_or(0, |(at, c)| at + c.len_utf8()),
        lower => upper + lower,
    }
}

/// `[UPPER]+[LOWER]*`
fn upper_word(text: &str, caseless: Set) -> usize {
    match run(text, LU | LT | caseless) {
        0 => 0,
        upper => upper + run(&text[upper..], LL | caseless),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contractions_fold_the_long_s() {
        assert_eq!(contraction_any_case("'ſx"), 3);
        assert_eq!(contraction_any_case("'LL"), 3);
        assert_eq!(contraction_any_case("'l"), 0);
        assert_eq!(contraction("'S"), 0);
    }

    #[test]
    fn the_last_space_goes_with_the_word() {
        assert_eq!(spaces("   x"), 2);
        assert_eq!(spaces(" x"), 1);
        assert_eq!(spaces("  "), 2);
        assert_eq!(spaces("\t\u{3000}x"), 1);
    }

    #[test]
    fn spaces_before_a_newline_go_with_it() {
        assert_eq!(spaces_to_newline("  \n \r\n x"), 6);
        assert_eq!(spaces_to_newline("  x\n"), 0);
    }

    #[test]
    fn case_changes_end_words() {
        assert_eq!(cased_word("CamelCase", CASELESS), 5);
        assert_eq!(cased_word("HTTPServer", CASELESS), "HTTPServer".len());
        assert_eq!(cased_word("漢ABC", CASELESS), "漢".len());
        assert_eq!(cased_word(" ABC", CASELESS), 4);
        assert_eq!(cased_word("\u{301} ", CASELESS), 2);
        assert_eq!(cased_word(" 1", CASELESS), 0);
    }
}
