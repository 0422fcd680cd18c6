//! GGUF, the container of quantised language models: reader and writer.
//!
//! ```text
//! "GGUF"  version:u32  n_tensors:u64  n_keys:u64
//! n_keys    × { key:string  type:u32  value }
//! n_tensors × { name:string  n_dims:u32  dims:u64[n_dims]  type:u32  offset:u64 }
//! padding to `general.alignment`
//! tensor data, each tensor at its offset from here
//! ```
//!
//! A string is a `u64` length and that many UTF-8 bytes. The magic is the same four bytes in every file; all other
//! numbers are in the file's byte order, which the version field gives away. Source: the format's specification,
//! `docs/gguf.md` in the ggml repository.
//!
//! [`Gguf::open`] maps a file, checks every length, offset and count in it, and keeps views into the map: neither
//! tensor data nor a vocabulary is copied. [`Writer`] makes files, whole or streamed tensor by tensor.
//!
//! ```
//! use llamay_formats::Format;
//! use llamay_gguf::{Gguf, Writer};
//!
//! let mut writer = Writer::default();
//! writer.set("general.architecture", "llama").set("llama.block_count", 2u32);
//! writer.tensor("output_norm.weight", &[3], Format::F32, vec![0; 12]);
//!
//! let model = Gguf::from_bytes(writer.to_vec()?)?;
//! assert_eq!(model.metadata().need_u32("llama.block_count")?, 2);
//! let norm = model.tensor("output_norm.weight").unwrap();
//! assert_eq!(model.data(norm)?.len(), 12);
//! # Ok::<(), llamay_gguf::Error>(())
//! ```

mod array;
mod byteswap;
mod cursor;
mod encode;
mod endian;
mod error;
mod file;
mod from_value;
mod metadata;
mod part;
mod readahead;
mod sniff;
mod source;
mod split;
mod tensor;
mod value;
mod writer;

pub use array::{Array, Iter, StrArray, TypedArray};
pub use encode::{Element, Encode, Encoder};
pub use endian::Endian;
pub use error::Error;
pub use file::Gguf;
pub use from_value::FromValue;
pub use metadata::Metadata;
pub use split::part_name;
pub use tensor::{TensorInfo, TensorType};
pub use value::{Value, ValueType};
pub use writer::{Body, Writer};

/// The alignment of tensor data in a file that has no `general.alignment`.
pub const DEFAULT_ALIGNMENT: u64 = 32;

/// Most dimensions a tensor may have.
pub const MAX_DIMS: usize = 4;

/// Most levels of arrays within arrays.
pub const MAX_DEPTH: usize = 8;

/// Most keys, tensors, and strings or arrays in one array: some ten times what any model has. Each takes memory of its
/// own when a file is opened, and a sparse file can claim any number of them.
pub const MAX_ITEMS: usize = 1 << 24;

const MAGIC: [u8; 4] = *b"GGUF";
