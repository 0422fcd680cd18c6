//! BPE: words of bytes or of characters, joined by a ranked list of merges.
//!
//! Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units" (2016); mostly over bytes as in
//! GPT-2, in Gemma 4 over characters as in SentencePiece.

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

use crate::Error;
use crate::alphabet;
use crate::merge::{Join, Merger, Rule, Symbol};
use crate::pretokenize::{PreTokenizer, Spelling};
use crate::spm::{self, SPACE_MARK};
use crate::vocab::{NO_TOKEN, Vocab};

/// Longer texts are encoded in parts, which keeps places within 32 bits.
const MOST_BYTES: usize = 1 << 31;

pub(crate) struct Bpe {
    pub pre: &'static PreTokenizer,
    /// The token of each byte.
    bytes: [u32; 256],
    /// Stands for characters that can be spelled in no other way. Byte-level vocabularies have none.
    unknown: u32,
    merges: HashMap<(u32, u32), Join, RandomState>,
}

impl Bpe {
    pub(crate) fn new<'a>(
        vocab: &Vocab,
        pre: &'static PreTokenizer,
        merges: impl ExactSizeIterator<Item = &'a str>,
        unknown: Option<u32>,
    ) -> Result<Bpe, Error> {
        let (bytes, unknown) = match pre.spelling {
            Spelling::Bytes => {
                let of_byte = |byte| vocab.id(alphabet::char_of(byte).encode_utf8(&mut [0; 2]).as_bytes());
                (byte_table(of_byte), NO_TOKEN)
            }
            Spelling::Text => (byte_table(|byte| spm::byte_token(vocab, byte)), unknown.unwrap_or(NO_TOKEN)),
        };
        Ok(Bpe { pre, bytes, unknown, merges: table(vocab, merges)? })
    }

    /// Appends the tokens of `text`.
    pub(crate) fn encode(&self, vocab: &Vocab, text: &str, scratch: &mut Scratch, out: &mut Vec<u32>) {
        if self.pre.spelling == Spelling::Text {
            let text = text.replace(' ', SPACE_MARK);
            return spm::parts(&text, MOST_BYTES)
                .for_each(|part| self.encode_text(vocab, part, scratch, out));
        }
        if self.pre.nfc && is_nfc_quick(text.chars()) != IsNormalized::Yes {
            let text: String = text.nfc().collect();
            return self.pre.split(&text, &mut |word| self.encode_word(vocab, word, scratch, out));
        }
        self.pre.split(text, &mut |word| self.encode_word(vocab, word, scratch, out));
    }

    /// A text as one word of characters; those that are no tokens are their bytes' tokens.
    fn encode_text(&self, vocab: &Vocab, text: &str, scratch: &mut Scratch, out: &mut Vec<u32>) {
        let symbols = &mut scratch.merger.symbols;
        symbols.clear();
        for (at, c) in text.char_indices() {
            let (start, end) = (at as u32, (at + c.len_utf8()) as u32);
            let bytes = &text.as_bytes()[start as usize..end as usize];
            if let Some(token) = vocab.id(bytes) {
                symbols.push(Symbol { start, end, token });
            } else if bytes.iter().all(|&byte| self.bytes[byte as usize] != NO_TOKEN) {
                symbols.extend((start..end).zip(bytes).map(|(start, &byte)| Symbol {
                    start,
                    end: start + 1,
                    token: self.bytes[byte as usize],
                }));
            } else if self.unknown != NO_TOKEN {
                symbols.push(Symbol { start, end, token: self.unknown });
            }
        }
        scratch.merger.run(self);
        out.extend(scratch.merger.symbols.iter().map(|symbol| symbol.token));
    }

    fn encode_word(&self, vocab: &Vocab, word: &str, scratch: &mut Scratch, out: &mut Vec<u32>) {
        if self.pre.ignore_merges && word.len() <= vocab.longest() {
            scratch.spelling.clear();
            scratch.spelling.extend(word.bytes().map(alphabet::char_of));
            if let Some(id) = vocab.id(scratch.spelling.as_bytes()) {
                return out.push(id);
            }
        }
        for part in word.as_bytes().chunks(MOST_BYTES) {
            let symbols = part.iter().enumerate().map(|(at, &byte)| Symbol {
                start: at as u32,
                end: at as u32 + 1,
                token: self.bytes[byte as usize],
            });
            scratch.merger.symbols.clear();
            // As in Hugging Face's: bytes that the vocabulary lacks vanish.
            scratch.merger.symbols.extend(symbols.filter(|symbol| symbol.token != NO_TOKEN));
            scratch.merger.run(self);
            out.extend(scratch.merger.symbols.iter().map(|symbol| symbol.token));
        }
    }
}

impl Rule for Bpe {
    fn join(&self, left: Symbol, right: Symbol) -> Option<Join> {
        self.merges.get(&(left.token, right.token)).copied()
    }
}

fn byte_table(token: impl Fn(u8) -> Option<u32>) -> [u32; 256] {
    std::array::from_fn(|byte| token(byte as u8).unwrap_or(NO_TOKEN))
}

/// Memory kept from word to word.
#[derive(Default)]
pub(crate) struct Scratch {
    pub merger: Merger,
    spelling: String,
}

/// From pairs of tokens to what they make and when.
fn table<'a>(
    vocab: &Vocab,
    merges: impl ExactSizeIterator<Item = &'a str>,
) -> Result<HashMap<(u32, u32), Join, RandomState>, Error> {
    let mut table = HashMap::with_capacity_and_hasher(merges.len(), RandomState::default());
    let mut joined = Vec::new();
    let mut last = 0;
    for (rank, rule) in merges.enumerate() {
        let bad = |reason| Error::BadMerge { index: rank, rule: rule.chars().take(40).collect(), reason };
        // The first character may itself be a space in vocabularies that do not spell in bytes.
        let start = rule.chars().next().map_or(0, char::len_utf8);
        let space = rule[start..].find(' ').ok_or_else(|| bad("it wants two parts with a space between"))?;
        let (left, right) = (&rule[..start + space], &rule[start + space + 1..]);
        joined.clear();
        joined.extend_from_slice(left.as_bytes());
        joined.extend_from_slice(right.as_bytes());
        let find =
            |part: &[u8]| vocab.id(part).ok_or_else(|| bad("its parts and their union must be tokens"));
        let (left, right) = (find(left.as_bytes())?, find(right.as_bytes())?);
        // Tokens are mostly numbered in the order of their merges: try the next before searching.
        let next = |id: u32| vocab.text(id).is_some_and(|text| text.as_bytes() == joined);
        let token = match last {
            id if next(id) => id,
            id if next(id + 1) => id + 1,
            _ => find(&joined)?,
        };
        last = token;
        table.entry((left, right)).or_insert(Join { order: rank as u32, token });
    }
    Ok(table)
}
