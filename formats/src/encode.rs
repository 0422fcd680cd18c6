//! Encoding whole rows: what can go wrong, and the walk over blocks.

use crate::{BlockFormat, Format, plain::PlainFormat};

/// Why weights could not be encoded.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The format can be read but not written.
    #[error("{0} has no encoder")]
    Unsupported(Format),
    /// A weight is NaN or infinite.
    #[error("weight {index} is {value}, which no format can hold")]
    NotFinite {
        /// Position in the source.
        index: usize,
        /// The weight.
        value: f32,
    },
    /// A weight, or the scale that it leads to, is beyond the format's range.
    #[error("weight {index} is {value}, which is too large for {format}")]
    TooLarge {
        /// Position in the source.
        index: usize,
        /// The weight.
        value: f32,
        /// The format asked for.
        format: Format,
    },
}

/// Magnitudes below this never overflow a format's half-precision scale or minimum.
const SAFE_MAGNITUDE: f32 = 32768.0;

/// Index and value of the largest magnitude.
fn largest(src: &[f32]) -> (usize, f32) {
    src.iter().copied().enumerate().fold((0, 0.0f32), |a, b| if b.1.abs() > a.1.abs() { b } else { a })
}

fn check_finite(src: &[f32]) -> Result<(), EncodeError> {
    match src.iter().position(|v| !v.is_finite()) {
        Some(index) => Err(EncodeError::NotFinite { index, value: src[index] }),
        None => Ok(()),
    }
}

/// Encodes whole blocks; `importance` covers a row and is taken anew for each.
pub(crate) fn encode_blocks<F: BlockFormat>(
    src: &[f32],
    importance: Option<&[f32]>,
    out: &mut [u8],
) -> Result<(), EncodeError> {
    let encoder = F::ENCODER.ok_or(EncodeError::Unsupported(F::FORMAT))?;
    check_finite(src)?;
    let mut decoded = vec![0.0; F::BLOCK_LEN];
    for (i, (src, out)) in
        src.chunks_exact(F::BLOCK_LEN).zip(out.chunks_exact_mut(F::BLOCK_BYTES)).enumerate()
    {
        let at = i * F::BLOCK_LEN;
        let importance = importance.map(|row| {
            let start = at % row.len();
            &row[start..start + F::BLOCK_LEN]
        });
        encoder(src, importance, out);
        let (index, value) = largest(src);
        if value.abs() >= SAFE_MAGNITUDE {
            F::decode(out, &mut decoded);
            if decoded.iter().any(|w| !w.is_finite()) {
                return Err(EncodeError::TooLarge { index: at + index, value, format: F::FORMAT });
            }
        }
    }
    Ok(())
}

/// Encodes elements one by one.
pub(crate) fn encode_plain<P: PlainFormat>(src: &[f32], out: &mut [u8]) -> Result<(), EncodeError> {
    let encoder = P::ENCODER.ok_or(EncodeError::Unsupported(P::FORMAT))?;
    check_finite(src)?;
    for (index, (&value, out)) in src.iter().zip(out.chunks_exact_mut(P::BYTES)).enumerate() {
        encoder(value, out);
        if !P::to_f32(out).is_finite() {
            return Err(EncodeError::TooLarge { index, value, format: P::FORMAT });
        }
    }
    Ok(())
}

/// The number of largest magnitude, with its sign; the first of several.
pub(crate) fn signed_max(src: &[f32]) -> f32 {
    largest(src).1
}

/// The smallest and the largest number.
pub(crate) fn min_max(src: &[f32]) -> (f32, f32) {
    src.iter()
        .fold((src[0], src[0]), |(lo, hi), &v| (if v < lo { v } else { lo }, if v > hi { v } else { hi }))
}
