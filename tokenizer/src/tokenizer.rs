//! The tokenizer of a model file.

use std::borrow::Cow;

use llamay_gguf::{Gguf, Metadata};

use crate::added::{AddedTokens, Piece};
use crate::alphabet;
use crate::bpe::{self, Bpe};
use crate::merge::Merger;
use crate::pretokenize::{PreTokenizer, Spelling};
use crate::special::SpecialTokens;
use crate::spm::{SPACE_MARK, Spm};
use crate::vocab::{TokenType, Vocab};
use crate::wpm::Wpm;
use crate::{Detokenizer, Error};

/// What kind of vocabulary a tokenizer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SentencePiece with scores and byte fallback: Llama 2, Mistral, Gemma (`llama`).
    Spm,
    /// BPE with ranked merges, over bytes in GPT-2, Llama 3, Qwen, SmolLM (`gpt2`), over characters in Gemma 4
    /// (`gemma4`).
    Bpe,
    /// WordPiece, whose words are cut into the longest pieces there are: BERT (`bert`).
    Wpm,
}

/// How to treat a text. The default is plain text with nothing added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Add BOS before and EOS after, where the model wants them.
    pub add_special: bool,
    /// Take text that spells a control token for that token. For templates; never for what a user typed.
    pub parse_special: bool,
}

/// Turns text into a model's tokens and back. Made from a GGUF file, which it does not refer to afterwards.
pub struct Tokenizer {
    vocab: Vocab,
    algorithm: Algorithm,
    added: AddedTokens,
    special: SpecialTokens,
    add_bos: bool,
    add_eos: bool,
    add_space_prefix: bool,
}

enum Algorithm {
    Spm(Box<Spm>),
    Bpe(Box<Bpe>),
    Wpm(Wpm),
}

const MODEL: &str = "tokenizer.ggml.model";
/// A model whose name is that of its pre-tokenizer too.
const GEMMA4: &str = "gemma4";
const PRE: &str = "tokenizer.ggml.pre";
const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const SCORES: &str = "tokenizer.ggml.scores";
const MERGES: &str = "tokenizer.ggml.merges";

impl Tokenizer {
    /// Whether there is a vocabulary, and its algorithm and pre-tokenizer are known: what can be told without reading
    /// all of it, which takes a while.
    ///
    /// # Errors
    /// One that [`Tokenizer::from_gguf`] would give.
    pub fn check(gguf: &Gguf) -> Result<(), Error> {
        let metadata = gguf.metadata();
        let need = |key| if metadata.contains(key) { Ok(()) } else { Err(Error::MissingKey(key)) };
        let kind = kind(metadata)?;
        need(TOKENS)?;
        if kind == Kind::Bpe {
            pre_tokenizer(metadata)?;
            need(MERGES)?;
        }
        Ok(())
    }

    /// Reads the `tokenizer.ggml.*` keys.
    ///
    /// # Errors
    /// If there is no vocabulary, its parts do not fit together, or it needs an algorithm or a pre-tokenizer that is
    /// not known, which the error then names.
    pub fn from_gguf(gguf: &Gguf) -> Result<Tokenizer, Error> {
        let metadata = gguf.metadata();
        let kind = kind(metadata)?;
        let mut vocab = read_vocab(metadata)?;
        let special = SpecialTokens::find(metadata, &mut vocab, default_special(kind, metadata)?)?;
        let (algorithm, add_bos) = match kind {
            Kind::Spm => {
                alias_spaces(&mut vocab)?;
                (Algorithm::Spm(Box::new(read_spm(metadata, &vocab, special.unk)?)), true)
            }
            Kind::Bpe => {
                let bpe = read_bpe(metadata, &vocab, pre_tokenizer(metadata)?, special.unk)?;
                let add_bos = bpe.pre.add_bos;
                (Algorithm::Bpe(Box::new(bpe)), add_bos)
            }
            Kind::Wpm => (Algorithm::Wpm(read_wpm(metadata, special.unk)?), true),
        };
        Ok(Tokenizer {
            added: AddedTokens::new(&vocab),
            add_bos: metadata.bool("tokenizer.ggml.add_bos_token")?.unwrap_or(add_bos),
            add_eos: metadata.bool("tokenizer.ggml.add_eos_token")?.unwrap_or(kind == Kind::Wpm),
            add_space_prefix: match kind {
                Kind::Spm => metadata.bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(true),
                Kind::Bpe => false,
                Kind::Wpm => true,
            },
            vocab,
            algorithm,
            special,
        })
    }

    /// The tokens of a text. Any text has some: what the vocabulary cannot spell becomes bytes or the unknown token
    /// (with a BPE vocabulary that lacks a byte, which none in use does, that byte gets lost).
    pub fn encode(&self, text: &str, options: EncodeOptions) -> Vec<u32> {
        let mut tokens = Vec::with_capacity(text.len() / 4 + 2);
        if options.add_special && self.add_bos {
            tokens.extend(self.special.bos);
        }
        match &self.algorithm {
            Algorithm::Spm(spm) => self.encode_spm(spm, text, options.parse_special, &mut tokens),
            Algorithm::Bpe(bpe) => self.encode_bpe(bpe, text, options.parse_special, &mut tokens),
            Algorithm::Wpm(wpm) => {
                self.added.split(&self.vocab, text, options.parse_special, |piece| match piece {
                    Piece::Token(id) => tokens.push(id),
                    Piece::Text(text) => wpm.encode(&self.vocab, text, &mut tokens),
                });
            }
        }
        if options.add_special && self.add_eos {
            tokens.extend(self.special.eos);
        }
        tokens
    }

    fn encode_spm(&self, spm: &Spm, text: &str, control: bool, tokens: &mut Vec<u32>) {
        let mut merger = Merger::default();
        let mut marked = String::new();
        let mut after_token = true;
        self.added.split(&self.vocab, text, control, |piece| match piece {
            Piece::Token(id) => {
                tokens.push(id);
                after_token = true;
            }
            Piece::Text(text) => {
                marked.clear();
                if self.add_space_prefix && after_token {
                    marked.push_str(SPACE_MARK);
                }
                after_token = false;
                for (i, part) in text.split(' ').enumerate() {
                    if i > 0 {
                        marked.push_str(SPACE_MARK);
                    }
                    marked.push_str(part);
                }
                spm.encode(&self.vocab, &marked, &mut merger, tokens);
            }
        });
    }

    fn encode_bpe(&self, bpe: &Bpe, text: &str, control: bool, tokens: &mut Vec<u32>) {
        let mut scratch = bpe::Scratch::default();
        self.added.split(&self.vocab, text, control, |piece| match piece {
            Piece::Token(id) => tokens.push(id),
            Piece::Text(text) => bpe.encode(&self.vocab, text, &mut scratch, tokens),
        });
    }

    /// The text of some tokens, control tokens left out. Bytes that are no UTF-8 become U+FFFD; ids outside the
    /// vocabulary give nothing.
    pub fn decode(&self, tokens: &[u32]) -> String {
        decode(self.stream(), tokens)
    }

    /// As [`decode`](Tokenizer::decode), but control tokens are written out.
    pub fn decode_with_special(&self, tokens: &[u32]) -> String {
        decode(self.stream().with_special(true), tokens)
    }

    /// A decoder for tokens that come one at a time.
    pub fn stream(&self) -> Detokenizer<'_> {
        Detokenizer::new(self)
    }

    /// The bytes that a token stands for, which need not be whole characters: none for ids outside the vocabulary,
    /// and none for control tokens unless `special` asks for their names.
    pub fn token_bytes(&self, id: u32, special: bool) -> Cow<'_, [u8]> {
        let (Some(text), Some(kind)) = (self.vocab.text(id), self.vocab.kind(id)) else {
            return Cow::Borrowed(&[]);
        };
        let as_is = Cow::Borrowed(text.as_bytes());
        match (kind, &self.algorithm) {
            (TokenType::Control | TokenType::Unknown, _) => {
                if special {
                    as_is
                } else {
                    Cow::Borrowed(&[])
                }
            }
            (TokenType::UserDefined, _) => as_is,
            (TokenType::Byte, _) => Spm::byte_of(text).map_or(as_is, |byte| Cow::Owned(vec![byte])),
            (TokenType::Normal | TokenType::Unused, algorithm) => {
                if !matches!(algorithm, Algorithm::Bpe(bpe) if bpe.pre.spelling == Spelling::Bytes) {
                    let is_marked = text.contains(SPACE_MARK);
                    return if is_marked { text.replace(SPACE_MARK, " ").into_bytes().into() } else { as_is };
                }
                // A text with other characters than the alphabet's was not written in it.
                text.chars().map(alphabet::byte_of).collect::<Option<Vec<u8>>>().map_or(as_is, Cow::Owned)
            }
        }
    }

    /// Number of tokens; ids are 0 up to this.
    pub fn n_tokens(&self) -> usize {
        self.vocab.len()
    }

    /// The token as the vocabulary writes it (`Ġthe`, `▁the`), empty for ids outside the vocabulary.
    pub fn token(&self, id: u32) -> &str {
        self.vocab.text(id).unwrap_or_default()
    }

    /// The type of a token, `None` for ids outside the vocabulary.
    pub fn token_type(&self, id: u32) -> Option<TokenType> {
        self.vocab.kind(id)
    }

    /// The token that the vocabulary writes so.
    pub fn id(&self, text: &str) -> Option<u32> {
        self.vocab.id(text.as_bytes())
    }

    /// Begin of text.
    pub fn bos(&self) -> Option<u32> {
        self.special.bos
    }

    /// End of text.
    pub fn eos(&self) -> Option<u32> {
        self.special.eos
    }

    /// End of turn.
    pub fn eot(&self) -> Option<u32> {
        self.special.eot
    }

    /// Unknown.
    pub fn unk(&self) -> Option<u32> {
        self.special.unk
    }

    /// Padding.
    pub fn pad(&self) -> Option<u32> {
        self.special.pad
    }

    /// True for tokens that end a generation: end of text, of turn, of a message to a tool.
    pub fn is_eog(&self, id: u32) -> bool {
        self.special.eog.binary_search(&id).is_ok()
    }

    /// The tokens that end a generation, in order of their ids.
    pub fn eog(&self) -> &[u32] {
        &self.special.eog
    }

    /// Whether texts start with BOS.
    pub fn add_bos(&self) -> bool {
        self.add_bos
    }

    /// Whether texts end with EOS.
    pub fn add_eos(&self) -> bool {
        self.add_eos
    }

    /// Whether a space is put before texts, and taken off again when decoding.
    pub fn add_space_prefix(&self) -> bool {
        self.add_space_prefix
    }

    /// What kind of vocabulary this is.
    pub fn kind(&self) -> Kind {
        match self.algorithm {
            Algorithm::Spm(_) => Kind::Spm,
            Algorithm::Bpe(_) => Kind::Bpe,
            Algorithm::Wpm(_) => Kind::Wpm,
        }
    }

    /// The best known name of the pre-tokenizer; only BPE has one.
    pub fn pre_name(&self) -> Option<&'static str> {
        match &self.algorithm {
            Algorithm::Spm(_) | Algorithm::Wpm(_) => None,
            Algorithm::Bpe(bpe) => Some(bpe.pre.name()),
        }
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("kind", &self.kind())
            .field("pre", &self.pre_name())
            .field("n_tokens", &self.n_tokens())
            .finish_non_exhaustive()
    }
}

fn decode(mut stream: Detokenizer<'_>, tokens: &[u32]) -> String {
    let mut text = String::with_capacity(tokens.len() * 4);
    for &token in tokens {
        stream.push_to(token, &mut text);
    }
    text + &stream.flush()
}

fn kind(metadata: &Metadata) -> Result<Kind, Error> {
    match metadata.str(MODEL)?.ok_or(Error::MissingKey(MODEL))? {
        "llama" => Ok(Kind::Spm),
        "gpt2" | GEMMA4 => Ok(Kind::Bpe),
        "bert" => Ok(Kind::Wpm),
        other => Err(Error::UnknownModel { model: other.to_owned(), reason: why_refused(other) }),
    }
}

/// The pre-tokenizer of a BPE vocabulary.
fn pre_tokenizer(metadata: &Metadata) -> Result<&'static PreTokenizer, Error> {
    let is_gemma4 = metadata.str(MODEL)? == Some(GEMMA4);
    PreTokenizer::named(if is_gemma4 { GEMMA4 } else { metadata.str(PRE)?.unwrap_or("default") })
}

/// Why there is no tokenizer for a model that the format knows.
fn why_refused(model: &str) -> &'static str {
    match model {
        "t5" => {
            "Unigram vocabularies belong to encoder-decoders and embedding models, of which none is supported"
        }
        "rwkv" | "plamo2" => "it belongs to one family of recurrent models, which is not supported",
        "none" | "no_vocab" => "the file has no vocabulary",
        _ => "it is not known",
    }
}

/// The roles where no key gives them. Byte-level BPE has no customary ones.
fn default_special(kind: Kind, metadata: &Metadata) -> Result<SpecialTokens, Error> {
    let id = |key: &str, default: u32| -> Result<Option<u32>, Error> {
        Ok(metadata.i64(key)?.map_or(Some(default), |id| u32::try_from(id).ok()))
    };
    let (bos, eos, unk) = match kind {
        Kind::Spm => (Some(1), Some(2), Some(0)),
        Kind::Bpe => (None, None, None),
        // Begin and end have names of their own, the second misspelled in the format.
        Kind::Wpm => (
            id("tokenizer.ggml.cls_token_id", 101)?,
            id("tokenizer.ggml.seperator_token_id", 102)?,
            Some(100),
        ),
    };
    Ok(SpecialTokens { bos, eos, unk, eot: None, pad: None, eog: Vec::new() })
}

fn read_vocab(metadata: &Metadata) -> Result<Vocab, Error> {
    let tokens = metadata.strings(TOKENS)?.ok_or(Error::MissingKey(TOKENS))?;
    let types = metadata.i32s(TYPES)?;
    if let Some(types) = types {
        beside(TYPES, types.len(), tokens.len())?;
    }
    let types = types.iter().flat_map(|types| types.iter()).map(TokenType::from_id);
    Vocab::new(tokens.iter(), types)
}

/// Converters write user-defined tokens with spaces, but text has them marked when pieces are looked up.
fn alias_spaces(vocab: &mut Vocab) -> Result<(), Error> {
    let spaced = vocab.of_kind(|kind| kind == TokenType::UserDefined).filter(|(_, text)| text.contains(' '));
    let marked: Vec<(u32, String)> = spaced.map(|(id, text)| (id, text.replace(' ', SPACE_MARK))).collect();
    marked.into_iter().try_for_each(|(id, text)| vocab.alias(&text, id))
}

fn read_spm(metadata: &Metadata, vocab: &Vocab, unknown: Option<u32>) -> Result<Spm, Error> {
    let scores = metadata.f32s(SCORES)?;
    if let Some(scores) = scores {
        beside(SCORES, scores.len(), vocab.len())?;
    }
    Ok(Spm::new(vocab, scores.iter().flat_map(|scores| scores.iter()), unknown))
}

fn read_bpe(
    metadata: &Metadata,
    vocab: &Vocab,
    pre: &'static PreTokenizer,
    unknown: Option<u32>,
) -> Result<Bpe, Error> {
    let merges = metadata.strings(MERGES)?.ok_or(Error::MissingKey(MERGES))?;
    Bpe::new(vocab, pre, merges.iter(), unknown)
}

fn read_wpm(metadata: &Metadata, unknown: Option<u32>) -> Result<Wpm, Error> {
    let lowercase = metadata.bool("tokenizer.ggml.normalizer.lowercase")?.unwrap_or(true);
    let strip_accents = metadata.bool("tokenizer.ggml.normalizer.strip_accents")?.unwrap_or(lowercase);
    Ok(Wpm { unknown, lowercase, strip_accents })
}

fn beside(key: &'static str, found: usize, tokens: usize) -> Result<(), Error> {
    if found < tokens { Err(Error::ShortArray { key, found, tokens }) } else { Ok(()) }
}
