//! Q5_1: 32 weights of 5 bits, a half-precision scale and minimum; `w = d * q + m`.
//!
//! Layout (24 bytes): `d: f16`, `m: f16`, then the fifth bits and the nibbles as in Q5_0.

use crate::{
    BlockEncoder, BlockFormat, Format, QuantizedBlock, dot_i8, encode::min_max, f16_at, put_f16, q5_0,
};

/// The Q5_1 block format.
#[derive(Debug)]
pub struct Q5_1;

/// The quants of a block: 0..=31.
#[inline(always)]
pub fn quants(block: &[u8]) -> [i8; 32] {
    q5_0::join(&block[4..8], &block[8..24])
}

impl BlockFormat for Q5_1 {
    const FORMAT: Format = Format::Q5_1;
    const ENCODER: Option<BlockEncoder> = Some(encode);

    fn decode(block: &[u8], out: &mut [f32]) {
        let (d, m) = (f16_at(block, 0), f16_at(block, 2));
        for (out, q) in out.iter_mut().zip(quants(block)) {
            *out = d * f32::from(q) + m;
        }
    }

    #[inline(always)]
    fn block_value(block: &[u8], x: QuantizedBlock<'_>) -> f32 {
        let (d, m) = (f16_at(block, 0), f16_at(block, 2));
        d.mul_add(dot_i8(&quants(block), x.quants) as f32, m * x.sum() as f32)
    }
}

fn encode(src: &[f32], _: Option<&[f32]>, out: &mut [u8]) {
    let (min, max) = min_max(src);
    let d = (max - min) / 31.0;
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    let mut q = [0; 32];
    for (q, x) in q.iter_mut().zip(src) {
        *q = (((x - min) * inverse + 0.5) as u8).min(31);
    }
    put_f16(out, 0, d);
    put_f16(out, 2, min);
    let (high, low) = out[4..24].split_at_mut(4);
    q5_0::split(&q, high, low);
}
