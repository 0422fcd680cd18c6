//! Q4_1: 32 weights of 4 bits, a half-precision scale and minimum; `w = d * q + m`.
//!
//! Layout (20 bytes): `d: f16`, `m: f16`, then 16 bytes; byte `i` holds weight `i` in its low and `i + 16` in its high
//! nibble.

use crate::{
    BlockEncoder, BlockFormat, Format, QuantizedBlock, dot_i8, encode::min_max, f16_at, planes, put_f16,
};

/// The Q4_1 block format.
#[derive(Debug)]
pub struct Q4_1;

/// The quants of a block: 0..=15.
#[inline(always)]
pub fn quants(block: &[u8]) -> [i8; 32] {
    let mut q = [0; 32];
    planes::unpack::<4>(&block[4..20], 16, &mut q);
    q
}

impl BlockFormat for Q4_1 {
    const FORMAT: Format = Format::Q4_1;
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
    let d = (max - min) / 15.0;
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    let mut q = [0; 32];
    for (q, x) in q.iter_mut().zip(src) {
        *q = (((x - min) * inverse + 0.5) as u8).min(15);
    }
    put_f16(out, 0, d);
    put_f16(out, 2, min);
    planes::pack::<4>(&q, 16, &mut out[4..20]);
}
