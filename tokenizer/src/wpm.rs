//! WordPiece as in BERT: lower-case words without accents, cut into the longest pieces there are.
//!
//! Devlin et al., "BERT" (2019). In GGUF files a piece that starts a word is written with `▁` before it, one that goes
//! on without the `##` of the original.

use unicode_general_category::{GeneralCategory as G, get_general_category};
use unicode_normalization::UnicodeNormalization;

use crate::spm::SPACE_MARK;
use crate::vocab::Vocab;

/// A word of more characters is unknown.
const LONGEST_WORD: usize = 100;

pub(crate) struct Wpm {
    pub unknown: Option<u32>,
    /// Case does not count, so words are looked up in lower case.
    pub lowercase: bool,
    /// Nor do accents.
    pub strip_accents: bool,
}

impl Wpm {
    /// Appends the tokens of `text`.
    pub(crate) fn encode(&self, vocab: &Vocab, text: &str, out: &mut Vec<u32>) {
        let mut word = Word { text: SPACE_MARK.to_owned(), chars: 0 };
        for c in self.normalized(text) {
            if c == ' ' {
                self.finish(vocab, &mut word, out);
            } else if is_punctuation(c) {
                self.finish(vocab, &mut word, out);
                word.push(c);
                self.finish(vocab, &mut word, out);
            } else {
                word.push(c);
            }
        }
        self.finish(vocab, &mut word, out);
    }

    /// The text without control characters, accents and case, and with spaces around Chinese characters.
    fn normalized(&self, text: &str) -> impl Iterator<Item = char> {
        let cleaned = text.chars().filter(|&c| !is_dropped(c)).flat_map(|c| {
            let space = is_chinese(c).then_some(' ');
            let c = if c.is_whitespace() { ' ' } else { c };
            space.into_iter().chain([c]).chain(space)
        });
        let plain: Box<dyn Iterator<Item = char>> = if self.strip_accents {
            Box::new(cleaned.nfd().filter(|&c| get_general_category(c) != G::NonspacingMark))
        } else {
            Box::new(cleaned)
        };
        let lowercase = self.lowercase;
        plain.flat_map(move |c| {
            let lower = lowercase.then(|| c.to_lowercase());
            (!lowercase).then_some(c).into_iter().chain(lower.into_iter().flatten())
        })
    }

    /// Appends the tokens of a word, the unknown one if its pieces do not spell it, and empties the word.
    fn finish(&self, vocab: &Vocab, word: &mut Word, out: &mut Vec<u32>) {
        if word.chars > 0 {
            let before = out.len();
            if word.chars > LONGEST_WORD || !pieces(vocab, &word.text, out) {
                out.truncate(before);
                out.extend(self.unknown);
            }
        }
        word.text.truncate(SPACE_MARK.len());
        word.chars = 0;
    }
}

/// The characters of a word so far, after a space mark. Past [`LONGEST_WORD`] they are only counted.
struct Word {
    text: String,
    chars: usize,
}

impl Word {
    fn push(&mut self, c: char) {
        self.chars += 1;
        if self.chars <= LONGEST_WORD {
            self.text.push(c);
        }
    }
}

/// Appends the longest pieces of `word` from its start to its end; false if there is a place where none fits.
fn pieces(vocab: &Vocab, word: &str, out: &mut Vec<u32>) -> bool {
    let mut start = 0;
    while start < word.len() {
        // The mark means the start of a word; one in the text itself is in no piece.
        if start > 0 && word[start..].starts_with(SPACE_MARK) {
            return false;
        }
        let longest = word.len().min(start + vocab.longest());
        // A space mark alone is no piece of a word.
        let shortest = if start == 0 { SPACE_MARK.len() } else { start };
        let ends = (shortest + 1..=longest).rev().filter(|&end| word.is_char_boundary(end));
        let mut found = ends.filter_map(|end| Some((vocab.id(&word.as_bytes()[start..end])?, end)));
        let Some((id, end)) = found.next() else { return false };
        out.push(id);
        start = end;
    }
    true
}

fn is_dropped(c: char) -> bool {
    let is_other = matches!(
        get_general_category(c),
        G::Control | G::Format | G::Unassigned | G::PrivateUse | G::Surrogate
    );
    c == '\0' || c == char::REPLACEMENT_CHARACTER || is_other && !matches!(c, '\t' | '\n' | '\r')
}

fn is_punctuation(c: char) -> bool {
    c.is_ascii_punctuation()
        || matches!(
            get_general_category(c),
            G::ConnectorPunctuation
                | G::DashPunctuation
                | G::OpenPunctuation
                | G::ClosePunctuation
                | G::InitialPunctuation
                | G::FinalPunctuation
                | G::OtherPunctuation
        )
}

/// The blocks of Chinese characters, as BERT lists them.
fn is_chinese(c: char) -> bool {
    matches!(c,
        '\u{4E00}'..='\u{9FFF}'
        | '\u{3400}'..='\u{4DBF}'
        | '\u{20000}'..='\u{2A6DF}'
        | '\u{2A700}'..='\u{2B73F}'
        | '\u{2B740}'..='\u{2B81F}'
        // BERT has 2B820, Hugging Face's tokenizers this.
        | '\u{2B920}'..='\u{2CEAF}'
        | '\u{F900}'..='\u{FAFF}'
        | '\u{2F800}'..='\u{2FA1F}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(text: &str) -> Vec<u32> {
        let tokens = ["[UNK]", "▁a", "▁ab", "b", "▁,", "▁漢", "▁i"];
        let vocab = Vocab::new(tokens.into_iter(), std::iter::empty()).unwrap();
        let mut out = Vec::new();
        Wpm { unknown: Some(0), lowercase: true, strip_accents: true }.encode(&vocab, text, &mut out);
        out
    }

    #[test]
    fn words_are_cut_into_the_longest_pieces() {
        assert_eq!(encode("ab abb  a,b"), [2, 2, 3, 1, 4, 0]);
        assert_eq!(encode(&"ab".repeat(50)), [0]);
        assert_eq!(encode(&("a".to_owned() + &"b".repeat(99))).len(), 99);
        assert_eq!(encode(&("a".to_owned() + &"b".repeat(100))), [0]);
        assert!(encode(" \u{0}\u{301}").is_empty());
    }

    #[test]
    fn case_accents_and_control_characters_do_not_count() {
        assert_eq!(encode("ÀB\u{200D} İ"), [2, 6]);
        assert_eq!(encode("a漢a"), [1, 5, 1]);
        assert_eq!(encode("a▁ab"), [0]);
    }
}
