//! Character classes: what the regular expressions of Hugging Face tokenizers ask of a character.

use unicode_general_category::{GeneralCategory as G, get_general_category};

/// A set of classes, one bit each. A character is in one class.
pub(super) type Set = u16;

pub(super) const LU: Set = 1 << 0;
pub(super) const LL: Set = 1 << 1;
pub(super) const LT: Set = 1 << 2;
pub(super) const LM: Set = 1 << 3;
/// `\p{Lo}` but for [`HAN`]
pub(super) const LO: Set = 1 << 4;
/// Letters of the script Han, which are all in `\p{Lo}` and `\p{Lm}`
pub(super) const HAN: Set = 1 << 5;
/// `\p{M}`
pub(super) const MARK: Set = 1 << 6;
/// `\p{Nd}`, which is `\d`
pub(super) const DECIMAL: Set = 1 << 7;
/// `\p{Nl}` and `\p{No}`
pub(super) const OTHER_NUMBER: Set = 1 << 8;
/// `\p{Pc}`
pub(super) const CONNECTOR: Set = 1 << 9;
/// `\p{P}` but for `CONNECTOR`
pub(super) const OTHER_PUNCT: Set = 1 << 10;
/// `\p{S}`
pub(super) const SYMBOL: Set = 1 << 11;
/// White space other than `NEWLINE`
pub(super) const BLANK: Set = 1 << 12;
/// `[\r\n]`
pub(super) const NEWLINE: Set = 1 << 13;
/// Whatever is in none of the above: control characters, format characters, unassigned code points.
pub(super) const OTHER: Set = 1 << 14;

/// `\p{L}`
pub(super) const LETTER: Set = LU | LL | LT | LM | LO | HAN;
/// `\p{N}`
pub(super) const NUMBER: Set = DECIMAL | OTHER_NUMBER;
/// `\p{P}`
pub(super) const PUNCT: Set = CONNECTOR | OTHER_PUNCT;
/// `\s`, the Unicode property White_Space
pub(super) const SPACE: Set = BLANK | NEWLINE;

/// Complement.
pub(super) const fn not(set: Set) -> Set {
    !set
}

const ASCII: [Set; 128] = {
    let mut table = [OTHER; 128];
    let mut i = 0;
    while i < 128 {
        table[i] = match i as u8 {
            b'\n' | b'\r' => NEWLINE,
            b'\t' | 0x0B | 0x0C | b' ' => BLANK,
            b'0'..=b'9' => DECIMAL,
            b'A'..=b'Z' => LU,
            b'a'..=b'z' => LL,
            b'$' | b'+' | b'<' | b'=' | b'>' | b'^' | b'`' | b'|' | b'~' => SYMBOL,
            b'_' => CONNECTOR,
            b'!'..=b'~' => OTHER_PUNCT,
            _ => OTHER,
        };
        i += 1;
    }
    table
};

/// The class of a character: a set of one.
pub(super) fn class(c: char) -> Set {
    match ASCII.get(c as usize) {
        Some(&set) => set,
        None if c.is_whitespace() => BLANK,
        None => match general(get_general_category(c)) {
            LO | LM if is_han(c) => HAN,
            class => class,
        },
    }
}

fn general(category: G) -> Set {
    match category {
        G::UppercaseLetter => LU,
        G::LowercaseLetter => LL,
        G::TitlecaseLetter => LT,
        G::ModifierLetter => LM,
        G::OtherLetter => LO,
        G::NonspacingMark | G::SpacingMark | G::EnclosingMark => MARK,
        G::DecimalNumber => DECIMAL,
        G::LetterNumber | G::OtherNumber => OTHER_NUMBER,
        G::ConnectorPunctuation => CONNECTOR,
        G::DashPunctuation
        | G::OpenPunctuation
        | G::ClosePunctuation
        | G::InitialPunctuation
        | G::FinalPunctuation
        | G::OtherPunctuation => OTHER_PUNCT,
        G::MathSymbol | G::CurrencySymbol | G::ModifierSymbol | G::OtherSymbol => SYMBOL,
        _ => OTHER,
    }
}

/// `\p{Han}`: the script's property of Unicode 15.1, as ranges.
pub(super) fn is_han(c: char) -> bool {
    matches!(c,
        '\u{4E00}'..='\u{9FFF}'
        | '\u{3400}'..='\u{4DBF}'
        | '\u{2E80}'..='\u{2E99}'
        | '\u{2E9B}'..='\u{2EF3}'
        | '\u{2F00}'..='\u{2FD5}'
        | '\u{3005}'
        | '\u{3007}'
        | '\u{3021}'..='\u{3029}'
        | '\u{3038}'..='\u{303B}'
        | '\u{F900}'..='\u{FA6D}'
        | '\u{FA70}'..='\u{FAD9}'
        | '\u{16FE2}'..='\u{16FE3}'
        | '\u{16FF0}'..='\u{16FF1}'
        | '\u{20000}'..='\u{2A6DF}'
        | '\u{2A700}'..='\u{2B739}'
        | '\u{2B740}'..='\u{2B81D}'
        | '\u{2B820}'..='\u{2CEA1}'
        | '\u{2CEB0}'..='\u{2EBE0}'
        | '\u{2EBF0}'..='\u{2EE5D}'
        | '\u{2F800}'..='\u{2FA1D}'
        | '\u{30000}'..='\u{3134A}'
        | '\u{31350}'..='\u{323AF}')
}

/// `\w`: letters and what else is alphabetic, marks, digits, connecting punctuation.
pub(super) fn is_word(c: char) -> bool {
    class(c) & (LETTER | MARK | DECIMAL | CONNECTOR) != 0 || c.is_alphabetic()
}

/// The class of the first character and its length in bytes; nothing and 0 at the end.
pub(super) fn first(text: &str) -> (Set, usize) {
    text.chars().next().map_or((0, 0), |c| (class(c), c.len_utf8()))
}

/// Length in bytes of the run of characters in `set` that `text` starts with: `[set]*`.
pub(super) fn run(text: &str, set: Set) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match ASCII.get(byte as usize) {
            Some(&ascii) if ascii & set != 0 => at += 1,
            Some(_) => break,
            None => {
                let (found, len) = first(&text[at..]);
                if found & set == 0 {
                    break;
                }
                at += len;
            }
        }
    }
    at
}

/// As [`run`], but of at most `most` characters: `[set]{0,most}`.
pub(super) fn run_of(text: &str, set: Set, most: usize) -> usize {
    text.chars().take(most).take_while(|&c| class(c) & set != 0).map(char::len_utf8).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ascii_table_is_the_general_category() {
        for c in '\0'..='\x7F' {
            let mut want = general(get_general_category(c));
            if c.is_whitespace() {
                want = if matches!(c, '\r' | '\n') { NEWLINE } else { BLANK };
            }
            assert_eq!(class(c), want, "{c:?}");
        }
    }

    #[test]
    fn runs_end_where_the_class_does() {
        assert_eq!(run("aé漢1", LETTER), "aé漢".len());
        assert_eq!(run("", LETTER), 0);
        assert_eq!(run_of("12345", NUMBER, 3), 3);
        assert_eq!(first("½x"), (OTHER_NUMBER, 2));
        assert_eq!(first("漢"), (HAN, 3));
        assert_eq!(first("\u{85}"), (BLANK, 2));
    }
}
