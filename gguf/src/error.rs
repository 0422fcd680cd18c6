//! What can be wrong with a file, said in one sentence each.

use std::path::{Path, PathBuf};

use crate::ValueType;

/// Why a GGUF file could not be read, written, or used as asked.
///
/// Every message is a whole sentence that names the file; a model made in memory is called `(memory)`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused, or the path is no regular file.
    #[error("{}: {what}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was being done.
        what: &'static str,
        /// What the system said.
        error: std::io::Error,
    },

    /// The file is something else.
    #[error("{}: not a GGUF file: {looks_like}", path.display())]
    NotGguf {
        /// The file.
        path: PathBuf,
        /// What the first bytes look like, and what to do about it.
        looks_like: String,
    },

    /// A GGUF file of a version that is not read or written here.
    #[error("{}: GGUF version {version} is not supported{}", path.display(), version_hint(*version))]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version field.
        version: u32,
    },

    /// A field says something that cannot be.
    #[error("{}: {field} (byte {offset}): {problem}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The field, such as `tensor 3 "blk.0.attn_q.weight": offset`.
        field: String,
        /// Where in the file the field starts.
        offset: u64,
        /// What is wrong with it.
        problem: String,
    },

    /// The parts of a split model do not make a whole.
    #[error("{}: {problem}", path.display())]
    Split {
        /// The part that was being read.
        path: PathBuf,
        /// What is wrong, such as which parts are missing.
        problem: String,
    },

    /// A required metadata key is absent.
    #[error("{}: the metadata has no \"{key}\"", path.display())]
    MissingKey {
        /// The file.
        path: PathBuf,
        /// The key asked for.
        key: String,
    },

    /// A metadata key has a value of another type than asked for.
    #[error("{}: the metadata key \"{key}\" is {found}, but {wanted} is needed", path.display())]
    WrongType {
        /// The file.
        path: PathBuf,
        /// The key asked for.
        key: String,
        /// What it holds.
        found: String,
        /// What it ought to hold.
        wanted: &'static str,
    },

    /// A tensor was used whose type has no known layout. Having such tensors does not make a file unreadable.
    #[error("tensor \"{tensor}\" has type {id}{}, which is not supported", crate::tensor::retired(*id))]
    UnknownTensorType {
        /// The tensor's name.
        tensor: String,
        /// The number of the type in the file.
        id: u32,
    },

    /// [`Writer`](crate::Writer) was given something that does not make a valid file.
    #[error("cannot write the GGUF file: {0}")]
    Write(String),
}

impl Error {
    pub(crate) fn io(path: &Path, what: &'static str, error: std::io::Error) -> Error {
        Error::Io { path: path.to_owned(), what, error }
    }

    pub(crate) fn wrong_type(path: &Path, key: &str, found: String, wanted: &'static str) -> Error {
        Error::WrongType { path: path.to_owned(), key: key.to_owned(), found, wanted }
    }
}

fn version_hint(version: u32) -> &'static str {
    match version {
        1 => " (it was replaced in 2023; convert the model again to get version 3)",
        _ => " (2 and 3 are)",
    }
}

/// An article and the name of a value type, for messages.
pub(crate) fn article(kind: ValueType) -> &'static str {
    match kind {
        ValueType::U8 => "a u8",
        ValueType::I8 => "an i8",
        ValueType::U16 => "a u16",
        ValueType::I16 => "an i16",
        ValueType::U32 => "a u32",
        ValueType::I32 => "an i32",
        ValueType::F32 => "an f32",
        ValueType::Bool => "a bool",
        ValueType::Str => "a string",
        ValueType::Array => "an array",
        ValueType::U64 => "a u64",
        ValueType::I64 => "an i64",
        ValueType::F64 => "an f64",
    }
}
