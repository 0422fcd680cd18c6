//! Why a file is refused, said in one sentence each.

/// Why no plan could be made of a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A metadata key is absent or of another type, or a tensor's type is unknown.
    #[error(transparent)]
    Gguf(#[from] llamay_gguf::Error),

    /// Nobody has written this architecture yet.
    #[error("the architecture {} is not supported; supported are {}", Quoted(name), supported())]
    UnknownArchitecture {
        /// `general.architecture` of the file.
        name: String,
    },

    /// The architecture belongs to a family that llamay has no steps for.
    #[error("the architecture {name:?} is not supported: {why}")]
    Family {
        /// `general.architecture` of the file.
        name: String,
        /// What about the family is missing.
        why: &'static str,
    },

    /// The file asks for something that its architecture allows but that is not supported.
    #[error("there is no support for {what}: the metadata key {key:?} is {value}")]
    Feature {
        /// The feature, such as `YaRN rope scaling`.
        what: &'static str,
        /// The key that asks for it.
        key: String,
        /// Its value.
        value: String,
    },

    /// A metadata key has a value that makes no sense.
    #[error("the metadata key {key:?} is {value}, but {wanted}")]
    Value {
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// What would be right: `it has to be …`.
        wanted: String,
    },

    /// The file lacks a tensor.
    #[error("the model has no tensor {name:?}")]
    MissingTensor {
        /// The tensor.
        name: String,
    },

    /// A tensor has another shape than the metadata say.
    #[error("the tensor {name:?} has the shape {found:?}, but {expected:?} is needed (row length first)")]
    Shape {
        /// The tensor.
        name: String,
        /// Its dimensions, row length first.
        found: Vec<u64>,
        /// The dimensions that follow from the metadata.
        expected: Vec<u64>,
    },

    /// A tensor that is read at load holds something that makes no sense.
    #[error("the tensor {name:?} holds {value} at {index}, but a positive number is needed")]
    Content {
        /// The tensor.
        name: String,
        /// Index of the element.
        index: usize,
        /// The element.
        value: f32,
    },

    /// A layer has a tensor that the architecture does not know: running without it would give wrong results.
    #[error(
        "the tensor {} is no part of {architecture} as known here, so the model cannot be run correctly",
        Quoted(name)
    )]
    ForeignTensor {
        /// The tensor.
        name: String,
        /// `general.architecture` of the file.
        architecture: String,
    },
}

/// A string from a file, in quotes, escaped, and cut if it is long.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

impl std::fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const MOST: usize = 80;
        let head: String = self.0.chars().take(MOST).collect();
        write!(f, "{head:?}{}", if head.len() < self.0.len() { "…" } else { "" })
    }
}

fn supported() -> String {
    crate::architectures().collect::<Vec<_>>().join(", ")
}
