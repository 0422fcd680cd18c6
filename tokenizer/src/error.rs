//! What can be wrong with a vocabulary.

/// Why a GGUF file gives no tokenizer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The container itself: a key of the wrong type, for instance.
    #[error(transparent)]
    Gguf(#[from] llamay_gguf::Error),
    /// A key without which there is no tokenizer.
    #[error("the file has no {0}, so text cannot be turned into tokens")]
    MissingKey(&'static str),
    /// `tokenizer.ggml.model` names an algorithm that is not built.
    #[error(
        "tokenizer.ggml.model is {model:?}, which is not supported (llama, gpt2, gemma4 and bert are): {reason}"
    )]
    UnknownModel {
        /// The value found.
        model: String,
        /// Why it is not built.
        reason: &'static str,
    },
    /// `tokenizer.ggml.pre` names a way to split text into words that is not known.
    #[error("tokenizer.ggml.pre is {pre:?}, which is not supported (supported: {})", .known.join(", "))]
    UnknownPre {
        /// The value found.
        pre: String,
        /// Every name that is supported.
        known: Vec<&'static str>,
    },
    /// `tokenizer.ggml.pre` names a way to split text into words that is known, but not built.
    #[error("tokenizer.ggml.pre is {pre:?}, which is not supported: {reason}")]
    RefusedPre {
        /// The value found.
        pre: String,
        /// Why it is not built.
        reason: &'static str,
    },
    /// An array that runs beside the token list is shorter than it.
    #[error("{key} has {found} entries for {tokens} tokens")]
    ShortArray {
        /// The array's key.
        key: &'static str,
        /// Its length.
        found: usize,
        /// The number of tokens.
        tokens: usize,
    },
    /// A token list too long for 32-bit ids and offsets.
    #[error("tokenizer.ggml.tokens is too large: {tokens} tokens, {bytes} bytes of text")]
    TooLarge {
        /// The number of tokens.
        tokens: usize,
        /// The length of all their texts together.
        bytes: usize,
    },
    /// A merge rule that is not "left right", or names text that is no token.
    #[error("tokenizer.ggml.merges[{index}] is {rule:?}: {reason}")]
    BadMerge {
        /// The rule's place in the array.
        index: usize,
        /// The rule, cut to a printable length.
        rule: String,
        /// What is wrong with it.
        reason: &'static str,
    },
}
