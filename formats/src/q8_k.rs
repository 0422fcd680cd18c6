//! Q8_K: 256 signed bytes, a single-precision scale and sums of 16; `w = d * q`.
//!
//! Layout (292 bytes): `d: f32`, 256 `i8`, then 16 `i16`, each the sum of 16 quants. The sums serve dot products in
//! which this block is the activation; here they are written and never read.

use crate::{BlockEncoder, BlockFormat, Format, QuantizedBlock, dot_i8, encode::signed_max, round_even};

/// The Q8_K block format.
#[derive(Debug)]
pub struct Q8_K;

/// The scale of a block.
#[inline(always)]
pub fn scale(block: &[u8]) -> f32 {
    f32::from_le_bytes([block[0], block[1], block[2], block[3]])
}

/// The quants of a block: -128..=127.
#[inline(always)]
pub fn quants(block: &[u8]) -> [i8; 256] {
    std::array::from_fn(|i| block[4 + i] as i8)
}

impl BlockFormat for Q8_K {
    const FORMAT: Format = Format::Q8_K;
    const ENCODER: Option<BlockEncoder> = Some(encode);

    fn decode(block: &[u8], out: &mut [f32]) {
        let d = scale(block);
        for (out, q) in out.iter_mut().zip(quants(block)) {
            *out = d * f32::from(q);
        }
    }

    fn block_value(block: &[u8], x: QuantizedBlock<'_>) -> f32 {
        scale(block) * dot_i8(&quants(block), x.quants) as f32
    }
}

/// The weight of largest magnitude becomes -127, whichever its sign.
fn encode(src: &[f32], _: Option<&[f32]>, out: &mut [u8]) {
    let d = signed_max(src) / -127.0;
    out[..4].copy_from_slice(&d.to_le_bytes());
    let (quants, sums) = out[4..].split_at_mut(256);
    for (q, x) in quants.iter_mut().zip(src) {
        *q = if d == 0.0 { 0 } else { round_even(x / d) as i8 as u8 };
    }
    for (sum, quants) in sums.chunks_exact_mut(2).zip(quants.chunks_exact(16)) {
        let total: i16 = quants.iter().map(|&q| i16::from(q as i8)).sum();
        sum.copy_from_slice(&total.to_le_bytes());
    }
}
