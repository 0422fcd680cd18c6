//! Tiny generated models: each architecture in each of its variants, small enough for every test, with seeded weights.
//!
//! Which there are is data: `tools/reference/make.py` writes `shapes.json` from Hugging Face configurations, with the
//! keys and tensors of our converter. A shape becomes a whole GGUF file in any format that its widths allow, vocabulary
//! included, so that one file serves the tests of every crate. With `F32` weights, a shape that names a
//! [reference](Shape::reference) has to reproduce its logits.

mod adapter;
mod encode;
mod table;
mod vocabulary;
mod weights;

use std::collections::BTreeSet;

use llamay_formats::{EncodeError, Format};
use llamay_gguf::Writer;

use table::Key;

pub use adapter::lora_adapter;
pub use table::Shape;
pub use vocabulary::N_VOCAB;

/// Why a generated model could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// The format's blocks do not fit a row.
    #[error("{shape}: {tensor} has rows of {cols}, which are no whole {format} blocks")]
    Width {
        /// The shape.
        shape: &'static str,
        /// The tensor.
        tensor: String,
        /// Its row length.
        cols: usize,
        /// The format asked for.
        format: Format,
    },
    /// A tensor could not be encoded.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The file could not be written.
    #[error(transparent)]
    Gguf(#[from] llamay_gguf::Error),
}

impl Shape {
    /// Every generated model.
    pub fn all() -> &'static [Shape] {
        table::shapes()
    }

    /// The generated model of this name.
    pub fn named(name: &str) -> Option<&'static Shape> {
        Shape::all().iter().find(|s| s.name() == name)
    }

    /// The formats that all matrices can have: those of real numbers whose blocks fit every row.
    pub fn formats(&self) -> impl Iterator<Item = Format> + '_ {
        let cols: BTreeSet<usize> =
            self.tensors().filter(|(name, t)| is_matrix(name, t.dims())).map(|(_, t)| t.dims()[0]).collect();
        Format::ALL.iter().copied().filter(move |f| {
            !matches!(f, Format::I8 | Format::I16 | Format::I32 | Format::I64)
                && cols.iter().all(|cols| f.row_bytes(*cols).is_some())
        })
    }

    /// The file with every matrix in `format`; what real files keep in `F32` stays so: norms, biases, routers, sinks.
    ///
    /// # Errors
    /// [`ShapeError::Width`] if `format` is not one of [`Shape::formats`].
    pub fn gguf(&self, format: Format) -> Result<Vec<u8>, ShapeError> {
        self.gguf_with(|_| format)
    }

    /// The file with each matrix in the format that `choose` gives for its name.
    ///
    /// # Errors
    /// [`ShapeError::Width`] if a format does not fit its matrix.
    pub fn gguf_with(&self, choose: impl Fn(&str) -> Format) -> Result<Vec<u8>, ShapeError> {
        let mut writer = Writer::default();
        writer.set("general.architecture", self.architecture()).set("general.name", self.name());
        for (key, value) in self.keys() {
            set(&mut writer, key, value);
        }
        vocabulary::write(self.vocabulary(), &mut writer);
        for (name, tensor) in self.tensors() {
            let dims: Vec<u64> = tensor.dims().iter().map(|d| *d as u64).collect();
            let values = weights::weight(&name, tensor);
            let format = if is_matrix(&name, tensor.dims()) { choose(&name) } else { Format::F32 };
            let cols = tensor.dims()[0];
            let Some(data) = encode::encode(&name, format, cols, &values)? else {
                return Err(ShapeError::Width { shape: self.name(), tensor: name, cols, format });
            };
            writer.tensor(&name, &dims, format, data);
        }
        for (name, values) in self.constants() {
            writer.tensor_f32(name, &[values.len() as u64], values);
        }
        Ok(writer.to_vec()?)
    }
}

/// Whether a tensor takes the format asked for: those that are multiplied, but for the routers of experts, which are
/// small and decide much.
fn is_matrix(name: &str, dims: &[usize]) -> bool {
    dims.len() > 1
        && name.ends_with(".weight")
        && !name.ends_with("_norm.weight")
        && !name.ends_with("ffn_gate_inp.weight")
}

fn set(writer: &mut Writer, key: &str, value: &Key) {
    match value {
        Key::Bool(v) => writer.set(key, *v),
        Key::U32(v) => writer.set(key, *v),
        Key::I32(v) => writer.set(key, *v),
        Key::F32(v) => writer.set(key, *v),
        Key::Str(v) => writer.set(key, *v),
        Key::Bools(v) => writer.set(key, v.clone()),
        Key::U32s(v) => writer.set(key, v.clone()),
        Key::I32s(v) => writer.set(key, v.clone()),
        Key::F32s(v) => writer.set(key, v.clone()),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_real_files_keep_in_single_precision_is_no_matrix() {
        for (name, dims) in [
            ("blk.0.attn_norm.weight", &[256][..]),
            ("blk.0.attn_q_norm.weight", &[64, 4]),
            ("blk.0.ffn_down_exps.bias", &[256, 8]),
            ("blk.0.ffn_gate_inp.weight", &[256, 8]),
            ("blk.0.ffn_gate_inp_shexp.weight", &[256]),
            ("blk.0.attn_sinks.weight", &[8]),
        ] {
            assert!(!is_matrix(name, dims), "{name}");
        }
        for (name, dims) in [
            ("blk.0.ffn_gate_exps.weight", &[256, 256, 8][..]),
            ("position_embd.weight", &[256, 128]),
            ("output.weight", &[256, 320]),
        ] {
            assert!(is_matrix(name, dims), "{name}");
        }
    }
}
