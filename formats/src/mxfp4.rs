//! MXFP4: 32 weights as 4-bit floats (E2M1) under a power of two (E8M0), the OCP microscaling format;
//! `w = 2^(e - 127) * q`.
//!
//! Layout (17 bytes): `e: u8`, then 16 bytes; byte `i` holds weight `i` in its low and `i + 16` in its high nibble.
//! Source: OCP Microscaling Formats (MX) Specification 1.0. Its NaN, `e = 255`, decodes as 2^128 would.

use crate::{BlockEncoder, BlockFormat, Format, QuantizedBlock, array, dot_i8, planes};

/// The MXFP4 block format.
#[derive(Debug)]
pub struct MXFP4;

/// The sixteen E2M1 numbers, doubled. Bit 3 is the sign; 8 is a negative zero, which decodes as zero.
pub static E2M1_DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Below this exponent a block counts as zero in a dot product: 2^-29 is the least [`half_scale`] whose product with the
/// least activation scale, 2^-90 / 127, is not subnormal.
pub const MIN_DOT_EXPONENT: u8 = 99;

/// The doubled quants of a block: -12..=12.
#[inline(always)]
pub fn quants(block: &[u8]) -> [i8; 32] {
    let mut q = [0; 32];
    planes::unpack::<4>(&block[1..17], 16, &mut q);
    array(|i| E2M1_DOUBLED[usize::from(q[i] as u8 & 15)])
}

/// Half of the block's scale, 2^(e - 128), which goes with the doubled quants; subnormal for `e < 2`.
#[inline(always)]
pub fn half_scale(e: u8) -> f32 {
    f32::from_bits(if e < 2 { 1 << (21 + e) } else { u32::from(e - 1) << 23 })
}

impl BlockFormat for MXFP4 {
    const FORMAT: Format = Format::MXFP4;
    const ENCODER: Option<BlockEncoder> = Some(encode);

    fn decode(block: &[u8], out: &mut [f32]) {
        let d = half_scale(block[0]);
        for (out, q) in out.iter_mut().zip(quants(block)) {
            *out = d * f32::from(q);
        }
    }

    #[inline(always)]
    fn block_value(block: &[u8], x: QuantizedBlock<'_>) -> f32 {
        dot_scale(block[0]) * dot_i8(&quants(block), x.quants) as f32
    }
}

/// [`half_scale`] as a dot product takes it: zero below [`MIN_DOT_EXPONENT`].
#[inline(always)]
pub fn dot_scale(e: u8) -> f32 {
    if e < MIN_DOT_EXPONENT { 0.0 } else { half_scale(e) }
}

/// The scale puts the largest magnitude into the topmost binade of E2M1, 4 to 6; each weight takes the nearest number,
/// the smaller one of two.
fn encode(src: &[f32], _: Option<&[f32]>, out: &mut [u8]) {
    let amax = src.iter().fold(0.0f32, |m, x| m.max(x.abs()));
    // The biased exponent of the maximum, less the 2 of E2M1's own; the exponent field of a subnormal is 0.
    let e = ((amax.to_bits() >> 23) as u8).saturating_sub(2);
    let d = half_scale(e);
    let mut q = [0; 32];
    for (q, &x) in q.iter_mut().zip(src) {
        *q = nearest_e2m1(x, d);
    }
    out[0] = e;
    planes::pack::<4>(&q, 16, &mut out[1..17]);
}

/// The code whose doubled number times `d` is nearest to `x`.
fn nearest_e2m1(x: f32, d: f32) -> u8 {
    let error = |code: u8| (d * f32::from(E2M1_DOUBLED[usize::from(code)]) - x).abs();
    (1..16).fold(0, |best, code| if error(code) < error(best) { code } else { best })
}
