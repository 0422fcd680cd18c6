//! Every GGUF block format: layout, decoding, encoding and the reference dot product.
//!
//! One file a format. All bytes are little-endian, on every host.

mod activation;
mod dot;
mod format;
mod q4_0;

pub use activation::{MIN_AMAX, QuantizedBlock, QuantizedRow, SUM_LEN, block_scale, round_even};
pub use dot::{SPANS, dot_blocks, dot_floats, span_len, tree8};
pub use format::{Activation, Format};

/// One block format: what a file of this crate implements.
pub trait BlockFormat {
    /// Which format this is.
    const FORMAT: Format;
    /// Elements in one block.
    const BLOCK_LEN: usize;
    /// Bytes of one block.
    const BLOCK_BYTES: usize;

    /// Decodes one block of [`Self::BLOCK_BYTES`] into [`Self::BLOCK_LEN`] weights.
    fn decode(block: &[u8], out: &mut [f32]);

    /// The block's dot product with `x`, before the activation's scale: one exact integer sum times the weight scale,
    /// plus, for formats with a minimum, the exact sum that goes with it:
    /// `d * isum`, or `fma(d, isum, m * msum)`.
    fn block_value(block: &[u8], x: QuantizedBlock<'_>) -> f32;
}

/// The half-precision number at byte `at`.
#[inline(always)]
fn f16_at(bytes: &[u8], at: usize) -> f32 {
    half::f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}
