//! IQ4_XS: 256 weights from the table of IQ4_NL; each 32 have a 6-bit scale; `w = d * (scale - 32) * IQ4_VALUES[q]`.
//!
//! Layout (136 bytes): `d: f16`; `u16` with the upper two bits of the eight scales, lowest first; 4 bytes with their
//! lower four bits, low nibble first; 128 bytes of codes, in planes of 16.

use crate::iq4_nl::{best_scale, error_weights, nearest_codes, quants};
use crate::{
    BlockEncoder, BlockFormat, Codes, Format, QuantizedBlock, array, f16_at, planes, put_f16, u16_at,
};

/// The IQ4_XS block format.
#[derive(Debug)]
pub struct IQ4_XS;

/// The signed scales of a block's runs of 32 weights.
#[inline(always)]
pub fn unpack_scales(block: &[u8]) -> [i8; 8] {
    let high = u16_at(block, 2);
    array(|sub| {
        let low = block[4 + sub / 2] >> (4 * (sub % 2)) & 15;
        let high = (high >> (2 * sub) & 3) as u8;
        (low | high << 4) as i8 - 32
    })
}

/// The integers of a block.
#[inline(always)]
pub fn unpack(block: &[u8]) -> Codes {
    let mut codes = Codes::new(f16_at(block, 0));
    for (sub, scale) in unpack_scales(block).into_iter().enumerate() {
        codes.set_scale_32(sub, scale);
    }
    codes.quants = quants(&block[8..136]);
    codes
}

impl BlockFormat for IQ4_XS {
    const FORMAT: Format = Format::IQ4_XS;
    const ENCODER: Option<BlockEncoder> = Some(encode);

    fn decode(block: &[u8], out: &mut [f32]) {
        unpack(block).decode(out);
    }

    #[inline(always)]
    fn block_value(block: &[u8], x: QuantizedBlock<'_>) -> f32 {
        unpack(block).value(x)
    }
}

/// Fits a scale to each 32 weights, rounds these to multiples of `d`, the largest to -32 of them, then picks the codes.
fn encode(src: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    let mut weights = [0.0; 256];
    error_weights(src, importance, &mut weights);
    let mut scales = [0.0; 8];
    for (scale, (src, weights)) in scales.iter_mut().zip(src.chunks_exact(32).zip(weights.chunks_exact(32))) {
        *scale = best_scale(src, weights);
    }
    put_f16(out, 0, crate::encode::signed_max(&scales) / -32.0);
    let d = f16_at(out, 0);
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    let mut high = 0;
    out[4..8].fill(0);
    for (sub, (src, scale)) in src.chunks_exact(32).zip(scales).enumerate() {
        let multiple = (scale * inverse).round_ties_even().clamp(-32.0, 31.0);
        planes::pack::<4>(&nearest_codes(src, d * multiple), 16, &mut out[8 + 16 * sub..24 + 16 * sub]);
        let stored = (multiple as i8 + 32) as u8;
        out[4 + sub / 2] |= (stored & 15) << (4 * (sub % 2));
        high |= u16::from(stored >> 4) << (2 * sub);
    }
    out[2..4].copy_from_slice(&high.to_le_bytes());
}
