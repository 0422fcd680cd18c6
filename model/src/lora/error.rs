//! Why an adapter is refused, said in one sentence each.

/// Why an adapter cannot be read or does not fit a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoraError {
    /// A metadata key is absent or of another type, or a tensor's type is unknown.
    #[error(transparent)]
    Gguf(#[from] llamay_gguf::Error),

    /// The file is something else.
    #[error(
        "the file is no adapter: the metadata key \"general.type\" {}, but it has to be \"adapter\"",
        found.as_ref().map_or("is missing".to_owned(), |found| format!("is {found:?}"))
    )]
    NoAdapter {
        /// `general.type` of the file.
        found: Option<String>,
    },

    /// An adapter of another kind.
    #[error("adapters of the type {found:?} are not supported; only \"lora\" is")]
    Kind {
        /// `adapter.type` of the file.
        found: String,
    },

    /// An adapter that is to work from certain tokens on.
    #[error(
        "an activated LoRA (aLoRA), which is to work only behind its invocation tokens, is not supported: the file has the \
         metadata key \"adapter.alora.invocation_tokens\""
    )]
    Activated,

    /// An alpha that is no number.
    #[error("the metadata key \"adapter.lora.alpha\" is {alpha}, but it has to be finite")]
    Alpha {
        /// The value.
        alpha: f32,
    },

    /// A file without pairs.
    #[error("the adapter has no tensors")]
    Empty,

    /// A tensor that is neither half of a pair.
    #[error(
        "the adapter's tensor {name:?} is neither a \".lora_a\" nor a \".lora_b\", so it is not known what it changes"
    )]
    Foreign {
        /// The tensor.
        name: String,
    },

    /// A pair with one half.
    #[error("the adapter has {other:?} but no {name:?}")]
    Half {
        /// The tensor that is missing.
        name: String,
        /// The one that is there.
        other: String,
    },

    /// Two halves that cannot be multiplied.
    #[error(
        "the adapter's {a:?} and {b:?} have the shapes {dims_a:?} and {dims_b:?} (row length first), which have no rank in \
         common"
    )]
    Ranks {
        /// The first half.
        a: String,
        /// Its dimensions, row length first.
        dims_a: [usize; 2],
        /// The second half.
        b: String,
        /// Its dimensions, row length first.
        dims_b: [usize; 2],
    },

    /// An adapter for other models.
    #[error("the adapter is for the architecture {adapter:?}, and the model is a {model:?}")]
    Architecture {
        /// The adapter's architecture.
        adapter: String,
        /// The model's.
        model: String,
    },

    /// An adapter of a tensor that the model does not have.
    #[error(
        "the adapter changes the tensor {tensor:?}, which the model does not have; it was made for another model"
    )]
    Unknown {
        /// The tensor.
        tensor: String,
    },

    /// A half that does not fit the model's tensor.
    #[error(
        "the adapter's tensor {name:?} has the shape {found:?}, but {expected:?} is needed (row length first), since the \
         model's {tensor:?} is {model:?}"
    )]
    Shape {
        /// The half.
        name: String,
        /// Its dimensions, row length first.
        found: [usize; 2],
        /// The dimensions that fit.
        expected: [usize; 2],
        /// The model's tensor.
        tensor: String,
        /// Its dimensions.
        model: [usize; 2],
    },

    /// An adapter of experts.
    #[error(
        "the adapter changes {tensor:?}, a matrix of experts: products that depend on the chosen expert have no adapter \
         steps here"
    )]
    Experts {
        /// The tensor.
        tensor: String,
    },

    /// An adapter of an embedding that is also the output matrix.
    #[error(
        "the adapter changes {tensor:?}, which in this model is the output matrix too: whether it is to change the logits \
         as well is not said"
    )]
    Tied {
        /// The tensor.
        tensor: String,
    },

    /// An adapter of something that is no matrix in a product.
    #[error("the adapter changes {tensor:?}, which is not a matrix that the model multiplies by")]
    NoMatrix {
        /// The tensor.
        tensor: String,
    },

    /// A scale that is no number, or makes one.
    #[error("the adapter's scale {scale} with alpha {alpha} and rank {rank} is no finite factor")]
    Scale {
        /// The user's scale.
        scale: f32,
        /// The adapter's alpha.
        alpha: f32,
        /// The rank of the pair.
        rank: usize,
    },

    /// More different ranks than there are names for slots.
    #[error("the adapters have too many different ranks and widths")]
    TooMany,
}
