//! Text to tokens and back, as a GGUF file's vocabulary says.
//!
//! Three kinds of vocabulary are read: SentencePiece's ([`Kind::Spm`]), BPE ([`Kind::Bpe`]) with the pre-tokenizers
//! that `tokenizer.ggml.pre` names, and WordPiece ([`Kind::Wpm`]). Tokens are those of Hugging Face's `tokenizers` for
//! the same model.
//! Time is O(n log n) in the length of the text, whatever the text.
//!
//! ```no_run
//! use llamay_gguf::Gguf;
//! use llamay_tokenizer::{EncodeOptions, Tokenizer};
//!
//! let tokenizer = Tokenizer::from_gguf(&Gguf::open("model.gguf")?)?;
//! let tokens = tokenizer.encode("Hello, world", EncodeOptions { add_special: true, ..Default::default() });
//! let mut stream = tokenizer.stream();
//! for token in tokens {
//!     print!("{}", stream.push(token));
//! }
//! println!("{}", stream.flush());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod added;
mod alphabet;
mod bpe;
mod detokenize;
mod error;
mod merge;
mod pretokenize;
mod special;
mod spm;
pub mod template;
mod tokenizer;
mod vocab;
mod wpm;

pub use detokenize::Detokenizer;
pub use error::Error;
pub use tokenizer::{EncodeOptions, Kind, Tokenizer};
pub use vocab::TokenType;
