//! Tokens that are cut out of a text before anything else looks at it.

use crate::vocab::{TokenType, Vocab};

/// A piece of a text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    Text(&'a str),
    Token(u32),
}

/// Finds user-defined tokens, and control tokens where asked to; of those that start at one place, the longest.
pub(crate) struct AddedTokens {
    user_defined: Lengths,
    all: Lengths,
}

/// For each first byte, the lengths of the tokens that start with it, longest first.
struct Lengths(Vec<Vec<u32>>);

impl Lengths {
    fn new(vocab: &Vocab, wanted: impl Fn(TokenType) -> bool) -> Lengths {
        let mut lengths = vec![Vec::new(); 256];
        for (_, text) in vocab.of_kind(wanted) {
            if let Some(&first) = text.as_bytes().first() {
                let of_first: &mut Vec<u32> = &mut lengths[first as usize];
                if !of_first.contains(&(text.len() as u32)) {
                    of_first.push(text.len() as u32);
                }
            }
        }
        for of_first in &mut lengths {
            of_first.sort_unstable_by_key(|&len| std::cmp::Reverse(len));
        }
        Lengths(lengths)
    }
}

impl AddedTokens {
    pub(crate) fn new(vocab: &Vocab) -> AddedTokens {
        AddedTokens {
            user_defined: Lengths::new(vocab, |kind| kind == TokenType::UserDefined),
            all: Lengths::new(vocab, |kind| kind == TokenType::UserDefined || kind.is_markup()),
        }
    }

    /// The pieces of `text`, in order. Without `control`, text that looks like a control token stays text.
    pub(crate) fn split<'a>(
        &self,
        vocab: &Vocab,
        text: &'a str,
        control: bool,
        mut piece: impl FnMut(Piece<'a>),
    ) {
        let lengths = if control { &self.all.0 } else { &self.user_defined.0 };
        let bytes = text.as_bytes();
        let (mut start, mut at) = (0, 0);
        while let Some(&first) = bytes.get(at) {
            let of_first = &lengths[first as usize];
            let found = of_first.iter().find_map(|&len| {
                let end = at + len as usize;
                let id = vocab.id(bytes.get(at..end)?)?;
                let kind = vocab.kind(id)?;
                (kind == TokenType::UserDefined || control && kind.is_markup()).then_some((id, end))
            });
            let Some((id, end)) = found else {
                at += 1;
                continue;
            };
            if start < at {
                piece(Piece::Text(&text[start..at]));
            }
            piece(Piece::Token(id));
            (start, at) = (end, end);
        }
        if start < text.len() {
            piece(Piece::Text(&text[start..]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str, control: bool) -> Vec<String> {
        let tokens = ["<", "<s>", "<b>", "<b><i>", "\n", "\n\n\n"];
        let kinds = [1, 3, 4, 4, 4, 4].map(TokenType::from_id);
        let vocab = Vocab::new(tokens.into_iter(), kinds.into_iter()).unwrap();
        let mut pieces = Vec::new();
        AddedTokens::new(&vocab).split(&vocab, text, control, |piece| {
            pieces.push(match piece {
                Piece::Text(text) => text.to_owned(),
                Piece::Token(id) => format!("#{id}"),
            });
        });
        pieces
    }

    #[test]
    fn the_longest_wins() {
        assert_eq!(split("a<b><i><b>\n\n\n\n", false), ["a", "#3", "#2", "#5", "#4"]);
    }

    #[test]
    fn control_tokens_only_where_asked() {
        assert_eq!(split("é<s><b>é", false), ["é<s>", "#2", "é"]);
        assert_eq!(split("é<s><b>é", true), ["é", "#1", "#2", "é"]);
        assert!(split("", true).is_empty());
    }
}
