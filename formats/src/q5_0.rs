//! Q5_0: 32 weights of 5 bits and one half-precision scale; `w = d * (q - 16)`.
//!
//! Layout (22 bytes): `d: f16`, the fifth bits as `u32` (bit `i` for weight `i`), then 16 bytes; byte `i` holds the low
//! four bits of weight `i` in its low and of `i + 16` in its high nibble.

use crate::{
    BlockEncoder, BlockFormat, Format, QuantizedBlock, array, dot_i8, encode::signed_max, f16_at, planes,
    put_f16,
};

/// The Q5_0 block format.
#[derive(Debug)]
pub struct Q5_0;

/// Joins the fifth bits (4 bytes) and the nibbles (16 bytes) of 32 quants: 0..=31. Q5_1 shares it.
#[inline(always)]
pub fn join(high: &[u8], low: &[u8]) -> [i8; 32] {
    let (mut q, mut bits) = ([0; 32], [0; 32]);
    planes::unpack::<4>(low, 16, &mut q);
    planes::unpack::<1>(high, 1, &mut bits);
    for (q, bit) in q.iter_mut().zip(bits) {
        *q |= bit << 4;
    }
    q
}

/// The inverse of [`join`].
pub(crate) fn split(q: &[u8; 32], high: &mut [u8], low: &mut [u8]) {
    planes::pack::<4>(q, 16, low);
    planes::pack::<1>(&q.map(|q| q >> 4), 1, high);
}

/// The quants of a block, offset removed: -16..=15.
#[inline(always)]
pub fn quants(block: &[u8]) -> [i8; 32] {
    let q = join(&block[2..6], &block[6..22]);
    array(|i| q[i] - 16)
}

impl BlockFormat for Q5_0 {
    const FORMAT: Format = Format::Q5_0;
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

/// The weight of largest magnitude becomes -16, whichever its sign.
fn encode(src: &[f32], _: Option<&[f32]>, out: &mut [u8]) {
    let d = signed_max(src) / -16.0;
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    let mut q = [0; 32];
    for (q, x) in q.iter_mut().zip(src) {
        *q = ((x * inverse + 16.5) as u8).min(31);
    }
    put_f16(out, 0, d);
    let (high, low) = out[2..22].split_at_mut(4);
    split(&q, high, low);
}
