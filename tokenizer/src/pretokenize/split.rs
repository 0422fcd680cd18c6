//! Splitting a text by patterns, one after the other.

/// What a pattern finds at the start of a text that is not empty. Lengths are in bytes, whole characters, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A match of this length.
    Match(usize),
    /// Within this length matches of three characters each, counted from its end; the first may be shorter.
    Threes(usize),
    /// No match starts within this length.
    Gap(usize),
}

/// A pattern looks at a text from its start to its end, never at what came before.
pub(super) type Pattern = fn(&str) -> Found;

/// Splits `text` into the matches of the first pattern and the gaps between them, each of them by the second, and so
/// on; what is left is given to `word` in order. This is Hugging Face's `Sequence` of `Split`s with behaviour
/// `Isolated`.
pub(super) fn split(text: &str, patterns: &[Pattern], word: &mut impl FnMut(&str)) {
    let Some((pattern, rest)) = patterns.split_first() else {
        if !text.is_empty() {
            word(text);
        }
        return;
    };
    let (mut gap, mut at) = (0, 0);
    while at < text.len() {
        let (len, threes) = match pattern(&text[at..]) {
            Found::Gap(len) => {
                at += len;
                continue;
            }
            Found::Match(len) => (len, false),
            Found::Threes(len) => (len, true),
        };
        if gap < at {
            split(&text[gap..at], rest, word);
        }
        let found = &text[at..at + len];
        if threes {
            split_threes(found, |three| split(three, rest, word));
        } else {
            split(found, rest, word);
        }
        at += len;
        gap = at;
    }
    if gap < text.len() {
        split(&text[gap..], rest, word);
    }
}

/// Gives `text` in pieces of three characters; the first has what is left over.
fn split_threes(text: &str, mut piece: impl FnMut(&str)) {
    let count = text.chars().count();
    let mut start = 0;
    for (i, (at, _)) in text.char_indices().enumerate().skip(1) {
        if (count - i).is_multiple_of(3) {
            piece(&text[start..at]);
            start = at;
        }
    }
    piece(&text[start..]);
}
