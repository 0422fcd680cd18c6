//! SentencePiece's BPE: pieces with scores, joined best score first, over whole texts.
//!
//! Kudo and Richardson, "SentencePiece" (2018). Spaces are written `▁` (U+2581); characters that no piece spells
//! become their bytes' tokens.

use crate::merge::{Join, Merger, Rule, Symbol};
use crate::vocab::{NO_TOKEN, TokenType, Vocab};

/// The character for a space in SentencePiece vocabularies.
pub(crate) const SPACE_MARK: &str = "\u{2581}";

/// Texts longer than this are encoded in parts, which bounds memory at about 10 GiB.
const MOST_BYTES: usize = 1 << 28;

pub(crate) struct Spm {
    /// Merge order of each token, lower first; `None` for tokens that merging never makes.
    order: Vec<Option<u32>>,
    /// The token of each byte.
    bytes: [Option<u32>; 256],
    unknown: Option<u32>,
}

impl Spm {
    /// `scores` may be empty: all are then equal.
    pub(crate) fn new(vocab: &Vocab, scores: impl Iterator<Item = f32>, unknown: Option<u32>) -> Spm {
        let scores = scores.chain(std::iter::repeat(0.0));
        let order = (0..vocab.len() as u32).zip(scores).map(|(id, score)| {
            // Control, unknown and byte tokens are never found in text.
            let kind = vocab.kind(id)?;
            let is_piece = matches!(kind, TokenType::Normal | TokenType::UserDefined | TokenType::Unused);
            is_piece.then_some(descending(score))
        });
        let order = order.collect();
        let bytes = std::array::from_fn(|byte| {
            // Vocabularies without byte tokens may still have the character.
            byte_token(vocab, byte as u8).or_else(|| vocab.id(&[byte as u8]).filter(|_| byte < 0x80))
        });
        Spm { order, bytes, unknown }
    }

    /// Appends the tokens of `text`, whose spaces are already written `▁`.
    pub(crate) fn encode(&self, vocab: &Vocab, text: &str, merger: &mut Merger, out: &mut Vec<u32>) {
        for part in parts(text, MOST_BYTES) {
            self.encode_part(vocab, part, merger, out);
        }
    }

    fn encode_part(&self, vocab: &Vocab, text: &str, merger: &mut Merger, out: &mut Vec<u32>) {
        let rule = Pieces { spm: self, vocab, text: text.as_bytes() };
        merger.symbols.clear();
        merger.symbols.extend(text.char_indices().map(|(at, c)| {
            let (start, end) = (at as u32, (at + c.len_utf8()) as u32);
            Symbol { start, end, token: rule.piece(start, end).map_or(NO_TOKEN, |(id, _)| id) }
        }));
        merger.run(&rule);
        for symbol in &merger.symbols {
            if symbol.token != NO_TOKEN {
                out.push(symbol.token);
                continue;
            }
            for &byte in &text.as_bytes()[symbol.start as usize..symbol.end as usize] {
                out.extend(self.bytes[byte as usize].or(self.unknown));
            }
        }
    }

    /// The byte that a byte token stands for.
    pub(crate) fn byte_of(text: &str) -> Option<u8> {
        let hex = text.strip_prefix("<0x")?.strip_suffix('>')?;
        let is_byte = hex.len() == 2 && hex.bytes().all(|b| b.is_ascii_hexdigit());
        if is_byte { u8::from_str_radix(hex, 16).ok() } else { None }
    }
}

/// The token `<0xHH>` of a byte.
pub(crate) fn byte_token(vocab: &Vocab, byte: u8) -> Option<u32> {
    vocab.id(format!("<0x{byte:02X}>").as_bytes())
}

/// Cuts a text into parts of at most `most` bytes, at least one character each.
pub(crate) fn parts(text: &str, most: usize) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?.len_utf8();
        let mut cut = most.min(rest.len());
        while !rest.is_char_boundary(cut) {
            cut -= 1;
        }
        let (part, after) = rest.split_at(cut.max(first));
        rest = after;
        Some(part)
    })
}

struct Pieces<'a> {
    spm: &'a Spm,
    vocab: &'a Vocab,
    text: &'a [u8],
}

impl Pieces<'_> {
    fn piece(&self, start: u32, end: u32) -> Option<(u32, u32)> {
        if (end - start) as usize > self.vocab.longest() {
            return None;
        }
        let id = self.vocab.id(&self.text[start as usize..end as usize])?;
        Some((id, (*self.spm.order.get(id as usize)?)?))
    }
}

impl Rule for Pieces<'_> {
    fn join(&self, left: Symbol, right: Symbol) -> Option<Join> {
        let (token, order) = self.piece(left.start, right.end)?;
        Some(Join { order, token })
    }
}

/// A number that is lower the higher the score.
fn descending(score: f32) -> u32 {
    let bits = (score + 0.0).to_bits(); // -0 and 0 are equal
    // The order of floats is that of their bits, but negative ones run backwards.
    if bits >> 31 == 0 { !(bits | 1 << 31) } else { bits }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn higher_scores_go_first() {
        let scores = [f32::INFINITY, 7.5, 1e-30, 0.0, -1e-30, -1.0, -262_143.0, f32::NEG_INFINITY];
        let order: Vec<u32> = scores.iter().map(|&score| descending(score)).collect();
        assert!(order.is_sorted() && order.windows(2).all(|pair| pair[0] != pair[1]));
        assert_eq!(descending(-0.0), descending(0.0));
    }

    #[test]
    fn parts_are_whole_characters_and_the_text_again() {
        for most in 0..6 {
            let parts: Vec<&str> = parts("aé漢🦙b", most).collect();
            assert_eq!(parts.concat(), "aé漢🦙b");
        }
    }

    #[test]
    fn byte_tokens() {
        assert_eq!(Spm::byte_of("<0x0A>"), Some(10));
        assert_eq!(Spm::byte_of("<0x+A>"), None);
        assert_eq!(Spm::byte_of("<0xé>"), None);
    }
}
