//! Logits of generated models, made by Hugging Face transformers in single precision (`tools/reference/make.py`).

use crate::shapes::Shape;

/// What a generated model with `F32` weights and an `F32` cache has to give.
#[derive(Clone, Debug)]
pub struct Reference {
    /// The model.
    pub shape: &'static Shape,
    /// One sequence, from position 0.
    pub tokens: Vec<u32>,
    /// How many of the tokens the reference took in one go; the rest came one by one, over its cache.
    pub n_prompt: usize,
    /// The entries of the vocabulary whose logits are kept.
    pub columns: Vec<usize>,
    /// The token of the greatest logit behind each token, of the whole vocabulary.
    pub argmax: Vec<u32>,
    /// For each token its logits at `columns`.
    pub logits: Vec<Vec<f32>>,
}

/// What the logits are allowed to differ by, as [`Reference::error`] measures it.
pub const TOLERANCE: f64 = 1e-4;

const MAGIC: &[u8] = b"LLAMAYR1";

/// Every file, by name.
const FILES: &[(&str, &[u8])] = include!("../tests/reference/files.rs");

/// All references: for every generated model that has one, the logits that it has to give.
///
/// # Panics
/// If a checked-in file is damaged or missing.
pub fn references() -> Vec<Reference> {
    Shape::all().iter().filter_map(Reference::of).collect()
}

impl Reference {
    /// The reference of a generated model, if it has one.
    ///
    /// # Panics
    /// As [`references`].
    pub fn of(shape: &'static Shape) -> Option<Reference> {
        let name = shape.reference()?;
        let bytes = FILES.iter().find(|(n, _)| *n == name).map(|(_, bytes)| *bytes);
        Some(
            bytes.and_then(|b| parse(shape, b)).unwrap_or_else(|| panic!("{name}.bin is damaged or missing")),
        )
    }

    /// How far the logits of the tokens from `first` on are from the reference: the greatest difference, as a share of
    /// the greatest reference logit of those tokens. Infinite if a logit is not finite or the lengths do not match.
    ///
    /// `logits` holds a row of [`N_VOCAB`](crate::shapes::N_VOCAB) for each of these tokens, row after row.
    pub fn error(&self, first: usize, logits: &[f32]) -> f64 {
        let n_vocab = crate::shapes::N_VOCAB;
        let rows = logits.chunks(n_vocab);
        if !logits.len().is_multiple_of(n_vocab) || first + rows.len() > self.logits.len() {
            return f64::INFINITY;
        }
        let (mut apart, mut greatest) = (0.0f64, 0.0f64);
        for (row, reference) in rows.zip(&self.logits[first..]) {
            for (column, reference) in self.columns.iter().zip(reference) {
                let (x, reference) = (f64::from(row[*column]), f64::from(*reference));
                if !x.is_finite() {
                    return f64::INFINITY;
                }
                apart = apart.max((x - reference).abs());
                greatest = greatest.max(reference.abs());
            }
        }
        apart / greatest
    }
}

/// Reads a file as `make.py` describes it.
fn parse(shape: &'static Shape, bytes: &[u8]) -> Option<Reference> {
    let mut words =
        bytes.strip_prefix(MAGIC)?.chunks_exact(4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]]));
    let (n_tokens, n_prompt, n_columns) =
        (words.next()? as usize, words.next()? as usize, words.next()? as usize);
    let mut take = |n: usize| (0..n).map(|_| words.next()).collect::<Option<Vec<u32>>>();
    let reference = Reference {
        shape,
        tokens: take(n_tokens)?,
        n_prompt,
        columns: take(n_columns)?.into_iter().map(|c| c as usize).collect(),
        argmax: take(n_tokens)?,
        logits: (0..n_tokens)
            .map(|_| Some(take(n_columns)?.into_iter().map(f32::from_bits).collect()))
            .collect::<Option<_>>()?,
    };
    words.next().is_none().then_some(reference)
}
