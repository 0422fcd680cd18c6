//! The token texts, both ways: id → text and text → id.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::Error;

/// The kind of a token, as `tokenizer.ggml.token_type` gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum TokenType {
    /// Ordinary text (type 1, and any type that the format does not define).
    Normal = 1,
    /// Stands for text the vocabulary cannot spell (type 2).
    Unknown = 2,
    /// Marks structure, is never text: begin, end, turn markers (type 3).
    Control = 3,
    /// Text that is always one token wherever it occurs (type 4).
    UserDefined = 4,
    /// A place in the table without a use (type 5).
    Unused = 5,
    /// One byte, written `<0xHH>`, for text the vocabulary cannot spell (type 6).
    Byte = 6,
}

impl TokenType {
    pub(crate) fn from_id(id: i32) -> TokenType {
        match id {
            2 => TokenType::Unknown,
            3 => TokenType::Control,
            4 => TokenType::UserDefined,
            5 => TokenType::Unused,
            6 => TokenType::Byte,
            _ => TokenType::Normal,
        }
    }

    /// True for tokens that stand for no text of the user's: control and unknown.
    pub(crate) fn is_markup(self) -> bool {
        matches!(self, TokenType::Control | TokenType::Unknown)
    }
}

/// All token texts in one string, and a hash table of ids over it: no allocation a token, so that a vocabulary of
/// 262k tokens is indexed in milliseconds.
pub(crate) struct Vocab {
    text: String,
    /// Where each token's text ends in `text`; it starts where the one before ends.
    ends: Vec<u32>,
    types: Vec<TokenType>,
    /// The tokens of the texts past the tokens' own: see [`Vocab::alias`].
    aliases: Vec<u32>,
    ids: HashTable<u32>,
    hasher: RandomState,
    longest: usize,
}

impl Vocab {
    /// `types` may be empty: every token is then [`TokenType::Normal`].
    pub(crate) fn new<'a>(
        tokens: impl ExactSizeIterator<Item = &'a str>,
        types: impl Iterator<Item = TokenType>,
    ) -> Result<Vocab, Error> {
        let n = tokens.len();
        let mut vocab = Vocab {
            text: String::with_capacity(n.saturating_mul(8)),
            ends: Vec::with_capacity(n),
            types: types.collect(),
            aliases: Vec::new(),
            ids: HashTable::with_capacity(n),
            // Seeded anew each time, so that no file can be written whose texts all fall into one bucket.
            hasher: RandomState::default(),
            longest: 0,
        };
        vocab.types.resize(n, TokenType::Normal);
        let mut bytes = 0usize;
        for token in tokens {
            bytes += token.len();
            if n >= NO_TOKEN as usize || bytes > u32::MAX as usize {
                return Err(Error::TooLarge { tokens: n, bytes });
            }
            vocab.insert(token);
        }
        Ok(vocab)
    }

    fn insert(&mut self, token: &str) {
        let id = self.ends.len() as u32;
        self.text.push_str(token);
        self.ends.push(self.text.len() as u32);
        if token.is_empty() {
            return; // padding of some files; never found
        }
        let Vocab { text, ends, ids, hasher, .. } = self;
        let text_of = |&id: &u32| slice(text.as_bytes(), ends, id as usize);
        let same = |id: &u32| text_of(id) == token.as_bytes();
        // Of two tokens with one text the first is found.
        if let Entry::Vacant(slot) =
            ids.entry(hasher.hash_one(token.as_bytes()), same, |id| hasher.hash_one(text_of(id)))
        {
            slot.insert(id);
            self.longest = self.longest.max(token.len());
        }
    }

    /// Lets a token be found by a second text.
    pub(crate) fn alias(&mut self, text: &str, id: u32) -> Result<(), Error> {
        let bytes = self.text.len() + text.len();
        if self.ends.len() + 1 >= NO_TOKEN as usize || bytes > u32::MAX as usize {
            return Err(Error::TooLarge { tokens: self.ends.len(), bytes });
        }
        self.insert(text);
        self.aliases.push(id);
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.types.len()
    }

    /// Length in bytes of the longest text.
    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    pub(crate) fn id(&self, text: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash_one(text);
        let same = |&at: &u32| slice(self.text.as_bytes(), &self.ends, at as usize) == text;
        let at = *self.ids.find(hash, same)?;
        Some((at as usize).checked_sub(self.len()).map_or(at, |alias| self.aliases[alias]))
    }

    pub(crate) fn text(&self, id: u32) -> Option<&str> {
        if id as usize >= self.len() { None } else { self.text_at(id) }
    }

    fn text_at(&self, id: u32) -> Option<&str> {
        let end = *self.ends.get(id as usize)? as usize;
        let start = if id == 0 { 0 } else { self.ends[id as usize - 1] as usize };
        self.text.get(start..end)
    }

    pub(crate) fn kind(&self, id: u32) -> Option<TokenType> {
        self.types.get(id as usize).copied()
    }

    pub(crate) fn set_kind(&mut self, id: u32, kind: TokenType) {
        if let Some(slot) = self.types.get_mut(id as usize) {
            *slot = kind;
        }
    }

    /// Ids and texts of all tokens of the kinds that `wanted` picks, aliases among them.
    pub(crate) fn of_kind(&self, wanted: impl Fn(TokenType) -> bool) -> impl Iterator<Item = (u32, &str)> {
        let ids = (0..self.len() as u32).chain(self.aliases.iter().copied());
        let texts = ids.enumerate().filter(move |&(_, id)| self.kind(id).is_some_and(&wanted));
        texts.filter_map(|(at, id)| Some((id, self.text_at(at as u32)?)))
    }
}

/// No token: the id of a symbol that the vocabulary does not have.
pub(crate) const NO_TOKEN: u32 = u32::MAX;

fn slice<'a>(text: &'a [u8], ends: &[u32], id: usize) -> &'a [u8] {
    let start = if id == 0 { 0 } else { ends[id - 1] as usize };
    &text[start..ends[id] as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vocab(tokens: &[&str]) -> Vocab {
        Vocab::new(tokens.iter().copied(), std::iter::empty()).unwrap()
    }

    #[test]
    fn text_and_id_are_inverse() {
        let tokens = ["a", "b", "", "ab", "▁x", "\n"];
        let v = vocab(&tokens);
        for (id, text) in tokens.iter().enumerate() {
            assert_eq!(v.text(id as u32), Some(*text));
            assert_eq!(v.id(text.as_bytes()), (!text.is_empty()).then_some(id as u32));
        }
        assert_eq!(v.id(b"nowhere"), None);
        assert_eq!(v.text(6), None);
        assert_eq!(v.longest(), "▁x".len());
    }

    #[test]
    fn of_two_equal_texts_the_first_is_found() {
        assert_eq!(vocab(&["x", "y", "x"]).id(b"x"), Some(0));
    }

    #[test]
    fn an_alias_finds_its_token_and_is_none() {
        let mut v = vocab(&["x", "  "]);
        v.alias("▁▁", 1).unwrap();
        assert_eq!((v.id("▁▁".as_bytes()), v.text(1), v.text(2), v.len()), (Some(1), Some("  "), None, 2));
        assert_eq!(v.of_kind(|_| true).collect::<Vec<_>>(), [(0, "x"), (1, "  "), (1, "▁▁")]);
    }
}
