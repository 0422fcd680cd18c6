//! Q8_0: 32 signed bytes and one half-precision scale; `w = d * q`.
//!
//! Layout (34 bytes): `d: f16`, then 32 `i8`.

use crate::{
    BlockEncoder, BlockFormat, Format, QuantizedBlock, array, dot_i8, encode::signed_max, f16_at, put_f16,
};

/// The Q8_0 block format.
#[derive(Debug)]
pub struct Q8_0;

/// The quants of a block: -128..=127.
#[inline(always)]
pub fn quants(block: &[u8]) -> [i8; 32] {
    let bytes = &block[2..34];
    array(|i| bytes[i] as i8)
}

impl BlockFormat for Q8_0 {
    const FORMAT: Format = Format::Q8_0;
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

/// Rounds to nearest, ties away from zero, as the format's reference does.
fn encode(src: &[f32], _: Option<&[f32]>, out: &mut [u8]) {
    let d = signed_max(src).abs() / 127.0;
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    put_f16(out, 0, d);
    for (out, x) in out[2..].iter_mut().zip(src) {
        *out = (x * inverse).round() as i8 as u8;
    }
}
