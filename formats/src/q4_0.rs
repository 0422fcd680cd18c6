//! Q4_0: 32 weights of 4 bits and one half-precision scale; `w = d * (q - 8)`.
//!
//! Layout (18 bytes): `d: f16`, then 16 bytes; byte `i` holds weight `i` in its low and `i + 16` in its high nibble.

use crate::{
    BlockEncoder, BlockFormat, Format, QuantizedBlock, array, dot_i8, encode::signed_max, f16_at, planes,
    put_f16,
};

/// The Q4_0 block format.
#[derive(Debug)]
pub struct Q4_0;

/// The quants of a block, offset removed: -8..=7.
#[inline(always)]
pub fn quants(block: &[u8]) -> [i8; 32] {
    let mut q = [0; 32];
    planes::unpack::<4>(&block[2..18], 16, &mut q);
    array(|i| q[i] - 8)
}

impl BlockFormat for Q4_0 {
    const FORMAT: Format = Format::Q4_0;
    const ENCODER: Option<BlockEncoder> = Some(encode);

    fn decode(block: &[u8], out: &mut [f32]) {
        let d = f16_at(block, 0);
        for (out, q) in out.iter_mut().zip(quants(block)) {
            *out = d * f32::from(q);
        }
    }

    #[inline(always)]
    fn block_value(block: &[u8], x: QuantizedBlock<'_>) -> f32 {
        f16_at(block, 0) * dot_i8(&quants(block), x.quants) as f32
    }
}

/// The weight of largest magnitude becomes -8, whichever its sign, since only that side has a ninth step.
fn encode(src: &[f32], _: Option<&[f32]>, out: &mut [u8]) {
    let d = signed_max(src) / -8.0;
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    let mut q = [0; 32];
    for (q, x) in q.iter_mut().zip(src) {
        *q = ((x * inverse + 8.5) as u8).min(15);
    }
    put_f16(out, 0, d);
    planes::pack::<4>(&q, 16, &mut out[2..18]);
}
