//! What can go wrong, each in one sentence.

use std::path::PathBuf;

use llamay_plan::{ExecError, Unplaced};

/// An error of the engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file is no readable GGUF file.
    #[error(transparent)]
    Gguf(#[from] llamay_gguf::Error),
    /// The model in the file cannot be run.
    #[error(transparent)]
    Model(#[from] llamay_model::ModelError),
    /// An adapter cannot be used.
    #[error("{name}: {source}")]
    Adapter {
        /// Its file.
        name: String,
        /// Why.
        source: Box<llamay_model::lora::LoraError>,
    },
    /// The vocabulary cannot be used.
    #[error(transparent)]
    Tokenizer(#[from] llamay_tokenizer::Error),
    /// The chat template cannot be used.
    #[error(transparent)]
    Template(#[from] llamay_tokenizer::template::TemplateError),
    /// A draft model has other tokens than the model.
    #[error(
        "the draft model has another vocabulary: its token {token} is {draft:?}, and the model's is {model:?}"
    )]
    DraftVocabulary {
        /// The first token that differs.
        token: usize,
        /// Its text in the draft model.
        draft: String,
        /// Its text in the model.
        model: String,
    },
    /// A step of a draft model failed.
    #[error("draft model: {0}")]
    Draft(Box<Error>),
    /// No device runs a step.
    #[error(transparent)]
    Placement(#[from] Unplaced),
    /// Loading or running failed.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// Sampling failed.
    #[error(transparent)]
    Sampling(#[from] crate::sampling::SampleError),
    /// A sampling parameter is out of its range.
    #[error(transparent)]
    Params(#[from] crate::sampling::ParamError),
    /// A token that the vocabulary does not have.
    #[error("token {token} is not in the vocabulary of {n_vocab} tokens")]
    Token {
        /// The token.
        token: u32,
        /// Entries of the vocabulary.
        n_vocab: usize,
    },
    /// The tokens do not fit the context.
    #[error("{needed} tokens do not fit the context of {limit}; use a larger one (-c) or a shorter prompt")]
    ContextFull {
        /// Positions that would be in use.
        needed: usize,
        /// Positions there are.
        limit: usize,
    },
    /// The model has no chat template.
    #[error("the model has no chat template; use --raw to complete text without one")]
    NoTemplate,
    /// A prompt without tokens.
    #[error("the prompt has no tokens; give some text")]
    EmptyPrompt,
    /// Weights and cache need more memory than there is.
    #[error(
        "the model needs {} MiB ({} MiB weights, {} MiB cache for {context} positions), {}and {} MiB are free; use a \
         smaller context (-c) or model{}",
        weights.saturating_add(*cache) >> 20, weights >> 20, cache >> 20, beside(*reserved), free >> 20,
        or_stream(cache.saturating_add(*reserved), *free)
    )]
    Memory {
        /// Bytes of the weights in memory.
        weights: u64,
        /// Bytes of the cache for one full session.
        cache: u64,
        /// Positions of that session.
        context: usize,
        /// Bytes of [`crate::Options::reserved`].
        reserved: u64,
        /// Bytes that the system can give.
        free: u64,
    },
    /// A device that was asked for by name cannot be had.
    #[error("{name} cannot be used: {why}")]
    Device {
        /// The name.
        name: String,
        /// What was tried, and the answer.
        why: String,
    },
    /// The layers that are to run on a device do not fit into its memory.
    #[error(
        "{layers} layers on {device} need {} MiB, and {} MiB are free; use fewer (--gpu-layers), or leave the option out",
        needs >> 20, free >> 20
    )]
    DeviceMemory {
        /// The device.
        device: String,
        /// The layers that were asked for.
        layers: u32,
        /// Bytes of their weights and cache.
        needs: u64,
        /// Bytes that the device can give.
        free: u64,
    },
    /// An environment variable with an unknown value.
    #[error("{name}={value} is not known; use one of: {wanted}")]
    Variable {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// What would be right.
        wanted: String,
    },
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Something that was asked for cannot be done, in a whole sentence.
    #[error("{0}")]
    Unfit(String),
}

/// What else helps where the cache alone would fit.
fn or_stream(cache: u64, free: u64) -> &'static str {
    if cache < free { ", or --no-repack, which reads weights from the file as they are used" } else { "" }
}

/// What else needs memory, in a sentence.
fn beside(reserved: u64) -> String {
    if reserved == 0 { String::new() } else { format!("a draft model beside it {} MiB, ", reserved >> 20) }
}

impl Error {
    /// An error of the adapter of this name.
    pub(crate) fn adapter(name: &str, source: llamay_model::lora::LoraError) -> Error {
        Error::Adapter { name: name.to_owned(), source: Box::new(source) }
    }
}
