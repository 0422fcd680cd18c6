//! Tiny generated models: each architecture in each of its variants, small enough for every test, with seeded weights.
//!
//! A shape becomes a whole GGUF file in any format that its widths allow, vocabulary included, so that one file serves
//! the tests of every crate. With `F32` weights, shapes of the same name as a file of `model/tests/reference` have to
//! reproduce its logits.

mod encode;
mod list;
mod vocabulary;
mod weights;

use llamay_formats::{EncodeError, Format};
use llamay_gguf::Writer;

pub use vocabulary::N_VOCAB;

/// Positions that generated models claim to be trained for.
pub const N_CTX_TRAIN: u32 = 512;

/// A generated model.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    name: &'static str,
    architecture: &'static str,
    n_embd: usize,
    n_layer: u32,
    n_head: usize,
    n_head_kv: usize,
    head_dim: usize,
    n_ff: usize,
    eps: f32,
    rope_base: f32,
    tied: bool,
    biases: bool,
    llama3_rope: Option<Llama3Rope>,
    vocabulary: VocabularyKind,
    extra: &'static [(&'static str, Extra)],
}

/// Parameters of Llama 3.1's rope scaling, of which files hold the result.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Llama3Rope {
    factor: f64,
    low: f64,
    high: f64,
    n_ctx_original: f64,
}

/// A key that only some shapes have, without its architecture.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Extra {
    U32(u32),
    F32(f32),
    Str(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VocabularyKind {
    /// Byte-level BPE, as GPT-2 and Llama 3, with a chat template.
    Bpe,
    /// SentencePiece, as Llama 2 and Gemma, without one.
    Spm,
}

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
        list::SHAPES
    }

    /// The generated model of this name.
    pub fn named(name: &str) -> Option<&'static Shape> {
        Shape::all().iter().find(|s| s.name == name)
    }

    /// The name, such as `llama-gqa`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// `general.architecture` of the file.
    pub fn architecture(&self) -> &'static str {
        self.architecture
    }

    /// The formats that all matrices can have: those of real numbers whose blocks fit every row.
    pub fn formats(&self) -> impl Iterator<Item = Format> + '_ {
        Format::ALL.iter().copied().filter(|f| {
            !matches!(f, Format::I8 | Format::I16 | Format::I32 | Format::I64)
                && self.matrix_cols().iter().all(|cols| f.row_bytes(*cols).is_some())
        })
    }

    /// The file with every matrix in `format`; vectors stay `F32`, as in real files.
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
        self.write_keys(&mut writer);
        vocabulary::write(self.vocabulary, &mut writer);
        for (name, dims) in self.matrices() {
            let (format, [cols, rows]) = (choose(&name), dims);
            let values = weights::weight(&name, rows * cols);
            let Some(data) = encode::encode(&name, format, cols, &values)? else {
                return Err(ShapeError::Width { shape: self.name, tensor: name, cols, format });
            };
            writer.tensor(&name, &[cols as u64, rows as u64], format, data);
        }
        for (name, len) in self.vectors() {
            writer.tensor_f32(&name, &[len as u64], &weights::weight(&name, len));
        }
        if let Some(scaling) = self.llama3_rope {
            let divisors = scaling.divisors(f64::from(self.rope_base), self.head_dim);
            writer.tensor_f32("rope_freqs.weight", &[divisors.len() as u64], &divisors);
        }
        Ok(writer.to_vec()?)
    }

    fn write_keys(&self, writer: &mut Writer) {
        let key = |key: &str| format!("{}.{key}", self.architecture);
        writer
            .set("general.architecture", self.architecture)
            .set("general.name", self.name)
            .set(&key("block_count"), self.n_layer)
            .set(&key("context_length"), N_CTX_TRAIN)
            .set(&key("embedding_length"), self.n_embd as u32)
            .set(&key("feed_forward_length"), self.n_ff as u32)
            .set(&key("attention.head_count"), self.n_head as u32)
            .set(&key("attention.head_count_kv"), self.n_head_kv as u32)
            .set(&key("attention.layer_norm_rms_epsilon"), self.eps)
            .set(&key("rope.freq_base"), self.rope_base)
            .set(&key("vocab_size"), N_VOCAB as u32);
        if self.head_dim * self.n_head != self.n_embd {
            writer
                .set(&key("attention.key_length"), self.head_dim as u32)
                .set(&key("attention.value_length"), self.head_dim as u32);
        }
        for (name, value) in self.extra {
            match *value {
                Extra::U32(v) => writer.set(&key(name), v),
                Extra::F32(v) => writer.set(&key(name), v),
                Extra::Str(v) => writer.set(&key(name), v),
            };
        }
    }

    /// Row lengths of the matrices.
    fn matrix_cols(&self) -> [usize; 3] {
        [self.n_embd, self.n_head * self.head_dim, self.n_ff]
    }

    /// Names, row lengths and rows of the layers' matrices.
    fn layer_matrices(&self, layer: u32) -> impl Iterator<Item = (String, [usize; 2])> {
        let (n_embd, n_ff) = (self.n_embd, self.n_ff);
        let (n_q, n_kv) = (self.n_head * self.head_dim, self.n_head_kv * self.head_dim);
        [
            ("attn_q", [n_embd, n_q]),
            ("attn_k", [n_embd, n_kv]),
            ("attn_v", [n_embd, n_kv]),
            ("attn_output", [n_q, n_embd]),
            ("ffn_gate", [n_embd, n_ff]),
            ("ffn_up", [n_embd, n_ff]),
            ("ffn_down", [n_ff, n_embd]),
        ]
        .into_iter()
        .map(move |(stem, dims)| (format!("blk.{layer}.{stem}"), dims))
    }

    fn matrices(&self) -> Vec<(String, [usize; 2])> {
        let mut matrices = vec![("token_embd.weight".to_owned(), [self.n_embd, N_VOCAB])];
        if !self.tied {
            matrices.push(("output.weight".to_owned(), [self.n_embd, N_VOCAB]));
        }
        for layer in 0..self.n_layer {
            matrices.extend(self.layer_matrices(layer).map(|(stem, dims)| (format!("{stem}.weight"), dims)));
        }
        matrices
    }

    fn vectors(&self) -> Vec<(String, usize)> {
        let mut vectors = vec![("output_norm.weight".to_owned(), self.n_embd)];
        let norms: &[(&str, usize)] = match self.architecture {
            "gemma3" => &[
                ("attn_norm", self.n_embd),
                ("attn_q_norm", self.head_dim),
                ("attn_k_norm", self.head_dim),
                ("post_attention_norm", self.n_embd),
                ("ffn_norm", self.n_embd),
                ("post_ffw_norm", self.n_embd),
            ],
            _ => &[("attn_norm", self.n_embd), ("ffn_norm", self.n_embd)],
        };
        for layer in 0..self.n_layer {
            vectors.extend(norms.iter().map(|(stem, len)| (format!("blk.{layer}.{stem}.weight"), *len)));
            if self.biases {
                vectors.extend(
                    self.layer_matrices(layer).map(|(stem, [_, rows])| (format!("{stem}.bias"), rows)),
                );
            }
        }
        vectors
    }
}

impl Llama3Rope {
    /// By what the frequency of each pair is divided: long wavelengths by `factor`, short ones by 1, with a ramp between.
    ///
    /// Source: the configuration of Llama 3.1, whose `rope_scaling` names the parameters.
    fn divisors(self, base: f64, head_dim: usize) -> Vec<f32> {
        (0..head_dim / 2)
            .map(|i| {
                let frequency = libm::pow(base, -2.0 * i as f64 / head_dim as f64);
                let wavelength = 2.0 * std::f64::consts::PI / frequency;
                let turns = self.n_ctx_original / wavelength;
                if turns > self.high {
                    1.0
                } else if turns < self.low {
                    self.factor as f32
                } else {
                    let smooth = (turns - self.low) / (self.high - self.low);
                    (1.0 / ((1.0 - smooth) / self.factor + smooth)) as f32
                }
            })
            .collect()
    }
}
